"""Deselects tests, and counts them in a closing line of the run. A plugin of pytest, also with workers of xdist."""

from collections.abc import Container
from typing import Any

import pytest

_KEY = "deselected"
_COUNTS = pytest.StashKey[dict[str, int]]()


def deselect(config: pytest.Config, items: list[pytest.Item], left: Container[str], to: str = "") -> None:
    """Take the tests whose names are in ``left`` out of ``items``; a closing line counts those left ``to`` others."""
    out = [each for each in items if each.nodeid in left]
    items[:] = [each for each in items if each.nodeid not in left]
    config.hook.pytest_deselected(items=out)
    if to and out and hasattr(config, "workeroutput"):
        config.workeroutput.setdefault(_KEY, {})[to] = len(out)
    elif to and out:
        config.stash.setdefault(_COUNTS, {})[to] = len(out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the numbers of a worker; each worker collects all tests, and the main process none."""
    node.config.stash[_COUNTS] = getattr(node, "workeroutput", {}).get(_KEY, {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for to, count in config.stash.get(_COUNTS, {}).items():
        terminalreporter.write_line(f"{count} tests are left to {to}")
