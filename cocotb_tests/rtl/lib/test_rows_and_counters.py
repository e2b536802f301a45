# amaranth: UnusedElaboratable=no
"""Rows of state (rtl/lib/rows.py), and counters (rtl/lib/counter.py)."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import FallingEdge, RisingEdge

from open_rnic.cocotb_tests.harness import Part, bench, parameter, simulate
from open_rnic.cocotb_tests.proofs.rows import _INITIAL, Block
from open_rnic.rtl.lib.counter import count, count_up_down
from open_rnic.rtl.lib.rows import Rows


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


@bench(cycles=3000)
async def each_connection_finds_its_own_row(dut):
    connections = parameter("connections")
    rows, active = [_INITIAL] * connections, connections - 1
    dut.writes.value = dut.when.value = dut.to.value = 0
    for n in range(connections):
        await FallingEdge(dut.clk)
        dut.clear.value = 1 | n << 1
    for _ in range(2000):
        await FallingEdge(dut.clk)
        assert dut.active.value == active
        assert dut.state.value == rows[active]
        writes, value, to = random.getrandbits(1), random.getrandbits(3), random.randrange(connections)
        when = random.random() < 0.5
        clears, of = random.random() < 0.1, random.randrange(connections)
        for name, given in (("writes", writes), ("value", value), ("to", to), ("when", when),
                            ("clear", clears | of << 1)):  # fmt: skip
            getattr(dut, name).value = int(given)
        turns = when and not clears
        if writes and not clears and not (turns and to != active):
            rows[active] = value
        if clears:
            rows[of], active = _INITIAL, of
        active = to if turns else active


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


CONNECTIONS = (1, 2, 3, 16)
BLOCKS = (*CONNECTIONS, "counter")


def block(key):
    return Counter() if key == "counter" else Block(key)


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_each_connection_finds_its_own_row(connections):
    part = Part(block, connections, BLOCKS)
    simulate(part, each_connection_finds_its_own_row, parameters={"connections": connections})


def test_counter():
    simulate(Part(block, "counter", BLOCKS), both_halves_count_like_one_counter, a_small_counter_counts_up_and_down)


def test_number_of_connections_is_checked():
    with pytest.raises(ValueError, match="connections must be at least 1, not 0"):
        Rows(1, 0)
