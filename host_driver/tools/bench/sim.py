"""The speed of RTL simulation: through the simulated device, and driven beat by beat from Python.

In each round, each of these transfers the same ULPDUs, with markers and CRCs on, and compares its output:

* a simulated device with its MPA output looped back to its MPA input;
* the same RTL behind its AXI ports, driven by cocotbext-axi, looped back in the same way;
* the same RTL, driven by a loop with the least possible work per beat (``host_driver.tools.bench.least``);
* two simulated devices that send to each other, in both directions at once.

The first three do the same work in the same number of beats, so their ratios show the benefit of the device's rings in
memory (``host_driver.devices.sim``). Each device is simulated in a process of its own, apart from its driver's process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from open_rnic.host_driver.devices.sim.build import build
from open_rnic.host_driver.devices.sim.look import look
from open_rnic.host_driver.devices.simulated import SimulatedDevice
from open_rnic.host_driver.tools.bench import simulation
from open_rnic.host_driver.tools.bench.rtl.cycles import streams
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.rtl.mpa.axi import AxiMpaDatapath
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import Role

__all__ = ["AXI", "LEAST", "LOOP", "PAIR", "Speed", "measure", "plain", "table"]

LOOP = "simulated device"
AXI = "beat by beat, cocotbext-axi"
LEAST = "beat by beat, least Python"
PAIR = "two simulated devices"
ULPDU = bytes(range(256)) * 5 + bytes(180)  # 1,460 octets
SECONDS = 600.0  # time limit for one round of the harness


@dataclass(frozen=True)
class Speed:
    """Medians over the rounds. ``octets`` is the number of ULPDU octets in each direction of one device and round."""

    what: str
    lanes: int
    rounds: int
    octets: int
    octets_per_s: float
    cycles_per_s: float


async def measure(
    lanes: int, ulpdus: int, rounds: int, progress: Callable[[], None] = lambda: None
) -> list[Speed]:
    """Measure all four with ``ulpdus`` ULPDUs of 1,460 octets per round; those driven beat by beat with fewer.

    ``progress`` is called after each of the four in each round. Raises DeviceError, BuildError or MeasurementError,
    and ValueError if a ULPDU is altered on its way.
    """
    tenth, few = -(-ulpdus // 10), -(-ulpdus // 40)
    kinds: dict[str, tuple[int, Callable[[], Any]]] = {
        LOOP: (ulpdus, partial(_loop, lanes, ulpdus)),
        AXI: (few, partial(asyncio.to_thread, _axi, lanes, few)),
        LEAST: (tenth, partial(asyncio.to_thread, _least, lanes, tenth)),
        PAIR: (ulpdus, partial(_pair, lanes, ulpdus)),
    }
    found: dict[str, list[tuple[float, int]]] = {what: [] for what in kinds}
    for _ in range(rounds):
        for what, (_, one_round) in kinds.items():
            found[what].append(await one_round())
            progress()
    return [
        Speed(
            what,
            lanes,
            rounds,
            count * len(ULPDU),
            median(count * len(ULPDU) / seconds for seconds, _ in found[what]),
            median(cycles / seconds for seconds, cycles in found[what]),
        )
        for what, (count, _) in kinds.items()
    ]


def _times(speeds: Sequence[Speed], speed: Speed) -> float:
    """Return the speed of the simulated device of the same width, relative to ``speed``."""
    device = next(each for each in speeds if (each.what, each.lanes) == (LOOP, speed.lanes))
    return device.octets_per_s / speed.octets_per_s


def plain(speeds: Sequence[Speed]) -> list[dict[str, Any]]:
    """Return the results as plain data."""
    return [asdict(speed) | {"device_is_times": _times(speeds, speed)} for speed in speeds]


def table(speeds: Sequence[Speed]) -> Table:
    """Return the results as a table for a terminal."""
    rows = [
        (
            speed.what,
            str(speed.lanes),
            f"{speed.octets_per_s:,.0f}",
            f"{speed.cycles_per_s:,.0f}",
            f"{speed.octets_per_s / speed.cycles_per_s:.1f}",
            f"{_times(speeds, speed):.1f}" if speed.what in (AXI, LEAST) else "",
        )
        for speed in speeds
    ]
    title = f"Simulation: ULPDUs of {len(ULPDU):,} octets each way, medians of {speeds[0].rounds} rounds"
    headings = "", "lanes", "octets a second", "cycles a second", "octets a cycle", "the device is faster, times"
    return Table(title, headings, rows, left=(0,))


async def _start(device: SimulatedDevice, role: Role) -> None:
    # Any first FPDU opens the responder's fence, because these ULPDUs are not RDMAP messages.
    await device.set_fields("CONFIG", role=role, permissive=1, rdmap=0, markers_tx=1, markers_rx=1)
    await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)


async def _carry(giver: SimulatedDevice, taker: SimulatedDevice) -> None:
    while True:
        await taker.write_mpa(await giver.read_mpa())


async def _send(device: SimulatedDevice, count: int) -> None:
    for _ in range(count):
        await device.write_ulpdu(ULPDU)


async def _receive(device: SimulatedDevice, count: int) -> None:
    for _ in range(count):
        if (await device.read_ulpdu()).octets != ULPDU:
            raise ValueError("a ULPDU was altered on its way")


async def _loop(lanes: int, count: int) -> tuple[float, int]:
    async with await SimulatedDevice.open(lanes=lanes) as device:
        await _start(device, Role.INITIATOR)
        return await _timed(count, [(device, device)])


async def _pair(lanes: int, count: int) -> tuple[float, int]:
    first = await SimulatedDevice.open(lanes=lanes)
    async with first, await SimulatedDevice.open(lanes=lanes) as second:
        await _start(first, Role.INITIATOR)
        await _start(second, Role.RESPONDER)
        await first.write_ulpdu(ULPDU)  # opens the responder's fence
        await second.write_mpa(await first.read_mpa())
        await _receive(second, 1)
        return await _timed(count, [(first, second), (second, first)])


async def _timed(count: int, ways: Sequence[tuple[SimulatedDevice, SimulatedDevice]]) -> tuple[float, int]:
    """Return the seconds, and the cycles of the first device, for ``count`` ULPDUs in each of these directions."""
    device = ways[0][0]
    before, start = await device.get_wide("CYCLES"), perf_counter()
    carriers = [asyncio.create_task(_carry(giver, taker)) for giver, taker in ways]
    try:
        async with asyncio.TaskGroup() as group:
            for giver, taker in ways:
                group.create_task(_send(giver, count))
                group.create_task(_receive(taker, count))
        seconds = perf_counter() - start
        return seconds, await device.get_wide("CYCLES") - before
    finally:
        for carrier in carriers:
            carrier.cancel()
        await asyncio.gather(*carriers, return_exceptions=True)


def _axi(lanes: int, count: int) -> tuple[float, int]:
    built = build(partial(AxiMpaDatapath, lanes))
    task = {"ulpdu": ULPDU.hex(), "count": count}
    seconds, cycles = simulation.run(built, "open_rnic.host_driver.tools.bench.beat_by_beat", task, seconds=SECONDS)
    return seconds, cycles


def _least(lanes: int, count: int) -> tuple[float, int]:
    make = partial(MpaDatapath, lanes)
    task = {"streams": look(make, streams), "ulpdu": ULPDU.hex(), "count": count}
    built = build(make)
    seconds, cycles = simulation.run(built, "open_rnic.host_driver.tools.bench.least", task, seconds=SECONDS)
    return seconds, cycles
