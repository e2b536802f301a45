"""Radiona ULX3S in its most common variant, with an LFE5U-85F."""

from amaranth_boards.ulx3s import ULX3S_85F_Platform

from open_rnic.boards.board import Board

__all__ = ["BOARD"]

BOARD = Board(
    "ulx3s",
    "Radiona ULX3S 85F",
    part="LFE5U-85F-6BG381C",
    flow="ecp5",
    platform=ULX3S_85F_Platform,
    oscillator_hz=25_000_000,
    clock_hz=50_000_000,
    lanes=2,
    widths=(1, 2, 4, 8, 16),
    uart="USB 1",
    loader=("--board", "ulx3s"),
    led="led",
)
