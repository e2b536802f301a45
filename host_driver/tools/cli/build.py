"""``rnic build``: builds a bitstream for a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.boards.board import Core
from open_rnic.host_driver.optional_packages import need
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.cli.boards import CoreOption, folder
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, whole_number
from open_rnic.host_driver.tools.cli.figures import show_tables

if TYPE_CHECKING:
    from open_rnic.boards.build import Result


def build(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="A board that `rnic boards` lists.")],
    core: CoreOption = Core.MPA,
    lanes: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number, help="The width of the data path in 32-bit lanes; default: the board's."
        ),
    ] = None,
    baud: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number, help="The UART's baud rate, as in serial:PORT:N; default: the board's."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", parser=whole_number, help="The seed of the placement.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder to build in; default: build/boards/BOARD[-rdma]."),
    ] = None,
) -> None:
    """Build a board's bitstream, with the data path, its link and a UART, using only the toolchain from PyPI.

    The command prints the cells used, the clock reached and required, and the critical path. The exit status is 1 if
    the clock is too slow. If a board needs a vendor's tool, the tool's scripts are written, and it is run if it is
    installed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    need("boards")
    from open_rnic.boards.build import BuildError
    from open_rnic.boards.build import build as build_bitstream

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task(f"{board}: generation", total=4)

        def stage(what: str) -> None:
            if errors.is_terminal:
                progress.update(bar, description=f"{board}: {what}", advance=1)
            else:
                errors.print(f"{board}: {what}", highlight=False, soft_wrap=True)

        try:
            result = build_bitstream(
                board, out or folder(board, core), core=core, lanes=lanes, baud=baud, seed=seed, stage=stage
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        except BuildError as error:
            raise CommandError(f"{board}: {error}") from None
    _tell(result)
    if not result.met:
        raise CommandError(
            f"{board}: the clock is too slow: {_clock(result)}; another --seed or fewer --lanes may do better"
        )


def _clock(result: Result) -> str:
    return f"{result.reached / 1e6:.1f} MHz reached, {result.asked / 1e6:.1f} MHz asked"


def _tell(result: Result) -> None:
    rows = [(kind, f"{used:,}", f"{available:,}") for kind, (used, available) in result.cells.items()]
    show_tables([Table("", ("", "used", "available"), rows, left=(0,))])
    begin, end, logic, wires = result.path
    for line in (
        *(["synthesis failed at first, and passed with another netlist of the same logic"] if result.again else []),
        f"UART: {result.baud:,} baud",
        f"bitstream: {result.bitstream} (SHA-256 {result.sha256[:16]}…)",
        f"critical path: {logic + wires:.1f} ns, of which {wires:.1f} in wires, from {begin} to {end}",
        f"clock: {_clock(result)}",
    ):
        typer.echo(line)
