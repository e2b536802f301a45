"""LambdaConcept ECPIX-5 with an LFE5UM5G-45F."""

from dataclasses import replace

from amaranth_boards.ecpix5 import ECPIX545Platform

from open_rnic.boards import ecpix5
from open_rnic.boards.pulls import pulled_up

__all__ = ["BOARD"]


class Platform(ECPIX545Platform):
    """The platform with the PHY's straps, and pull-ups."""

    resources = pulled_up(ECPIX545Platform.resources, *ecpix5.PULLED_UP)


BOARD = replace(
    ecpix5.BOARD,
    name="ecpix5_45f",
    title="LambdaConcept ECPIX-5 45F",
    part="LFE5UM5G-45F-8BG554C",
    platform=Platform,
    widths=(1, 2, 4, 8),
)
