# amaranth: UnusedElaboratable=no
"""The sample writer against a model of the engine and of the peer.

The model of the peer reads its ring as the records of the doorbells allow, and knows from them which samples have been
dropped. It therefore checks the order, the drops and the octets of all samples.
"""

import itertools
import random
from collections import deque
from typing import NamedTuple

import pytest

from open_rnic.cocotb_tests.plugins.lengths import shortened, widths
from open_rnic.cocotb_tests.rtl.rdma.streams import give, now_and_then, pass_cycles, run, take, until
from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.rdma.registers import Command
from open_rnic.rtl.rdma.sample_registers import BY_NAME, IDENTITY, RECORD_OCTETS, Doorbell
from open_rnic.rtl.rdma.sample_writer import BUFFER, RECORD, SampleWriter

STAG, BELL_STAG = 0x1234_5678, 0x9ABC_DEF0
TO, BELL_TO = 0xFFFF_FFF0_FFFF_FF00, 0x0123_4567_89AB_CDEF  # the ring crosses a carry into the high half of a TO
HEAD = 0x1238
NO_PAUSE = itertools.repeat(0)
CYCLES = 60_000


class Work(NamedTuple):
    """A message of a WORK command."""

    opcode: int
    octets: int
    stag: int
    to: int
    address: int


