"""How much of a build is done, from the logs of Yosys and nextpnr while they write them."""

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Progress"]

_GENERATED, _SYNTHESISED, _PLACED, _ROUTED = 0.05, 0.35, 0.65, 0.95  # shares of a build, as a whole RNIC takes them
_PASSES = 52  # of Yosys for an FPGA
_PASS = re.compile(r"\d+\.(\d+)\. Executing ")
_ITERATION = re.compile(r"Info:\s+at iteration #(\d+)(, type ALL|: temp)")
_ARCS = re.compile(r"Info: Routing (\d+) arcs")
_LEFT = re.compile(r"Info:.*\|.*\|.*\|\s*(\d+)\|")


class Progress:
    """The share of a build that is done; it only rises. How many rounds a placement takes is not known before its end.

    Parameters
    ----------
    folder : where the tools write their logs, ``top.rpt`` and ``top.tim``

    """

    def __init__(self, folder: Path):
        self._folder, self._read, self._arcs = folder, {}, 0
        self.share = _GENERATED

    def update(self) -> float:
        """Read what the tools have written since the last call, and return the share."""
        for name, share_of in (("top.rpt", self._synthesis), ("top.tim", self._place_and_route)):
            for line in self._lines(name):
                self.share = max(self.share, share_of(line))
        return self.share

    def _lines(self, name: str) -> Iterator[str]:
        path = self._folder / name
        if not path.exists():
            return
        with open(path, "rb") as file:
            file.seek(self._read.get(name, 0))
            *whole, _ = file.read().split(b"\n")  # the last line may not be complete
        self._read[name] = self._read.get(name, 0) + sum(len(line) + 1 for line in whole)
        for line in whole:
            yield line.decode(errors="replace")

    def _synthesis(self, line: str) -> float:
        done = min(1, int(found[1]) / _PASSES) if (found := _PASS.match(line)) else 0
        return _GENERATED + (_SYNTHESISED - _GENERATED) * done

    def _place_and_route(self, line: str) -> float:
        if found := _ITERATION.match(line):
            first, whole = (0, 0.8) if "type" in found[2] else (0.8, 0.2)  # by force, then by exchanges
            return _SYNTHESISED + (_PLACED - _SYNTHESISED) * (first + whole * (1 - 0.9 ** int(found[1])))
        if found := _ARCS.match(line):
            self._arcs = int(found[1])
            return _PLACED
        if self._arcs and (found := _LEFT.match(line)):
            return _PLACED + (_ROUTED - _PLACED) * max(0, 1 - int(found[1]) / self._arcs)
        return _ROUTED if "Program finished normally" in line else 0
