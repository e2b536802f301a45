"""The part of :mod:`.cycles` that runs inside the simulation: it counts the cycles of each load."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from open_rnic.host_driver.devices.sim.signals import start_clock
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.bench.rtl.cycles import FULL, SHORT, Load
from open_rnic.host_driver.tools.bench.simulation import report, task
from open_rnic.host_driver.tools.bench.streams import OFFSET, Bench
from open_rnic.rtl.registers import Verdict


async def flow(bench: Bench, load: Load, direction: str, markers: bool, crc: bool) -> list[dict[str, Any]]:
    """Count the cycles of one load, and compare the output; returns a row for each active direction."""
    await bench.connect(markers=markers, crc=crc)
    width = bench.streams["tx_mpa"].width
    warm, counted = load.repeats(width)
    lengths = load.lengths * (warm + counted + warm)
    ulpdus = [random.randbytes(each) for each in lengths]
    framer = FpduFramer(markers=markers, crc=crc, offset=OFFSET)
    fpdus = [framer.frame(each) for each in ulpdus]
    given: dict[str, list[int]] = {}
    wanted: dict[str, int] = {}
    if "TX" in direction:
        given["tx_ulpdu"] = bench.streams["tx_ulpdu"].words(ulpdus)
        wanted["tx_mpa"] = len(fpdus)
    if "RX" in direction:
        chunks = fpdus if "aligned" in direction else [b"".join(fpdus)]
        given["rx_mpa"] = bench.streams["rx_mpa"].words(chunks)
        wanted["rx_ulpdu"] = len(ulpdus)
    beats = await bench.move(given, wanted)
    first, end = len(load.lengths) * warm, len(load.lengths) * (warm + counted)
    needed = sum(-(-len(each) // width) for each in fpdus[first:end])
    rows = []
    for name in wanted:
        moved = bench.read(name, beats[name])
        if moved.packets != (fpdus if name == "tx_mpa" else ulpdus) or moved.verdicts - {Verdict.GOOD}:
            raise ValueError(f"{direction}, {load.name} octets: the output of {name} is wrong")
        rows.append({
            "direction": ("TX" if name == "tx_mpa" else "RX") + " aligned" * direction.endswith("aligned"),
            "together": len(wanted) > 1,
            "load": load.name,
            "markers": markers,
            "crc": crc,
            "needed": needed,
            "used": moved.ends[end - 1] - moved.ends[first - 1],
        })
    return rows


async def latency(
    bench: Bench, direction: str, octets: int, behind: int | None, markers: bool, crc: bool
) -> dict[str, Any]:
    """Count the cycles of one ULPDU through an idle data path, or right behind another one; compare the output."""
    await bench.connect(markers=markers, crc=crc)
    framer = FpduFramer(markers=markers, crc=crc, offset=OFFSET)
    ulpdus = [random.randbytes(each) for each in (behind, octets) if each is not None]
    fpdus = [framer.frame(each) for each in ulpdus]
    source, given, sink, wanted = "tx_ulpdu", ulpdus, "tx_mpa", fpdus
    if direction == "RX":
        source, given, sink, wanted = "rx_mpa", fpdus, "rx_ulpdu", ulpdus
    moved = await bench.move({source: bench.streams[source].words(given)}, {sink: len(wanted)})
    into, out = (bench.read(name, moved[name]) for name in (source, sink))
    if out.packets != wanted or out.verdicts - {Verdict.GOOD}:
        raise ValueError(f"{direction}, {octets} octets: the output of {sink} is wrong")
    first, last = out.begins[-1] - into.begins[-1], out.ends[-1] - into.ends[-1]
    return {
        "direction": direction, "octets": octets, "behind": behind, "markers": markers, "crc": crc,
        "first": first, "last": last,
    }  # fmt: skip


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """Run all cases of the task, and measure latencies."""
    random.seed(1)
    start_clock(dut.clk, 2)
    asked = task()
    bench = Bench(dut, asked["streams"])
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    flows = []
    for case in asked["cases"]:
        load = case["load"]
        case["load"] = Load(load["name"], tuple(load["lengths"]), load["beats"])
        flows += await flow(bench, **case)
    latencies = [
        await latency(bench, direction, octets, behind, markers, crc=not markers)
        for direction in asked["latencies"] for octets in (SHORT, FULL) for behind in (None, SHORT, FULL)
        for markers in (False, True)
    ]  # fmt: skip
    report({"flows": flows, "latencies": latencies})
