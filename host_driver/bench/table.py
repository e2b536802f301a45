"""A table that can be shown on a terminal, and kept in a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Table", "around", "keep", "show"]


@dataclass(frozen=True)
class Table:
    """Cells as they are to be read; ``left`` are the columns that are text and not numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[int] = ()

    def markdown(self) -> str:
        """The title and the table."""
        rule = ["---" if column in self.left else "---:" for column in range(len(self.headings))]
        lines = (self.headings, rule, *self.rows)
        return f"**{self.title}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def show(console: Console, tables: Iterable[Table]) -> None:
    """Print tables; columns without any content are left out."""
    from rich.table import Table as Shown

    for table in tables:
        columns = [n for n in range(len(table.headings)) if any(row[n] for row in table.rows)]
        shown = Shown(title=table.title)
        for n in columns:
            shown.add_column(table.headings[n], justify="left" if n in table.left else "right")
        for row in table.rows:
            shown.add_row(*(row[n] for n in columns))
        console.print(shown)


def keep(page: Path, command: str, tables: Iterable[Table]) -> None:
    """Put tables into a page of Markdown, in place of those that an earlier run of this command has put there.

    They stand between two comments, ``<!-- COMMAND -->`` and ``<!-- end of COMMAND -->``. Raises ValueError for a page
    without them.
    """
    before, after = around(page, command)
    body = "\n".join(table.markdown() for table in tables)
    page.write_text(f"{before}\n\n{body}\n{after}")


def around(page: Path, command: str) -> tuple[str, str]:
    """What ``page`` has before and behind the tables of ``command``; raises ValueError when it has none."""
    first, last = f"<!-- {command} -->", f"<!-- end of {command} -->"
    found = re.fullmatch(f"(.*?{re.escape(first)})\n.*?({re.escape(last)}.*)", page.read_text(), re.DOTALL)
    if found is None:
        raise ValueError(f"{page} has no place for tables, from {first} to {last}")
    return found[1], found[2]
