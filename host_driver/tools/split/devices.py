"""The figures of a device: those shipped with this package, or results of ``rnic bench rtl`` in their place."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from open_rnic.host_driver.lib.optional_packages import MissingExtraError
from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
from open_rnic.host_driver.tools.bench.rtl.store import Store, folder
from open_rnic.host_driver.tools.bench.rtl.sweep import Case, Row, Sweep
from open_rnic.host_driver.tools.split.model import WHOLE, blocks_needed
from open_rnic.host_driver.tools.split.profile import Block, Device, Figure, Rate, find
from open_rnic.host_driver.tools.split.stages import RDMA, TCP
from open_rnic.rtl.lib.lanes import LANES

__all__ = ["Found", "device", "whole"]

_SEEDS = (5, 3, 1)  # numbers of seeds to look for in the store: the largest one that has results is used


class _NotMeasured(Exception):  # noqa: N818
    """The store has no such result, and no job may be started to measure it."""


@dataclass(frozen=True)
class Found:
    """A device, and a line of text that names the origin of its figures."""

    device: Device
    origin: str


def device(name: str, store: Path | None = None) -> Found:
    """Return a device by name: a part of ``rnic bench rtl``, a profile shipped with this package, or a file.

    For a part, the shipped profile of the same name is the default. Widths at which ``rnic bench rtl`` has measured the
    present RTL on this machine, with the tools that are installed, use its figures instead. Raises ProfileError.
    """
    if name not in PARTS:
        return Found(find(Device, name), f"figures of {name}")
    measured = {lanes: blocks for lanes in LANES if (blocks := _measured(name, lanes, store or folder()))}
    shipped = find(Device, name)
    lanes = dict(shipped.lanes)
    origins = []
    if measured:
        origins.append(f"figures of rnic bench rtl here, for {_listed(measured)} lanes")
        lanes |= {str(each): blocks for each, blocks in measured.items()}  # type: ignore[misc]
    if rest := [int(each) for each in lanes if int(each) not in measured]:
        origins.append(f"figures that come with this package, for {_listed(rest)} lanes")
    found = Device(PARTS[name].title, dict(sorted(lanes.items(), key=lambda item: int(item[0]))),
                   shipped.stages)  # fmt: skip
    return Found(found, "; ".join(origins))


def whole(device: Device) -> list[str]:
    """Return lines that compare the whole data path with its separate blocks, for each width with figures of both."""
    lines = []
    for lanes, blocks in device.lanes.items():
        needed = blocks_needed(int(lanes))
        if {WHOLE, *needed} <= blocks.keys():
            alone = [blocks[name] for name in needed]
            luts, clock = sum(each.luts.value for each in alone), min(each.clock_hz.value for each in alone)
            width = f"{lanes} lane{'' if lanes == '1' else 's'}"
            lines.append(f"{WHOLE} of {width} as a whole: {blocks[WHOLE].luts.value:,.0f} LUTs, "
                        f"{blocks[WHOLE].clock_hz.value / 1e6:.0f} MHz; "
                        f"its blocks alone: {luts:,.0f} LUTs, {clock / 1e6:.0f} MHz")  # fmt: skip
    return lines


def _measured(part: str, lanes: int, store: Path) -> dict[str, Block] | None:
    """Return the figures of the blocks in the store, or None if a block of MPA has no result there."""
    found: dict[str, Block] = {}
    needed = blocks_needed(lanes)
    beside = RDMA | TCP if lanes == 1 else RDMA  # TCP is 1 lane wide
    for name in (*needed, *blocks_needed(lanes, beside), WHOLE):
        row = next((row for seeds in _SEEDS if (row := _row(Case(name, lanes, part, seeds), store))), None)
        if row is not None and row.comb is not None and row.frequencies:
            option = f"--lanes {lanes} " if BLOCKS[name].wide else ""
            source = f"rnic bench rtl --block {name} {option}--part {part} --seeds {len(row.frequencies)}"
            found[name] = Block(Figure(row.comb, source), Rate(round(median(row.frequencies), -4), source + ", median"))
        elif name in needed:
            return None
    return found


def _row(case: Case, store: Path) -> Row | None:
    """Return the result of a case, or None if a part of it is not in the store."""
    if not BLOCKS[case.block].wide:
        case = next((Case(case.block, lanes, case.part, case.seeds) for lanes in LANES
                     if _ready(Case(case.block, lanes, case.part, case.seeds), store)), case)  # fmt: skip
    return _ready(case, store)


def _ready(case: Case, store: Path) -> Row | None:
    def nobody() -> Executor:
        raise _NotMeasured

    try:
        [row] = asyncio.run(Sweep(nobody, Store(store)).run([case]))
    except ExceptionGroup as errors:
        # A result is that of a version of the tools: without them, none is known.
        if errors.split((_NotMeasured, MissingExtraError))[1] is not None:
            raise
        return None
    return row


def _listed(lanes: object) -> str:
    return ", ".join(map(str, lanes))  # type: ignore[call-overload]
