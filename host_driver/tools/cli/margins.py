"""``rnic margins``: the setup and hold that a board's delays leave at RGMII."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError
from open_rnic.host_driver.tools.cli.figures import show_tables

if TYPE_CHECKING:
    from open_rnic.boards.margins import Margin

HEADINGS = "board", "way", "pins", "delay", "setup", "hold", "worst setup", "worst hold", "middle"


def margins(
    boards: Annotated[
        list[str] | None, typer.Argument(metavar="[BOARD]...", help="The boards; all with RGMII by default.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write the table of docs/clocks.md.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show the setup and hold that a board's delays leave at RGMII.

    All times are in ps, and computed from the board's file and from data sheets: docs/clocks.md. The exit status is 1
    if one of them is negative with typical figures.
    """
    need("boards")
    from open_rnic.boards.margins import margins as margins_of
    from open_rnic.boards.margins import with_rgmii
    from open_rnic.host_driver.tools.bench.table import Table

    if markdown and as_json:
        raise UsageError("only one of --json and --markdown can be given")
    try:
        found = {name: margins_of(name) for name in boards or with_rgmii()}
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        typer.echo(json.dumps({name: [asdict(each) for each in both] for name, both in found.items()}, indent=1))
    elif markdown:
        typer.echo(table(found), nl=False)
    else:
        show_tables([Table("", HEADINGS, rows(found), left=(0, 1, 2))])
    if short := [f"{name}: {each.way}" for name, both in found.items() for each in both
                 if min(each.setup, each.hold) < 0]:  # fmt: skip
        raise CommandError(f"no margin is left: {', '.join(short)}")


def rows(found: dict[str, tuple[Margin, Margin]]) -> list[list[str]]:
    """Return the cells of a row for each direction of each board."""
    return [[name, *(str(cell) for cell in asdict(each).values())] for name, both in found.items() for each in both]


def table(found: dict[str, tuple[Margin, Margin]]) -> str:
    """Return the table of docs/clocks.md."""
    lines = [HEADINGS, ["---"] * 3 + ["--:"] * 6, *rows(found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
