"""Colorlight's i5 and i9: modules for LED panels, on the extension board that they are often sold with.

The pins are from the tables and the extension board's schematic that "wuxx" has reverse-engineered and published:
https://github.com/wuxx/Colorlight-FPGA-Projects. The UART is on the extension board's debugger. Of the two PHYs, number
0 is ETH-PHY1 of these tables, and number 1 is ETH-PHY0, as in other designs for these modules.
"""

from amaranth.build import Attrs, Clock, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.resources import LEDResources, UARTResource

from open_rnic.boards.board import Ethernet, Interface
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.rgmii import RgmiiDelays

__all__ = ["ETHERNET", "ColorlightI5Platform", "ColorlightI9Platform"]

ETHERNET = Ethernet(
    "Broadcom B50612D",
    Interface.RGMII,
    PhySettings(address=(0, 1)),  # both PHYs are at the same MDIO
    RgmiiDelays(rx_data=2000),  # the PHY delays TXC
)


def _rgmii(number: int, **pins: str) -> Resource:
    """A PHY; both have the same MDIO and reset."""
    outputs = ("tx_clk", "tx_ctl", "tx_data")
    return Resource(
        "eth_rgmii", number,
        Subsignal("rst", PinsN("P4", dir="o")),
        Subsignal("mdc", Pins("N5", dir="o")),
        Subsignal("mdio", Pins("P5", dir="io")),
        *(Subsignal(name, Pins(names, dir="o" if name in outputs else "i")) for name, names in pins.items()),
        Attrs(IO_TYPE="LVCMOS33"),
    )  # fmt: skip


def _resources(led: str) -> list[Resource]:
    attrs = Attrs(IO_TYPE="LVCMOS33")
    return [
        Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), attrs),
        *LEDResources(pins=led, invert=True, attrs=attrs),
        UARTResource(0, rx="H18", tx="J17", attrs=attrs),
        _rgmii(0, tx_clk="G1", tx_ctl="K1", tx_data="G2 H1 J1 J3", rx_clk="H2", rx_ctl="P2", rx_data="K2 L1 N1 P1"),
        _rgmii(1, tx_clk="U19", tx_ctl="P19", tx_data="U20 T19 T20 R20",
               rx_clk="L19", rx_ctl="M20", rx_data="P20 N19 N20 M19"),
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
