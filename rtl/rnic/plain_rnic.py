"""A whole RNIC for use in other designs: memory and registers on buses, Ethernet, samples and work on AXI4-Stream."""

from fractions import Fraction

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_bus import MemoryBus
from open_rnic.rtl.lib.buses import AxiLite, AxiStream
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.mac.octet_streams import OctetStreams
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.registers import LinkSource
from open_rnic.rtl.memory.litedram_memory import LiteDramMemory
from open_rnic.rtl.rdma.axi_memory import AxiMemory
from open_rnic.rtl.rdma.fabric import Fabric
from open_rnic.rtl.rdma.wishbone_memory import WishboneMemory
from open_rnic.rtl.rdma.work_port import Work
from open_rnic.rtl.registers.axi_lite import AxiLiteBridge
from open_rnic.rtl.rnic.whole_rnic import WholeRnic
from open_rnic.rtl.tcp.config import Station
from open_rnic.rtl.tcp.send_ring import ROOM

__all__ = ["MOST_MEMORY", "REGISTER_BITS", "PlainRnic"]

MOST_MEMORY = 1 << 30  # octets

_MANAGERS = {
    MemoryBus.AXI4: (AxiMemory, "m_axi"), MemoryBus.WISHBONE: (WishboneMemory, "wb"),
    MemoryBus.LITEDRAM: (LiteDramMemory, "dram"),
}  # fmt: skip
REGISTER_BITS = 18  # of the address of an octet: 256 pages of 1 KiB
_STREAMS = {"samples": 32, "work": Work.as_shape().size}  # of the fabric: bits of a beat
_MDIO = "phy_reset", "mdc", "mdio_o", "mdio_oe", "mdio_i"


