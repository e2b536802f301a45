"""``rnic crossings``: lists where a board's top crosses from one clock domain to another."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.boards import SDRAM
from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError
from open_rnic.host_driver.tools.cli.figures import show_tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from open_rnic.boards.board import Board
    from open_rnic.boards.crossings import Crossing

# Parts of names that tell alike ones apart, or name the whole: that of Migen, which makes LiteDRAM's PHY, is "new_obj".
_NUMBERS = re.compile(r"^rnic\.|(?<=\.)new_obj_|_\d+(?=\.|$|__)|(?<=\.i_ddr)\d+$")


def crossings(
    boards: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BOARD]...", help="The boards; default: all with Ethernet, or with SDRAM."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar=SDRAM, help="Builds whose memory is all of the board's SDRAM; default: its block RAM."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write the tables of docs/clocks.md.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """List where a board's netlist crosses between clock domains.

    The list says what makes each crossing of the board's default core safe. It comes from the netlist. The exit status
    is 1 if nothing is known to make a crossing safe.
    """
    need("boards")
    if memory not in (None, SDRAM):
        raise UsageError(f"--memory must be {SDRAM}, not {memory}: block RAM of any size has the same crossings")
    if memory == SDRAM:
        need("litex")
    from open_rnic.boards import BOARDS, find
    from open_rnic.boards.build import top
    from open_rnic.boards.crossings import find_crossings

    if markdown and as_json:
        raise UsageError("only one of --json and --markdown can be given")
    found = {}
    for name in boards or _with(memory, map(find, BOARDS)):
        try:
            board = find(name).sized(in_sdram=True) if memory == SDRAM else find(name)
            found[name] = find_crossings(board, top(board, board.core, board.width(board.core), None))
        except ValueError as error:
            raise UsageError(str(error)) from None
    if as_json:
        typer.echo(json.dumps({name: [asdict(each) for each in every] for name, every in found.items()}, indent=1))
    elif markdown:
        typer.echo(tables(found), nl=False)
    else:
        _show(found)
    if unsafe := [f"{name}: {each.source} to {each.sink}" for name, every in found.items() for each in every
                  if not each.kind]:  # fmt: skip
        raise CommandError(f"nothing is known to make these crossings safe: {'; '.join(unsafe)}")


def _with(memory: str | None, boards: Iterable[Board]) -> list[str]:
    """Return the names of the boards with Ethernet and this memory."""
    return [each.name for each in boards if each.ethernet and (memory is None or each.ethernet.sdram)]


def _rows(found: dict[str, list[Crossing]]) -> list[tuple[str, ...]]:
    """Return a row for each crossing, alike ones as one, with the boards that have it."""
    alike: dict[tuple[str, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, every in found.items():
        for each in every:
            source, sink = (re.sub(_NUMBERS, "", part) for part in (each.source, each.sink))
            source = re.sub(r"^eth_(rg)?mii__", "eth.", source)
            alike[each.of, each.to, source, sink, each.kind][name].append(each.bits)
    rows: list[tuple[str, ...]] = []
    for (of, to, source, sink, kind), by_board in alike.items():
        for bits in sorted({tuple(each) for each in by_board.values()}):
            names = [name for name, each in by_board.items() if tuple(each) == bits]
            number = f"{len(bits)} times {bits[0]}" if len(bits) > 1 else str(bits[0])
            rows.append((of, to, source, sink, number, kind, "all" if len(names) == len(found) else ", ".join(names)))
    return rows


def _show(found: dict[str, list[Crossing]]) -> None:
    from open_rnic.boards.crossings import KINDS
    from open_rnic.host_driver.tools.bench.table import Table

    headings = "from", "to", "source", "register", "bits", "kind", "boards"
    show_tables([Table("", headings, _rows(found), left=(0, 1, 2, 3, 5, 6))])
    kinds = {each.kind for every in found.values() for each in every}
    for kind, text in KINDS.items():
        if kind in kinds:
            typer.echo(f"{kind}: {text}")


def tables(found: dict[str, list[Crossing]]) -> str:
    """Return the tables of docs/clocks.md."""
    from open_rnic.boards.crossings import KINDS, RARE

    lines = ["| kind | what the netlist shows |", "|---|---|"]
    lines += [f"| {kind} | {text} |" for kind, text in KINDS.items()]
    lines += ["", "| bits of the kind rare | the reason |", "|---|---|"]
    lines += [f"| `{name}` | {reason} |" for name, reason in RARE.items()]
    lines += ["", "| from | to | source | register | bits | kind | boards |", "|---|---|---|---|---|---|---|"]
    for of, to, source, sink, bits, kind, names in _rows(found):
        lines.append(f"| {of} | {to} | `{source}` | `{sink}` | {bits} | {kind or '**unknown**'} | {names} |")
    return "\n".join(lines) + "\n"
