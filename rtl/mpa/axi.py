"""The data path with AXI4-Stream and AXI4-Lite ports, for use in other designs."""

from functools import reduce
from operator import or_
from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.mpa.length import LengthFifo, check_measure
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["AxiLiteBridge", "AxiMpaDatapath", "connect_datapath", "datapath_ports"]

ADDRESS_BITS = 10
OKAY, SLVERR = 0, 2


def axi_stream(prefix: str, lanes: int, user: int, flow, back) -> dict:
    """The ports of an AXI4-Stream of packets, with ``user`` bits of ``tuser``."""
    ports = {"tdata": 32 * lanes, "tkeep": 4 * lanes, "tlast": 1, "tuser": user, "tvalid": 1}
    forth = {f"{prefix}_{name}": flow(width) for name, width in ports.items() if width}
    return {**forth, f"{prefix}_tready": back(1)}


AXI_LITE = {
    "s_axil_awaddr": In(ADDRESS_BITS), "s_axil_awprot": In(3), "s_axil_awvalid": In(1), "s_axil_awready": Out(1),
    "s_axil_wdata": In(32), "s_axil_wstrb": In(4), "s_axil_wvalid": In(1), "s_axil_wready": Out(1),
    "s_axil_bresp": Out(2), "s_axil_bvalid": Out(1), "s_axil_bready": In(1),
    "s_axil_araddr": In(ADDRESS_BITS), "s_axil_arprot": In(3), "s_axil_arvalid": In(1), "s_axil_arready": Out(1),
    "s_axil_rdata": Out(32), "s_axil_rresp": Out(2), "s_axil_rvalid": Out(1), "s_axil_rready": In(1),
}  # fmt: skip


class AxiLiteBridge(wiring.Component):
    """A bridge from AXI4-Lite to a register bus.

    The bridge performs one access at a time. If a read and a write are pending, the write is first. The 2 least
    significant bits of an address are ignored. Addresses without a register read as zero. A write that does not set all
    bits of ``wstrb`` is answered with SLVERR and has no effect.

    Members
    -------
    s_axil_*
        An AXI4-Lite subordinate with 32-bit data.
    bus : Out, :class:`.RegisterBus`
        Accesses to the registers.
    """

    def __init__(self):
        super().__init__({**AXI_LITE, "bus": Out(RegisterBus())})

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.s_axil_awvalid & self.s_axil_wvalid):
                    m.d.comb += [self.s_axil_awready.eq(1), self.s_axil_wready.eq(1)]
                    m.d.sync += [
                        bus.address.eq(self.s_axil_awaddr[2:]),
                        bus.write_data.eq(self.s_axil_wdata),
                        bus.write.eq(1),
                    ]
                    with m.If(self.s_axil_wstrb.all()):
                        m.d.sync += [bus.request.eq(1), self.s_axil_bresp.eq(OKAY)]
                        m.next = "Access"
                    with m.Else():
                        m.d.sync += self.s_axil_bresp.eq(SLVERR)
                        m.next = "WriteResponse"
                with m.Elif(self.s_axil_arvalid):
                    m.d.comb += self.s_axil_arready.eq(1)
                    m.d.sync += [bus.address.eq(self.s_axil_araddr[2:]), bus.write.eq(0), bus.request.eq(1)]
                    m.next = "Access"
            with m.State("Access"):
                with m.If(bus.ack):
                    m.d.sync += [bus.request.eq(0), self.s_axil_rdata.eq(bus.read_data)]
                    with m.If(bus.write):
                        m.next = "WriteResponse"
                    with m.Else():
                        m.next = "ReadResponse"
            with m.State("WriteResponse"):
                m.d.comb += self.s_axil_bvalid.eq(1)
                with m.If(self.s_axil_bready):
                    m.next = "Idle"
            with m.State("ReadResponse"):
                m.d.comb += self.s_axil_rvalid.eq(1)
                with m.If(self.s_axil_rready):
                    m.next = "Idle"
        return m


def _stream_of(ports, prefix: str) -> SimpleNamespace:
    """Return the signals of the AXI4-Stream ``prefix``, by their names without it."""
    names = "tdata", "tkeep", "tlast", "tvalid", "tready"
    return SimpleNamespace(**{name: getattr(ports, f"{prefix}_{name}") for name in names})


def take_packets(m: Module, ports, prefix: str, packets) -> None:
    """Connect the stream ``packets`` to the AXI4-Stream ``prefix`` of the component ``ports``, its source."""
    axi = _stream_of(ports, prefix)
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


def give_packets(m: Module, ports, prefix: str, packets) -> None:
    """Connect the stream ``packets`` to the AXI4-Stream ``prefix`` of the component ``ports``, its sink."""
    axi, beat = _stream_of(ports, prefix), packets.payload
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
        **axi_stream("s_axis_ulpdu", lanes, 0 if measure else 16, In, Out),
        **axi_stream("m_axis_mpa", lanes, 0, Out, In),
        **axi_stream("s_axis_mpa", lanes, 0, In, Out),
        **axi_stream("m_axis_ulpdu", lanes, 2, Out, In),
        **AXI_LITE,
    }


def connect_datapath(m: Module, ports, path, measure: int) -> None:
    """Connect the data path ``path`` to those ports of the component ``ports`` that :func:`datapath_ports` returns."""
    m.submodules.registers = bridge = AxiLiteBridge()
    wiring.connect(m, bridge.bus, path.bus)
    expose(m, bridge, ports, AXI_LITE)
    if measure:
        lengths = LengthFifo(path.lanes, measure)
        m.submodules.lengths = ResetInserter(path.reset)(lengths)
        take_packets(m, ports, "s_axis_ulpdu", lengths.i)
        wiring.connect(m, lengths.o, path.tx_ulpdu)
    else:
        take_packets(m, ports, "s_axis_ulpdu", path.tx_ulpdu)
        m.d.comb += path.tx_ulpdu.payload.length.eq(ports.s_axis_ulpdu_tuser)
    give_packets(m, ports, "m_axis_mpa", path.tx_mpa)
    take_packets(m, ports, "s_axis_mpa", path.rx_mpa)
    with m.If(~ports.s_axis_mpa_tkeep.all()):
        m.d.comb += path.rx_mpa.payload.last.eq(1)
    give_packets(m, ports, "m_axis_ulpdu", path.rx_ulpdu)
    m.d.comb += ports.m_axis_ulpdu_tuser.eq(path.rx_ulpdu.payload.verdict)


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
    s_axis_ulpdu_*
        From the host: stream-mode packets and ULPDUs. ``tuser`` (16 bits), valid on the first beat, is the length of
        the packet in octets.
    m_axis_mpa_*
        To the peer: stream-mode packets, then one packet for each FPDU.
    s_axis_mpa_*
        From the peer: the octets of the stream, divided in any way. On this port, any beat may be short.
    m_axis_ulpdu_*
        To the host. ``tuser`` (2 bits), valid on the last beat, is the verdict: 0 good, 1 octets of stream mode, 2 CRC,
        3 FPDUPTR.
    s_axil_*
        Access to the registers.
    irq : Out, 1 bit
        At least one event is pending.

    """

    def __init__(self, lanes: int = 4, *, measure: int = 0, **options: int):
        ports = datapath_ports(lanes, measure)
        self.measure = measure
        self.datapath = MpaDatapath(lanes, **options)
        self.lanes = lanes
        super().__init__({
            **ports,
            "irq": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.datapath = path = self.datapath
        m.d.comb += self.irq.eq(path.irq)
        connect_datapath(m, self, path, self.measure)
        return m
