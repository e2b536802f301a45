"""``rnic bench``: what this software costs, measured here and now."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from host_driver.cli.common import CommandError, UsageError, interruptible, whole_number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from host_driver.bench.connections import Many, Memory, Rate
    from host_driver.bench.datapath import Cost

app = typer.Typer(help="Measure what the software costs.", no_args_is_help=True)

_RATED = 500  # connections of one measurement of the rate
_SIZES = (1024, 65536, 1 << 20)
_MULPDU = 8882  # octets: what an EMSS of 8960 leaves with markers (RFC 5044 §4.5)


@app.callback()
def _benchmarks() -> None:
    """Without this, a program of one command would have no command names."""


@app.command()
def host(
    connections: Annotated[
        int, typer.Option("--connections", metavar="N", parser=whole_number, help="Connections open at once.")
    ] = 1000,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", parser=whole_number, help="Repeats that medians are taken of.")
    ] = 25,
    size: Annotated[
        list[int] | None,
        typer.Option("--size", metavar="N", parser=whole_number, help="Octets of a message; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of tables.")] = False,
) -> None:
    """Measure the host half: what the software data path costs, and connections.

    The data path's cost is set against what its CRCs and one copy of the data cost alone.

    Connections: how many enhanced ones are established a second between two processes over loopback, what an idle one
    holds, and what is left when as many as --connections were open at once, exchanged messages, and were closed.
    """
    sizes = size or _SIZES
    for name, value in {"--connections": connections, "--repeats": repeats, "--size": min(sizes)}.items():
        if value < 1:
            raise UsageError(f"{name} is 1 or more, not {value}")
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=as_json or not sys.stderr.isatty()) as bars:
        costs = _data_path(bars, sizes, repeats)
        try:
            rate, memory, many = interruptible(_connections(bars, connections, min(repeats, 5)))
        except ValueError as error:
            raise CommandError(str(error)) from None
    if as_json:
        figures = {"rate": asdict(rate), "memory": asdict(memory), "many": asdict(many)}
        print(json.dumps({"datapath": [asdict(cost) for cost in costs], **figures}))
    else:
        console = Console()
        _show(console if console.is_terminal else Console(width=110), costs, rate, memory, many)
    if _left(many):
        raise CommandError(f"left behind: {_left(many)}")


def _data_path(bars: Progress, sizes: Sequence[int], repeats: int) -> list[Cost]:
    from host_driver.bench.datapath import Case, measure

    cases = [Case(size, _MULPDU, markers, crc) for size in sizes for markers in (True, False) for crc in (True, False)]
    bar = bars.add_task("data path", total=len(cases) * repeats)
    return [measure(case, repeats, lambda: bars.advance(bar)) for case in cases]


async def _connections(bars: Progress, count: int, repeats: int) -> tuple[Rate, Memory, Many]:
    from host_driver.bench import connections

    tasks: dict[str, TaskID] = {}

    def progress(what: str, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(f"connections {what}", total=total)
        bars.advance(tasks[what])

    async with connections.responder(count) as other:  # first of all, as memory once used is not seen to grow
        memory, many = await connections.many(other, count, 1024, progress)
    async with connections.responder(count) as other:
        return await connections.rate(other, min(count, _RATED), repeats, progress), memory, many


def _left(many: Many) -> str:
    return ", ".join(f"{count} {name}" for name, count in many.left.items() if count)


def _show(console: Console, costs: list[Cost], rate: Rate, memory: Memory, many: Many) -> None:
    from rich.table import Table

    table = Table(title=f"One message through the software data path, MULPDU {_MULPDU:,} octets")
    for heading in ("octets", "FPDUs", "markers", "CRC", "reference, µs", "TX, µs", "RX, µs", "TX ratio", "RX ratio"):
        table.add_column(heading, justify="right")
    for cost in costs:
        case = cost.case
        table.add_row(
            f"{case.octets:,}",
            f"{cost.fpdus}",
            "yes" if case.markers else "no",
            "yes" if case.crc else "no",
            *(f"{1e6 * seconds:.2f}" for seconds in (cost.reference_s, cost.tx_s, cost.rx_s)),
            f"{cost.tx_ratio:.2f} ({cost.tx_ratio_median:.2f})",
            f"{cost.rx_ratio:.2f} ({cost.rx_ratio_median:.2f})",
        )
    table.caption = (
        "The reference is crc32c of the same FPDUs and one copy of the message. "
        "Least times and their ratio to it, in parentheses the median ratio of the repeats."
    )
    console.print(table)

    table = Table("", "figure", "", title="Enhanced connections, software device, two processes over loopback")
    for name, figure, remark in (
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
    ):
        table.add_row(name, figure, remark)
    console.print(table)