class PlainRnic(wiring.Component):
    """A :class:`.WholeRnic` with plain ports, ``clk``, and a synchronous ``rst``. A host uses it over UDP, or a UART.

    Parameters
    ----------
    clock_hz : frequency of ``clk``
    connections : 1, or a power of 2 up to 64
    ring : octets of each of a connection's two rings for TCP, a power of 2 from 2048, which hold a full frame, to 65536
    memory : octets of the memory, a power of 2 from 128 on; addresses are below
    memory_bus : how it is reached
    memory_bits : width of a word at LiteDRAM's ports, a power of 2 from 32 to 512; buses have words of 32 bits
    fabric : the logic beside the engine
    registers : whether they are on a bus, too
    baud : of the UART
    octet_cycles : of :class:`.OctetStreams`
    station : the addresses after configuration; without them, nothing is sent until a host has set some

    Members
    -------
    tick : In, 1 bit; a pulse each millisecond
    rx_clk, tx_clk : In, 1 bit; the clocks of ``s_axis_rx`` and ``m_axis_tx``: see :class:`.OctetStreams`
    s_axis_rx : In, :class:`.AxiStream` without ``tkeep``; received octets; ``tuser`` is an error
    m_axis_tx : Out, :class:`.AxiStream` without ``tkeep``; octets to transmit
    phy_reset, mdc, mdio_o, mdio_oe, mdio_i : see :class:`.PhyControl`. The link counts as up at 1 Gb/s unless a host
        says otherwise
    s_axis_samples : In, :class:`.AxiStream` without ``tkeep`` and ``tlast``; samples of the fabric: 32 bits each
    s_axis_work : In, as ``s_axis_samples``; work of the fabric: the 176 bits of :class:`.Work` each, ``address`` the
        lowest
    work_reports : Out, :class:`.WorkReports`
    s_axil : In, :class:`.AxiLite` with addresses of 18 bits; with ``registers``; see :class:`.LinkedRnic`
    m_axi, wb or dram : Out, :class:`.Axi4`, :class:`.Wishbone` or :class:`.LiteDram`; with a bus, the memory: see
        :class:`.AxiMemory`, :class:`.WishboneMemory` and :class:`.LiteDramMemory`
    memory_fault : Out, 1 bit; with a bus: the memory has reported an error since ``rst``
    uart_rx, uart_tx : In and out, 1 bit
    irq : Out, 1 bit; something waits for the host
    active : Out, 1 bit; see :class:`.Link`; suitable for an LED

    """

    def __init__(self, *, clock_hz: int = 50_000_000, connections: int = 1, ring: int = 1 << 14,
                 memory: int = 1 << 16, memory_bus: MemoryBus = MemoryBus.AXI4, memory_bits: int = 32,
                 fabric: Fabric = Fabric.SAMPLES, registers: bool = False, baud: int = 1_000_000, octet_cycles: int = 1,
                 station: Station | None = None):  # fmt: skip
        if not 1_000_000 <= clock_hz <= 1_000_000_000:
            raise ValueError(f"clock must be 1000000 to 1000000000 Hz, not {clock_hz!r}")
        if not 1 <= baud <= clock_hz // 8:
            raise ValueError(f"baud must be 1 to an eighth of the clock's {clock_hz}, not {baud!r}")
        check_size("ring", ring, ROOM, 1 << 16)  # 65,535 octets are the largest window without scaling
        # The driver leaves the first 64 octets free.
        check_size("memory", memory, 128, 1 << 20 if memory_bus is MemoryBus.NONE else MOST_MEMORY)
        check_size("memory_bits", memory_bits, 32, 512)
        words = {"bits": memory_bits} if memory_bus is MemoryBus.LITEDRAM else {}
        if memory_bits != 32 and not words:
            raise ValueError(f"words of {memory_bits} bits are for a memory at LiteDRAM, not on {memory_bus}")
        outside = memory_bus is not MemoryBus.NONE
        self.streams = OctetStreams(octet_cycles)
        self.rnic = WholeRnic(
            self.streams, clock_hz, PhySettings(), source=LinkSource.FIXED, connections=connections, ring=ring,
            memory=memory, outside=outside, fabric=fabric, registers=registers,
            period=Fraction(clock_hz, baud), station=station,
        )  # fmt: skip
        self.bus, self.manager, of_memory = None, None, {}
        if outside:
            manager, self.bus = _MANAGERS[memory_bus]
            self.manager = manager(1, size=memory, **words)
            of_memory = {self.bus: self.manager.signature.members[self.bus], "memory_fault": Out(1)}
        of_rnic = self.rnic.signature.members
        super().__init__({
            "tick": In(1), "rx_clk": In(1), "tx_clk": In(1),
            "s_axis_rx": In(AxiStream(8, keep=False, user=1)),
            "m_axis_tx": Out(AxiStream(8, keep=False)),
            **{name: of_rnic[name] for name in _MDIO},
            **{f"s_axis_{name}": In(AxiStream(bits, keep=False, last=False))
               for name, bits in _STREAMS.items() if name in of_rnic},
            **({"work_reports": of_rnic["work_reports"]} if "work" in of_rnic else {}),
            **({"s_axil": In(AxiLite(REGISTER_BITS))} if registers else {}),
            **of_memory,
            "uart_rx": In(1, init=1), "uart_tx": Out(1, init=1), "irq": Out(1), "active": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.rnic = rnic = self.rnic
        if self.manager is not None:
            self._remember(m, rnic)
        expose(m, rnic, self, (*_MDIO, "active", "work_reports"))
        m.d.comb += [
            rnic.tick.eq(self.tick),
            rnic.rx.eq(self.uart_rx),
            self.uart_tx.eq(rnic.tx),
            self.irq.eq(rnic.core.link.irq.any()),  # that of the engines, too
        ]
        if "s_axis_samples" in self.signature.members:
            self._take(m, self.s_axis_samples, rnic.samples)
        if "s_axis_work" in self.signature.members:
            self._take(m, self.s_axis_work, rnic.work)
        if "bus" in rnic.signature.members:
            m.submodules.bridge = bridge = AxiLiteBridge(REGISTER_BITS)
            wiring.connect(m, bridge.bus, rnic.bus)
            expose(m, bridge, self, ["s_axil"])

        streams = self.streams
        m.d.comb += [
            streams.rx_clk.eq(self.rx_clk),
            streams.tx_clk.eq(self.tx_clk),
            streams.rx_data.eq(self.s_axis_rx.tdata),
            streams.rx_error.eq(self.s_axis_rx.tuser),
            streams.rx_last.eq(self.s_axis_rx.tlast),
            streams.rx_valid.eq(self.s_axis_rx.tvalid),
            self.m_axis_tx.tdata.eq(streams.tx_data),
            self.m_axis_tx.tlast.eq(streams.tx_last),
            self.m_axis_tx.tvalid.eq(streams.tx_valid),
            self.s_axis_rx.tready.eq(streams.rx_ready),
            streams.tx_ready.eq(self.m_axis_tx.tready),
        ]
        return m

    def _take(self, m, axi, given):
        """Give the logic beside the engine a stream of the design around."""
        m.d.comb += [
            Value.cast(given.payload).eq(axi.tdata),
            given.valid.eq(axi.tvalid),
            axi.tready.eq(given.ready),
        ]

    def _remember(self, m, rnic):
        """The memory is on a bus."""
        m.submodules.memory = memory = self.manager
        wiring.connect(m, rnic.memory, memory.port)
        expose(m, memory, self, [self.bus])
        with m.If(memory.fault):
            m.d.sync += self.memory_fault.eq(1)
