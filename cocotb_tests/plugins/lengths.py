"""The two lengths of a test run: ``make test`` is what a change needs, ``make test-long`` has every test.

A test belongs to both unless it is marked with the reason why ``make test`` can do without it::

    @long("more seeds of test_programs")
    def test_a_long_program(): ...

    @pytest.mark.parametrize("lanes", widths(1, 2, 4))

This module is a plugin of pytest: without the option ``--long``, it deselects the marked tests.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from open_rnic.cocotb_tests.plugins.deselected import deselect

MARK = "long"
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
    deselect(config, items, {each.nodeid for each in items if each.get_closest_marker(MARK)}, "make test-long")
