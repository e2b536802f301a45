"""Shared by all commands: their errors, and options that have the same meaning everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import io
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO, TypeVar, get_type_hints

import typer

from open_rnic.host_driver.tools.named import NamedFile
from open_rnic.rtl.lib.lanes import LANES

if TYPE_CHECKING:
    from open_rnic.host_driver.device import Device

_T = TypeVar("_T")


class CommandError(Exception):
    """A failure that the user can act on: one line that names the value and the place.

    ``main`` prints it as ``rnic: <line>`` and exits with ``status``.
    """

    status = 1


class UsageError(CommandError):
    """The command cannot do what its options ask for, or cannot read its input."""

    status = 2


def line_of(error: Exception) -> str:
    """Return the line that reports an error: of an error that no peer, user or system explains, with its kind."""
    from open_rnic.host_driver.device import DeviceError

    match error:
        case OSError():
            line = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
        case CommandError() | DeviceError():
            line = str(error)
        case _:
            line = f"{type(error).__name__}: {error}"
    return " ".join(line.split())


def whole_number(text: str | int) -> int:
    """Parse the text of an option, for ``typer.Option(parser=whole_number)``: decimal, or 0x and hex digits."""
    try:
        return text if isinstance(text, int) else int(text, 0)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def number(*names: str, help: str) -> Any:  # noqa: A002
    """Return an option whose value is a whole number."""
    return typer.Option(*names, metavar="N", parser=whole_number, help=help)


def check_least(least: int, given: Mapping[str, int]) -> None:
    """Raise UsageError for the first option in ``given`` whose value is less than ``least``."""
    for option, value in given.items():
        if value < least:
            raise UsageError(f"{option} must be at least {least}, not {value}")


def check_range(least: int, most: int, given: Mapping[str, int | None]) -> None:
    """Raise UsageError for the first option in ``given`` whose value is outside of these."""
    for option, value in given.items():
        if value is not None and not least <= value <= most:
            raise UsageError(f"{option} must be {least} to {most}, not {value}")


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Open a text file that appears at ``path`` only when it is complete; ``-`` is standard output.

    The file is opened at once, so that an unwritable path is reported before the work starts. After an exception,
    including KeyboardInterrupt, the previous file at ``path`` is unchanged, and no other file is left. A path that is
    not a regular file, such as ``/dev/stdout``, is written directly. Raises OSError, which names ``path``.
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


def _text(file: Path, mode: str, shown: Path) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(NamedFile(file, mode, str(shown))))


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace ``command``'s parameter ``options``, a dataclass, by its fields, so that Typer makes options of them.

    The help shows the fields of the class itself before those that it inherits.
    """
    hints = get_type_hints(command, include_extras=True)
    hints.pop("return")
    group = hints.pop("options")
    shared = get_type_hints(group, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(command).parameters.values()
    parameters = [
        *(each.replace(kind=keyword, annotation=hints[each.name]) for each in own if each.name in hints),
        *(
            inspect.Parameter(field.name, keyword, default=field.default, annotation=shared[field.name])
            for field in sorted(dataclasses.fields(group), key=lambda field: field.name not in group.__annotations__)
        ),
    ]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        options = group(**{name: given.pop(name) for name in shared})
        command(options=options, **given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="The data path: software, simulated (the RTL in Verilator), serial:PORT[:BAUD] (a board), "
        "serial:sim:BOARD (a board in Verilator, including its link), udp:ADDRESS[:PORT] (a board that is an RNIC, "
        "with TCP of its own), udp:sim:BOARD[:N][:sdram|:netlist] (the same in Verilator).",
    ),
]
LanesOption = Annotated[
    int,
    number(
        "--lanes",
        help=f"The width of the data path in 32-bit lanes: {', '.join(map(str, LANES[:-1]))} or {LANES[-1]}. "
        "The width of a board is fixed.",
    ),
]


async def open_device(
    name: str, lanes: int, waves: Path | None = None, *, offload: bool | None = False
) -> Device:
    """Open the device that the options name; with ``offload``, it has an RDMA engine; None: if it can.

    Raises UsageError for an unknown name or width, or for ``waves`` or ``offload`` of a device that has none.
    """
    from open_rnic.host_driver import devices

    try:
        return await devices.open_device(name, lanes=lanes, waves=waves, offload=offload)
    except ValueError as error:
        raise UsageError(str(error)) from None


def raise_file_limit() -> None:
    """Raise the number of files that this process may open as far as the system allows: each connection needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def interruptible(
    work: Coroutine[Any, Any, _T], *, kept: bool = False, abandon: Callable[[], None] | None = None
) -> _T:
    """Run to the end. On SIGINT or SIGTERM, cancel the work, wait for its cleanup, and exit with 128 + the signal.

    If ``kept`` is set, the same command can resume the work, and a message says so. ``abandon`` replaces a cleanup that
    takes long: it is called, and the process ends.
    """
    came: list[signal.Signals] = []

    def say() -> None:
        if kept:
            typer.echo("interrupted; completed results are kept, and the same command continues from there", err=True)

    async def main() -> _T:
        task = asyncio.ensure_future(work)

        def stop(number: signal.Signals) -> None:
            if abandon is not None:
                _leave(128 + number, say, abandon)
            if not came:  # a second signal must not interrupt the cleanup
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
    if came:  # even if the work had finished by then: the command may have more to do
        say()
        raise typer.Exit(128 + came[0])
    return result


def _leave(status: int, say: Callable[[], None], abandon: Callable[[], None]) -> NoReturn:
    """End the process at once, without its exit handlers, which would wait for what has been abandoned."""
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[J\x1b[?25h")  # progress bars have hidden the cursor
        say()
        sys.stdout.flush()
        sys.stderr.flush()
    abandon()
    os._exit(status)
