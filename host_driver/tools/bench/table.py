"""A table that can be printed on a terminal, and kept on a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Table", "around", "keep", "show"]

_WORD = 20  # longest word, in characters, that is never broken


@dataclass(frozen=True)
class Table:
    """A table of text cells.

    ``left`` holds the text columns, which may wrap; all other columns are numbers, which may not. ``extra`` holds the
    columns that a terminal shows only on request; a page shows them always. ``caption`` is printed below the table.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[int] = ()
    extra: Sequence[int] = ()
    caption: str = ""

    def markdown(self) -> str:
        """Return the title and the table as Markdown."""
        rule = ["---" if column in self.left else "---:" for column in range(len(self.headings))]
        lines = (self.headings, rule, *self.rows)
        return f"**{self.title}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def show(console: Console, tables: Iterable[Table], *, everything: bool = False) -> None:
    """Print tables without truncating any cell.

    Columns without content are left out, and so are ``extra`` columns unless ``everything`` is true. If columns are too
    wide, words wrap. If even single words do not fit, the table is printed as records, with one line per cell.
    """
    for table in tables:
        columns = [
            n for n in range(len(table.headings))
            if any(row[n] for row in table.rows) and (everything or n not in table.extra)
        ]  # fmt: skip
        widths = _widths(table, columns, console.width - 1 - 3 * len(columns))
        if widths is None:
            _records(console, table, columns)
            continue
        from rich.table import Table as Shown

        shown = Shown(title=table.title or None, caption=table.caption or None)
        for n, width in zip(columns, widths, strict=True):
            shown.add_column(
                table.headings[n], width=width, justify="left" if n in table.left else "right", overflow="fold"
            )
        for row in table.rows:
            shown.add_row(*(row[n] for n in columns))
        console.print(shown, markup=False)


def _widths(table: Table, columns: Sequence[int], room: int) -> list[int] | None:
    """Return the widths of the columns, at most ``room`` in total, or None if even single words do not fit."""
    widest, least = [], []
    for n in columns:
        cells = [row[n] for row in table.rows]
        words = [word for text in (table.headings[n], *(cells if n in table.left else ())) for word in text.split()]
        whole = () if n in table.left else cells
        widest.append(max(map(len, (table.headings[n], *cells))))
        least.append(max((*(min(len(word), _WORD) for word in words), *map(len, whole)), default=1))
    while sum(widest) > room:
        spare = [a - b for a, b in zip(widest, least, strict=True)]
        if not any(spare):
            return None
        most = max(range(len(widest)), key=lambda nth: (spare[nth] > 0, widest[nth]))
        widest[most] -= 1
    return widest


def _records(console: Console, table: Table, columns: Sequence[int]) -> None:
    if table.title:
        console.print(table.title, markup=False, highlight=False, style="italic")
    for row in table.rows:
        console.print()
        for n in columns:
            if row[n]:
                heading = f"{table.headings[n]}: " if table.headings[n] else ""
                console.print(f"{heading}{row[n]}", markup=False, highlight=False)
    if table.caption:
        console.print(f"\n{table.caption}", markup=False, highlight=False)


def keep(page: Path, command: str, tables: Iterable[Table]) -> None:
    """Put tables into a page of Markdown, and replace those of an earlier run of the command: see :func:`put`."""
    put(page, command, "\n" + "\n".join(table.markdown() for table in tables) + "\n")


def put(page: Path, command: str, text: str) -> None:
    """Put text into a page of Markdown, and replace that from an earlier run of the same command.

    The text is between two comments, ``<!-- COMMAND -->`` and ``<!-- end of COMMAND -->``. Raises ValueError if the
    page does not have these comments.
    """
    before, after = around(page, command)
    page.write_text(f"{before}\n{text}{after}")


def around(page: Path, command: str) -> tuple[str, str]:
    """Return the text before and behind the tables of ``command``; raises ValueError if the comments are missing."""
    first, last = f"<!-- {command} -->", f"<!-- end of {command} -->"
    found = re.fullmatch(f"(.*?{re.escape(first)})\n.*?({re.escape(last)}.*)", page.read_text(), re.DOTALL)
    if found is None:
        raise ValueError(f"{page} has no place for tables, from {first} to {last}")
    return found[1], found[2]
