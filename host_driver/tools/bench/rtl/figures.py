"""Figures of place and route in a file that can be shared, so that others need not measure them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from open_rnic.host_driver.tools.bench.rtl.jobs import Placed

if TYPE_CHECKING:
    from open_rnic.host_driver.tools.bench.rtl.sweep import Case

__all__ = ["Figures"]

_WHAT = ("block", "lanes", "part", "seed")


class Figures:
    """One result for each seed of a case, as a line of JSON, with the hash under which the store has it.

    ``path`` is the file with earlier ones, if there is any. Raises ValueError for a line that is not such a result,
    naming the line.
    """

    def __init__(self, path: Path | None = None):
        self._lines: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._known: dict[str, Placed] = {}
        for number, line in enumerate(path.read_bytes().splitlines() if path and path.exists() else (), 1):
            try:
                plain = json.loads(line)
                self._known[plain["key"]] = _placed(plain["result"])
                self._lines[tuple(plain[name] for name in _WHAT)] = plain
            except (ValueError, LookupError, TypeError, AttributeError):
                raise ValueError(f"{path}: line {number} is not a figure of this command") from None

    def get(self, key: str) -> Placed | None:
        """Return the result under this hash, if it is known."""
        return self._known.get(key)

    def put(self, key: str, case: Case, seed: int, result: Placed) -> None:
        """Keep a result in the place of an older one of the same case and seed."""
        what = (case.block, case.lanes, case.part, seed)
        self._lines[what] = dict(zip(_WHAT, what, strict=True)) | {"key": key, "result": result._asdict()}

    def write(self, to: TextIO) -> None:
        """Write all results, those that this run did not ask for included."""
        for _, line in sorted(self._lines.items()):
            to.write(json.dumps(line, separators=(",", ":")) + "\n")


def _placed(plain: dict[str, Any]) -> Placed:
    """Return a result; raises TypeError unless it has all fields and their types."""
    placed = Placed(**plain)
    counts = (placed.used, placed.block, placed.around)
    if not (
        isinstance(placed.frequency, float)
        and all(isinstance(net, str) for net in placed.path)
        and all(isinstance(number, int) for count in counts for number in count.values())
    ):
        raise TypeError
    return placed
