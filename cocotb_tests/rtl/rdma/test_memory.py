# amaranth: UnusedElaboratable=no
"""The memory port: octets are read as they were written, and words return in the order of the reads."""

import itertools
import random

import pytest

from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.rtl.rdma.streams import give, now_and_then, pass_cycles, run, take
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.rdma.layouts import word_bits
from open_rnic.rtl.rdma.memory import BlockMemory, MemoryHub

OCTETS = 256
NEVER = 0.0
NO_PAUSE = itertools.repeat(0)


@pytest.mark.parametrize("chance", [NEVER, 0.4])
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_octets_are_read_as_they_were_written(lanes, chance):
    memory = BlockMemory(lanes, OCTETS)
    port = memory.port
    rng = random.Random(lanes)
    size = 4 * lanes
    model = [0] * (OCTETS // size)
    expected = []

    def patterns():
        return now_and_then(random.Random(rng.random()), chance)

    write_idle, read_idle = patterns(), patterns()
    stall = now_and_then(random.Random(rng.random()), chance, until_valid=True)

    async def main(ctx):
        for _ in range(40):
            for number in range(last := rng.randrange(1, 6)):
                address = rng.randrange(len(model))
                mask, data = rng.getrandbits(size), rng.getrandbits(8 * size)
                wide = sum(0xFF << 8 * n for n in range(size) if mask >> n & 1)
                model[address] = model[address] & ~wide | data & wide
                await give(ctx, port.write, {
                    "address": address, "data": data, "mask": mask, "last": number == last - 1,
                }, write_idle)  # fmt: skip
            for address in rng.choices(range(len(model)), k=rng.randrange(1, 12)):
                expected.append(model[address])
                await give(ctx, port.read, address, read_idle)
        while expected:
            await ctx.tick()

    async def words(ctx):
        while True:
            word = await take(ctx, port.words, stall)
            assert word == expected.pop(0)

    run(memory, main, words, cycles=10_000)


def test_a_write_and_a_read_in_every_cycle():
    memory = BlockMemory(1, OCTETS)
    words = range(100, 100 + OCTETS // 4)

    async def main(ctx):
        ctx.set(memory.port.words.ready, 1)
        for address, word in enumerate(words):
            ctx.set(memory.port.write.payload, {"address": address, "data": word, "mask": 0xF, "last": 0})
            ctx.set(memory.port.write.valid, 1)
            ctx.set(memory.port.read.payload, address - 1)
            ctx.set(memory.port.read.valid, address > 0)
            _, *ready, valid, given = await ctx.tick(
                memory.port.write.ready, memory.port.read.ready, memory.port.words.valid, memory.port.words.payload
            )
            assert all(ready)
            assert valid == (address > 1)
            assert not valid or given == words[address - 2]

    run(memory, main, cycles=200)


def test_addresses_are_modulo_the_size():
    memory = BlockMemory(1, 64)

    async def main(ctx):
        await give(ctx, memory.port.write, {"address": 16 + 3, "data": 0x1234, "mask": 0xF, "last": 1}, NO_PAUSE)
        await give(ctx, memory.port.read, 3, NO_PAUSE)
        assert await take(ctx, memory.port.words, NO_PAUSE) == 0x1234

    run(memory, main, cycles=20)


@pytest.mark.parametrize("octets", [0, 8, 24, 1 << 31])
def test_sizes_that_are_no_powers_of_two_are_rejected(octets):
    with pytest.raises(ValueError, match=f"a power of 2 of octets from 16 on, not {octets}"):
        BlockMemory(2, octets)



def test_the_octets_of_a_read_are_those_before_a_write_in_the_same_cycle():
    memory = BlockMemory(2, 64)

    async def main(ctx):
        ctx.set(memory.port.words.ready, 1)
        for data in (1, 2):
            ctx.set(memory.port.write.payload, {"address": 5, "data": data, "mask": 0xFF, "last": 1})
            ctx.set(memory.port.write.valid, 1)
            ctx.set(memory.port.read.payload, 5)
            ctx.set(memory.port.read.valid, 1)
            await ctx.tick()
            assert ctx.get(memory.port.words.payload) == data - 1

    run(memory, main, cycles=20)


class Sides:
    """A hub between a model of the engine and two memories in Python, whose words are their addresses."""

    def __init__(self, lanes, latency, seed=0, chance=NEVER, outstanding=8):
        self.hub = MemoryHub(lanes, outstanding=outstanding)
        self.top = 1 << word_bits(lanes) - 1
        self.rng = random.Random(seed)
        self.chance = chance
        self.latency = latency  # of the main memory in cycles; the fabric takes 1
        self.cycle = 0

    def memory(self, read, words, latency, of_fabric):
        queue = []

        async def reads(ctx):
            idle = self.pattern(until_valid=True)
            while True:
                address = await take(ctx, read, idle)
                assert (address >= self.top) == of_fabric
                queue.append((self.cycle + latency, address))

        async def gives(ctx):
            idle = self.pattern()
            while True:
                while not queue or queue[0][0] > self.cycle:
                    await ctx.tick()
                await give(ctx, words, queue.pop(0)[1], idle)

        return reads, gives

    def pattern(self, **options):
        return now_and_then(random.Random(self.rng.random()), self.chance, **options)

    async def count(self, ctx):
        while True:
            await ctx.tick()
            self.cycle += 1

    def run(self, addresses, cycles):
        """Read the addresses, and compare the order of the words."""
        expected = [*addresses]

        async def reads(ctx):
            idle = self.pattern()
            for address in addresses:
                await give(ctx, self.hub.port.read, address, idle)

        async def words(ctx):
            stall = self.pattern(until_valid=True)
            while expected:
                assert await take(ctx, self.hub.port.words, stall) == expected.pop(0)

        main = self.memory(self.hub.main.read, self.hub.main.words, self.latency, False)
        fabric = self.memory(self.hub.read, self.hub.words, 1, True)
        run(self.hub, words, reads, self.count, *main, *fabric, cycles=cycles)


@pytest.mark.parametrize("chance", [NEVER, 0.5])
@pytest.mark.parametrize("latency", [1, 7])
@pytest.mark.parametrize("outstanding", [2, 8])
def test_words_of_both_sides_return_in_the_order_of_the_reads(latency, chance, outstanding):
    sides = Sides(2, latency, latency, chance, outstanding)
    rng = random.Random(1)
    addresses = []
    while len(addresses) < 300:
        side = rng.choice([0, sides.top])
        addresses += [side + rng.randrange(1 << 20) for _ in range(rng.choice([1, 1, 2, 3, 9]))]
    sides.run(addresses, 20_000)


def test_the_first_words_of_a_side_are_read_while_the_other_side_works():
    """100 words of each side at a word a cycle, and once the latency of the main memory, not once for each turn."""
    sides = Sides(1, 20)
    turn = [*range(50)]
    words = [*turn, *(sides.top + n for n in turn), *turn, *(sides.top + n for n in turn)]
    sides.run(words, len(words) + 20 + 30)


def test_writes_for_the_fabric_have_no_effect():
    hub = MemoryHub(1)
    taken = []

    async def main(ctx):
        for number in range(40):
            address = number | number % 2 << 29
            await give(ctx, hub.port.write, {"address": address, "data": number, "mask": 1, "last": 0}, NO_PAUSE)
        await pass_cycles(ctx, 10)
        assert taken == [*range(0, 40, 2)]

    async def memory(ctx):
        stall = now_and_then(random.Random(0), 0.5)
        while True:
            beat = await take(ctx, hub.main.write, stall)
            taken.append(beat.data)
            assert beat.address == beat.data

    run(hub, main, memory, cycles=400)
