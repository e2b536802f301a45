"""OrangeCrab, revision 0.2, with an LFE5U-85F."""

from dataclasses import replace

from amaranth_boards.orangecrab_r0_2 import OrangeCrabR0_2_85FPlatform

from open_rnic.boards import orangecrab

__all__ = ["BOARD"]


class Platform(orangecrab.WithUart, OrangeCrabR0_2_85FPlatform):
    """The platform with a UART and a larger FPGA."""


BOARD = replace(
    orangecrab.BOARD,
    name="orangecrab_85f",
    title="OrangeCrab r0.2 85F",
    part="LFE5U-85F-8MG285C",
    platform=Platform,
    widths=(1, 2, 4, 8, 16),
)
