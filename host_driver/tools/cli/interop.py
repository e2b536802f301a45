"""``rnic interop``: this project against stacks that it did not write."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, interruptible
from open_rnic.host_driver.tools.cli.figures import check_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from open_rnic.host_driver.tools.interop.case import Case

DEVICES = ("software", "simulated")
COMMAND = "rnic interop linux"  # in the comments around the table that a page keeps
app = typer.Typer(help="Run against stacks that this project did not write.", no_args_is_help=True)


@app.callback()
def _interop() -> None:
    """Makes ``linux`` a command of its own, although it is the only one."""


@app.command()
def linux(
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device", metavar="NAME",
            help="A data path of ours, as of the other commands; software and simulated, if not given.",
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="TEXT", help="Only cases with this in their name; repeat it for more."),
    ] = None,
    list_cases: Annotated[bool, typer.Option("--list", help="Name the cases, and run none.")] = False,
    shell: Annotated[bool, typer.Option("--shell", help="Boot the guest and give it the terminal.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show what each end did in every row.")] = False,
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="For packages, builds and captures.")] = Path(
        "build/interop"
    ),
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Keep the table in this page, where an earlier one is."),
    ] = None,
) -> None:
    """Connect to the Linux kernel's own iWARP driver, siw, and be connected to by it.

    A Debian kernel is fetched, siw built from its source, and both booted in QEMU on loopback; each case is captured,
    and tshark judges the capture. Only what apt has to install needs root.
    """
    from open_rnic.host_driver.devices import check
    from open_rnic.host_driver.tools.interop.cases import MATRIX
    from open_rnic.host_driver.tools.interop.errors import InteropError
    from open_rnic.host_driver.tools.interop.matrix import LANES

    devices = tuple(dict.fromkeys(device or DEVICES))
    for name in devices:
        try:
            check(name, lanes=LANES)
        except ValueError as error:
            raise UsageError(str(error)) from None
    cases = [each for each in MATRIX if not case or any(text in each.name for text in case)]
    if not cases:
        raise UsageError(f"no case has {' or '.join(map(repr, case or ()))} in its name; --list names them")
    if list_cases:
        for each in cases:
            print(f"{each.name:<24} {each.tried}")
        return
    check_page(markdown, COMMAND)
    try:
        if shell:
            raise typer.Exit(interruptible(_shell(folder)))
        failed = interruptible(_run(folder, cases, devices, verbose, markdown))
    except InteropError as error:
        raise CommandError(str(error)) from None
    if failed:
        raise CommandError(f"{failed} rows failed")


async def _run(
    folder: Path, cases: Sequence[Case], devices: Sequence[str], verbose: bool, markdown: Path | None
) -> int:
    """How many rows have failed."""
    from open_rnic.host_driver.tools.bench.table import keep
    from open_rnic.host_driver.tools.interop import matrix, report
    from open_rnic.host_driver.tools.interop.prepare import prepare

    image, found = await prepare(folder)
    print(
        f"Linux {found.release} ({found.version}) with siw, {len(cases)} cases with {' and '.join(devices)}", flush=True
    )
    rows, began = [], time.perf_counter()
    async for row in matrix.run(image, folder, cases, devices):
        rows.append(row)
        print(report.line(row), flush=True)
        if verbose or not row.passed:
            print("\n".join(report.details(row)), flush=True)
        else:
            for more in filter(None, (report.departure(row), report.rate(row))):
                print(f"    {more}", flush=True)
    print(report.summary(rows, time.perf_counter() - began))
    if markdown:
        title = f"Linux {found.release} ({found.version}), {' and '.join(devices)}"
        keep(markdown, COMMAND, [report.table(rows, title)])
    return sum(not row.passed for row in rows)


async def _shell(folder: Path) -> int:
    from open_rnic.host_driver.tools.interop import shell
    from open_rnic.host_driver.tools.interop.guest import Guest, free_ports
    from open_rnic.host_driver.tools.interop.initramfs import ADDRESS, HOST
    from open_rnic.host_driver.tools.interop.prepare import prepare

    image, _ = await prepare(folder)
    [port] = free_ports(1)
    print(shell.WELCOME.format(address=ADDRESS, host=HOST, service=Guest.service, port=port), flush=True)
    return await shell.run(image, port)
