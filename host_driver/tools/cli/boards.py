"""``rnic boards``: lists the supported boards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from open_rnic.boards.board import Core
from open_rnic.host_driver.optional_packages import need
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError
from open_rnic.host_driver.tools.cli.figures import ColumnsOption, show_tables

if TYPE_CHECKING:
    from open_rnic.boards.board import Board

FOLDER = Path("build") / "boards"  # default folder, with a subfolder for each board
CoreOption = Annotated[
    Core,
    typer.Option("--core", help="Behind the link: the MPA data path, or with it an RDMA engine and memory."),
]


def folder(board: str, core: Core) -> Path:
    """Return the default folder of a build."""
    return FOLDER / (board if core is Core.MPA else f"{board}-{core}")


# The families' names of look-up tables, registers and block RAM; an iCE40's registers are in its logic cells.
_CELLS = ("TRELLIS_COMB", "LUT4", "ICESTORM_LC"), ("TRELLIS_FF", "DFF"), ("DP16KD", "BSRAM", "ICESTORM_RAM")


def boards(
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write the table of docs/boards.md, with the builds in --out.")
    ] = False,
    names: Annotated[bool, typer.Option("--names", help="Write only the names, one per line.")] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder in which the boards were built.")
    ] = FOLDER,
    columns: ColumnsOption = False,
) -> None:
    """List the boards: FPGA, widths of the data path that fit, link to the host, and clock."""
    need("boards")
    from open_rnic.boards import BOARDS, find

    if as_json + markdown + names > 1:
        raise UsageError("only one of --json, --markdown and --names can be given")
    every = [find(name) for name in BOARDS]
    if names:
        typer.echo("\n".join(BOARDS))
        return
    if as_json:
        typer.echo(json.dumps([_described(board) for board in every], indent=2))
        return
    if markdown:
        typer.echo(_markdown(every, out), nl=False)
        return

    from open_rnic.host_driver.tools.bench.table import Table

    headings = "name", "board", "FPGA", "lanes", "MHz", "link"
    rows = [(each.name, each.title, each.part, _widths(each), f"{each.clock_hz / 1e6:g}", each.uart) for each in every]
    show_tables([Table("", headings, rows, left=(0, 1, 2, 3, 5), extra=(2, 5))], everything=columns)
    typer.echo("lanes: widths that fit, in units of 32 bits; * marks the default of --lanes")
    if columns:
        typer.echo("link: location of the UART, at 3 Mbaud unless `rnic boards --json` shows another rate")


def _described(board: Board) -> dict[str, Any]:
    from open_rnic.boards.flows import FLOWS

    return {
        "name": board.name,
        "title": board.title,
        "fpga": board.part,
        "lanes": board.lanes,
        "widths": list(board.widths),
        "oscillator_hz": board.oscillator_hz,
        "clock_hz": board.clock_hz,
        "link": "uart",
        "uart": board.uart,
        "baud": board.baud,
        "frame_octets": board.size,
        "rdma_memory_octets": board.memory,
        "toolchain": FLOWS[board.flow].title,
        "openfpgaloader": list(board.loader),
    }


def _widths(board: Board) -> str:
    return ", ".join(f"{each}*" if each == board.lanes else f"{each}" for each in board.widths)


def _markdown(every: list[Board], folder: Path) -> str:
    from open_rnic.boards.build import BuildError, recall

    lines = [
        "| board | FPGA | lanes built, that fit | LUTs | registers | block RAM | clock reached / asked | SHA-256 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for board in every:
        try:
            built = recall(folder / board.name)
        except BuildError as error:
            raise CommandError(str(error)) from None
        fit = ", ".join(map(str, board.widths))
        row = f"| {board.name} | {board.part} | "
        if built is None:
            lines.append(f"{row}-, {fit} | not built | | | - / {board.clock_hz / 1e6:g} MHz | |")
            continue
        counts = [_count(built.cells, kinds) for kinds in _CELLS]
        clock = f"{built.reached / 1e6:.1f} / {board.clock_hz / 1e6:g} MHz"
        lines.append(f"{row}{built.lanes}, of {fit} | {' | '.join(counts)} | {clock} | {built.sha256[:16]} |")
    return "\n".join(lines) + "\n"


def _count(cells: dict[str, tuple[int, int]], kinds: tuple[str, ...]) -> str:
    return ", ".join(
        f"{used:,} of {available:,}" for kind in kinds for used, available in [cells.get(kind, (0, 0))] if used
    )
