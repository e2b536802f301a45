"""Functional coverage of the data path: the situations in which the tests have exercised the RTL.

A :class:`Cross` names situations by their dimensions; it also lists impossible combinations, each with the reason. In a
simulation of an ``MpaDatapath``, a :class:`.Collector` observes the ports of the RTL, and records the situations that
occur; it is independent of the test. Each simulation writes a file to the folder OPEN_RNIC_COVERAGE; ``conftest.py`` of
these tests merges the files at the end of the run.

    python -m open_rnic.cocotb_tests.coverage [PAGE]    # prints the last run's coverage, and updates PAGE
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from pathlib import Path
from typing import Any
from uuid import uuid4

from open_rnic.host_driver.builds.folders import built
from open_rnic.rtl.lib.lanes import LANES

VARIABLE = "OPEN_RNIC_COVERAGE"

Bin = tuple[Any, ...]


@dataclass(frozen=True)
class Cross:
    """All combinations of the values of some dimensions. ``without`` lists the reasons why some are impossible."""

    name: str
    title: str
    dimensions: dict[str, tuple[Any, ...]]
    without: tuple[tuple[str, Callable[..., bool]], ...] = ()

    @cached_property
    def bins(self) -> dict[Bin, str | None]:
        """All combinations; an impossible one has a reason, a possible one has None."""
        return {each: self._why_not(each) for each in product(*self.dimensions.values())}

    def _why_not(self, each: Bin) -> str | None:
        at = dict(zip(self.dimensions, each, strict=True))
        return next((why for why, cannot in self.without if cannot(**at)), None)

    @cached_property
    def possible(self) -> dict[Bin, int]:
        """The possible combinations, with their numbers."""
        return {each: number for number, (each, why) in enumerate(self.bins.items()) if why is None}

    @cached_property
    def impossible(self) -> Counter[str]:
        """The number of impossible combinations for each reason."""
        return Counter(why for why in self.bins.values() if why)

    @cached_property
    def _places(self) -> list[dict[Any, int]]:
        return [{value: place for place, value in enumerate(values)} for values in self.dimensions.values()]

    def number(self, each: Bin) -> int:
        """Return the number of a combination; raises KeyError if it is unknown, ValueError if it is impossible."""
        if why := self._why_not(each):
            raise ValueError(f"{self.name}: {self._words(each)} was seen, but {why}")
        number = 0
        for places, value in zip(self._places, each, strict=True):
            number = number * len(places) + places[value]
        return number

    def missing(self, numbers: set[int]) -> list[str]:
        """Return descriptions of the possible combinations that are not in ``numbers``."""
        return [self._words(each) for each, number in self.possible.items() if number not in numbers]

    def _words(self, each: Bin) -> str:
        return ", ".join(f"{name} {value}" for name, value in zip(self.dimensions, each, strict=True))


_PHASES = tuple(range(128))
_RESIDUES = (0, 1, 2, 3)
_ON = (False, True)
_CUTS = ("none", "start", "marker", "length", "ulpdu", "pad", "crc")
_RX_ERRORS = ("none", "CRC", "FPDUPTR", "RX_LENGTH")
_TX_ERRORS = ("TX_LENGTH", "too short", "too long")
_FIRST = ("nothing", "empty", "Send", "Write", "Read", "Read Response", "Terminate", "other", "error")
_SETS = tuple("+".join(kinds) or "none" for kinds in (
    [name for bit, name in enumerate(("Send", "Write", "Read")) if accepted >> bit & 1] for accepted in range(8)
))  # fmt: skip
_KINDS = ("-", *_SETS)
_ORDERS = tuple(" ".join(each) for n in (2, 3) for each in permutations(("mpa", "ulpdu", "fpdu"), n))


def _no_such_kind(role: str, model: str, kind: str, **_: Any) -> bool:
    return (kind == "-") is (model == "peer-to-peer") or (role == "initiator" and "+" in kind)


RECEIVE = Cross(
    "receive",
    "FPDUs at `rx_mpa`",
    {
        "width": ("1 lane", "more"), "phase": _PHASES, "length mod 4": _RESIDUES, "cut": _CUTS, "CRC": _ON,
        "markers": _ON, "error": _RX_ERRORS,
    },
    (
        ("CRC errors are not detected without CRC", lambda **at: at["error"] == "CRC" and not at["CRC"]),
        ("there is no FPDUPTR without markers", lambda **at: at["error"] == "FPDUPTR" and not at["markers"]),
        ("no marker is cut without markers", lambda **at: at["cut"] == "marker" and not at["markers"]),
        ("a ULPDU of 2 modulo 4 octets has no PAD", lambda **at: at["cut"] == "pad" and at["length mod 4"] == 2),
        (
            "octets behind a ULPDU_Length over the maximum are ignored",
            lambda **at: at["error"] == "RX_LENGTH" and at["cut"] in ("ulpdu", "pad", "crc"),
        ),
        (
            "a marker only precedes a ULPDU_Length over the maximum at phase 0",
            lambda **at: at["error"] == "RX_LENGTH" and at["cut"] == "marker" and at["phase"],
        ),
    ),
)  # fmt: skip
TRANSMIT = Cross(
    "transmit",
    "FPDUs at `tx_mpa`",
    {"width": ("1 lane", "more"), "phase": _PHASES, "length mod 4": _RESIDUES, "CRC": _ON, "markers": _ON},
)
REFUSED = Cross(
    "refused",
    "rejected ULPDUs at `tx_ulpdu`",
    {"lanes": LANES, "length mod 4": _RESIDUES, "CRC": _ON, "markers": _ON, "error": _TX_ERRORS},
)
FENCE = Cross(
    "fence",
    "connections up to their first FPDU",
    {
        "lanes": LANES, "role": ("initiator", "responder"), "model": ("client-server", "peer-to-peer"),
        "permissive": _ON, "RTR": _KINDS, "first": _FIRST, "order": _ORDERS,
    },
    (
        (
            "the RTR is one kind for an initiator, a set for a responder, and none in the client-server model",
            lambda **at: _no_such_kind(at["role"], at["model"], at["RTR"]),
        ),
        (
            "only a responder in the peer-to-peer model can be permissive",
            lambda **at: at["permissive"] and (at["role"], at["model"]) != ("responder", "peer-to-peer"),
        ),
        (
            "the order contains the FPDU if and only if there is one",
            lambda **at: (at["first"] == "nothing") is ("fpdu" in at["order"]),
        ),
        (
            "MPA is enabled and a ULPDU is offered in every connection",
            lambda **at: not {"mpa", "ulpdu"} <= {*at["order"].split()},
        ),
    ),
)  # fmt: skip
CROSSES = {each.name: each for each in (RECEIVE, TRANSMIT, REFUSED, FENCE)}

Hits = dict[str, set[int]]  # for each cross, the numbers of the combinations that occurred


def numbers(seen: dict[str, set[Bin]]) -> Hits:
    """Convert combinations to their numbers; raises ValueError for an impossible one."""
    return {name: set(map(CROSSES[name].number, bins)) for name, bins in seen.items()}


def write(path: Path, hits: Hits) -> None:
    """Write hits to a file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{uuid4().hex}")
    part.write_text(json.dumps({name: sorted(each) for name, each in hits.items()}))
    part.rename(path)


