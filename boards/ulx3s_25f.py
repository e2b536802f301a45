"""Radiona ULX3S with an LFE5U-25F."""

from dataclasses import replace

from amaranth_boards.ulx3s import ULX3S_25F_Platform

from open_rnic.boards import ulx3s

__all__ = ["BOARD"]

BOARD = replace(
    ulx3s.BOARD,
    name="ulx3s_25f",
    title="Radiona ULX3S 25F",
    part="LFE5U-25F-6BG381C",
    platform=ULX3S_25F_Platform,
    widths=(1, 2, 4),
)
