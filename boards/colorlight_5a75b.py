"""Colorlight 5A-75B, revision 7.0: a receiver card for LED panels with an LFE5U-25F, cheaper than many bare FPGAs."""

from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform

from open_rnic.boards.board import Board, Ethernet, Interface
from open_rnic.boards.pulls import pulled_up
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.rgmii import RgmiiDelays
from open_rnic.rtl.memory.chips import M12L16161A

__all__ = ["BOARD"]


class Platform(Colorlight_5A75B_R70Platform):
    """The platform with a pull-up at MDIO."""

    resources = pulled_up(Colorlight_5A75B_R70Platform.resources, "eth_rgmii.mdio")


BOARD = Board(
    "colorlight_5a75b",
    "Colorlight 5A-75B r7.0",
    part="LFE5U-25F-6BG256C",
    flow="ecp5",
    platform=Platform,
    oscillator_hz=25_000_000,
    clock_hz=25_000_000,  # without PLL; the UART is the bottleneck anyway
    lanes=2,
    widths=(1, 2, 4),
    # The board has no serial port. Connect a 3.3 V adapter: RX to DATA_LED-, TX to KEY+. LED and button are not usable.
    uart="pins on J19",
    loader=("--cable", "ft232"),
    memory=1 << 15,
    ethernet=Ethernet(
        "Broadcom B50612D",
        Interface.RGMII,
        # Both PHYs are at the same MDIO, and at the same reset, which stays open, as in other designs for this board.
        PhySettings(address=(0, 1), reset=0),
        RgmiiDelays(rx_data=2000),  # the PHY delays TXC
        sdram=M12L16161A,
    ),
)
