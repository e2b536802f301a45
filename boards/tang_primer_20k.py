"""Sipeed Tang Primer 20K, on its dock: a Gowin GW2A-18."""

from amaranth_boards.tang_primer_20k import TangPrimer20kDockPlatform

from open_rnic.boards.board import Board
from open_rnic.boards.gowin import HimbaechelPlatform

__all__ = ["BOARD"]


class Platform(HimbaechelPlatform, TangPrimer20kDockPlatform):
    """The platform with current tools."""


BOARD = Board(
    "tang_primer_20k",
    "Sipeed Tang Primer 20K Dock",
    part="GW2A-LV18PG256C8/I7",
    flow="gowin",
    platform=Platform,
    oscillator_hz=27_000_000,
    clock_hz=27_000_000,
    lanes=1,
    widths=(1, 2),
    uart="USB of the dock",
    loader=("--board", "tangprimer20k"),
    led="led",
)
