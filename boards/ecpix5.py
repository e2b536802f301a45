"""LambdaConcept ECPIX-5 with an LFE5UM5G-85F."""

from copy import deepcopy

from amaranth.build import Resource
from amaranth_boards.ecpix5 import ECPIX585Platform

from open_rnic.boards.board import Board, Ethernet, Interface
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.rgmii import RgmiiDelays

__all__ = ["BOARD"]


def strapped(resources: list[Resource]) -> list[Resource]:
    """Return the resources with pull-ups at RXD, by which the PHY chooses RGMII and all speeds during its reset."""
    found = deepcopy(resources)
    for resource in found:
        for part in resource.ios:
            if resource.name == "eth_rgmii" and part.name == "rx_data":
                part.attrs["PULLMODE"] = "UP"
    return found


class Platform(ECPIX585Platform):
    """The platform with the PHY's straps."""

    resources = strapped(ECPIX585Platform.resources)


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
    ),
)
