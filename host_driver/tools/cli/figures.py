"""What the commands that measure share: where their figures go, and the bars that show how far they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, whole_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from open_rnic.host_driver.tools.bench.table import Table

JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="All figures as JSON; - is standard output.")
]
CsvOption = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="All figures as CSV; - is standard output.")
]
ColumnsOption = Annotated[
    bool, typer.Option("--columns", help="Show all columns, not only those for which 80 characters have room.")
]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Put the tables into this page of Markdown.")
]

_FILE = 200  # characters of a line of a table that goes into a file or a pipe


def check_files(*paths: Path | None) -> None:
    """Raise OSError for the first of these that could not be written; - can.

    Commands that measure for long look before they do. Raises UsageError when two are the same.
    """
    wanted = [path for path in paths if path is not None]
    for path in wanted:
        if wanted.count(path) > 1:
            raise UsageError(f"{path} is asked for twice: one would be lost in the other")
        there = path.exists()
        if path == Path("-") or (there and not (path.is_file() or path.is_dir())):
            continue  # a pipe is not opened twice
        path.open("a").close()
        if not there:
            path.unlink()


def check_page(page: Path | None, command: str) -> None:
    """Raise OSError or CommandError for a page that could not keep the tables of ``command``."""
    from open_rnic.host_driver.tools.bench.table import around

    if page is not None:
        try:
            around(page, command)
        except ValueError as error:
            raise CommandError(str(error)) from None
        check_files(page)


def check_folder(folder: Path | None) -> None:
    """Make ``folder``; raises OSError when that cannot be, CommandError when nothing can be written there."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise CommandError(f"{folder}: Permission denied")


def write_to(path: Path | None, write: Callable[[TextIO], None]) -> None:
    """``write`` to the file ``path``, to standard output if that is ``-``, or not at all."""
    if path is not None:
        with whole_file(path) as file:
            write(file)


def keep_tables(page: Path, command: str, tables: Sequence[Table]) -> None:
    """Put ``tables`` into ``page``, between the comments that name ``command``; raises CommandError without these."""
    from open_rnic.host_driver.tools.bench.table import keep

    try:
        keep(page, command, tables)
    except ValueError as error:
        raise CommandError(str(error)) from None


def console() -> Console:
    """Standard output, as wide as the terminal or ``COLUMNS`` say."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal or os.environ.get("COLUMNS") else Console(width=_FILE)


def show_tables(tables: Sequence[Table], *, everything: bool = False) -> None:
    """Print ``tables``, as wide as the terminal or ``COLUMNS`` say; a line says if columns were left out."""
    from open_rnic.host_driver.tools.bench.table import show

    show(console(), tables, everything=everything)
    if not everything and any(table.extra for table in tables):
        typer.echo("--columns shows more columns")


def counting_bars() -> Progress:
    """Bars with how many are done of how many; without a terminal, a line for each when it begins."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    class Lines(Progress):
        def add_task(
            self, description: str, start: bool = True, total: float | None = 100.0, *more: Any, **fields: Any
        ) -> TaskID:
            if total != 0:
                count = f", {total:,.0f} of them" if total else ""
                print(f"rnic: {description}{count}", file=sys.stderr, flush=True)
            return super().add_task(description, start, total, *more, **fields)

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    there = sys.stderr.isatty()
    kind = Progress if there else Lines
    return kind(*columns, console=Console(stderr=True), transient=True, disable=not there)
