"""LambdaConcept ECPIX-5 with an LFE5UM5G-85F."""

from amaranth_boards.ecpix5 import ECPIX585Platform

from open_rnic.boards.board import Board

__all__ = ["BOARD"]

BOARD = Board(
    "ecpix5",
    "LambdaConcept ECPIX-5",
    part="LFE5UM5G-85F-8BG554C",
    flow="ecp5",
    platform=ECPIX585Platform,
    oscillator_hz=100_000_000,
    clock_hz=60_000_000,
    lanes=2,
    widths=(1, 2, 4, 8, 16),
    uart="USB",
    loader=("--board", "ecpix5"),
    led="rgb_led",
)
