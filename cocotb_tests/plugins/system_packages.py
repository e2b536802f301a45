"""What some tests need of the system beyond README.md: where it is missing, pytest leaves these tests out and says so.

``@needs("tshark")`` marks a test, and ``pytest -m needs_system`` chooses all that are marked. The module is a plugin of
pytest, and, as a program, prints the names of all programs and headers, for ``.ci/without``.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from open_rnic.host_driver.devices.sim.build import HEADERS, missing_headers
from open_rnic.host_driver.errors import MpaConnectionError
from open_rnic.host_driver.lib.debian import package_of
from open_rnic.host_driver.net.pipe import PortError
from open_rnic.host_driver.net.tap import TapNetwork
from open_rnic.host_driver.sctp.transport import sctp_socket

MARK = "needs_system"
PROGRAMS = "chromium", "git", "ip", "iverilog", "mandoc", "ps", "qemu-system-x86_64", "tshark", "unshare"
OTHER_NAMES = {"chromium": ("chromium-browser", "google-chrome")}  # programs that do as well
PACKAGES = {name: package_of(name) for name in PROGRAMS} | HEADERS
TAP, SCTP = "TAP devices as root", "SCTP in the kernel"  # which no package brings


def program(name: str) -> str | None:
    """Return the path of a program of the table, or of another one that does as well; None if there is none."""
    return next(filter(None, map(shutil.which, (name, *OTHER_NAMES.get(name, ())))), None)


@cache
def missing(need: str) -> str:
    """Return why tests cannot have this, as a line; nothing if they can."""
    if need == TAP:
        return _no_tap()
    if need == SCTP:
        return _no_sctp()
    there = program(need) if need in PROGRAMS else need not in missing_headers()
    return "" if there else f"{need} is missing: install the Debian package {PACKAGES[need]}"


def _no_tap() -> str:
    async def attempt() -> None:
        async with TapNetwork("10.9.0.1/24"):
            pass

    try:
        asyncio.run(attempt())
    except PortError as error:
        return str(error)
    return ""


def _no_sctp() -> str:
    try:
        sctp_socket().close()
    except MpaConnectionError as error:
        return str(error)
    return ""


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark a test, or as ``pytestmark`` a module, that needs these programs, headers, ``TAP`` or ``SCTP``."""
    assert {*names} <= {*PACKAGES, TAP, SCTP}, names
    return getattr(pytest.mark, MARK)(*names)


needs_waves = needs(*HEADERS)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip a test if the system lacks what it needs; its reports say what, and reach the main process from workers."""
    wanted = dict.fromkeys(name for mark in item.iter_markers(MARK) for name in mark.args)
    if lacking := [name for name in wanted if missing(name)]:
        item.user_properties += [(MARK, name) for name in lacking]
        item.add_marker(pytest.mark.skip(reason="; ".join(map(missing, lacking))))


def left_out(skipped: Iterable[pytest.TestReport]) -> str:
    """Return the line about skipped tests that names what they lack, and what to install; nothing if they lack nothing.

    A test that lacks two things counts for both.
    """
    lacking = [[name for key, name in report.user_properties if key == MARK] for report in skipped]
    lacking = [names for names in lacking if names]
    if not lacking:
        return ""
    counts = Counter(name for names in lacking for name in names).most_common()
    packages = dict.fromkeys(PACKAGES[name] for name, _ in counts if name in PACKAGES)
    line = f"{len(lacking)} test{'s' * (len(lacking) > 1)} left out: "
    line += ", ".join(f"{name} ({count})" for name, count in counts)
    return line + (f": apt-get install {' '.join(packages)}" if packages else "")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Write the line behind all that others write."""
    yield
    if line := left_out(terminalreporter.getreports("skipped")):
        terminalreporter.write_line(line)


if __name__ == "__main__":
    print(*PACKAGES, *(name for names in OTHER_NAMES.values() for name in names), sep="\n")
