"""LambdaConcept ECPIX-5 with an LFE5UM5G-45F."""

from dataclasses import replace

from amaranth_boards.ecpix5 import ECPIX545Platform

from open_rnic.boards import ecpix5

__all__ = ["BOARD"]

BOARD = replace(
    ecpix5.BOARD,
    name="ecpix5_45f",
    title="LambdaConcept ECPIX-5 45F",
    part="LFE5UM5G-45F-8BG554C",
    platform=ECPIX545Platform,
    widths=(1, 2, 4, 8),
)
