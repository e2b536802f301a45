"""The data path with AXI4-Stream and AXI4-Lite ports, for use in other designs."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.buses import AxiLite, AxiStream
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.mpa.length import LengthFifo, check_measure
from open_rnic.rtl.registers.axi_lite import AxiLiteBridge

__all__ = ["AxiMpaDatapath", "connect_datapath", "datapath_ports"]

ADDRESS_BITS = 10  # of octets: a page


def take_packets(m: Module, axi, packets) -> None:
    """Connect the stream ``packets`` to its source, an AXI4-Stream."""
    keep, width = axi.tkeep, len(axi.tkeep)
    # ends[n - 1]: the last bit set in tkeep is bit n - 1. As tkeep has no gaps, at most one of these is true.
    ends = [keep[n - 1] & (~keep[n] if n < width else 1) for n in range(1, width + 1)]
    octets = reduce(or_, (Mux(end, n, 0) for n, end in enumerate(ends, 1)))
    m.d.comb += [
        packets.payload.data.eq(axi.tdata),
        packets.payload.octets.eq(octets),
        packets.payload.last.eq(axi.tlast),
        packets.valid.eq(axi.tvalid),
        axi.tready.eq(packets.ready),
    ]


def give_packets(m: Module, packets, axi) -> None:
    """Connect the stream ``packets`` to its sink, an AXI4-Stream."""
    beat = packets.payload
    m.d.comb += [
        axi.tdata.eq(beat.data),
        axi.tkeep.eq(Cat(~beat.last | (n < beat.octets) for n in range(len(axi.tkeep)))),
        axi.tlast.eq(beat.last),
        axi.tvalid.eq(packets.valid),
        packets.ready.eq(axi.tready),
    ]


def datapath_ports(lanes: int, measure: int) -> dict[str, wiring.Member]:
    """The ports of a data path, but its interrupts: see :class:`AxiMpaDatapath`; raises ValueError for ``measure``."""
    if measure:
        check_measure(measure)
    return {
        "s_axis_ulpdu": In(AxiStream(32 * lanes, user=0 if measure else 16)),
        "m_axis_mpa": Out(AxiStream(32 * lanes)),
        "s_axis_mpa": In(AxiStream(32 * lanes)),
        "m_axis_ulpdu": Out(AxiStream(32 * lanes, user=2)),
        "s_axil": In(AxiLite(ADDRESS_BITS)),
    }


def connect_datapath(m: Module, ports, path, measure: int) -> None:
    """Connect the data path ``path`` to those ports of the component ``ports`` that :func:`datapath_ports` returns."""
    m.submodules.registers = bridge = AxiLiteBridge(ADDRESS_BITS)
    wiring.connect(m, bridge.bus, path.bus)
    expose(m, bridge, ports, ["s_axil"])
    if measure:
        lengths = LengthFifo(path.lanes, measure)
        m.submodules.lengths = ResetInserter(path.reset)(lengths)
        take_packets(m, ports.s_axis_ulpdu, lengths.i)
        wiring.connect(m, lengths.o, path.tx_ulpdu)
    else:
        take_packets(m, ports.s_axis_ulpdu, path.tx_ulpdu)
        m.d.comb += path.tx_ulpdu.payload.length.eq(ports.s_axis_ulpdu.tuser)
    give_packets(m, path.tx_mpa, ports.m_axis_mpa)
    take_packets(m, ports.s_axis_mpa, path.rx_mpa)
    with m.If(~ports.s_axis_mpa.tkeep.all()):
        m.d.comb += path.rx_mpa.payload.last.eq(1)
    give_packets(m, path.rx_ulpdu, ports.m_axis_ulpdu)
    m.d.comb += ports.m_axis_ulpdu.tuser.eq(path.rx_ulpdu.payload.verdict)


class AxiMpaDatapath(wiring.Component):
    """:class:`.MpaDatapath` with AXI4-Stream and AXI4-Lite ports, ``clk``, and a synchronous ``rst``.

    Bits 7:0 of ``tdata`` are octet 0. All bits of ``tkeep`` are set, except on the last beat of a packet: there, they
    are set for the valid octets, which begin at octet 0 and have no gaps. A single beat with ``tlast`` and no bit of
    ``tkeep`` is an empty packet.

    Parameters
    ----------
    lanes, event_depth, store_and_forward
        See :class:`.MpaDatapath`.
    measure : size in octets of a :class:`.LengthFifo` for packets from the host, whose port then has no ``tuser``;
        0: no such queue

    Members
    -------
    s_axis_ulpdu : In, :class:`.AxiStream`
        From the host: stream-mode packets and ULPDUs. ``tuser`` (16 bits), valid on the first beat, is the length of
        the packet in octets.
    m_axis_mpa : Out, :class:`.AxiStream`
        To the peer: stream-mode packets, then one packet for each FPDU.
    s_axis_mpa : In, :class:`.AxiStream`
        From the peer: the octets of the stream, divided in any way. On this port, any beat may be short.
    m_axis_ulpdu : Out, :class:`.AxiStream`
        To the host. ``tuser`` (2 bits), valid on the last beat, is the verdict: 0 good, 1 octets of stream mode, 2 CRC,
        3 FPDUPTR.
    s_axil : In, :class:`.AxiLite`
        Access to the registers.
    irq : Out, 1 bit
        At least one event is pending.

    """

    def __init__(self, lanes: int = 4, *, measure: int = 0, **options: int):
        super().__init__({**datapath_ports(lanes, measure), "irq": Out(1)})
        self.lanes = lanes
        self.measure = measure
        self.datapath = MpaDatapath(lanes, **options)

    def elaborate(self, platform):
        m = Module()
        m.submodules.datapath = path = self.datapath
        m.d.comb += self.irq.eq(path.irq)
        connect_datapath(m, self, path, self.measure)
        return m
