"""Lattice ECP5 Versa, with an LFE5UM-45F."""

from collections.abc import Iterable

from amaranth.build import Resource
from amaranth_boards.versa_ecp5 import VersaECP5Platform

from open_rnic.boards.board import Board, Ethernet, Interface
from open_rnic.boards.pulls import pulled_up
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.memory.chips import MT41K64M16

__all__ = ["BOARD"]


def _terminated(resources: Iterable[Resource]) -> Iterable[Resource]:
    """Yield the resources; the data pins of the SDRAM alone have resistors, where amaranth-boards gives some to all."""
    for resource in resources:
        if resistors := resource.attrs.pop("TERMINATION", None):
            [data] = [part for part in resource.ios if part.name == "dq"]
            data.attrs["TERMINATION"] = resistors
        yield resource


class Platform(VersaECP5Platform):
    """The platform with a pull-up at MDIO."""

    resources = list(_terminated(pulled_up(VersaECP5Platform.resources, "eth_rgmii.mdio")))


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
        sdram=MT41K64M16,
    ),
)
