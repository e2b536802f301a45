"""Figures of place and route in a file that can be shared, so that others need not measure them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from open_rnic.host_driver.tools.bench.rtl.jobs import Placed

if TYPE_CHECKING:
    from open_rnic.host_driver.tools.bench.rtl.sweep import Case

__all__ = ["Figures"]


class Figures:
    """The result of each seed, under the same hash as in the store.

    ``path`` has a line of JSON for each; a file that does not exist counts as empty. Raises ValueError for a line that
    is not such a result, naming the line.
    """

    def __init__(self, path: Path):
        self._known: dict[str, Placed] = {}
        self._used: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
            try:
                plain = json.loads(line)
                self._known[plain["key"]] = Placed(**plain["result"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path}: line {number} is not a figure of this command") from None

    def get(self, key: str) -> Placed | None:
        """Return the result of this key, if it is known."""
        return self._known.get(key)

    def use(self, key: str, case: Case, seed: int, result: Placed) -> None:
        """Keep a result, which this run shows."""
        what = {"block": case.block, "lanes": case.lanes, "part": case.part, "seed": seed}
        self._used[key] = what | {"key": key, "result": result._asdict()}

    def write(self, to: TextIO) -> None:
        """Write the results that this run shows; those of older RTL or tools are left out."""
        for line in sorted(self._used.values(), key=lambda each: list(each.values())[:4]):
            to.write(json.dumps(line, separators=(",", ":")) + "\n")
