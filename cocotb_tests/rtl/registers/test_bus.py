"""A switch of two initiators: each has its own answers, and waits for at most one access of the other."""

import random
from itertools import pairwise

import pytest

from open_rnic.cocotb_tests.rtl.rdma.streams import pass_cycles, run, until
from open_rnic.rtl.registers.bus import BusSwitch

ACCESSES = 100


@pytest.mark.parametrize("pause", [0, 3])
def test_each_initiator_has_its_own_answers_and_its_turn(pause):
    rng = random.Random(pause)
    dut = BusSwitch(16)
    served = []
    left = [ACCESSES, ACCESSES]

    async def initiate(n, ctx):
        side = dut.initiators[n]
        for k in range(ACCESSES):
            await pass_cycles(ctx, rng.randint(0, pause))
            address, writes = n << 15 | k, rng.random() < 0.5
            ctx.set(side.address, address)
            ctx.set(side.write, writes)
            ctx.set(side.write_data, ~address & 0xFFFF)
            ctx.set(side.request, 1)
            [word] = await until(ctx, side.ack, side.read_data)
            ctx.set(side.request, 0)
            assert word == address * 3
            assert served[-1] == (address, writes, ~address & 0xFFFF)
            left[n] -= 1

    async def target(ctx):
        while True:
            ctx.set(dut.bus.ack, 0)
            address, *others = await until(ctx, dut.bus.request, dut.bus.address, dut.bus.write, dut.bus.write_data)
            await pass_cycles(ctx, rng.randint(0, 3))
            ctx.set(dut.bus.read_data, address * 3)
            ctx.set(dut.bus.ack, 1)
            served.append((address, *others))
            await ctx.tick()

    async def both(ctx):
        while any(left):
            await ctx.tick()

    run(dut, both, target, lambda ctx: initiate(0, ctx), lambda ctx: initiate(1, ctx), cycles=20_000)
    sides = [address >> 15 for address, *_ in served]
    assert len(sides) == 2 * ACCESSES
    if not pause:
        assert all(before != after for before, after in pairwise(sides[:150]))
