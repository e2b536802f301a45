"""Colorlight 5A-75B, revision 7.0: an LED panel receiver with an LFE5U-25F, sold for less than many FPGAs alone."""

from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform

from open_rnic.boards.board import Board

__all__ = ["BOARD"]

BOARD = Board(
    "colorlight_5a75b",
    "Colorlight 5A-75B r7.0",
    part="LFE5U-25F-6BG256C",
    flow="ecp5",
    platform=Colorlight_5A75B_R70Platform,
    oscillator_hz=25_000_000,
    clock_hz=25_000_000,  # needs no PLL; the line is what limits
    lanes=2,
    widths=(1, 2, 4),
    # No serial port. A 3.3 V adapter's RX goes to DATA_LED-, its TX to KEY+: so LED and button are of no use.
    uart="pins on J19",
    loader=("--cable", "ft232"),
)
