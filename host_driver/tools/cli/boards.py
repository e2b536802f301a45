"""``rnic boards``: lists the supported boards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from open_rnic.boards.core import Core
from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError
from open_rnic.host_driver.tools.cli.figures import ColumnsOption, show_tables

if TYPE_CHECKING:
    from open_rnic.boards.board import Board

FOLDER = Path("build") / "boards"  # default folder, with a subfolder for each board
CoreOption = Annotated[
    Core | None,
    typer.Option(
        "--core",
        help="rnic: the whole RNIC, at the board's Ethernet port; mpa: the MPA data path alone; rdma: the data path "
        "with an RDMA engine and memory. Default: rnic if the board has Ethernet, otherwise mpa.",
    ),
]


def folder(board: Board, core: Core) -> Path:
    """Return the default folder of a build."""
    return FOLDER / (board.name if core is board.core else f"{board.name}-{core}")


# The families' names of look-up tables, registers and block RAM; an iCE40's registers are in its logic cells.
_CELLS = ("TRELLIS_COMB", "LUT4", "ICESTORM_LC"), ("TRELLIS_FF", "DFF"), ("DP16KD", "BSRAM", "ICESTORM_RAM")


def boards(
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write a table of docs/boards.md, with the builds in --out.")
    ] = False,
    core: CoreOption = None,
    names: Annotated[
        bool, typer.Option("--names", help="Write only the names, one per line; with --core, of those that fit.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder in which the boards were built.")
    ] = FOLDER,
    columns: ColumnsOption = False,
) -> None:
    """List the boards: what is built for them, and its clock.

    With --columns, also the FPGA, the widths, the link, and Ethernet.
    """
    need("boards")
    from open_rnic.boards import BOARDS, find

    if as_json + markdown + names > 1:
        raise UsageError("only one of --json, --markdown and --names can be given")
    every = [find(name) for name in BOARDS]
    if names:
        typer.echo("\n".join(each.name for each in every if core is None or each.supports(core)))
        return
    if as_json:
        typer.echo(json.dumps([_described(board) for board in every], indent=2))
        return
    if markdown:
        typer.echo(_markdown(every, core or Core.MPA, out), nl=False)
        return

    from open_rnic.host_driver.tools.bench.table import Table

    headings = "name", "board", "core", "FPGA", "lanes", "MHz", "link", "Ethernet"
    rows = [
        (each.name, each.title, each.core, each.part, _widths(each), _megahertz(each), each.uart,
         "" if each.ethernet is None else each.ethernet.phy)
        for each in every
    ]  # fmt: skip
    show_tables([Table("", headings, rows, left=(0, 1, 2, 3, 4, 6, 7), extra=(3, 4, 6, 7))], everything=columns)
    typer.echo("core: rnic, a whole RNIC at the Ethernet port; mpa, the MPA data path alone")
    typer.echo("MHz: the clock of this core")
    if columns:
        typer.echo("lanes: widths of mpa that fit, in units of 32 bits; * marks the default of --lanes")
        typer.echo("link: location of the UART, at 3 Mbaud unless `rnic boards --json` shows another rate")
        typer.echo("Ethernet: the PHY of the port at which the whole RNIC is built")


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
        "ethernet": None if board.ethernet is None else {
            "phy": board.ethernet.phy,
            "interface": board.ethernet.interface,
            "clock_hz": board.ethernet.clock_hz,
            "connections": board.ethernet.connections,
            "memory_octets": board.ethernet.memory,
            "ring_octets": board.ethernet.ring_of(board.ethernet.connections),
        },
        "toolchain": FLOWS[board.flow].title,
        "openfpgaloader": list(board.loader),
    }


def _megahertz(board: Board) -> str:
    return f"{board.clocks(board.core)['sync'] / 1e6:g}"


def _widths(board: Board) -> str:
    return ", ".join(f"{each}*" if each == board.lanes else f"{each}" for each in board.widths)


def _markdown(every: list[Board], core: Core, out: Path) -> str:
    from open_rnic.boards.build import BuildError, recall

    data_path = core is not Core.RNIC
    first = ["board", "FPGA", *(["lanes built, that fit"] if data_path else ["connections"])]
    headings = [*first, "LUTs", "registers", "block RAM", "clocks in MHz: reached / asked", "SHA-256"]
    rows = [headings, ["---"] * len(headings)]
    for board in every:
        if not board.supports(core):
            continue
        try:
            built = recall(out / folder(board, core).name)
        except BuildError as error:
            raise CommandError(str(error)) from None
        row = [board.name, board.part]
        if data_path:
            row.append(f"{'-' if built is None else built.lanes}, of {', '.join(map(str, board.widths))}")
        elif board.ethernet is not None:
            row.append(str(board.ethernet.connections if built is None else built.connections))
        if built is None:
            clocks = [(name, f"- / {hertz / 1e6:g}") for name, hertz in board.all_clocks(core).items()]
            row += ["not built", "", "", _named(clocks), ""]
        else:
            clocks = [(name, f"{got / 1e6:.1f} / {asked / 1e6:.4g}") for name, (got, asked) in built.clocks.items()]
            row += [*(_count(built.cells, kinds) for kinds in _CELLS), _named(clocks), built.sha256[:16]]
        rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _named(clocks: list[tuple[str, str]]) -> str:
    """Return the clocks in one cell; the core's has no name if it is the only one."""
    return ", ".join(text if name == "sync" else f"{name} {text}" for name, text in clocks)


def _count(cells: dict[str, tuple[int, int]], kinds: tuple[str, ...]) -> str:
    return ", ".join(
        f"{used:,} of {available:,}" for kind in kinds for used, available in [cells.get(kind, (0, 0))] if used
    )