def read(folder: Path) -> Hits:
    """Merge the hits of all simulations in ``folder``."""
    hits: Hits = {name: set() for name in CROSSES}
    for path in folder.glob("*.json"):
        for name, some in json.loads(path.read_text()).items():
            hits[name].update(some)
    return hits


def summary(hits: Hits) -> Iterator[str]:
    """Yield a line for each cross, and lines for its missing combinations."""
    for name, cross in CROSSES.items():
        seen, of = len(hits[name]), len(cross.possible)
        yield f"{name:<9}{seen:>7,} of {of:>6,} {seen * 100 / of:6.1f} %  {cross.title.replace('`', '')}"
        missing = cross.missing(hits[name])
        yield from (f"{'':<9}missing: {each}" for each in missing[:5])
        if missing[5:]:
            yield f"{'':<9}and {len(missing) - 5:,} more"


def complete(hits: Hits) -> bool:
    """Whether all possible combinations occurred."""
    return not any(cross.missing(hits[name]) for name, cross in CROSSES.items())


def table(hits: Hits) -> Iterator[str]:
    """Yield the lines of the tables for the documentation, in Markdown."""
    yield "| cross | what it covers | dimensions | combinations | possible | seen |"
    yield "|---|---|---|---|---|---|"
    for name, cross in CROSSES.items():
        dimensions = " x ".join(f"{each} ({len(values)})" for each, values in cross.dimensions.items())
        counts = f"{len(cross.bins):,} | {len(cross.possible):,} | {len(hits[name]):,}"
        yield f"| {name} | {cross.title} | {dimensions} | {counts} |"
    yield ""
    yield "| cross | impossible combinations | reason |"
    yield "|---|---|---|"
    for name, cross in CROSSES.items():
        yield from (f"| {name} | {count:,} | {why} |" for why, count in cross.impossible.items())


def main() -> int:
    """Print the last run's coverage, and update the tables of a page, if one is given."""
    hits = read(built("coverage"))
    if not any(hits.values()):
        print(f"no coverage in {built('coverage')}: run the tests first", file=sys.stderr)
        return 1
    if len(sys.argv) > 1:
        from open_rnic.host_driver.tools.bench.table import put  # not in simulations, which import this module

        try:
            put(Path(sys.argv[1]), "coverage", "\n".join(table(hits)) + "\n")
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
    print("\n".join(summary(hits)))
    return not complete(hits)


def folder() -> Path | None:
    """Return the folder for the hits of this run's simulations, or None if coverage is off."""
    value = os.environ.get(VARIABLE)
    return Path(value) if value else None
