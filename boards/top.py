"""The top of a board's design: the data path and its link, connected to the board's pins and clock."""

from amaranth.build import Subsignal
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import io

from open_rnic.boards.board import Board, Core
from open_rnic.boards.clock import Pll
from open_rnic.rtl.link.top import UartDatapath

__all__ = ["BoardTop"]


class BoardTop(Elaboratable):
    """A :class:`.UartDatapath` on a board, to be built by the board's own platform."""

    def __init__(self, board: Board, lanes: int, core: Core = Core.MPA):
        self.board = board
        self.lanes = lanes
        self.core = core

    def elaborate(self, platform):
        board = self.board
        m = Module()
        if board.clock_hz != board.oscillator_hz:
            m.submodules.pll = pll = Pll(board.flow, board.oscillator_hz, board.clock_hz)
            m.domains += pll.domain
        m.submodules.path = path = UartDatapath(self.lanes, board.period, **board.path_options(self.core))
        uart = platform.request("uart", 0, dir="-")
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [path.rx.eq(rx.i), tx.o.eq(path.tx)]
        if board.led is not None:
            led = platform.request(board.led, 0, dir="-")
            colours = [part.name for part in platform.lookup(board.led, 0).ios if isinstance(part, Subsignal)]
            for index, port in enumerate([getattr(led, name) for name in colours] or [led]):
                m.submodules[f"led{index}"] = light = io.Buffer("o", port)
                m.d.comb += light.o.eq(path.active.replicate(len(port)))
        return m
