"""Colorlight 5A-75B, revision 7.0: an LED panel receiver with an LFE5U-25F, sold for less than many FPGAs alone."""

from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform

__all__ = ["LANES", "PLATFORM"]

PLATFORM = Colorlight_5A75B_R70Platform
LANES = 2
