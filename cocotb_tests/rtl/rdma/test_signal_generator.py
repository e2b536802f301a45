# amaranth: UnusedElaboratable=no
"""The signal generator: its samples, their rate, and their number."""

import itertools
import math
import random

import pytest

from open_rnic.cocotb_tests.rtl.rdma.streams import UNTIL_VALID, now_and_then, pass_cycles, run, take, until
from open_rnic.rtl.rdma.signal_generator import SignalGenerator
from open_rnic.rtl.rdma.signal_registers import BY_NAME, IDENTITY, Pattern

NO_PAUSE = itertools.repeat(0)


async def access(ctx, dut, name, value=None):
    bus = dut.bus
    ctx.set(bus.address, BY_NAME[f"SIGNAL_{name}"].address // 4)
    ctx.set(bus.write, value is not None)
    ctx.set(bus.write_data, value or 0)
    ctx.set(bus.request, 1)
    [word] = await until(ctx, bus.ack, bus.read_data)
    ctx.set(bus.request, 0)
    await ctx.tick()
    return word


async def start(ctx, dut, pattern, **registers):
    for name, value in registers.items():
        await access(ctx, dut, name, value)
    await access(ctx, dut, "CONTROL", pattern << 4 | 1)


def expected(pattern, octets, number, step):
    if pattern is Pattern.COUNTER:
        return number % (1 << 8 * octets)
    place = (number * step >> 22) % 1024
    amplitude = round(32767 * math.sin(2 * math.pi * place / 1024)) & 0xFFFF
    return amplitude >> 8 if octets == 1 else (number << 16 | amplitude) % (1 << 8 * octets)


@pytest.mark.parametrize("chance", [0.0, 0.5])
@pytest.mark.parametrize("octets", [1, 2, 4, 16])
@pytest.mark.parametrize("pattern", Pattern)
def test_samples_are_those_of_the_pattern_however_long_each_waits(pattern, octets, chance):
    dut = SignalGenerator(octets)
    stall = now_and_then(random.Random(octets), chance, until_valid=True)
    step = random.Random(octets).getrandbits(32)

    async def main(ctx):
        for _ in range(2):  # the first sample has number 0 after each start
            await start(ctx, dut, pattern, STEP=step, SAMPLES=300)
            for number in range(300):
                assert await take(ctx, dut.o, stall) == expected(pattern, octets, number, step), number
            assert await access(ctx, dut, "GIVEN_LO") == 300
            assert await access(ctx, dut, "STATUS") == 0
            await access(ctx, dut, "CONTROL", 0)

    run(dut, main, cycles=20_000)


@pytest.mark.parametrize("period", [0, 1, 2, 7])
def test_a_sample_is_given_in_each_period(period):
    dut = SignalGenerator()
    cycles = []

    async def main(ctx):
        ctx.set(dut.o.ready, 1)
        await start(ctx, dut, Pattern.COUNTER, PERIOD=period)
        while len(cycles) < 40:
            await ctx.tick()

    async def watch(ctx):
        for cycle in itertools.count():
            _, valid = await ctx.tick(dut.o.valid)
            if valid:
                cycles.append(cycle)

    run(dut, main, watch, cycles=1000)
    assert {after - before for before, after in itertools.pairwise(cycles)} == {max(period, 1)}


def test_a_sample_that_is_not_taken_delays_those_behind_it_and_a_reset_withdraws_it():
    dut = SignalGenerator()

    async def main(ctx):
        assert await access(ctx, dut, "IDENTITY") == IDENTITY
        await start(ctx, dut, Pattern.COUNTER)
        await pass_cycles(ctx, 50)
        assert await access(ctx, dut, "GIVEN_LO") == 1
        assert await access(ctx, dut, "STATUS") == 0b11
        await access(ctx, dut, "CONTROL", 0)
        assert ctx.get(dut.o.valid) == 1
        assert await take(ctx, dut.o, NO_PAUSE) == 0
        await start(ctx, dut, Pattern.COUNTER)
        await take(ctx, dut.o, itertools.repeat(UNTIL_VALID))
        await until(ctx, dut.o.valid)
        ctx.set(dut.reset, 1)
        await ctx.tick()
        ctx.set(dut.reset, 0)
        await pass_cycles(ctx, 5)
        assert ctx.get(dut.o.valid) == 0
        assert await access(ctx, dut, "CONTROL") == 0

    run(dut, main, cycles=1000)


def test_a_sample_without_octets_is_refused():
    with pytest.raises(ValueError, match="a sample must have at least 1 octet, not 0"):
        SignalGenerator(0)
