"""Present the rows of the matrix, on a terminal and as a table in a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.interop.matrix import Row

WORTH = 0.05  # seconds; the rates of shorter transfers are noise


def opening(system: str, rows: int, every: int) -> str:
    """Return the first line of a run, with the number of rows that a choice of ``rows`` out of ``every`` leaves out."""
    left = f", one of each kind; {every - rows} left to make interop" if rows < every else ""
    return f"{system} with siw, {rows} rows{left}"


def line(row: Row) -> str:
    """Return the line that is shown when a row is complete."""
    return f"{row.verdict:<18} {row.seconds:5.1f} s  {row.device:<9} {row.case.name}"


def details(row: Row) -> list[str]:
    """Return the details of a row as lines."""
    lines = [f"test      {row.case.description}", f"standard  {row.case.standard}"]
    if row.finding:
        lines += [f"siw       {row.finding.siw}", f"our end   {row.finding.ours}"]
        if row.finding.departs:
            lines.append(f"departs   {row.finding.departs}")
    lines.append(f"tshark    {row.judged}: {row.capture.name}")
    if speed := rate(row):
        lines.append(f"rate      {speed}")
    if row.wrong:
        lines += [f"WRONG     {wrong}" for wrong in row.wrong]
        lines += [f"guest     {command}: {' '.join(printed.split()) or 'nothing'}" for command, printed in row.commands]
    return [f"    {text}" for text in lines]


def rate(row: Row) -> str:
    """Return the rate of a row and its slowest stage, or "" if the transfer was too short to measure."""
    transfer = row.transfer
    if transfer.seconds < WORTH:
        return ""
    return f"{transfer.octets:,} octets at {transfer.rate:,.0f} octets/s, slowest: {transfer.slowest}"


def summary(rows: Sequence[Row], seconds: float) -> str:
    """Return the last line of a run."""
    failed = sum(not row.passed for row in rows)
    departing = len({row.case.name for row in rows if row.finding and row.finding.departs})
    ended = f"{failed} FAILED" if failed else "all passed"
    return f"{len(rows)} rows, {ended}, siw departs from a standard in {departing} cases; {seconds:.0f} s"


def departure(row: Row) -> str:
    """Return siw's departure from a standard in a row, or ""."""
    return row.finding.departs if row.finding else ""


def table(rows: Sequence[Row], title: str) -> Table:
    """Return the table of a document: a line for each case, with results that all devices share stated once."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.case.name, []).append(row)
    headings = ("case", "test", "required by the standard", "siw", "our end", "verdict", "octets/s, slowest stage")
    lines = []
    for name, group in by_case.items():
        rates = "; ".join(
            f"{row.device} {row.transfer.rate:,.0f}, {row.transfer.slowest}"
            for row in group
            if row.transfer.seconds >= WORTH
        )
        cells = [
            *(f"`{name}`", group[0].case.description, group[0].case.standard),
            _of_each(group, lambda row: row.finding.siw if row.finding else "—"),
            _of_each(group, lambda row: row.finding.ours if row.finding else "—"),
            _of_each(group, lambda row: ". ".join(filter(None, (row.verdict, departure(row), *row.wrong)))),
            rates,
        ]
        lines.append([cell.replace("|", "\\|") for cell in cells])
    return Table(title, headings, lines, left=range(len(headings)))


def _of_each(group: Sequence[Row], cell: Callable[[Row], str]) -> str:
    """Return the text of a cell for these rows, by device where it differs."""
    texts = [cell(row) for row in group]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"{row.device}: {each}" for row, each in zip(group, texts, strict=True))
