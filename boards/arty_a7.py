"""Digilent Arty A7-35. The build writes scripts for Vivado, but no test runs Vivado."""

from amaranth_boards.arty_a7 import ArtyA7_35Platform

from open_rnic.boards.board import Board, Ethernet, Interface
from open_rnic.rtl.mac.phy import PhySettings

__all__ = ["BOARD"]

BOARD = Board(
    "arty_a7",
    "Digilent Arty A7-35",
    part="xc7a35ticsg324-1L",
    flow="vivado",
    platform=ArtyA7_35Platform,
    oscillator_hz=100_000_000,
    clock_hz=50_000_000,
    lanes=2,
    widths=(1, 2, 4),
    uart="USB",
    loader=("--board", "arty_a7_35t"),
    led="led",
    ethernet=Ethernet(
        "Texas Instruments DP83848J",
        Interface.MII,
        PhySettings(address=1, gigabit=False),
        reference="eth_clk25",
    ),
)
