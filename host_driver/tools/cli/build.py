"""``rnic build``: builds a bitstream for a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.boards import SDRAM
from open_rnic.boards.core import Core
from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.cli.boards import CoreOption, folder
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, whole_number
from open_rnic.host_driver.tools.cli.figures import show_tables
from open_rnic.host_driver.tools.static_address import StaticAddress

if TYPE_CHECKING:
    from open_rnic.boards.build import Result

ADDRESS = StaticAddress.parse("10.0.0.2/24")


def _address(text: str | StaticAddress) -> StaticAddress:
    if isinstance(text, StaticAddress):
        return text
    try:
        return StaticAddress.parse(text)
    except ValueError as error:
        raise UsageError(f"--address: {error}") from None


AddressOption = Annotated[
    StaticAddress | None,
    typer.Option(
        "--address", metavar="ADDRESS/PREFIX[,GATEWAY]", parser=_address,
        help=f"The RNIC's IPv4 address, which it has from power-up on; default: {ADDRESS}.",
    ),
]  # fmt: skip


def _memory(text: str | int) -> int | str:
    try:
        return SDRAM if text == SDRAM else whole_number(text)
    except typer.BadParameter:
        raise typer.BadParameter(f"{text!r} is neither a number of octets nor {SDRAM}") from None


def build(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="A board that `rnic boards` lists.")],
    core: CoreOption = None,
    address: AddressOption = None,
    connections: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number,
            help="The number of connections of the RNIC, each of which takes room; default: the board's.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar=f"OCTETS|{SDRAM}", parser=_memory,
            help="The memory of the RNIC, in block RAM, or all of the board's SDRAM; default: the board's block RAM.",
        ),
    ] = None,
    samples: Annotated[
        bool | None,
        typer.Option(
            "--samples/--no-samples",
            help="A sample writer with a signal generator; default: the board's.",
        ),
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number,
            help="The width of the data path in 32-bit lanes; default: the board's, or 1 with --core rnic.",
        ),
    ] = None,
    baud: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number, help="The UART's baud rate, as in serial:PORT:N; default: the board's."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number,
            help="The seed of the placement; default: 1, then 2 and 3 if a clock is too slow.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR",
            help="The folder to build in; default: build/boards/BOARD, or BOARD-CORE if --core is not the default.",
        ),
    ] = None,
) -> None:
    """Build a board's bitstream: the whole RNIC, if it has Ethernet.

    No other toolchain is needed than the one from PyPI. The command prints the cells used, the clocks reached and
    required, and the critical path. The exit status is 1 if a clock is too slow. If a board needs a vendor's tool, the
    tool's scripts are written, and it is run if it is installed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    need("boards")
    if memory == SDRAM:
        need("litex")
    from open_rnic.boards import find
    from open_rnic.boards.build import BuildError, UnevaluatedError
    from open_rnic.boards.build import build as build_bitstream

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task(f"{board}: generation", total=1)

        def stage(what: str) -> None:
            if errors.is_terminal:
                progress.update(bar, description=f"{board}: {what}")
            else:
                errors.print(f"{board}: {what}", highlight=False, soft_wrap=True)

        try:
            chosen = find(board)
            core = core or chosen.core
            if core is Core.RNIC:
                address = address or ADDRESS
            elif address is not None:
                raise ValueError(f"--address {address} needs --core rnic: {core} has no address")
            result = build_bitstream(
                board, out or folder(chosen, core), core=core, station=address and address.station,
                connections=connections, memory=memory, samples=samples, lanes=lanes, baud=baud, seed=seed, stage=stage,
                progress=lambda share: progress.update(bar, completed=share),
            )  # fmt: skip
        except ValueError as error:
            raise UsageError(str(error)) from None
        except UnevaluatedError as made:
            typer.echo(f"{board}: {made}")
            return
        except BuildError as error:
            raise CommandError(f"{board}: {error}") from None
    _show(result, address)
    if not result.met:
        slow = "; ".join(f"{name}: {clock_text(*result.clocks[name])}" for name in result.slow)
        better = "another --seed" if core is Core.RNIC else "another --seed or fewer --lanes"
        raise CommandError(f"{board}: too slow: {slow}; {better} may do better")
    other = f" --core {core}" if core is not chosen.core else ""
    place = f"{f' --out {out}' if out else ''}"
    typer.echo(f"every clock is fast enough; next: rnic program {board}{other}{place}")
    if address:
        typer.echo(f"then, at a PC in its network: rnic inspect udp:{address.address.ip}")


def clock_text(reached: float, asked: float) -> str:
    """Return a line's end that compares the Hz of a clock."""
    return f"{reached / 1e6:.1f} MHz reached, {asked / 1e6:.1f} MHz asked"


def show_cells(cells: dict[str, tuple[int, int]]) -> None:
    """Print a table of used and available cells, by kind."""
    rows = [
        (kind, f"{used:,}", f"{available:,}", f"{used / max(available, 1):.0%}")
        for kind, (used, available) in cells.items()
    ]
    show_tables([Table("", ("", "used", "available", "share"), rows, left=(0,))])


def _show(result: Result, address: StaticAddress | None) -> None:
    show_cells(result.cells)
    begin, end, logic, wires = result.path
    for line in (
        *([f"address: {address}, MAC {address.mac.hex(':')}"] if address else []),
        f"UART: {result.baud:,} baud",
        f"bitstream: {result.bitstream} (SHA-256 {result.sha256[:16]}…), with seed {result.seed}",
        f"critical path: {logic + wires:.1f} ns, of which {wires:.1f} in wires, from {begin} to {end}",
        *(f"clock {name}: {clock_text(*each)}" for name, each in result.clocks.items()),
    ):
        typer.echo(line)
