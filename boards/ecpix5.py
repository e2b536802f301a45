"""LambdaConcept ECPIX-5 with an LFE5UM5G-85F."""

from amaranth_boards.ecpix5 import ECPIX585Platform

from open_rnic.boards.board import Board, Ethernet, Interface
from open_rnic.boards.pulls import pulled_up
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.rgmii import RgmiiDelays
from open_rnic.rtl.memory.chips import MT41K256M16

__all__ = ["BOARD", "PULLED_UP"]

# By RXD, the PHY chooses RGMII and all speeds during its reset. The board's reset (AB1) has no resistor of its own.
PULLED_UP = "eth_rgmii.rx_data", "eth_rgmii.mdio", "rst"


class Platform(ECPIX585Platform):
    """The platform with the PHY's straps, and pull-ups."""

    resources = pulled_up(ECPIX585Platform.resources, *PULLED_UP)


BOARD = Board(
    "ecpix5",
    "LambdaConcept ECPIX-5",
    part="LFE5UM5G-85F-8BG554C",
    flow="ecp5",
    platform=Platform,
    oscillator_hz=100_000_000,
    clock_hz=60_000_000,
    lanes=2,
    widths=(1, 2, 4, 8, 16),
    uart="USB",
    loader=("--board", "ecpix5"),
    led="rgb_led",
    ethernet=Ethernet(
        "Microchip KSZ9031RNX",
        Interface.RGMII,
        PhySettings(address=tuple(range(8))),  # by resistors
        RgmiiDelays(tx_clock=2000),  # the PHY delays RXC by 1.2 ns
        clock_hz=75_000_000,
        memory=1 << 16,
        rings=1 << 16,
        samples=True,
        sdram=MT41K256M16,
    ),
)
