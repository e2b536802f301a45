"""The command line: one program, ``rnic``.

Each command is a function in a module of its own, registered below by one line. It imports slow modules inside its
body, so that ``rnic --help`` answers at once. It raises the errors that ``report`` knows: ``UsageError`` or
``CommandError`` (``host_driver.tools.cli.common``), ``DeviceError`` or ``OSError``, or ``typer.Exit(code)`` to end with
another exit status.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
import warnings
from collections.abc import Sequence
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.lib.optional_packages import MissingExtraError
from open_rnic.host_driver.tools.cli import (
    bench,
    boards,
    build,
    cache,
    connect,
    crossings,
    demo,
    doctor,
    find,
    frame,
    inspect,
    interop,
    listen,
    litex,
    man,
    margins,
    memory,
    output,
    perftest,
    program,
    registers,
    rping,
    rsockets,
    samples,
    split,
    verilog,
)
from open_rnic.host_driver.tools.cli.common import CommandError, line_of
from open_rnic.host_driver.tools.cli.help import WIDTH, Command, Commands
from open_rnic.host_driver.tools.cli.output import give_up_output, name_output


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rnic {version('open-rnic')}")
        raise typer.Exit


app = typer.Typer(
    help="An open iWARP RNIC: MPA (RFC 5044, RFC 6581) in hardware, with its host driver.",
    no_args_is_help=True,
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """The options before a command."""


for panel, functions in {
    "Connect": (
        demo.demo, listen.listen, connect.connect, rping.rping, memory.memory, samples.samples, perftest.perftest,
        rsockets.rcopy, rsockets.rstream, rsockets.riostream,
    ),
    "Boards": (
        boards.boards, build.build, litex.litex, program.program, find.find, inspect.inspect, crossings.crossings,
        margins.margins,
    ),
    "Verify": (frame.frame, frame.deframe, verilog.verilog, registers.registers),
    "Study": (split.split,),
    "Machine": (doctor.doctor, cache.cache, man.man),
}.items():  # fmt: skip
    for function in functions:
        app.command(rich_help_panel=panel)(function)
app.add_typer(interop.app, name="interop", rich_help_panel="Verify", cls=Commands)
app.add_typer(bench.app, name="bench", rich_help_panel="Study", cls=Commands)
# Typer keeps the line ends of all paragraphs but the first, and would not wrap these at the terminal's width.
for command in (*app.registered_commands, *bench.app.registered_commands, *interop.app.registered_commands):
    paragraphs = cleandoc((command.callback and command.callback.__doc__) or "").split("\n\n")
    command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    command.cls = Command


@functools.cache
def commands() -> Any:
    """Return all commands as one, made once in a process: Typer makes them anew for each call."""
    return typer.main.get_command(app)


def report(error: BaseException) -> int:
    """Report an error in one line on standard error, and return its exit status.

    Any other exception is a bug, and is raised again with its traceback.
    """
    while isinstance(error, BaseExceptionGroup):  # of a task group: report the first error
        error = error.exceptions[0]
    status = 1
    match error:
        case KeyboardInterrupt() | typer.Abort():
            return 130
        case BrokenPipeError():
            give_up_output()
            return 1
        case CommandError():
            line, status = str(error), error.status
        case TyperException():
            # without the word that Typer's validation puts in front of its reason
            line, status = error.format_message().replace(": Value error, ", ": ", 1), error.exit_code
        case OSError():
            if isinstance(error, ConnectionError):
                from open_rnic.host_driver.tools.cli.endpoint import status_of

                status = status_of(error)
            if error.filename == output.NAME:
                give_up_output()
            line = line_of(error)
        case DeviceError() | MissingExtraError():
            line = str(error)
        case _:
            raise error
    print("rnic:", " ".join(line.split()), file=sys.stderr)
    return status


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit status; ``arguments`` default to the process's."""
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        # obj: reports quote the command line
        status = commands()(given, prog_name="rnic", standalone_mode=False, obj=given)
        sys.stdout.flush()  # fails here, and not at the interpreter's exit, if the reader has closed
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        return report(error)
    return status if isinstance(status, int) else 0


def main() -> None:
    """The entry point of ``rnic``; see ``host_driver.__main__``."""
    name_output()
    logging.basicConfig(format="rnic: %(message)s")
    logging.getLogger("open_rnic").setLevel(logging.INFO)  # report long operations; of other packages, only warnings
    # Ignore gateware that is not used because of an interrupt or an error. A filter by category would import Amaranth.
    warnings.filterwarnings("ignore", "(?s).* created but never used")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that child processes are ended
    status = run()
    try:
        sys.stdout.flush()
    except OSError:  # after an error that has been reported
        give_up_output()
    sys.exit(status)
