"""A device's figures: those that ``rnic bench rtl`` has measured here, or else those that come with this package."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
from open_rnic.host_driver.tools.bench.rtl.store import Store, folder
from open_rnic.host_driver.tools.bench.rtl.sweep import Case, Row, Sweep
from open_rnic.host_driver.tools.split.model import WHOLE, blocks_needed
from open_rnic.host_driver.tools.split.profile import Block, Device, Figure, ProfileError, Rate, find, known
from open_rnic.rtl.lib.lanes import LANES

__all__ = ["Found", "device", "whole"]

_SEEDS = (5, 3, 1)  # the most that there are results of


class _NotMeasured(Exception):  # noqa: N818
    """There is no such result yet, and nobody is to make it."""


@dataclass(frozen=True)
class Found:
    """A device, and where its figures are from, in a line to show."""

    device: Device
    origin: str


def device(name: str, store: Path | None = None) -> Found:
    """The device of this name: a part of ``rnic bench rtl``, a profile that comes with this package, or a file.

    Of a part, the widths that were measured here are taken from there, and the others from the profile of this name.
    Raises ProfileError.
    """
    if name not in PARTS:
        return Found(find(Device, name), f"figures of {name}")
    measured = {lanes: blocks for lanes in LANES if (blocks := _measured(name, lanes, store or folder()))}
    shipped = find(Device, name) if name in known(Device) else None
    if not measured and shipped is None:
        raise ProfileError(f"nothing is known of {PARTS[name].title}: run rnic bench rtl --part {name} first")
    lanes = dict(shipped.lanes) if shipped else {}
    told = []
    if measured:
        told.append(f"figures of rnic bench rtl here, for {_listed(measured)} lanes")
        lanes |= {str(each): blocks for each, blocks in measured.items()}  # type: ignore[misc]
    if rest := [int(each) for each in lanes if int(each) not in measured]:
        told.append(f"figures that come with this package, for {_listed(rest)} lanes")
    found = Device(PARTS[name].title, dict(sorted(lanes.items(), key=lambda item: int(item[0]))),
                   shipped.stages if shipped else {})  # fmt: skip
    return Found(found, "; ".join(told))


def whole(device: Device) -> list[str]:
    """A line for each width of which the whole data path has figures, beside its blocks': splits have the latter."""
    told = []
    for lanes, blocks in device.lanes.items():
        needed = blocks_needed(int(lanes))
        if {WHOLE, *needed} <= blocks.keys():
            alone = [blocks[name] for name in needed]
            luts, clock = sum(each.luts.value for each in alone), min(each.clock_hz.value for each in alone)
            told.append(f"{WHOLE} of {lanes} lanes as a whole: {blocks[WHOLE].luts.value:,.0f} LUTs, "
                        f"{blocks[WHOLE].clock_hz.value / 1e6:.0f} MHz; "
                        f"its blocks alone: {luts:,.0f} LUTs, {clock / 1e6:.0f} MHz")  # fmt: skip
    return told


def _measured(part: str, lanes: int, store: Path) -> dict[str, Block] | None:
    """All blocks that a split may need, or None when one has no result here."""
    found: dict[str, Block] = {}
    for name in (*blocks_needed(lanes), WHOLE):
        row = next((row for seeds in _SEEDS if (row := _row(Case(name, lanes, part, seeds), store))), None)
        if row is not None and row.comb is not None and row.frequencies:
            option = f"--lanes {lanes} " if BLOCKS[name].wide else ""
            source = f"rnic bench rtl --block {name} {option}--part {part} --seeds {len(row.frequencies)}"
            found[name] = Block(Figure(row.comb, source), Rate(round(median(row.frequencies), -4), source + ", median"))
        elif name != WHOLE:
            return None
    return found


def _row(case: Case, store: Path) -> Row | None:
    """What was measured of a case; None when some of it was not."""
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
        if errors.split(_NotMeasured)[1] is not None:
            raise
        return None
    return row


def _listed(lanes: object) -> str:
    return ", ".join(map(str, lanes))  # type: ignore[call-overload]
