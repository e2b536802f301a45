"""The tops of boards' designs: what is behind the link, connected to the board's pins and clocks."""

from fractions import Fraction

from amaranth.build import Subsignal
from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import io, wiring

from open_rnic.boards.board import Board, Core, Ethernet, Interface
from open_rnic.boards.clock import Pll
from open_rnic.rtl.host_link.top import UartDatapath
from open_rnic.rtl.mac.mii import MiiAdapter
from open_rnic.rtl.mac.rgmii import RgmiiAdapter
from open_rnic.rtl.memory.chips import Kind
from open_rnic.rtl.memory.ddr3_phy import Ddr3Phy
from open_rnic.rtl.memory.sdr_phy import SdrPhy
from open_rnic.rtl.memory.sdram import Sdram
from open_rnic.rtl.rdma.fabric import Fabric
from open_rnic.rtl.rnic.whole_rnic import WholeRnic
from open_rnic.rtl.tcp.config import Station

__all__ = ["BoardTop", "RnicTop", "whole_rnic"]


def _add_clocks(m: Module, board: Board, core: Core) -> Pll | None:
    """Add the clock domains that the FPGA makes; Amaranth's platform makes "sync" if nothing else does."""
    clocks = board.clocks(core)
    if clocks == {"sync": board.oscillator_hz}:
        return None
    edge = board.ethernet.edge if core is Core.RNIC else None
    m.submodules.pll = pll = Pll(board.flow, board.oscillator_hz, clocks, edge)
    m.domains += pll.domains
    return pll


def _add_sdram(m: Module, platform, ethernet: Ethernet, pll: Pll) -> Sdram:
    """Add the SDRAM with its pins."""
    chip, hz = ethernet.sdram, ethernet.clock_hz
    m.submodules.sdram = sdram = Sdram(1, chip, hz)
    pins = platform.request(chip.kind.resource, dir="-")
    if chip.kind is Kind.DDR3:
        phy = Ddr3Phy(chip, hz, pins)
        m.d.comb += [pll.stop.eq(phy.stop), pll.restart.eq(phy.restart)]
    else:
        phy = SdrPhy(chip, pins)
    m.submodules.sdram_pins = phy
    wiring.connect(m, sdram.dfi, phy.dfi)
    return sdram


def _add_uart(m: Module, platform, core) -> None:
    uart = platform.request("uart", 0, dir="-")
    m.submodules.rx = rx = io.Buffer("i", uart.rx)
    m.submodules.tx = tx = io.Buffer("o", uart.tx)
    m.d.comb += [core.rx.eq(rx.i), tx.o.eq(core.tx)]


def _add_led(m: Module, platform, board: Board, lit) -> None:
    if board.led is not None:
        led = platform.request(board.led, 0, dir="-")
        colours = [part.name for part in platform.lookup(board.led, 0).ios if isinstance(part, Subsignal)]
        for index, port in enumerate([getattr(led, name) for name in colours] or [led]):
            m.submodules[f"led{index}"] = light = io.Buffer("o", port)
            m.d.comb += light.o.eq(lit.replicate(len(port)))


class BoardTop(Elaboratable):
    """A :class:`.UartDatapath` on a board, to be built by the board's own platform."""

    def __init__(self, board: Board, lanes: int, core: Core = Core.MPA):
        self.board = board
        self.lanes = lanes
        self.core = core

    def elaborate(self, platform):
        board = self.board
        m = Module()
        _add_clocks(m, board, self.core)
        m.submodules.path = path = UartDatapath(self.lanes, board.period, **board.path_options(self.core))
        _add_uart(m, platform, path)
        _add_led(m, platform, board, path.active)
        return m


def _milliseconds(m: Module, clock_hz: int) -> Signal:
    """Return a pulse each millisecond."""
    cycles = clock_hz // 1000
    left = Signal(range(cycles), init=cycles - 1)
    tick = Signal()
    m.d.comb += tick.eq(left == 0)
    m.d.sync += left.eq(Mux(tick, cycles - 1, left - 1))
    return tick


def whole_rnic(ethernet: Ethernet, adapter, period: Fraction | int, station: Station | None) -> WholeRnic:
    """Return the RNIC behind an Ethernet port of a board."""
    return WholeRnic(
        adapter, ethernet.clock_hz, ethernet.settings, connections=ethernet.connections,
        ring=ethernet.ring_of(ethernet.connections), memory=ethernet.memory, outside=ethernet.in_sdram,
        fabric=Fabric.GENERATOR if ethernet.samples else Fabric.NONE, period=period, station=station,
    )  # fmt: skip


class RnicTop(Elaboratable):
    """A :class:`.WholeRnic` on a board with Ethernet, to be built by the board's own platform."""

    def __init__(self, board: Board, station: Station | None = None):
        board.check(Core.RNIC)
        self.board = board
        self.station = station

    def elaborate(self, platform):
        board = self.board
        ethernet = board.ethernet
        m = Module()
        pll = _add_clocks(m, board, Core.RNIC)
        pins = platform.request(*ethernet.resource, dir="-")
        match ethernet.interface:
            case Interface.RGMII:
                adapter = RgmiiAdapter(pins, ethernet.delays)
            case Interface.MII:
                adapter = MiiAdapter(pins)
        period = Fraction(ethernet.clock_hz, board.baud)
        m.submodules.rnic = rnic = whole_rnic(ethernet, adapter, period, self.station)
        m.d.comb += rnic.tick.eq(_milliseconds(m, ethernet.clock_hz))
        if ethernet.in_sdram:
            sdram = _add_sdram(m, platform, ethernet, pll)
            wiring.connect(m, rnic.memory, sdram.port)
            m.d.comb += rnic.memory_failed.eq(sdram.failed)
        _add_uart(m, platform, rnic)
        _add_led(m, platform, board, rnic.active)
        m.submodules.mdc = mdc = io.Buffer("o", pins.mdc)
        m.submodules.mdio = mdio = io.Buffer("io", pins.mdio)
        m.d.comb += [
            mdc.o.eq(rnic.mdc),
            mdio.o.eq(rnic.mdio_o),
            mdio.oe.eq(rnic.mdio_oe),
            rnic.mdio_i.eq(mdio.i),
        ]
        if hasattr(pins, "rst") and ethernet.settings.reset:
            m.submodules.rst = rst = io.Buffer("o", pins.rst)
            m.d.comb += rst.o.eq(rnic.phy_reset)
        if ethernet.reference is not None:
            clock = platform.request(ethernet.reference, 0, dir="-")
            m.submodules.reference = reference = io.DDRBuffer("o", clock, o_domain="phy")
            m.d.comb += [reference.o[0].eq(1), reference.o[1].eq(0)]
        return m
