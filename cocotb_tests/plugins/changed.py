"""The tests that a change concerns: ``make test-changed``, or ``pytest --changed=REVISION [--within=MINUTES]``.

A test is concerned if its file, or anything that the file imports, differs from the git revision, or if it ran a
simulation whose maker or anything that the maker imports differs: a test of a device builds its simulation by name. The
simulations are those that the ledgers of earlier runs in this checkout name (:mod:`.costs`). A test that no earlier run
knows may be concerned, and is farther than all that are known to be; it is taken to cost as much as others do.

A change of a block that all data paths contain concerns most tests. With a limit of time, those run that are nearest to
the change: the fewer imports lie between a test, or its simulation, and the change, the nearer. Of tests that are as
near, the cheap ones run. The ledgers have their costs, with those of the builds of their simulations.
"""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins import costs
from open_rnic.cocotb_tests.plugins.deselected import deselect
from open_rnic.host_driver.builds import sources
from open_rnic.host_driver.builds.folders import built

ROOT = Path(__file__).parents[2]
UNKNOWN = 1000  # imports between a change and a test that has not run yet: more than any others
TYPICAL = 0.2  # seconds of processor time of a test, where none has run yet
USED = 0.6  # the share of all processors' time that the ledgers know of: collection, imports and waits have the rest


@dataclass
class Known:
    """What is known of a test: the makers of the simulations that it has used, and its seconds of processor time.

    The seconds are the most of all runs: a run that had to build simulations shows what a change will cost.
    """

    makers: set[str] = field(default_factory=set)
    seconds: float = 0.0


def _file() -> Path:
    return built("costs") / "tests.json"


def known() -> dict[str, Known]:
    """Return what all earlier runs have shown."""
    path = _file()
    plain = json.loads(path.read_text()) if path.exists() else {}
    return {test: Known({*makers}, seconds) for test, (makers, seconds) in plain.items()}


def remember(ledger: Path) -> None:
    """Add what the tests in a ledger have used."""
    found = defaultdict(Known, known())
    for line in costs.read(ledger):
        if line["kind"] == "test":
            test = found[line["name"]]
            test.seconds = max(test.seconds, line["own"] + line["started"])
        elif line["kind"] == "use" and line["test"]:
            found[line["test"]].makers.add(line["name"])
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")  # another run may read
    fresh.write_text(json.dumps({name: (sorted(test.makers), test.seconds) for name, test in found.items()}))
    fresh.replace(path)


def differing(revision: str) -> set[Path]:
    """Return the files that differ from a revision, with those that git does not know; raises ValueError."""
    files: set[Path] = set()
    for command in (["diff", "--name-only", revision, "--"], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"--changed {revision}: {(done.stderr.strip() or 'git failed').splitlines()[0]}")
        files |= {ROOT / name for name in done.stdout.splitlines()}
    return files


def concerned(tests: Iterable[tuple[str, Path]], tested: Mapping[str, Known], changed: set[Path]) -> dict[str, int]:
    """Return those of ``tests``, each a name and its file, that a change of these files concerns.

    Each has the number of imports between it, or a simulation that it has used, and the change.
    """

    @cache
    def imports(module: str) -> int | None:
        return min((each.imports for each in sources.needed([module]).values() if each.path in changed), default=None)

    found: dict[str, int] = {}
    for name, path in tests:
        makers = tested[name].makers if name in tested else ()
        distances = [None if name in tested else UNKNOWN, *map(imports, (_module(path), *makers))]
        if near := [each for each in distances if each is not None]:
            found[name] = min(near)
    return found


def nearest(distances: Mapping[str, int], tested: Mapping[str, Known], seconds: float) -> set[str]:
    """Return the tests that are nearest to the change, of which all together take at most so many seconds."""
    seen = [each.seconds for each in tested.values()]
    mean = sum(seen) / len(seen) if seen else TYPICAL

    def cost(name: str) -> float:
        return tested[name].seconds if name in tested else mean

    chosen: set[str] = set()
    for name in sorted(distances, key=lambda name: (distances[name], cost(name))):
        seconds -= cost(name)
        if seconds < 0:
            break
        chosen.add(name)
    return chosen


def _module(path: Path) -> str:
    return ".".join(("open_rnic", *path.relative_to(ROOT).with_suffix("").parts))


def add_option(parser: pytest.Parser) -> None:
    """Add the options ``--changed`` and ``--within``."""
    parser.addoption("--changed", metavar="REVISION", help="run the tests that the changes since REVISION concern")
    parser.addoption("--within", metavar="MINUTES", type=float, help="of these, the nearest, for as long on all cores")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    revision, minutes = config.getoption("--changed"), config.getoption("--within")
    if revision is None:
        if minutes is not None:
            raise pytest.UsageError("--within needs --changed")
        return
    try:
        changed = differing(revision)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    tests, tested = {each.nodeid: each.path for each in items}, known()
    distances = concerned(tests.items(), tested, changed)
    deselect(config, items, tests.keys() - distances)
    if minutes is not None:
        chosen = nearest(distances, tested, USED * 60 * minutes * (os.cpu_count() or 1))
        deselect(config, items, distances.keys() - chosen, "make test, which the change concerns, too")
