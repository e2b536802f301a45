"""Colorlight i9, revision 7.2, on its extension board."""

from dataclasses import replace

from open_rnic.boards.board import Board
from open_rnic.boards.colorlight import ETHERNET, ColorlightI9Platform

__all__ = ["BOARD"]

BOARD = Board(
    "colorlight_i9",
    "Colorlight i9 v7.2",
    part="LFE5U-45F-6BG381C",
    flow="ecp5",
    platform=ColorlightI9Platform,
    oscillator_hz=25_000_000,
    clock_hz=50_000_000,
    lanes=2,
    widths=(1, 2, 4, 8),
    uart="USB of the dock",
    loader=("--board", "colorlight-i9"),
    led="led",
    ethernet=replace(ETHERNET, memory=1 << 16, rings=1 << 15),
)
