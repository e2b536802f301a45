"""What the commands share: how they fail, and options that mean the same everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import resource
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import typer

from open_rnic.host_driver.tools.named import NamedFile

if TYPE_CHECKING:
    from open_rnic.host_driver.device import Device

_T = TypeVar("_T")


class CommandError(Exception):
    """A failure that the user can act on: one line that names the value and the place.

    ``main`` prints it as ``rnic: <line>`` and exits with ``status``.
    """

    status = 1


class UsageError(CommandError):
    """The command was asked for something that it cannot do, or was fed something that it cannot read."""

    status = 2


def whole_number(text: str | int) -> int:
    """What ``typer.Option(parser=whole_number)`` makes of an option's text: decimal, or 0x and hex digits."""
    try:
        return text if isinstance(text, int) else int(text, 0)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file that is at ``path`` only once all has been written; standard output for ``-``.

    It is opened at once, so that a path that cannot be written is reported before the work. After an exception,
    KeyboardInterrupt too, what was at ``path`` before is unchanged and nothing else is left. What is no regular file,
    like ``/dev/stdout``, is written directly. Raises OSError, which names ``path``.
    """
    if path == Path("-"):
        yield sys.stdout
        return
    place = path.resolve()
    if place.exists() and not place.is_file():
        with _text(path, "w", path) as file:
            yield file
        return
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        file = _text(fresh, "x", path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with file:
            yield file
        fresh.replace(place)
    finally:
        fresh.unlink(missing_ok=True)


def _text(file: Path, mode: str, told: Path) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(NamedFile(file, mode, str(told))))


DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="The data path: software, simulated (the RTL in Verilator), serial:PORT[:BAUD] (a board), "
        "serial:sim:BOARD (a board in Verilator, link and all).",
    ),
]
LanesOption = Annotated[
    int,
    typer.Option(
        "--lanes",
        metavar="N",
        parser=whole_number,
        help="Width of the data path in 32-bit lanes: 1, 2, 4, 8 or 16. A board has its own.",
    ),
]


async def open_device(name: str, lanes: int, waves: Path | None = None) -> Device:
    """The device that the options ask for; raises UsageError for an unknown name or width, or waves that it has not."""
    from open_rnic.host_driver import devices

    try:
        return await devices.open_device(name, lanes=lanes, waves=waves)
    except ValueError as error:
        raise UsageError(str(error)) from None


def allow_files() -> None:
    """Let this process have as many files open as the system lets it: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def interruptible(work: Coroutine[Any, Any, _T], *, kept: bool = False) -> _T:
    """Run to the end; at SIGINT or SIGTERM cancel, let everything be cleared away, and exit with 128 + the signal.

    ``kept``: the same command will go on from there, and the user is told so.
    """
    came: list[signal.Signals] = []

    async def main() -> _T:
        task = asyncio.ensure_future(work)

        def stop(number: signal.Signals) -> None:
            if not came:  # a second one must not disturb the clearing away
                task.cancel()
            came.append(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        return await task

    try:
        result = asyncio.run(main())
    except asyncio.CancelledError:
        if not came:
            raise
    if came:  # also when the work was over by then: more may be to follow
        if kept:
            typer.echo("interrupted; what is done is kept, and the same command goes on from there", err=True)
        raise typer.Exit(128 + came[0])
    return result
