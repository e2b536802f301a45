"""Colorlight 5A-75B, revisions 8.0 and 8.2, which have LED and button on other pins than revision 7.0.

The pins are from https://github.com/q3k/chubby75 (5a-75b/hardware_V8.0.md, hardware_V8.2.md). The 25 MHz clock comes
from an Ethernet PHY, which must not be reset. The revision 8.2 that is documented there has a faster FPGA, of speed
grade 7: a design that meets the clock with grade 6 meets it with grade 7, too.
"""

from dataclasses import replace

from amaranth.build import Attrs, Clock, Pins, Resource
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.resources import UARTResource

from open_rnic.boards import colorlight_5a75b

__all__ = ["BOARD"]


class Platform(LatticeECP5Platform):
    """The clock and the UART, which has its TX on DATA_LED- and its RX on KEY+, both on J19."""

    device = "LFE5U-25F"
    package = "BG256"
    speed = "6"
    default_clk = "clk25"
    connectors = []
    resources = [
        Resource("clk25", 0, Pins("P6", dir="i"), Clock(25e6), Attrs(IO_TYPE="LVCMOS33")),
        UARTResource(0, rx="R7", tx="T6", attrs=Attrs(IO_TYPE="LVCMOS33")),
    ]


BOARD = replace(
    colorlight_5a75b.BOARD,
    name="colorlight_5a75b_r8",
    title="Colorlight 5A-75B r8.0, r8.2",
    platform=Platform,
    ethernet=None,  # Nobody has published the delays and addresses of its PHYs, which are others than those of r7.0.
)
