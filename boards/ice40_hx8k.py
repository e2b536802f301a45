"""Lattice iCE40-HX8K Breakout Board. Its only clock is 12 MHz, at which 3 Mbaud would leave 4 cycles per bit."""

from amaranth_boards.ice40_hx8k_b_evn import ICE40HX8KBEVNPlatform

from open_rnic.boards.board import Board

__all__ = ["BOARD"]

BOARD = Board(
    "ice40_hx8k",
    "Lattice iCE40-HX8K Breakout Board",
    part="iCE40HX8K-CT256",
    flow="ice40",
    platform=ICE40HX8KBEVNPlatform,
    oscillator_hz=12_000_000,
    clock_hz=12_000_000,
    lanes=1,
    widths=(1,),
    uart="USB 2",
    loader=("--board", "ice40_generic"),
    baud=1_500_000,
    size=512,
    led="led",
)
