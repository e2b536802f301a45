# amaranth: UnusedElaboratable=no
"""A counter of two registers, whose high half gets each carry a cycle later; and one that counts up and down."""

import functools
import random

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import bench, simulate
from open_rnic.rtl.lib.counter import count, count_up_down


class Counter(wiring.Component):
    step: In(3)
    low: Out(4)
    high: Out(4)
    up: In(1)
    down: In(1)
    level: Out(3)
    turns: Out(2)

    def elaborate(self, platform):
        m = Module()
        low = Signal(4)
        high = Signal(4)
        m.d.comb += [self.low.eq(low), self.high.eq(high)]
        count(m, low, high, self.step)
        count_up_down(m, self.level, self.up, self.down)
        count_up_down(m, self.turns, self.up)
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


@bench()
async def a_small_counter_counts_up_and_down(dut):
    level = turns = 0
    for _ in range(300):
        up, down = random.randrange(2), random.randrange(2)
        dut.up.value, dut.down.value = up, down
        await RisingEdge(dut.clk)
        assert (int(dut.level.value), int(dut.turns.value)) == (level % 8, turns % 4)
        level, turns = level + up - down, turns + up


def test_counter():
    simulate(functools.partial(Counter), __name__)
