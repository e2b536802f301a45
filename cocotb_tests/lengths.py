"""The two lengths of a test run: ``make test`` is what a change needs, ``make test-long`` has every test.

A test belongs to both unless it is marked with the reason why ``make test`` can do without it::

    @long("more seeds of test_programs")
    def test_a_long_program(): ...

    @pytest.mark.parametrize("lanes", widths(1, 2, 4))

This module is a plugin of pytest: without the option ``--long``, it deselects the marked tests, and says how many.
"""

from collections.abc import Sequence
from typing import Any

import pytest

MARK = "long"
_LEFT = pytest.StashKey[int]()  # the number of tests that this run leaves out
_ALIKE = (1,), (4, 2), (16, 8)  # lanes whose RTL is the same but for numbers, the one to prefer first


def long(reason: str) -> pytest.MarkDecorator:
    """Mark a test, or a parameter of one, that only ``make test-long`` runs, for this ``reason``."""
    return pytest.mark.long(reason)


def widths(*lanes: int) -> list[Any]:
    """Return these widths as parameters of tests; of those whose RTL is the same, ``make test`` has one."""
    same = long("a width with the RTL of another one")
    return [each if each in _short(lanes) else pytest.param(each, marks=same) for each in lanes]


def beside(lanes: int, among: Sequence[int]) -> tuple[int, ...]:
    """Return the widths ``among`` that ``make test`` has, if ``lanes`` is one of them, else all others."""
    return tuple(each for each in among if (each in _short(among)) == (lanes in _short(among)))


def _short(lanes: Sequence[int]) -> set[int | None]:
    return {next((each for each in alike if each in lanes), None) for alike in _ALIKE}


def shortened(reason: str, few: int, values: Any) -> list[Any]:
    """Return ``values`` as parameters of tests, tuples if there are several; ``make test`` has the first ``few``."""
    rows = [each if isinstance(each, tuple) else (each,) for each in values]
    return [pytest.param(*row, marks=long(reason) if number >= few else ()) for number, row in enumerate(rows)]


def add_option(parser: pytest.Parser) -> None:
    """Add the option ``--long``."""
    parser.addoption("--long", action="store_true", help="run the tests of `make test-long`, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    left = [each for each in items if each.get_closest_marker(MARK)]
    items[:] = [each for each in items if not each.get_closest_marker(MARK)]
    config.hook.pytest_deselected(items=left)
    if hasattr(config, "workeroutput"):  # of a worker of xdist, whose main process collects nothing
        config.workeroutput[MARK] = len(left)
    else:
        config.stash[_LEFT] = len(left)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the number of tests that a worker has left out; each worker collects all tests."""
    node.config.stash[_LEFT] = node.workeroutput.get(MARK, 0) if hasattr(node, "workeroutput") else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash.get(_LEFT, 0):
        terminalreporter.write_line(f"{left} tests are left to make test-long")
