"""The part of :mod:`.sim` that runs inside the simulation: the RTL's own ports, driven from one loop.

``rnic bench rtl`` counts cycles in the same loop. The measured time does not include making the FPDUs and comparing the
output.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from open_rnic.host_driver.devices.sim.signals import start_clock
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.bench.simulation import report, task
from open_rnic.host_driver.tools.bench.streams import OFFSET, Bench


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """Send ULPDUs and receive FPDUs at the same time, and report seconds and cycles."""
    asked = task()
    ulpdus = [bytes.fromhex(asked["ulpdu"])] * asked["count"]
    start_clock(dut.clk, 2)
    bench = Bench(dut, asked["streams"])
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await bench.connect(markers=True, crc=True)
    framer = FpduFramer(markers=True, crc=True, offset=OFFSET)
    fpdus = [framer.frame(ulpdu) for ulpdu in ulpdus]
    given = {
        "tx_ulpdu": bench.streams["tx_ulpdu"].words(ulpdus),
        "rx_mpa": bench.streams["rx_mpa"].words([b"".join(fpdus)]),
    }
    start = perf_counter()
    came = await bench.move(given, {"tx_mpa": len(fpdus), "rx_ulpdu": len(ulpdus)})
    seconds = perf_counter() - start
    packets = [bench.read(name, came[name]).packets for name in ("tx_mpa", "rx_ulpdu")]
    if packets != [fpdus, ulpdus]:
        raise ValueError("a packet was altered on its way")
    report((seconds, 1 + max(beats[-1][0] for beats in came.values())))
