"""Colorlight's i5 and i9: modules for LED panels, on the extension board that they are often sold with.

The pins are from the tables and the extension board's schematic that "wuxx" has reverse-engineered and published:
https://github.com/wuxx/Colorlight-FPGA-Projects. The UART is on the extension board's debugger. Of the two PHYs, number
0 is ETH-PHY1 of these tables, and number 1 is ETH-PHY0, as in other designs for these modules.
"""

from amaranth.build import Attrs, Clock, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.resources import LEDResources, SDRAMResource, UARTResource

from open_rnic.boards.board import Ethernet, Interface
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.rgmii import RgmiiDelays
from open_rnic.rtl.memory.chips import M12L64322A

__all__ = ["ETHERNET", "ColorlightI5Platform", "ColorlightI9Platform"]

ETHERNET = Ethernet(
    "Broadcom B50612D",
    Interface.RGMII,
    PhySettings(address=(0, 1)),  # both PHYs are at the same MDIO
    RgmiiDelays(rx_data=2000),  # the PHY delays TXC
    sdram=M12L64322A,  # an EM638325, which is like it
)


def _rgmii(number: int, **pins: str) -> Resource:
    """A PHY; both have the same MDIO and reset."""
    outputs = ("tx_clk", "tx_ctl", "tx_data")
    return Resource(
        "eth_rgmii", number,
        Subsignal("rst", PinsN("P4", dir="o")),
        Subsignal("mdc", Pins("N5", dir="o")),
        Subsignal("mdio", Pins("P5", dir="io"), Attrs(PULLMODE="UP")),
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
        SDRAMResource(
            0, clk="B9", we_n="A10", ras_n="B10", cas_n="A9", ba="B11 C8",
            a="B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12",
            dq="D15 E14 E13 D12 E12 D11 C10 B17 B8 A8 C7 A7 A6 B6 A5 B5 "
               "D5 C5 D6 C6 E7 D7 E8 D8 E9 D9 E11 C11 C12 D13 D14 C15",
            attrs=Attrs(IO_TYPE="LVCMOS33", SLEWRATE="FAST", DRIVE="4", PULLMODE="NONE"),
        ),
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
