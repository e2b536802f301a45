"""Boards that the data path is built for: each has a module with its ``BOARD``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from open_rnic.boards.board import Board, Ethernet

SDRAM = "sdram"  # in names: the memory is the SDRAM of the board
NETLIST = "netlist"  # in names: the RNIC is simulated as the netlist after synthesis
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)  # of an RNIC
BOARDS = (
    "arty_a7",
    "colorlight_5a75b",
    "colorlight_5a75b_r8",
    "colorlight_i5",
    "colorlight_i9",
    "ecpix5",
    "ecpix5_45f",
    "ice40_hx8k",
    "orangecrab",
    "orangecrab_85f",
    "tang_primer_20k",
    "ulx3s",
    "ulx3s_12f",
    "ulx3s_25f",
    "ulx3s_45f",
    "versa_ecp5",
)


def find(name: str) -> Board:
    """Return a board; raises ValueError if it is unknown, ModuleNotFoundError if amaranth-boards is missing."""
    if name not in BOARDS:
        raise ValueError(f"no board is called {name!r}; there are {', '.join(BOARDS)}")
    found: Board = import_module(f"{__name__}.{name}").BOARD
    return found


def find_rnic(place: str) -> Ethernet:
    """Return the port of BOARD[:CONNECTIONS][:sdram], with the size of the whole RNIC that `rnic build` makes for it.

    ``:netlist`` may stand in place of ``:sdram``, and changes nothing of the port.

    Raises what :func:`find` raises, and ValueError for a board that cannot have an RNIC, or not of this size.
    """
    name, *sizes = place.split(":")
    board = find(name)
    if board.ethernet is None:
        raise ValueError(f"{name} has no Ethernet that an RNIC could use: `rnic boards` lists those with core rnic")
    last = sizes[-1] if sizes else ""
    in_sdram, as_netlist = last == SDRAM, last == NETLIST
    connections = sizes[: len(sizes) - (in_sdram or as_netlist)]
    if as_netlist and board.flow != "ecp5":
        raise ValueError(f"the netlist of {name} cannot be simulated: its FPGA is no ECP5")
    if len(connections) > 1 or (connections and connections[0] not in map(str, CONNECTIONS)):
        known = f"{', '.join(map(str, CONNECTIONS[:-1]))} or {CONNECTIONS[-1]}"
        raise ValueError(f"a board is BOARD[:N][:{SDRAM}|:{NETLIST}] with N {known}, not {place!r}")
    sized: Ethernet = board.sized(*map(int, connections), in_sdram=in_sdram).ethernet
    return sized
