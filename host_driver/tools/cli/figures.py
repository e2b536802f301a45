"""Shared by the commands that measure: files for the figures, and progress bars."""

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
    Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON; - is standard output.")
]
CsvOption = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write all figures as CSV; - is standard output.")
]
ColumnsOption = Annotated[
    bool, typer.Option("--columns", help="Show all columns, not only those that fit in 80 characters.")
]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Put the tables into this page of Markdown.")
]

_FILE = 200  # width in characters of a table that is written to a file or a pipe


def check_files(*paths: Path | None) -> None:
    """Raise OSError for the first of these files that cannot be written, except ``-``, which is standard output.

    Commands that measure for a long time check this first. Raises UsageError if two files are the same.
    """
    wanted = [path for path in paths if path is not None]
    for path in wanted:
        if wanted.count(path) > 1:
            raise UsageError(f"{path} is given for two outputs: one would overwrite the other")
        there = path.exists()
        if path == Path("-") or (there and not (path.is_file() or path.is_dir())):
            continue  # a pipe or a device must not be opened twice
        path.open("a").close()
        if not there:
            path.unlink()


def check_page(page: Path | None, command: str) -> None:
    """Raise OSError or CommandError if ``page`` cannot take the tables of ``command``."""
    from open_rnic.host_driver.tools.bench.table import around

    if page is not None:
        try:
            around(page, command)
        except ValueError as error:
            raise CommandError(str(error)) from None
        check_files(page)


def check_folder(folder: Path | None) -> None:
    """Create ``folder``; raises OSError if that fails, and CommandError if the folder is not writable."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise CommandError(f"{folder}: Permission denied")


def write_to(path: Path | None, write: Callable[[TextIO], None]) -> None:
    """Call ``write`` with the file ``path``, or with standard output for ``-``; do nothing for None."""
    if path is not None:
        with whole_file(path) as file:
            write(file)


def keep_tables(page: Path, command: str, tables: Sequence[Table]) -> None:
    """Put ``tables`` into ``page`` between the comments that name ``command``; raises CommandError if it has none."""
    from open_rnic.host_driver.tools.bench.table import keep

    try:
        keep(page, command, tables)
    except ValueError as error:
        raise CommandError(str(error)) from None


def console() -> Console:
    """Return a console on standard output, with the width of the terminal or of ``COLUMNS``."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal or os.environ.get("COLUMNS") else Console(width=_FILE)


def show_tables(tables: Sequence[Table], *, everything: bool = False) -> None:
    """Print ``tables``, with the width of the terminal or of ``COLUMNS``; a last line reports omitted columns."""
    from open_rnic.host_driver.tools.bench.table import show

    show(console(), tables, everything=everything)
    if not everything and any(table.extra for table in tables):
        typer.echo("run with --columns to show more columns")


def counting_bars() -> Progress:
    """Return progress bars with counts. Without a terminal, a line is printed for each bar when it starts."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    class Lines(Progress):
        def add_task(
            self, description: str, start: bool = True, total: float | None = 100.0, *more: Any, **fields: Any
        ) -> TaskID:
            if total != 0:
                count = f" ({total:,.0f})" if total else ""
                print(f"rnic: {description}{count}", file=sys.stderr, flush=True)
            return super().add_task(description, start, total, *more, **fields)

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    there = sys.stderr.isatty()
    kind = Progress if there else Lines
    return kind(*columns, console=Console(stderr=True), transient=True, disable=not there)
