"""``rnic build``: a bitstream for a board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from host_driver.cli.common import CommandError, UsageError, whole_number


def build(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="colorlight_5a75b")],
    lanes: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number, help="Width of the data path in 32-bit lanes; default: the board's own."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", parser=whole_number, help="Seed of the placement.")] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where to build; default: build/boards/BOARD.")
    ] = None,
) -> None:
    """Build a bitstream with the data path and its self-test, with nothing but the toolchain from PyPI.

    Prints the clock reached against asked, and the cells used. Exits with 1 when the clock is too slow.
    """
    from rich.console import Console
    from rich.table import Table

    from boards.build import BuildError
    from boards.build import build as build_bitstream

    folder = out or Path("build") / "boards" / board
    progress = Console(stderr=True)
    try:
        with progress.status(f"{board}: starting") as status:
            result = build_bitstream(
                board, folder, lanes=lanes, seed=seed, stage=lambda what: status.update(f"{board}: {what}")
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    except BuildError as error:
        raise CommandError(str(error)) from None

    table = Table()
    for heading in ("", "used", "available"):
        table.add_column(heading, justify="right" if heading else "left")
    for kind, (used, available) in sorted(result.cells.items()):
        table.add_row(kind, f"{used:,}", f"{available:,}")
    console = Console()
    console.print(table)
    console.print(f"bitstream: {result.bitstream}", soft_wrap=True, highlight=False)
    clock = f"clock: {result.reached / 1e6:.1f} MHz reached, {result.asked / 1e6:.1f} MHz asked"
    if not result.met:
        raise CommandError(f"{clock}: too slow")
    console.print(clock)
