"""``rnic interop``: tests against other iWARP implementations."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, interruptible
from open_rnic.host_driver.tools.cli.endpoint import OFFLOADS, OffloadName, OffloadOption
from open_rnic.host_driver.tools.cli.figures import check_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from open_rnic.host_driver.tools.interop.cable import Plan
    from open_rnic.host_driver.tools.interop.case import Case

DEVICES = ("software", "simulated")
COMMAND = "rnic interop linux"  # in the comments around the table that a page keeps


class Transport(StrEnum):
    """The TCP of our end."""

    KERNEL = "kernel"
    QEMU = "qemu"
    QEMU_RTL = "qemu-rtl"


app = typer.Typer(help="Test against other iWARP implementations.", no_args_is_help=True)


@app.callback()
def _interop() -> None:
    """Keep ``linux`` a command of its own: with a single command, Typer would merge the two."""


@app.command()
def linux(
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="This project's data path, as in other commands; default: software and simulated. udp:sim:BOARD is "
            "the whole RNIC of a board.",
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case", metavar="TEXT", help="Run only cases with this text in their names; repeat it for more."
        ),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="Run the long cases, too, which take minutes in simulation.")
    ] = False,
    one_of_each: Annotated[
        bool,
        typer.Option(
            "--one-of-each",
            help="Run one case of each kind in each role with each device. Cases of a kind differ only in their "
            "arguments, such as sizes.",
        ),
    ] = False,
    list_cases: Annotated[bool, typer.Option("--list", help="List the cases, and run none.")] = False,
    shell: Annotated[bool, typer.Option("--shell", help="Boot the guest, and attach it to the terminal.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the events of each end in every row.")] = False,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="The folder for packages, builds and captures.")
    ] = Path("build/interop"),
    transport: Annotated[
        Transport,
        typer.Option(
            "--transport",
            help="Our end's TCP: the kernel's, over QEMU's own network; or this project's, over raw Ethernet frames of "
            "the guest's card, in Python or in simulated RTL.",
        ),
    ] = Transport.KERNEL,
    drop: Annotated[
        float,
        typer.Option(
            "--drop", metavar="P",
            help="The probability that a frame is lost, with --transport qemu or qemu-rtl, or --device udp:sim:BOARD.",
        ),
    ] = 0.0,
    offload: OffloadOption = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Replace the table in this page of Markdown."),
    ] = None,
) -> None:
    """Test connections from and to siw, the Linux kernel's iWARP driver.

    The command downloads a Debian kernel, builds siw from its source, and boots both in QEMU on loopback. Each case is
    captured, and tshark checks the capture. Only packages that apt must install need root.
    """
    from open_rnic.host_driver.devices import names
    from open_rnic.host_driver.devices.sim.build import BuildError
    from open_rnic.host_driver.net.pipe import Faults
    from open_rnic.host_driver.tools.interop.cable import Plan
    from open_rnic.host_driver.tools.interop.cases import MATRIX
    from open_rnic.host_driver.tools.interop.errors import InteropError
    from open_rnic.host_driver.tools.interop.matrix import fitting
    from open_rnic.host_driver.tools.interop.matrix import one_of_each as choose
    from open_rnic.host_driver.tools.requirements import need_simulator

    devices = tuple(dict.fromkeys(device or DEVICES))
    try:
        parsed = [names.parse(name) for name in devices]
    except ValueError as error:
        raise UsageError(str(error)) from None
    for name in parsed:
        if offload is OffloadName.RDMA and not name.offloads:
            raise UsageError(f"--offload rdma needs an RDMA engine, and the {name} device has none")
    boards = [name for name in parsed if isinstance(name, names.Rnic)]
    for name in boards:
        if not isinstance(name, names.SimulatedRnic):
            raise UsageError(f"{name} has a cable that does not lead to the guest: use udp:sim:BOARD")
        if transport is Transport.QEMU:
            raise UsageError(f"{name} has TCP of its own: leave --transport {transport} out")
    if boards and transport is Transport.KERNEL:
        if len(boards) < len(devices):
            raise UsageError(f"{boards[0]} and other devices need --transport qemu-rtl")
        transport = Transport.QEMU_RTL
    if not 0 <= drop < 1:
        raise UsageError(f"--drop must be at least 0 and less than 1, not {drop:g}")
    if drop and transport is Transport.KERNEL:
        raise UsageError("--drop needs --transport qemu or qemu-rtl, or --device udp:sim:BOARD")
    cases = [each for each in MATRIX if not case or any(text in each.name for text in case)]
    cases = [each for each in cases if long or not each.long]
    if transport is not Transport.KERNEL:
        # A relay has sockets of the kernel at both ends. A killed guest vanishes silently behind a cable, which TCP
        # reports after minutes (RFC 9293 §3.8.3).
        cases = [each for each in cases if not (each.relayed or each.kills)]
    plan = None if transport is Transport.KERNEL else Plan(Faults(drop=drop), rtl=transport is Transport.QEMU_RTL)
    fit = {name: fitting(cases, name, plan, offload=OFFLOADS[offload]) for name in devices}
    if not any(fit.values()):
        texts = f" with {' or '.join(map(repr, case))} in its name" if case else ""
        with_it = " and ".join(devices)
        raise UsageError(f"no case{texts} runs with {with_it}; --list names those that do, and --long adds some")
    every = sum(map(len, fit.values()))
    if one_of_each:
        fit = choose(fit)
    if list_cases:
        for each in {each.name: each for some in fit.values() for each in some}.values():
            print(f"{each.name:<24} {each.description}")
        return
    check_page(markdown, COMMAND)
    try:
        if not shell and (transport is Transport.QEMU_RTL or any(each.simulated for each in parsed)):
            need_simulator()
        if shell:
            raise typer.Exit(interruptible(_shell(folder)))
        failed = interruptible(_run(folder, fit, every, verbose, markdown, plan, offload=OFFLOADS[offload]))
    except (InteropError, BuildError) as error:
        raise CommandError(str(error)) from None
    if failed:
        raise CommandError(f"{failed} rows failed")


async def _run(
    folder: Path,
    cases: Mapping[str, Sequence[Case]],
    every: int,
    verbose: bool,
    markdown: Path | None,
    plan: Plan | None,
    *,
    offload: bool | None,
) -> int:
    """Return the number of rows that failed.

    ``every`` is the number of rows before some were chosen, and ``plan`` is None without a cable.
    """
    from open_rnic.host_driver.tools.bench.table import keep
    from open_rnic.host_driver.tools.interop import matrix, report
    from open_rnic.host_driver.tools.interop.prepare import prepare

    image, found = await prepare(folder)
    print(report.opening(f"Linux {found.release} ({found.version})", sum(map(len, cases.values())), every), flush=True)
    rows, began = [], time.perf_counter()
    async for row in matrix.run(image, folder, cases, plan, offload=offload):
        rows.append(row)
        print(report.line(row), flush=True)
        if verbose or not row.passed:
            print("\n".join(report.details(row)), flush=True)
        else:
            for more in filter(None, (report.departure(row), report.rate(row))):
                print(f"    {more}", flush=True)
    print(report.summary(rows, time.perf_counter() - began))
    if markdown:
        title = f"Linux {found.release} ({found.version}), {' and '.join(cases)}"
        keep(markdown, COMMAND, [report.table(rows, title)])
    return sum(not row.passed for row in rows)


async def _shell(folder: Path) -> int:
    from open_rnic.host_driver.tools.interop import shell
    from open_rnic.host_driver.tools.interop.initramfs import ADDRESS, HOST
    from open_rnic.host_driver.tools.interop.prepare import prepare
    from open_rnic.host_driver.tools.interop.qemu import Guest, free_ports

    image, _ = await prepare(folder)
    [port] = free_ports(1)
    print(shell.WELCOME.format(address=ADDRESS, host=HOST, service=Guest.service, port=port), flush=True)
    return await shell.run(image, port)
