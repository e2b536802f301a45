"""Colorlight i5, revision 7.0, on its extension board."""

from open_rnic.boards.board import Board
from open_rnic.boards.colorlight import ETHERNET, ColorlightI5Platform

__all__ = ["BOARD"]

BOARD = Board(
    "colorlight_i5",
    "Colorlight i5 v7.0",
    part="LFE5U-25F-6BG381C",
    flow="ecp5",
    platform=ColorlightI5Platform,
    oscillator_hz=25_000_000,
    clock_hz=50_000_000,
    lanes=2,
    widths=(1, 2, 4),
    uart="USB of the dock",
    loader=("--board", "colorlight-i5"),
    led="led",
    ethernet=ETHERNET,
)
