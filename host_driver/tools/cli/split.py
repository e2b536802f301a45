"""``rnic split``: a comparison of the splits of a connection's work between host and device."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.cli.common import (
    CommandError,
    UsageError,
    check_least,
    interruptible,
    number,
    whole_file,
)
from open_rnic.host_driver.tools.cli.figures import (
    ColumnsOption,
    CsvOption,
    JsonOption,
    MarkdownOption,
    check_files,
    check_page,
    counting_bars,
    keep_tables,
    show_tables,
    write_to,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from open_rnic.host_driver.tools.split.connections import Counted
    from open_rnic.host_driver.tools.split.model import Setting
    from open_rnic.host_driver.tools.split.profile import Host
    from open_rnic.host_driver.tools.split.report import Report
    from open_rnic.host_driver.tools.split.simulate import Simulated

_LEAST_EMSS = 128 + 6 + 4 * 2  # RFC 5044 §4.5: a MULPDU of 128, ULPDU_Length, CRC and up to 2 markers


def split(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="NAME",
            help="The host: this (measured on first use), cortex-a53, xeon-avx512 or a FILE.toml.",
        ),
    ] = "this",
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="NAME",
            help="The link to the device: pcie-gen3-x4, pcie-gen3-x16, uart-3mbaud or a FILE.toml.",
        ),
    ] = "pcie-gen3-x4",
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="NAME",
            help="The device: 25f, 85f, hx8k or gw2a; or a FILE.toml.",
        ),
    ] = "25f",
    lanes: Annotated[list[int] | None, number("--lanes", help="The width in lanes; repeatable; default: all.")] = None,
    markers: Annotated[bool, typer.Option(help="Markers in both directions.")] = True,
    crc: Annotated[bool, typer.Option(help="CRCs in both directions.")] = True,
    tier: Annotated[
        str | None,
        typer.Option("--crc-tier", metavar="NAME", help="The host's method of computing a CRC; default: the fastest."),
    ] = None,
    tcp: Annotated[bool, typer.Option(help="TCP as a stage; without it, TCP is left out on both sides.")] = True,
    emss: Annotated[int, number("--emss", help="The octets of payload in a TCP segment.")] = 1460,
    pieces: Annotated[
        int, number("--pieces", help="The octets in each piece of a message's memory; 0: one piece for the message.")
    ] = 0,
    wire: Annotated[float, typer.Option("--wire", metavar="GBITS", help="The capacity of the wire in Gb/s.")] = 100.0,
    cores: Annotated[int, number("--cores", help="The number of host cores for each direction.")] = 1,
    everything: Annotated[bool, typer.Option("--all", help="Show all splits, not only the best ones.")] = False,
    simulate: Annotated[
        bool, typer.Option("--run", help="Also simulate every split, and compare with the prediction; takes minutes.")
    ] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Measure this machine again; takes some seconds.")] = False,
    save_host: Annotated[
        Path | None, typer.Option("--save-host", metavar="FILE", help="Write the host's profile as TOML.")
    ] = None,
    save_device: Annotated[
        Path | None, typer.Option("--save-device", metavar="FILE", help="Write the device's profile as TOML.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="A Dask scheduler; default: this process.")
    ] = None,
    as_json: JsonOption = None,
    as_csv: CsvOption = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as an HTML page with plots.")
    ] = None,
    markdown: MarkdownOption = None,
    columns: ColumnsOption = False,
) -> None:
    """Compare splits of the work between host and device.

    Each stage of RDMA, MPA and TCP is on the host or on the device. For each split, the report shows throughput and
    half round trip for messages of 1 octet to 1 MiB, host cycles and cores, octets over the link between host and
    device, LUTs and clock, set-up time, and the bottleneck.

    The figures of a host, a link and a device come from files that name their sources. This machine is measured on
    first use; those of devices come with the package, until rnic bench rtl measures them here. Results are kept for
    later runs.
    """
    check_least(_LEAST_EMSS, {"--emss": emss})
    check_least(0, {"--pieces": pieces})
    check_least(1, {"--cores": cores})
    if not 0 < wire < float("inf"):
        raise UsageError(f"--wire must be more than 0 Gb/s, not {wire:g}")
    if emss > 65535:
        raise UsageError(f"--emss must be at most 65535, not {emss}")
    check_files(as_json, as_csv, html, save_host, save_device)
    check_page(markdown, "rnic split")
    from dataclasses import replace

    from open_rnic.host_driver.device import DeviceError
    from open_rnic.host_driver.devices.sim.build import BuildError
    from open_rnic.host_driver.tools.bench.rtl.cluster import abandon
    from open_rnic.host_driver.tools.bench.rtl.jobs import ToolError
    from open_rnic.host_driver.tools.requirements import need_simulator
    from open_rnic.host_driver.tools.split import devices
    from open_rnic.host_driver.tools.split.measure import MeasureError
    from open_rnic.host_driver.tools.split.model import Setting, UnknownWidthError
    from open_rnic.host_driver.tools.split.page import page
    from open_rnic.host_driver.tools.split.profile import Link, ProfileError, dump, find

    try:
        if simulate:
            need_simulator("bench")
        if simulate or scheduler is not None:
            need("bench", "distributed")
        if html is not None:
            need("bench", "matplotlib")
        # Names come first: this machine is measured for some seconds.
        path = find(Link, link)
        on = devices.device(device)
        widths = _widths(lanes, [int(each) for each in on.device.lanes], on.device.title, device)
        _check_tier(tier, host)
        chosen = _host(host, measure)
        setting = Setting(chosen, path, on.device, 0, markers, crc, emss, pieces, wire, cores, tier, tcp)
        for place, profile in ((save_host, chosen), (save_device, on.device)):
            if place is not None:
                with whole_file(place) as file:
                    file.write(dump(profile))
        origins = [on.origin, *devices.whole(on.device)]
        report = interruptible(_predict(setting, widths, origins, scheduler), kept=True)
        if simulate:
            runs = _simulate(setting, widths if lanes else widths[:1], scheduler)
            report = replace(report, runs=interruptible(runs, kept=True, abandon=abandon))
            report = replace(report, counts=interruptible(_connect(replace(setting, lanes=widths[0]))))
        if html is not None:
            with whole_file(html) as file:
                file.write(page(report, shlex.join(["rnic", *context.obj]), date.today()))
    except ProfileError as error:
        raise UsageError(str(error)) from None
    except (MeasureError, UnknownWidthError, ToolError, DeviceError, BuildError, ConnectionError,
            ModuleNotFoundError) as error:  # fmt: skip
        raise CommandError(str(error)) from None
    if markdown is not None:
        keep_tables(markdown, "rnic split", report.tables(short=True))
    write_to(as_json, report.write_json)
    write_to(as_csv, report.write_csv)
    if Path("-") not in (as_json, as_csv):
        from rich.console import Console

        show_tables(report.tables(everything=everything), everything=columns)
        for line in report.origins:
            Console().print(line, highlight=False, soft_wrap=True)


def _host(name: str, measure: bool) -> Host:
    from open_rnic.host_driver.tools.split.measure import this_host
    from open_rnic.host_driver.tools.split.profile import Host, find, known

    if name != "this":
        if measure:
            raise UsageError(f"--measure measures this machine, not {name}")
        if not name.endswith(".toml") and name not in known(Host):
            raise UsageError(f"no host is called {name!r}: there are this, {', '.join(known(Host))}, "
                             "or a file that ends in .toml")  # fmt: skip
        return find(Host, name)
    with counting_bars() as bars:
        bar = bars.add_task("measuring this machine", total=None)
        return this_host(lambda done, total: bars.update(bar, completed=done, total=total), anew=measure)


def _check_tier(tier: str | None, host: str) -> None:
    """Raise UsageError unless the host has this method of computing a CRC."""
    from open_rnic.host_driver.tools.split.measure import Kernels
    from open_rnic.host_driver.tools.split.profile import Host, find

    if tier is not None and tier not in (known := Kernels().tiers if host == "this" else [*find(Host, host).crc]):
        raise UsageError(f"--crc-tier must be one of {', '.join(known)}, not {tier}")


def _widths(asked: Sequence[int] | None, known: Sequence[int], title: str, device: str) -> list[int]:
    from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
    from open_rnic.rtl.lib.lanes import LANES

    if not known:
        raise UsageError(f"{title} has no figures for any width")
    for width in asked or ():
        if width not in known:
            wrong = f"--lanes must be one of {', '.join(map(str, known))} for {title}, not {width}"
            if device in PARTS and width in LANES:
                wrong += f": rnic bench rtl --part {device} --lanes {width} measures it"
            raise UsageError(wrong)
    return sorted(set(asked or known))


async def _predict(setting: Setting, widths: Sequence[int], origins: Sequence[str], scheduler: str | None) -> Report:
    from concurrent.futures import ThreadPoolExecutor
    from dataclasses import replace
    from functools import cache

    from open_rnic.host_driver.tools.bench.rtl.cluster import executor
    from open_rnic.host_driver.tools.bench.rtl.store import Store, folder
    from open_rnic.host_driver.tools.split.model import named, splits
    from open_rnic.host_driver.tools.split.report import Report
    from open_rnic.host_driver.tools.split.stages import MPA, Split, Stage
    from open_rnic.host_driver.tools.split.sweep import Sweep

    wanted = []
    for width in widths:
        this = replace(setting, lanes=width)
        wanted += [(this, each) for each in splits(this) if each.device or width == widths[0]]
    question = []
    for markers, crc in ((False, False), (True, False), (False, True), (True, True)):
        for width in widths:
            this = replace(setting, lanes=width, markers=markers, crc=crc, tcp=False)
            devices = (frozenset[Stage](), MPA) if width == widths[0] else (MPA,)
            question += [(this, Split(each)) for each in devices]
    with counting_bars() as bars, ExitStack() as stack:
        bar = bars.add_task("splits", total=len(wanted) + len(question))

        @cache
        def workers() -> Executor:
            if scheduler is None:
                return stack.enter_context(ThreadPoolExecutor(1))
            return stack.enter_context(executor(scheduler))[0]

        sweep = Sweep(workers, Store(folder()), lambda: bars.advance(bar))
        found = await sweep.run([*wanted, *question])
    names = frozenset(each.device for width in widths for each in named(replace(setting, lanes=width)))
    return Report(replace(setting, lanes=widths[-1]), origins, found[: len(wanted)], names, found[len(wanted) :])


async def _simulate(setting: Setting, widths: Sequence[int], scheduler: str | None) -> list[Simulated]:
    from dataclasses import replace
    from functools import cache
    from itertools import product

    from open_rnic.host_driver.tools.bench.rtl.cluster import executor
    from open_rnic.host_driver.tools.bench.rtl.store import Store, folder
    from open_rnic.host_driver.tools.split.simulate import run, tasks

    on = (True, False)
    settings = [
        replace(setting, lanes=each, markers=markers, crc=crc) for each, markers, crc in product(widths, on, on)
    ]
    wanted = tasks(settings)
    with counting_bars() as bars, ExitStack() as stack:
        bar = bars.add_task("simulations", total=len(wanted))

        @cache
        def workers() -> Executor:
            return stack.enter_context(executor(scheduler))[0]

        return await run(workers, Store(folder()), wanted, lambda: bars.advance(bar))


async def _connect(setting: Setting) -> list[Counted]:
    """Carry a message over a connection of whole devices, for each split that they can do."""
    from dataclasses import replace

    from open_rnic.host_driver.tools.split.connections import count, devices
    from open_rnic.host_driver.tools.split.model import REFERENCE

    plain = replace(setting, markers=False, tcp=True)  # no end of these connections asks for markers
    wanted = devices(plain)
    with counting_bars() as bars:
        bar = bars.add_task("connections", total=len(wanted))
        found = []
        for split in wanted:
            found.append(await count(plain, split, REFERENCE))
            bars.advance(bar)
    return found
