"""Programs of writes and reads at a memory port, for the tests of its buses.

A test gives a bus: ``dut`` with the port, ``lanes``, ``faulty``, ``octets``, ``unanswered``, ``now`` and ``run``.
"""

import random

from open_rnic.cocotb_tests.rtl.rdma.streams import give, now_and_then, pass_cycles, take, until
from open_rnic.rtl.rdma.bursts import PAGE

__all__ = ["errors_are_reported", "segment_in_bursts", "transfers_equal_the_model"]

ROUNDS = 15


def _runs(rng, pages):
    """Yield words' addresses: runs around borders of 4 KiB, and others."""
    for _ in range(rng.randrange(1, 4)):
        start = rng.choice(pages) + rng.randrange(-20, 20)
        yield from range(start, start + rng.choice([1, 2, rng.randrange(1, 50)]))


def transfers_equal_the_model(bus, seed):
    """Random runs with masks, pauses, errors, and resets of the engine in the middle; then all memory is compared."""
    port, octets, rng = bus.dut.port, 4 * bus.lanes, random.Random(seed)
    pages = [number * PAGE // octets for number in (3, 4, 5)]
    model = {}  # octets by address; None for those that may have been written
    expected = []  # a word's address, for each word that is to come
    faults = 0  # that have been seen since the last write with ``last``
    idle = now_and_then(random.Random(1), bus.chance, 7)
    stall = now_and_then(random.Random(2), bus.chance, until_valid=True)

    def note(beat, certain=True):
        for n in range(octets):
            if beat["mask"] >> n & 1:
                model[beat["address"] * octets + n] = beat["data"] >> 8 * n & 0xFF if certain else None

    async def write(ctx):
        nonlocal faults
        faults, faulty = 0, False
        addresses = list(_runs(rng, pages))
        cut = rng.randrange(2 * len(addresses))
        for number, address in enumerate(addresses):
            mask = rng.choice([0, *[rng.getrandbits(octets), -1] * 7]) & (1 << octets) - 1
            last = number == len(addresses) - 1
            beat = {"address": address, "data": rng.getrandbits(8 * octets), "mask": mask, "last": last}
            faulty |= any(address * octets + n in bus.faulty and mask >> n & 1 for n in range(octets))
            if number == cut:  # the engine is reset
                note(beat, certain=False)
                bus_write = port.write
                ctx.set(bus_write.payload, beat)
                ctx.set(bus_write.valid, 1)
                await ctx.tick()
                ctx.set(bus_write.valid, 0)
                await ctx.tick()
                beat = {**beat, "address": 0, "mask": 0, "last": 1}
                await give(ctx, port.write, beat, idle)
                return
            note(beat)
            await give(ctx, port.write, beat, idle)
        assert bus.unanswered == 0
        assert bool(faults) == faulty

    async def main(ctx):
        for _ in range(ROUNDS):
            spot = rng.choice(pages) + rng.randrange(-20, 20)
            bus.faulty = {spot * octets + rng.randrange(octets)} if rng.random() < 0.4 else set()
            await write(ctx)
            addresses = list(_runs(rng, pages))
            for address in addresses:
                expected.append(address)
                await give(ctx, port.read, address, idle)
                if rng.random() < 0.05:
                    await pass_cycles(ctx, rng.randrange(12))
            while expected:  # a write may overtake a read
                await ctx.tick()
        await pass_cycles(ctx, 20)

    async def words(ctx):
        while True:
            word, fault = await take_word(ctx)
            start = expected.pop(0) * octets
            assert fault == any(start + n in bus.faulty for n in range(octets))
            for n in range(0 if fault else octets):
                due = model.get(start + n, 0)
                assert due in (None, word >> 8 * n & 0xFF)

    async def take_word(ctx):
        word = await take(ctx, port.words, stall)
        return word, last_fault[0]

    last_fault = [0]

    async def watch(ctx):
        nonlocal faults
        moving = port.words.valid & port.words.ready
        while True:
            _, moves, fault, of_write = await ctx.tick(moving, port.fault, port.write_fault)
            if moves:
                last_fault[0] = fault
            faults += of_write

    bus.run(main, watch, words)
    for address, octet in model.items():
        assert octet in (None, bus.octets.get(address, 0))
    assert {address for address, octet in bus.octets.items()} <= model.keys()


def errors_are_reported(bus):
    """Write and read a word of 4 octets, with and without errors; ``fault`` of the block and the port say which."""
    faults, of_writes = [], []

    async def watch(ctx):
        while True:
            _, fault, of_write = await ctx.tick(bus.dut.fault, bus.dut.port.write_fault)
            faults.append(fault)
            of_writes.append(of_write)

    async def main(ctx):
        idle = now_and_then(random.Random(0), 0)
        for due in (0, 1, 0, 1):
            bus.faulty = {4} if due else set()
            faults.clear()
            of_writes.clear()
            await give(ctx, bus.dut.port.write, {"address": 1, "data": 7, "mask": 1, "last": 1}, idle)
            assert sum(of_writes) == due
            await ctx.tick()
            assert sum(faults) == due
            await give(ctx, bus.dut.port.read, 1, idle)
            await take(ctx, bus.dut.port.words, idle)
            await ctx.tick()
            assert (sum(faults), sum(of_writes)) == (2 * due, due)

    bus.run(main, watch)


def segment_in_bursts(bus, bursts):
    """Write and read 1,460 octets that cross a border of 4 KiB, in so many bursts; return their words and cycles."""
    words = 1460 // (4 * bus.lanes) + 1
    cycles = _count_cycles(bus, address=(3 * PAGE - 704) // (4 * bus.lanes), words=words)
    assert (len(bus.written), len(bus.read)) == (bursts, bursts)
    assert sum(bus.written) == sum(bus.read) == words
    return words, max(cycles.values())


def _count_cycles(bus, address, words):
    """Write ``words`` words without a pause, read them back, and return the cycles that each took."""
    port = bus.dut.port
    cycles = {}

    async def ask(ctx):
        await until(ctx, port.write.valid & port.write.ready & port.write.payload.last)
        for number in range(words):
            await give(ctx, port.read, address + number, idle)

    async def main(ctx):
        start = bus.now
        mask = (1 << 4 * bus.lanes) - 1
        for number in range(words):
            beat = {"address": address + number, "data": number, "mask": mask, "last": number == words - 1}
            await give(ctx, port.write, beat, idle)
        cycles["write"], start = bus.now - start, bus.now
        ctx.set(port.words.ready, 1)
        for number in range(words):
            [word] = await until(ctx, port.words.valid, port.words.payload)
            assert word == number
        cycles["read"] = bus.now - start

    idle = now_and_then(random.Random(0), 0)
    bus.run(main, ask)
    return cycles