class Bench:
    """The sample writer, an engine, and a peer with a ring of ``ring`` octets.

    ``chance`` is that of pauses on each stream. The peer frees octets ``delay`` cycles after they were announced, at
    most ``unit`` of them at a time. Without doorbells, it learns of each RDMA Write when it arrives.
    """

    def __init__(self, lanes=1, sample=4, buffer=256, ring=1024, *, bell=Doorbell.SEND, chance=0.0, delay=0,
                 unit=None, frees=True, seed=0):  # fmt: skip
        self.dut = SampleWriter(lanes, sample=sample, octets=buffer)
        self.lanes, self.sample, self.kind = lanes, sample, Doorbell(bell)
        self.rng = random.Random(seed)
        self.chance = chance
        self.ring = bytearray(ring)
        self.delay, self.unit, self.frees = delay, unit or ring, frees
        self.cycle = 0
        self.written = 0  # octets that the engine has taken
        self.arrived = 0  # octets that are in the ring
        self.head = 0  # octets that the peer has freed
        self.lengths = []  # of the RDMA Writes
        self.bells = []  # the cycle of each doorbell, its tail, and its number of dropped samples
        self.offered = 0  # samples that have been taken from the stream while the writer was enabled
        self.received = []  # the number of each sample in the ring
        self.rest = bytearray()  # octets of a sample whose end has not been announced
        self.reads = deque()  # cycles in which the engine has read a word
        self._works, self._due, self._heads = deque(), deque(), deque()
        self._tail = self._missing = 0
        self._next = 0  # the number of the next sample in the ring
        self._bus_is_free = True

    # The samples.

    def octets_of(self, number):
        return random.Random(number).randbytes(self.sample)

    async def offer(self, ctx, count, chance=None):
        """Offer samples."""
        idle = self.pattern(chance)
        for _ in range(count):
            payload = int.from_bytes(self.octets_of(self.offered), "little")
            self.offered += 1
            await give(ctx, self.dut.samples, payload, idle)

    # The registers.

    async def access(self, ctx, name, value=None):
        bus = self.dut.bus
        assert self._bus_is_free
        self._bus_is_free = False
        ctx.set(bus.address, BY_NAME[f"SAMPLE_{name}"].address // 4)
        ctx.set(bus.write, value is not None)
        ctx.set(bus.write_data, value or 0)
        ctx.set(bus.request, 1)
        [word] = await until(ctx, bus.ack, bus.read_data)
        ctx.set(bus.request, 0)
        await ctx.tick()
        self._bus_is_free = True
        return word

    async def field(self, ctx, name, field):
        return BY_NAME[f"SAMPLE_{name}"][field].get(await self.access(ctx, name))

    async def start(self, ctx, drops=False, **registers):
        values = {
            "RING_STAG": STAG, "RING_TO_LO": TO & 0xFFFF_FFFF, "RING_TO_HI": TO >> 32, "RING_OCTETS": len(self.ring),
            "BELL_STAG": BELL_STAG, "BELL_TO_LO": BELL_TO & 0xFFFF_FFFF, "BELL_TO_HI": BELL_TO >> 32,
            "HEAD_ADDRESS": HEAD, **registers,
        }  # fmt: skip
        for name, value in values.items():
            await self.access(ctx, name, value)
        self.control = int(self.kind) << 4 | drops << 1
        await self.access(ctx, "CONTROL", self.control | 1)

    async def finish(self, ctx):
        """Disable the writer, and check that all samples were received or counted."""
        await self.access(ctx, "CONTROL", self.control)
        while await self.field(ctx, "STATUS", "pending") or await self.field(ctx, "STATUS", "busy"):
            pass
        await pass_cycles(ctx, 20)
        dropped = await self.access(ctx, "DROPPED_LO") | await self.access(ctx, "DROPPED_HI") << 32
        tail = await self.access(ctx, "TAIL_LO") | await self.access(ctx, "TAIL_HI") << 32
        assert not self.rest
        assert tail == self.arrived == self.sample * len(self.received)
        assert dropped + len(self.received) == self.offered
        assert self.kind is Doorbell.NONE or await self.access(ctx, "BELLS") == len(self.bells)
        return dropped

    # The engine.

    def pattern(self, chance=None, **options):
        chance = self.chance if chance is None else chance
        return now_and_then(random.Random(self.rng.random()), chance, **options)

    async def works(self, ctx):
        stall = self.pattern(until_valid=True)
        while True:
            while len(self._works) == 2:  # one that is read, and the next one
                await ctx.tick()
            words = [await take(ctx, self.dut.words, stall) for _ in range(7)]
            first, octets, stag, low, high, address, of_piece = words
            assert first >> 28 == Command.WORK
            assert first >> 4 & 0xFFFFFF == 1 << 4 | 1 << 1, "one piece, of the fabric, not fenced"
            assert octets == of_piece
            work = Work(first & 0xF, octets, stag, high << 32 | low, address)
            if work.opcode == Opcode.RDMA_WRITE and work.stag == STAG:
                place = work.to - TO
                assert place == self.written % len(self.ring), "not behind the last RDMA Write"
                assert 0 < work.octets <= len(self.ring) - place, "beyond the end of the ring"
                assert work.address >= BUFFER
                self.written += work.octets
                assert self.written - self.head <= len(self.ring), "octets are overwritten that were not freed"
                self.lengths.append(work.octets)
            else:
                opcode = {Doorbell.SEND: Opcode.SEND, Doorbell.SEND_SE: Opcode.SEND_SE}
                assert work.opcode == opcode.get(self.kind, Opcode.RDMA_WRITE)
                assert self.kind is not Doorbell.WRITE or (work.stag, work.to) == (BELL_STAG, BELL_TO)
                assert (work.octets, work.address) == (RECORD_OCTETS, RECORD)
                self.bells.append((self.cycle, 0, 0))
            self._works.append(work)

    async def engine(self, ctx):
        """Read the words of each work, one after the other."""
        idle, size = self.pattern(), 4 * self.lanes
        while True:
            while not self._works:
                await ctx.tick()
            work = self._works[0]
            first, end = work.address, work.address + work.octets
            words = range(first // size, -(-end // size))
            self._due.append((work, words, bytearray()))
            for address in words:
                if address == words[-1]:
                    self._works.popleft()
                await give(ctx, self.dut.port.read, address, idle)
                self.reads.append(self.cycle)

    async def words(self, ctx):
        stall, size = self.pattern(until_valid=True), 4 * self.lanes
        while True:
            if self.chance:
                word = await take(ctx, self.dut.port.words, stall)
            else:
                ctx.set(self.dut.port.words.ready, 1)
                [word] = await until(ctx, self.dut.port.words.valid, self.dut.port.words.payload)
            work, words, octets = self._due[0]
            octets += word.to_bytes(size, "little")
            if len(octets) == len(words) * size:
                self._due.popleft()
                skip = work.address % size
                self.message(work, octets[skip : skip + work.octets])
                # The model of the engine reports this in the cycle after the last word.
                self.is_done = True

    async def done(self, ctx):
        self.is_done = False
        while True:
            await ctx.tick()
            self.cycle += 1
            ctx.set(self.dut.done, self.is_done)
            self.is_done = False

    # The peer.

    def message(self, work, octets):
        if work.address >= RECORD:
            tail, dropped = (int.from_bytes(octets[at : at + 8], "little") for at in (0, 8))
            index = next(n for n, (_, known, _) in enumerate(self.bells) if not known)
            self.bells[index] = (self.bells[index][0], tail, dropped)
            self.announced(tail, dropped)
        else:
            place = self.arrived % len(self.ring)
            self.ring[place : place + len(octets)] = octets
            self.arrived += len(octets)
            if self.kind is Doorbell.NONE:
                self.announced(self.arrived, 0)

    def announced(self, tail, dropped):
        """The octets up to ``tail`` can be read; the samples missing since the last record are before all of them."""
        assert self._tail < tail <= self.arrived
        self._next += dropped - self._missing
        assert dropped == self._missing or not self.rest
        for number in range(self._tail, tail):
            self.rest.append(self.ring[number % len(self.ring)])
            if len(self.rest) == self.sample:
                assert self.rest == self.octets_of(self._next), f"sample {self._next}"
                self.received.append(self._next)
                self._next += 1
                self.rest.clear()
        self._tail, self._missing = tail, dropped
        while self.frees and self.head + sum(n for _, n in self._heads) < tail:
            freed = min(tail - self.head - sum(n for _, n in self._heads), self.rng.randint(1, self.unit))
            self._heads.append((self.cycle + self.rng.randint(0, self.delay), freed))

    async def write_head(self, ctx, head, masks=None):
        """The engine writes the head to memory."""
        size = 4 * self.lanes
        octets = head.to_bytes(8, "little")
        lanes = max(1, 2 // self.lanes)
        for number in range(lanes):
            at = HEAD + number * size
            skip = at % size
            chunk = octets[number * size : (number + 1) * size] if self.lanes == 1 else octets
            mask = (1 << len(chunk)) - 1 if masks is None else masks
            await give(ctx, self.dut.port.write, {
                "address": at // size, "data": int.from_bytes(chunk, "little") << 8 * skip, "mask": mask << skip,
                "last": number == lanes - 1,
            }, NO_PAUSE)  # fmt: skip

    async def heads(self, ctx):
        """Free octets when they are due, and write to other addresses meanwhile."""
        ctx.set(self.dut.main.write.ready, 1)
        while True:
            if self._heads and self._heads[0][0] <= self.cycle:
                self.head += self._heads.popleft()[1]
                await self.write_head(ctx, self.head)
            elif self.chance and self.rng.random() < 0.1:
                other = HEAD // (4 * self.lanes) + self.rng.choice([-2, -1, 2, 3])
                await give(ctx, self.dut.port.write, {"address": other, "data": -1, "mask": -1, "last": 0}, NO_PAUSE)
            else:
                await ctx.tick()

    async def ticks(self, ctx):
        """A tick every 8 cycles."""
        while True:
            ctx.set(self.dut.tick, 1)
            await ctx.tick()
            ctx.set(self.dut.tick, 0)
            await pass_cycles(ctx, 7)

    def run(self, main, *others, cycles=CYCLES):
        run(self.dut, main, self.done, self.words, self.engine, self.works, self.heads, self.ticks, *others,
            cycles=cycles)  # fmt: skip


@pytest.mark.parametrize("chance", [0.0, 0.4])
@pytest.mark.parametrize("seed", shortened("more seeds", 2, range(12)))
def test_the_peer_reads_what_was_not_dropped(seed, chance):
    """Random parameters, registers and peers."""
    rng = random.Random(seed)
    lanes = rng.choice([1, 2, 4])
    sample = rng.choice([each for each in (1, 2, 4, 8, 16) if each <= 4 * lanes])
    buffer = rng.choice([each for each in (64, 128, 256) if each >= 4 * sample])
    ring = rng.randint(1, 40) * sample if rng.random() < 0.7 else rng.randint(16, 600)
    drops = rng.random() < 0.6
    kind = Doorbell.SEND if seed % 3 == 0 else rng.choice([Doorbell.SEND_SE, Doorbell.WRITE])
    bench = Bench(lanes, sample, buffer, ring, bell=kind, chance=chance, delay=rng.choice([0, 50, 300]),
                  unit=rng.choice([None, 7, 64]), seed=seed)  # fmt: skip

    async def main(ctx):
        await bench.start(
            ctx, drops, WRITE_OCTETS=rng.choice([8, 16, 33, 64, 1024]),
            BELL_OCTETS=rng.choice([0, 24, 100, 256]), BELL_TICKS=rng.choice([0, 3, 20]),
        )  # fmt: skip
        for _ in range(6):
            await bench.offer(ctx, rng.randint(1, 80), rng.choice([0, 0.3, 0.9]))
            await pass_cycles(ctx, rng.choice([1, 20, 400]))
        dropped = await bench.finish(ctx)
        assert drops or not dropped

    bench.run(main)


@pytest.mark.parametrize("words", shortened("more rounds of the ring, which has 200 words", 1, [1000, 4000]))
@pytest.mark.parametrize("lanes", [1, 4])
def test_no_sample_is_dropped_at_a_word_a_cycle_and_the_engine_never_waits(lanes, words):
    """Words without a pause: RDMA Writes of 16 words, from a buffer for four of them."""
    size = 4 * lanes
    bench = Bench(lanes, size, 64 * size, 200 * size, bell=Doorbell.NONE)

    async def main(ctx):
        await bench.start(ctx, drops=True, WRITE_OCTETS=16 * size)
        await bench.offer(ctx, words)
        assert bench.reads[-1] - bench.reads[0] < len(bench.reads) + 2
        assert {*bench.lengths} == {16 * size, 8 * size}  # the latter at the end of the ring
        assert await bench.finish(ctx) == 0

    bench.run(main)


def test_a_peer_that_is_too_slow_loses_samples_and_knows_which():
    bench = Bench(2, 2, 64, 128, bell=Doorbell.WRITE, delay=500, unit=20)

    async def main(ctx):
        await bench.start(ctx, drops=True, WRITE_OCTETS=16, BELL_TICKS=2)
        await bench.offer(ctx, 3000)
        dropped = await bench.finish(ctx)
        assert dropped > 1000
        gaps = [b[1] for a, b in itertools.pairwise(bench.bells) if a[2] != b[2]]
        assert len(gaps) > 5
        assert [*range(3000)] != bench.received == sorted(bench.received)

    bench.run(main)


class Reader(Bench):
    """A peer that takes one doorbell after the other, each some cycles later, and frees a quarter of its ring."""

    def __init__(self, *args, pause, **options):
        super().__init__(*args, frees=False, **options)
        self.pause = pause
        self.waiting = deque()  # the tails of doorbells that it has not taken
        self.most = 0

    def announced(self, tail, dropped):
        super().announced(tail, dropped)
        self.waiting.append(tail)
        self.most = max(self.most, len(self.waiting))

    async def read(self, ctx):
        while True:
            while not self.waiting:
                await ctx.tick()
            await pass_cycles(ctx, self.rng.randint(1, self.pause))
            tail = self.waiting.popleft()
            if tail - self.head >= len(self.ring) // 4:
                self.head = tail
                await self.write_head(ctx, tail)


@pytest.mark.parametrize("pause", shortened("a reader that never fills its ring", 1, [1000, 30]))
@pytest.mark.parametrize("drops", [False, True])
def test_a_reader_that_frees_quarters_of_its_ring_needs_few_buffers_for_doorbells(drops, pause):
    """So many as docs/samples.md says; one of them more than waits is being received."""
    bench = Reader(1, 4, 128, 1024, pause=pause, seed=pause)

    async def main(ctx):
        await bench.start(ctx, drops, WRITE_OCTETS=32, BELL_OCTETS=256)
        for _ in range(8):
            await bench.offer(ctx, bench.rng.randint(1, 600), bench.rng.choice([0, 0.5]))
        await bench.finish(ctx)
        assert len(bench.bells) >= 4
        assert bench.most < 1024 // 256 + 1024 // 256 + 1024 // 128 + 3

    bench.run(main, bench.read)


def test_the_stream_stalls_if_the_peer_frees_nothing():
    bench = Bench(1, 4, 64, 128, frees=False)

    async def main(ctx):
        await bench.start(ctx, WRITE_OCTETS=32)
        await bench.offer(ctx, (128 + 64) // 4)
        ctx.set(bench.dut.samples.valid, 1)
        for _ in range(500):
            _, ready = await ctx.tick(bench.dut.samples.ready)
            assert not ready
        ctx.set(bench.dut.samples.valid, 0)
        assert [tail for _, tail, _ in bench.bells] == [128]
        assert await bench.field(ctx, "STATUS", "blocked")
        assert bench.written == 128
        bench.head = 100
        await bench.write_head(ctx, 100)
        bench.frees = True
        await pass_cycles(ctx, 100)
        assert bench.written == 192
        assert not await bench.field(ctx, "STATUS", "blocked")
        assert await bench.access(ctx, "HEAD") == bench.head
        bench.announced = lambda *_: None
        await bench.access(ctx, "CONTROL", bench.control)

    bench.run(main)


@pytest.mark.parametrize("kind", [each for each in Doorbell if each is not Doorbell.NONE])
def test_a_doorbell_follows_every_number_of_octets(kind):
    bench = Bench(2, 4, 256, 1000, bell=kind, chance=0.2)

    async def main(ctx):
        await bench.start(ctx, WRITE_OCTETS=64, BELL_OCTETS=100)
        await bench.offer(ctx, 500)
        await bench.finish(ctx)
        assert [tail for _, tail, _ in bench.bells] == [*range(100, 2001, 100)]

    bench.run(main)


@pytest.mark.parametrize("ticks", shortened("a longer wait", 2, [1, 5, 40]))
def test_a_doorbell_follows_in_time(ticks):
    """A tick is 8 cycles long: the first sample waits over ``ticks`` - 1 of them, and not longer than ``ticks``."""
    bench = Bench(1, 4, 256, 1024)
    rng = random.Random(ticks)

    async def main(ctx):
        await bench.start(ctx, WRITE_OCTETS=64, BELL_TICKS=ticks)
        for number in range(1, 30):
            await bench.offer(ctx, rng.randint(1, 3))
            began = bench.cycle
            while len(bench.bells) < number:
                await ctx.tick()
            waited = bench.bells[-1][0] - began
            assert 8 * (ticks - 1) - 3 <= waited <= 8 * ticks + 40
            await pass_cycles(ctx, rng.randint(10, 50))
            assert bench.bells[-1][1] == 4 * bench.offered
        await bench.finish(ctx)

    bench.run(main)


def test_the_ticks_begin_anew_with_each_doorbell():
    bench = Bench(1, 4, 256, 1024)

    async def main(ctx):
        await bench.start(ctx, WRITE_OCTETS=64, BELL_OCTETS=64, BELL_TICKS=10)
        for _ in range(20):
            await bench.offer(ctx, 16)
            await pass_cycles(ctx, 60)
        assert [tail for _, tail, _ in bench.bells] == [*range(64, 1281, 64)]
        assert {*bench.lengths} == {64}
        await bench.finish(ctx)

    bench.run(main)


def test_a_head_that_the_peer_cannot_know_is_ignored():
    bench = Bench(1, 4, 64, 256, frees=False)

    async def main(ctx):
        await bench.start(ctx, WRITE_OCTETS=16, BELL_OCTETS=16)
        await bench.offer(ctx, 16)
        await pass_cycles(ctx, 100)
        for head, bad in ((32, 0), (16, 1), (32, 0), (65, 1), (64, 0), (0, 1), (1 << 31, 1), (64 + (1 << 32), 0)):
            bench.head = max(bench.head, head) if not bad else bench.head
            await bench.write_head(ctx, head)
            await pass_cycles(ctx, 5)
            assert await bench.field(ctx, "STATUS", "bad_head") == bad, head
            await bench.access(ctx, "STATUS", 1)
            assert not await bench.field(ctx, "STATUS", "bad_head")
            assert await bench.access(ctx, "HEAD") == bench.head % (1 << 32)

    bench.run(main)


@pytest.mark.parametrize("lanes", widths(1, 2, 4))
def test_a_part_of_a_head_is_no_head(lanes):
    bench = Bench(lanes, 4, 64, 256, frees=False)

    async def main(ctx):
        await bench.start(ctx, WRITE_OCTETS=16, BELL_OCTETS=16)
        await bench.offer(ctx, 16)
        await pass_cycles(ctx, 100)
        for mask in (0x0, 0x7, 0xE, 0xF0 if lanes > 1 else 0x3):
            await bench.write_head(ctx, 64, mask)
            await pass_cycles(ctx, 5)
            assert await bench.access(ctx, "HEAD") == 0
        await bench.write_head(ctx, 48, 0xF)
        await bench.write_head(ctx, 64, 0xFF)  # while the head before is checked
        await pass_cycles(ctx, 8)
        assert await bench.access(ctx, "HEAD") == 64

    bench.run(main)


def test_samples_that_are_taken_while_disabled_are_not_counted():
    bench = Bench()

    async def main(ctx):
        ctx.set(bench.dut.samples.valid, 1)
        _, ready = await ctx.tick(bench.dut.samples.ready)
        assert not ready
        ctx.set(bench.dut.samples.valid, 0)
        await bench.start(ctx, drops=True)
        await bench.access(ctx, "CONTROL", bench.control)
        await bench.offer(ctx, 300)
        bench.offered = 0
        await bench.access(ctx, "CONTROL", bench.control | 1)
        await bench.offer(ctx, 30)
        assert await bench.finish(ctx) == 0
        assert len(bench.received) == 30

    bench.run(main)


def test_reset_forgets_samples_and_registers():
    bench = Bench(frees=False, bell=Doorbell.NONE)

    async def main(ctx):
        await bench.start(ctx, drops=True, WRITE_OCTETS=64)
        await bench.offer(ctx, 1000)
        assert await bench.access(ctx, "DROPPED_LO")
        ctx.set(bench.dut.reset, 1)
        await ctx.tick()
        ctx.set(bench.dut.reset, 0)
        for name, register in BY_NAME.items():
            if name not in ("SAMPLE_CAPABILITIES",):
                assert await bench.access(ctx, name.removeprefix("SAMPLE_")) == register.reset, name

    bench.run(main)


def test_words_that_were_asked_for_before_a_reset_still_come():
    dut = SampleWriter(1, octets=64)

    async def main(ctx):
        ctx.set(dut.main.read.ready, 1)
        ctx.set(dut.main.words.payload, 0x1234)
        for address in (BUFFER, 0x100):
            await give(ctx, dut.port.read, address // 4, NO_PAUSE)
        ctx.set(dut.main.words.valid, 1)
        ctx.set(dut.reset, 1)
        await ctx.tick()
        ctx.set(dut.reset, 0)
        await take(ctx, dut.port.words, NO_PAUSE)
        assert await take(ctx, dut.port.words, NO_PAUSE) == 0x1234

    run(dut, main, cycles=100)


def test_capabilities():
    bench = Bench(4, 2, 512)

    async def main(ctx):
        assert await bench.access(ctx, "IDENTITY") == IDENTITY
        assert await bench.field(ctx, "CAPABILITIES", "sample") == 1
        assert await bench.field(ctx, "CAPABILITIES", "buffer") == 9

    bench.run(main)


def test_numbers_of_octets_wrap():
    """The counters begin 200 octets before 2^32; the peer and the engine count on."""
    bench = Bench(1, 4, 128, 256, chance=0.1, delay=20)
    start = (1 << 32) - 256

    async def main(ctx):
        schedule = bench.dut.schedule
        for number in (schedule.stored, schedule.announced, schedule.tail_low, schedule.status.freed):
            ctx.set(number, start)
        bench.head = bench.written = bench.arrived = bench._tail = start
        await bench.start(ctx, WRITE_OCTETS=32, BELL_OCTETS=64)
        await bench.offer(ctx, 200)
        await bench.access(ctx, "CONTROL", bench.control)
        while len(bench.received) < 200:
            await ctx.tick()
        assert await bench.access(ctx, "TAIL_HI") == 1
        assert await bench.access(ctx, "TAIL_LO") == 4 * 200 - 256

    bench.run(main)


@pytest.mark.parametrize(
    ("lanes", "sample", "octets", "message"),
    [
        (1, 8, 256, "a sample must have at most 4 octets at 1 lanes, not 8"),
        (1, 3, 256, "the octets of a sample must be a power of 2, not 3"),
        (1, 0, 256, "the octets of a sample must be a power of 2, not 0"),
        (2, 4, 48, "the buffer must have a power of 2 of octets from 16 on, not 48"),
        (2, 8, 16, "the buffer must have a power of 2 of octets from 32 on, not 16"),
        (4, 1, 16, "the buffer must have at least 32 octets at 4 lanes, not 16"),
        (4, 1, 1 << 25, "the buffer must have a power of 2 of octets from 4 on, not 33554432"),
        (3, 1, 256, "lanes must be one of 1, 2, 4, 8, 16, not 3"),
    ],
)
def test_parameters_are_checked(lanes, sample, octets, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        SampleWriter(lanes, sample=sample, octets=octets)
