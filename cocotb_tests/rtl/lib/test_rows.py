"""Rows of state (rtl/lib/rows.py)."""

import random

import pytest
from cocotb.triggers import FallingEdge

from open_rnic.cocotb_tests.harness import Part, bench, parameter, simulate
from open_rnic.cocotb_tests.proofs.rows import _INITIAL, Block
from open_rnic.rtl.lib.rows import Rows


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


CONNECTIONS = (2, 3, 16)


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_each_connection_finds_its_own_row(connections):
    simulate(Part(Block, connections, CONNECTIONS), __name__, parameters={"connections": connections})


def test_number_of_connections_is_checked():
    with pytest.raises(ValueError, match="connections must be at least 1, not 0"):
        Rows(1, 0)
