"""``rnic cache``: what is kept of earlier builds and verdicts, and how much of it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from open_rnic.host_driver.builds import cache as store
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.cli.common import UsageError
from open_rnic.host_driver.tools.cli.figures import show_tables


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all entries.")] = False,
) -> None:
    """Show what the user's cache holds, such as simulations.

    It has the verdicts of proofs and of mutants, too. Nothing in it is lost if it is deleted: it is made again when it
    is needed. OPEN_RNIC_CACHE is its folder, OPEN_RNIC_CACHE_MIB its limit.
    """
    if clear:
        store.clear()
    try:
        limit = store.limit()
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    found: dict[str, list[Path]] = {kind: [] for kind in store.KINDS}
    for entry in store.entries():
        found[entry.parent.name].append(entry)
    rows = [_row(kind, entries) for kind, entries in found.items()]
    rows.append(_row("all", [entry for entries in found.values() for entry in entries]))
    show_tables([Table("", ("kind", "entries", "MiB", "oldest use"), rows, left=(0, 3))])
    typer.echo(f"in {store.root()}, at most {limit >> 20} MiB")


def _row(kind: str, entries: list[Path]) -> tuple[str, str, str, str]:
    uses = []
    for entry in entries:
        with suppress(OSError):  # another process has deleted it
            uses.append(store.used(entry))
    oldest = time.strftime("%Y-%m-%d %H:%M", time.localtime(min(uses))) if uses else ""
    return kind, f"{len(entries):,}", f"{sum(map(store.size, entries)) / (1 << 20):,.1f}", oldest
