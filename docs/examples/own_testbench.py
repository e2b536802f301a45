"""A testbench of your own for the module of `rnic verilog`: cocotb, cocotbext-axi, and Icarus or Verilator."""

import subprocess
import sys
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner
from cocotbext.axi import AxiStreamFrame

from open_rnic.cocotb_tests.mpa import Fault, MpaSink, MpaSource
from open_rnic.cocotb_tests.mpa.axi import MpaAxi


async def started(dut):
    """Return the drivers of the module, after reset and in MPA mode, with markers and CRCs both ways."""
    Clock(dut.clk, 10, "ns").start()
    axi = MpaAxi(dut)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await axi.set("CONFIG", rdmap=0, markers_tx=1, markers_rx=1)
    await axi.set("CONTROL", tx_enable=1, rx_enable=1)
    return axi


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def an_fpdu_has_the_ulpdu_markers_and_a_right_crc(dut):
    axi = await started(dut)
    sink = MpaSink(axi.mpa_out.recv, markers=True, packets=True)  # an error in the stream ends the test
    ulpdu = bytes(range(256)) * 4
    await axi.ulpdu_in.send(AxiStreamFrame(ulpdu, tuser=len(ulpdu)))
    assert (await sink.receive()).ulpdu == ulpdu


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_wrong_crc_is_counted_and_ends_receive(dut):
    axi = await started(dut)
    source = MpaSource(axi.mpa_in.send_nowait, markers=True)
    source.send(b"good")
    source.send(b"bad", Fault.CRC)
    assert bytes((await axi.ulpdu_out.recv()).tdata) == b"good"
    await axi.ulpdu_out.recv()
    assert await axi.get("RX_CRC_ERRORS") == 1


def main(simulator="icarus"):
    """Write the Verilog, build it with the simulator, and run the tests above."""
    subprocess.run(["rnic", "verilog", "--lanes", "4", "-o", "mpa.v"], check=True)
    runner = get_runner(simulator)
    runner.build(sources=["mpa.v"], hdl_toplevel="mpa_datapath", timescale=("1ns", "1ps"), always=True)
    here = Path(__file__)
    results = runner.test(
        hdl_toplevel="mpa_datapath", test_module=here.stem, extra_env={"PYTHONPATH": str(here.parent)}
    )
    _, failed = get_results(results)
    sys.exit(failed)


if __name__ == "__main__":
    main(*sys.argv[1:])
