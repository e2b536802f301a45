"""Colorlight's i5 and i9: modules for LED panels, on the extension board that they are often sold with.

The pins are from the tables and the extension board's schematic that "wuxx" has reverse-engineered and published:
https://github.com/wuxx/Colorlight-FPGA-Projects. The UART is on the extension board's debugger.
"""

from amaranth.build import Attrs, Clock, Pins, Resource
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.resources import LEDResources, UARTResource

__all__ = ["ColorlightI5Platform", "ColorlightI9Platform"]


def _resources(led: str) -> list[Resource]:
    attrs = Attrs(IO_TYPE="LVCMOS33")
    return [
        Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), attrs),
        *LEDResources(pins=led, invert=True, attrs=attrs),
        UARTResource(0, rx="H18", tx="J17", attrs=attrs),
    ]


class _ColorlightPlatform(LatticeECP5Platform):
    package = "BG381"
    speed = "6"
    default_clk = "clk25"
    connectors = []


class ColorlightI5Platform(_ColorlightPlatform):
    """The i5, revision 7.0."""

    device = "LFE5U-25F"
    resources = _resources(led="U16")


class ColorlightI9Platform(_ColorlightPlatform):
    """The i9, revision 7.2."""

    device = "LFE5U-45F"
    resources = _resources(led="L2")
