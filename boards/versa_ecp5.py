"""Lattice ECP5 Versa, with an LFE5UM-45F."""

from amaranth_boards.versa_ecp5 import VersaECP5Platform

from open_rnic.boards.board import Board, Ethernet, Interface
from open_rnic.boards.pulls import pulled_up
from open_rnic.rtl.mac.phy import PhySettings

__all__ = ["BOARD"]


class Platform(VersaECP5Platform):
    """The platform with a pull-up at MDIO."""

    resources = pulled_up(VersaECP5Platform.resources, "eth_rgmii.mdio")


BOARD = Board(
    "versa_ecp5",
    "Lattice ECP5 Versa",
    part="LFE5UM-45F-8BG381C",
    flow="ecp5",
    platform=Platform,
    oscillator_hz=100_000_000,
    clock_hz=60_000_000,
    lanes=2,
    widths=(1, 2, 4, 8),
    uart="USB",
    loader=("--cable", "ft2232"),
    led="led",
    ethernet=Ethernet(
        "Marvell 88E1512",
        Interface.RGMII,
        PhySettings(address=(0, 1)),  # by a resistor; the PHY delays both clocks
        clock_hz=75_000_000,
        memory=1 << 16,
        rings=1 << 15,
    ),
)
