"""The part that runs inside the simulation of a segment: offers beats without gaps, and counts cycles."""

from __future__ import annotations

from typing import Any

import cocotb

from open_rnic.host_driver.devices.sim.signals import start_clock
from open_rnic.host_driver.tools.bench.rig import Rig, Sink, Source
from open_rnic.host_driver.tools.bench.simulation import report, task
from open_rnic.rtl.mpa.rtr import Report

QUIET = 40  # cycles without any transfer after which the segment is empty: more than the latency of any block


async def run(dut: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Run a case, starting with a reset; see :mod:`.run`."""
    for name, value in case["inputs"].items():
        getattr(dut, name).value = value
    rig = Rig(dut, QUIET)
    entry, sink = f"{case['first_block']}__i", Sink(dut, f"{case['last_block']}__o")
    Source(dut, entry)
    await rig.reset(2)
    await rig.step()  # the blocks take over the stream offset in this cycle
    rig.parts = Source(dut, entry, case["opening"]), sink
    await rig.settle()
    opening, sink.words = sink.words, []
    source = Source(dut, entry, case["words"])
    rig.parts = source, sink
    began = None
    if case["fence"]:
        await rig.settle()
        if sink.words:
            raise RuntimeError("a beat has passed the closed fence")
        for comes in (1, 0):
            dut.fence__report.value = Report.const({"rtr": comes}).as_bits()
            await rig.step()
        while not dut.fence__state__open.value:
            await rig.step()
        began = rig.cycle
    await rig.settle(source)
    began = source.began if began is None else began
    return {
        "opening": opening,
        "words": sink.words,
        "cycles": sink.ended - began + 1 if sink.words and began is not None else 0,
    }


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """Run all cases of the task."""
    start_clock(dut.clk, 2)
    asked = task()
    for name in asked["inputs"]:
        getattr(dut, name).value = 0
    report([await run(dut, case) for case in asked["cases"]])
