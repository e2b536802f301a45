"""The part of :mod:`.sim` that runs inside the simulation: AXI ports, driven beat by beat from Python."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles
from cocotb.utils import get_sim_time

from open_rnic.host_driver.devices.sim.cocotbext_axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)
from open_rnic.host_driver.devices.sim.signals import start_clock
from open_rnic.host_driver.tools.bench.simulation import report, task
from open_rnic.rtl.registers import BY_NAME

PERIOD = 10  # ns


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """Send ULPDUs, loop the FPDUs back, receive ULPDUs, and report seconds and cycles."""
    asked = task()
    ulpdu, count = bytes.fromhex(asked["ulpdu"]), asked["count"]
    start_clock(dut.clk, PERIOD)

    def port(kind: Any, prefix: str) -> Any:
        return kind(AxiStreamBus.from_prefix(dut, prefix), dut.clk, dut.rst)

    registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
    ulpdu_in, mpa_in = port(AxiStreamSource, "s_axis_ulpdu"), port(AxiStreamSource, "s_axis_mpa")
    ulpdu_out, mpa_out = port(AxiStreamSink, "m_axis_ulpdu"), port(AxiStreamSink, "m_axis_mpa")
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0

    async def write(name: str, **fields: int) -> None:
        register = BY_NAME[name]
        word = register.reset
        for field, value in fields.items():
            word = word & ~register[field].mask | register[field].put(value)
        await registers.write_dword(register.address, word)

    async def carry() -> None:
        while True:
            await mpa_in.send((await mpa_out.recv()).tdata)

    await write("CONFIG", rdmap=0, markers_tx=1, markers_rx=1)
    await write("CONTROL", tx_enable=1, rx_enable=1)
    start, before = perf_counter(), get_sim_time("ns")
    carrier = cocotb.start_soon(carry())
    for _ in range(count):
        await ulpdu_in.send(AxiStreamFrame(ulpdu, tuser=len(ulpdu)))
    for _ in range(count):
        if bytes((await ulpdu_out.recv()).tdata) != ulpdu:
            raise ValueError("a ULPDU was altered on its way")
    seconds = perf_counter() - start
    carrier.cancel()
    report((seconds, round((get_sim_time("ns") - before) / PERIOD)))
