"""The tests that a change concerns: ``make test-changed``, or ``pytest --changed REVISION``.

A test is concerned if its file, or anything that the file imports, differs from the git revision, or if it ran a
simulation whose maker or anything that the maker imports differs: a test of a device builds its simulation by name. The
simulations are those that the ledgers of earlier runs in this checkout name (:mod:`.costs`). A test that no earlier run
knows is concerned.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from open_rnic.cocotb_tests import costs
from open_rnic.host_driver import sources
from open_rnic.host_driver.build_folders import built

ROOT = Path(__file__).parents[1]
Uses = dict[str, set[str]]  # the makers of simulations that each test has used


def _known() -> Path:
    return built("costs") / "uses.json"


def uses() -> Uses:
    """Return what the tests of all earlier runs have used."""
    path = _known()
    return {test: set(makers) for test, makers in json.loads(path.read_text()).items()} if path.exists() else {}


def remember(ledger: Path) -> None:
    """Add what the tests in a ledger have used."""
    found: Uses = defaultdict(set, uses())
    for line in costs.read(ledger):
        if line["kind"] == "test":
            found[line["name"]] |= set()
        elif line["kind"] == "use" and line["test"]:
            found[line["test"]].add(line["name"])
    path = _known()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({test: sorted(makers) for test, makers in found.items()}))


def differing(revision: str) -> set[Path]:
    """Return the files that differ from a revision, with those that git does not know; raises ValueError."""
    files: set[Path] = set()
    for command in (["diff", "--name-only", revision, "--"], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"--changed {revision}: {(done.stderr.strip() or 'git failed').splitlines()[0]}")
        files |= {ROOT / name for name in done.stdout.splitlines()}
    return files


def concerned(tests: Iterable[tuple[str, Path]], used: Uses, changed: set[Path]) -> set[str]:
    """Return those of ``tests``, each a name and its file, that a change of these files concerns."""

    def needs(module: str) -> bool:
        return not changed.isdisjoint(sources.needed([module]).values())

    touched = {maker for makers in used.values() for maker in makers if needs(maker)}
    stale = {path: needs(_module(path)) for path in {path for _, path in tests}}
    return {name for name, path in tests if stale[path] or name not in used or used[name] & touched}


def _module(path: Path) -> str:
    return ".".join(("open_rnic", *path.relative_to(ROOT).with_suffix("").parts))


def add_option(parser: pytest.Parser) -> None:
    """Add the option ``--changed``."""
    parser.addoption("--changed", metavar="REVISION", help="run the tests that the changes since REVISION concern")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    revision = config.getoption("--changed")
    if revision is None:
        return
    try:
        changed = differing(revision)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    chosen = concerned([(each.nodeid, each.path) for each in items], uses(), changed)
    config.hook.pytest_deselected(items=[each for each in items if each.nodeid not in chosen])
    items[:] = [each for each in items if each.nodeid in chosen]
