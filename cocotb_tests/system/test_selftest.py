"""The self-test that boards run: it counts good ULPDUs, and it can fail."""

import pytest
from cocotb.triggers import ClockCycles

from boards.selftest import SelfTest
from cocotb_tests.harness import bench, parameter, simulate


@bench(cycles=20_000)
async def it_counts_until_something_is_spoilt(dut):
    dut.flip.value = 0
    await ClockCycles(dut.clk, 8000)
    good = dut.good.value.to_unsigned()
    assert good > 8000 * 4 * parameter("lanes") // 1500
    assert not dut.failed.value
    dut.flip.value = 1
    await ClockCycles(dut.clk, 3000)
    stopped = dut.good.value.to_unsigned()
    assert dut.failed.value
    await ClockCycles(dut.clk, 3000)
    assert dut.good.value.to_unsigned() == stopped


@pytest.mark.parametrize("lanes", [1, 2])
def test_selftest(lanes):
    simulate(SelfTest(lanes), __name__, parameters={"lanes": lanes})
