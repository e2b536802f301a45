"""The tops of boards' designs: what is behind the link, connected to the board's pins and clocks."""

from fractions import Fraction

from amaranth.build import Subsignal
from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import io, wiring

from open_rnic.boards.board import Board, Core, Interface
from open_rnic.boards.clock import Pll
from open_rnic.rtl.link.top import UartDatapath
from open_rnic.rtl.linked_rnic import LinkedRnic
from open_rnic.rtl.mac.mii import MiiAdapter
from open_rnic.rtl.mac.port import EthernetPort
from open_rnic.rtl.mac.rgmii import RgmiiAdapter
from open_rnic.rtl.tcp.config import EngineConfig, Station

__all__ = ["BoardTop", "RnicTop"]


def _add_clocks(m: Module, board: Board, core: Core) -> None:
    """Add the clock domains that the FPGA makes; Amaranth's platform makes "sync" if nothing else does."""
    clocks = board.clocks(core)
    if clocks != {"sync": board.oscillator_hz}:
        m.submodules.pll = pll = Pll(board.flow, board.oscillator_hz, clocks)
        m.domains += pll.domains


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


class RnicTop(Elaboratable):
    """A :class:`.LinkedRnic` behind an :class:`.EthernetPort` on a board, to be built by the board's own platform.

    After configuration, the PHY is in reset, if the board can reset it, and the MAC is stopped until the PHY has told
    that the link is up. Nothing is sent before.

    Parameters
    ----------
    board : a board with Ethernet
    station : the addresses after configuration; without them, nothing is sent until a host has set some

    """

    def __init__(self, board: Board, station: Station | None = None):
        board.check(Core.RNIC)
        self.board = board
        self.station = station

    def elaborate(self, platform):
        board = self.board
        ethernet = board.ethernet
        m = Module()
        _add_clocks(m, board, Core.RNIC)
        m.submodules.core = core = LinkedRnic(
            ethernet.connections, memory=ethernet.memory, period=Fraction(ethernet.clock_hz, board.baud),
            config=EngineConfig(send_ring=ethernet.ring, receive_ring=ethernet.ring), station=self.station,
        )  # fmt: skip
        _add_uart(m, platform, core)
        _add_led(m, platform, board, core.active)

        pins = platform.request(*ethernet.resource, dir="-")
        match ethernet.interface:
            case Interface.RGMII:
                adapter = RgmiiAdapter(pins, ethernet.delays)
            case Interface.MII:
                adapter = MiiAdapter(pins)
        m.submodules.port = port = EthernetPort(adapter, ethernet.clock_hz, ethernet.settings)
        wiring.connect(m, port.rx_frames, core.rx_frames)
        wiring.connect(m, core.tx_frames, port.tx_frames)
        wiring.connect(m, core.mac_bus, port.bus)
        m.submodules.mdc = mdc = io.Buffer("o", pins.mdc)
        m.submodules.mdio = mdio = io.Buffer("io", pins.mdio)
        m.d.comb += [
            core.mac_irq.eq(port.irq),
            mdc.o.eq(port.mdc),
            mdio.o.eq(port.mdio_o),
            mdio.oe.eq(port.mdio_oe),
            port.mdio_i.eq(mdio.i),
        ]
        if hasattr(pins, "rst"):
            m.submodules.rst = rst = io.Buffer("o", pins.rst)
            m.d.comb += rst.o.eq(port.phy_reset)
        if ethernet.reference is not None:
            m.submodules.reference = reference = io.DDRBuffer(
                "o", platform.request(ethernet.reference, 0, dir="-"), o_domain="phy"
            )
            m.d.comb += Cat(reference.o).eq(0b01)

        # Time: a pulse each millisecond.
        cycles = ethernet.clock_hz // 1000
        left = Signal(range(cycles))
        tick = Signal()
        m.d.comb += [tick.eq(left == 0), core.tick.eq(tick), port.tick.eq(tick)]
        m.d.sync += left.eq(left - 1)
        with m.If(tick):
            m.d.sync += left.eq(cycles - 1)
        return m
