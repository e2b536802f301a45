"""Colorlight 5A-75B, revisions 8.0 and 8.2, which have other PHYs than 7.0, and LED and button on other pins.

The pins are from https://github.com/q3k/chubby75 (5a-75b/hardware_V8.0.md, hardware_V8.2.md) and from litex-boards. The
25 MHz clock comes from an Ethernet PHY, which must not be reset. The revision 8.2 that is documented there has a faster
FPGA, of speed grade 7: a design that meets the clock with grade 6 meets it with grade 7, too.
"""

from dataclasses import replace

from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.resources import SDRAMResource, UARTResource

from open_rnic.boards import colorlight_5a75b
from open_rnic.boards.board import Ethernet, Interface
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.rgmii import RgmiiDelays
from open_rnic.rtl.memory.chips import M12L64322A

__all__ = ["BOARD"]

_OUTPUTS = "tx_clk", "tx_ctl", "tx_data"


def _rgmii(number: int, **pins: str) -> Resource:
    """A PHY; both have the same MDIO, and a reset (R6) that stays open."""
    return Resource(
        "eth_rgmii", number,
        Subsignal("mdc", Pins("R5", dir="o")),
        Subsignal("mdio", Pins("T4", dir="io"), Attrs(PULLMODE="UP")),
        *(Subsignal(name, Pins(names, dir="o" if name in _OUTPUTS else "i")) for name, names in pins.items()),
        Attrs(IO_TYPE="LVCMOS33"),
    )  # fmt: skip


class Platform(LatticeECP5Platform):
    """The clock, the PHYs, and the UART, which has its TX on DATA_LED- and its RX on KEY+, both on J19."""

    device = "LFE5U-25F"
    package = "BG256"
    speed = "6"
    default_clk = "clk25"
    connectors = []
    resources = [
        Resource("clk25", 0, Pins("P6", dir="i"), Clock(25e6), Attrs(IO_TYPE="LVCMOS33")),
        UARTResource(0, rx="R7", tx="T6", attrs=Attrs(IO_TYPE="LVCMOS33")),
        _rgmii(0, tx_clk="L1", tx_ctl="L2", tx_data="M2 M1 P1 R1", rx_clk="J1", rx_ctl="J2", rx_data="K2 J3 K1 K3"),
        _rgmii(1, tx_clk="J16", tx_ctl="K14", tx_data="K16 J15 J14 K15",
               rx_clk="M16", rx_ctl="P16", rx_data="M15 R16 L15 L16"),
        SDRAMResource(
            0, clk="C8", we_n="B5", ras_n="B6", cas_n="A6", ba="B7 A8", a="A9 B9 B10 C10 D9 C9 E9 D8 E8 C7 B8",
            dq="B2 A2 C3 A3 B3 A4 B4 A5 E7 C6 D7 D6 E6 D5 C5 E5 "
               "A11 B11 B12 A13 B13 A14 B14 D14 D13 E11 C13 D11 C12 E10 C11 D10",
            attrs=Attrs(IO_TYPE="LVCMOS33", SLEWRATE="FAST", DRIVE="4", PULLMODE="NONE"),
        ),
    ]


BOARD = replace(
    colorlight_5a75b.BOARD,
    name="colorlight_5a75b_r8",
    title="Colorlight 5A-75B r8.0, r8.2",
    platform=Platform,
    ethernet=Ethernet(
        "Realtek RTL8211FD",
        Interface.RGMII,
        # Nobody has published the addresses. A PHY with another one may answer at 0, too, so that 0 comes last.
        PhySettings(address=(*range(1, 8), 0), reset=0),
        RgmiiDelays(rx_data=2000),  # the PHY delays TXC
        sdram=M12L64322A,
    ),
)
