# amaranth: UnusedElaboratable=no
"""A counter of two registers, whose high half gets each carry a cycle later."""

import functools
import random

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import bench, simulate
from open_rnic.rtl.lib.counter import count


class Counter(wiring.Component):
    step: In(3)
    low: Out(4)
    high: Out(4)

    def elaborate(self, platform):
        m = Module()
        low = Signal(4)
        high = Signal(4)
        m.d.comb += [self.low.eq(low), self.high.eq(high)]
        count(m, low, high, self.step)
        return m


@bench()
async def both_halves_count_like_one_counter(dut):
    counted = 0
    dut.step.value = 0
    for _ in range(1000):
        step = random.choice([0, 1, 7, random.randrange(8)])
        dut.step.value = step
        await RisingEdge(dut.clk)
        dut.step.value = 0
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        counted = (counted + step) % 256
        assert int(dut.high.value) << 4 | int(dut.low.value) == counted


def test_counter():
    simulate(functools.partial(Counter), __name__)
