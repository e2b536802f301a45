# amaranth: UnusedElaboratable=no
"""The memory port on AXI4, against a model of a memory whose responses take their time."""

import random

import pytest

from open_rnic.cocotb_tests.plugins.lengths import shortened, widths
from open_rnic.cocotb_tests.rtl.rdma.memory_programs import (
    errors_are_reported,
    segment_in_bursts,
    transfers_equal_the_model,
)
from open_rnic.cocotb_tests.rtl.rdma.streams import give, now_and_then, pass_cycles, run, until
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.rdma.axi_memory import AxiMemory
from open_rnic.rtl.rdma.bursts import PAGE

SLVERR = 2


class Bus:
    """A memory on the bus: writes take effect, and reads return words, ``latency`` cycles after their address or later.

    The latencies of bursts overlap, unless it serves ``one`` burst after the other.
    An access to an octet of ``faulty`` is answered with an error: of a read the beat, of a write the burst.
    """

    def __init__(self, lanes, seed=0, chance=0.0, latency=0, one=False, **options):
        self.dut = AxiMemory(lanes, **options)
        self.lanes, self.latency, self.chance, self.one = lanes, latency, chance, one
        self.rng = random.Random(seed)
        self.octets = {}
        self.faulty = set()
        self.now = 0
        self.unanswered = 0  # bursts of writes that have arrived and have no response
        self.addresses, self.data, self.reads = [], [], []
        self.written, self.read = [], []  # beats of each burst

    async def clock(self, ctx):
        while True:
            await ctx.tick()
            self.now += 1

    async def channel(self, ctx, name, fields, into):
        stall = now_and_then(random.Random(self.rng.random()), self.chance)
        valid, ready = (getattr(self.dut.m_axi, f"{name}{each}") for each in ("valid", "ready"))
        fields = [getattr(self.dut.m_axi, each) for each in fields]
        while True:
            if pause := next(stall):
                await pass_cycles(ctx, pause)
            ctx.set(ready, 1)
            values = await until(ctx, valid, *fields)
            into.append((self.now + self.latency, *values))
            ctx.set(ready, 0 if self.chance else 1)

    async def aw(self, ctx):
        await self.channel(ctx, "aw", ("awaddr", "awlen", "awsize", "awburst"), self.addresses)

    async def w(self, ctx):
        await self.channel(ctx, "w", ("wdata", "wstrb", "wlast"), self.data)

    async def ar(self, ctx):
        await self.channel(ctx, "ar", ("araddr", "arlen", "arsize", "arburst"), self.reads)

    def burst(self, address, length, size, burst):
        """The octet addresses of each beat."""
        width, beats = 4 * self.lanes, length + 1
        assert (1 << size, burst) == (width, 1)
        assert address % width == 0
        assert beats <= self.dut.burst
        assert address // PAGE == (address + beats * width - 1) // PAGE, "a burst crosses a multiple of 4 KiB"
        return [range(address + n * width, address + (n + 1) * width) for n in range(beats)]

    def due(self, due):
        """When the response to a burst is due that the memory begins to serve, and that was due without others."""
        return self.now + self.latency if self.one else due

    async def respond(self, ctx, due):
        """Wait until the response is due, and sometimes longer."""
        await pass_cycles(ctx, max(0, due - self.now))
        if self.rng.random() < self.chance:
            await pass_cycles(ctx, self.rng.randint(1, 9))

    async def b(self, ctx):
        while True:
            while not self.addresses:
                await ctx.tick()
            self.unanswered += 1
            due, *burst = self.addresses.pop(0)
            due, beats = self.due(due), self.burst(*burst)
            self.written.append(len(beats))
            error = False
            for number, beat in enumerate(beats):
                while not self.data:
                    await ctx.tick()
                arrived, data, strobes, last = self.data.pop(0)
                due = max(due, arrived)
                assert last == (number == len(beats) - 1)
                assert strobes
                for n, address in enumerate(beat):
                    if strobes >> n & 1:
                        self.octets[address] = data >> 8 * n & 0xFF
                        error |= address in self.faulty
            await self.respond(ctx, due)
            ctx.set(self.dut.m_axi.bresp, SLVERR if error else 0)
            ctx.set(self.dut.m_axi.bvalid, 1)
            await until(ctx, self.dut.m_axi.bready)
            self.unanswered -= 1
            ctx.set(self.dut.m_axi.bvalid, 0)

    async def r(self, ctx):
        while True:
            while not self.reads:
                await ctx.tick()
            due, *burst = self.reads.pop(0)
            due, beats = self.due(due), self.burst(*burst)
            self.read.append(len(beats))
            for number, beat in enumerate(beats):
                await self.respond(ctx, due)
                error = any(address in self.faulty for address in beat)
                data = sum(self.octets.get(each, 0) << 8 * n for n, each in enumerate(beat))
                ctx.set(self.dut.m_axi.rdata, ~data if error else data)
                ctx.set(self.dut.m_axi.rresp, SLVERR if error else 0)
                ctx.set(self.dut.m_axi.rlast, number == len(beats) - 1)
                ctx.set(self.dut.m_axi.rvalid, 1)
                await until(ctx, self.dut.m_axi.rready)
                ctx.set(self.dut.m_axi.rvalid, 0)

    def run(self, main, *others, cycles=60_000):
        run(self.dut, main, self.clock, self.aw, self.w, self.ar, self.b, self.r, *others, cycles=cycles)


@pytest.mark.parametrize(("chance", "latency"), shortened(
    "pauses leave out none of the orders; the tests below have none", 2, [(0.4, 0), (0.4, 30), (0.0, 0), (0.0, 30)]
))  # fmt: skip
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_programs_of_writes_and_reads_equal_the_model(lanes, chance, latency):
    bus = Bus(lanes, lanes, chance, latency, outstanding=4)
    transfers_equal_the_model(bus, seed=lanes + latency)
    assert min(max(bus.written), max(bus.read)) >= bus.dut.burst // 2


def test_a_burst_of_two_and_one_outstanding_write():
    bus = Bus(1, 5, 0.4, 9, burst=2, outstanding=1)
    transfers_equal_the_model(bus, seed=5)
    assert max(bus.written) == max(bus.read) == 2


@pytest.mark.parametrize("step", [1, 7])
def test_a_write_and_a_read_in_each_cycle(step):
    """Also if no address follows the one before, and while many bursts are outstanding."""
    dut = AxiMemory(1)
    axi = dut.m_axi
    given, read = [], []

    async def main(ctx):
        unanswered = 0
        for ready in (axi.awready, axi.wready, axi.arready):
            ctx.set(ready, 1)
        ctx.set(dut.port.read.valid, 1)
        ctx.set(dut.port.write.valid, 1)
        for number in range(600):
            ctx.set(dut.port.read.payload, step * number)
            ctx.set(dut.port.write.payload, {"address": step * number, "data": number, "mask": 0xF, "last": 0})
            ctx.set(axi.bvalid, unanswered > 4)
            unanswered -= unanswered > 4
            _, *takes, w, data, last, ar, address, length = await ctx.tick(
                dut.port.read.ready, dut.port.write.ready, axi.wvalid, axi.wdata, axi.wlast,
                axi.arvalid, axi.araddr, axi.arlen,
            )  # fmt: skip
            assert all(takes)
            unanswered += w and last
            given.extend([data] * w)
            read.extend(range(address // 4, address // 4 + length + 1) if ar else ())

    run(dut, main, cycles=700)
    assert given == [*range(len(given))]
    assert read == [step * number for number in range(len(read))]
    assert min(len(given), len(read)) >= 600 - 20


@pytest.mark.parametrize(("lanes", "bursts"), [(1, 23), (4, 6)])
def test_cycles_and_bursts_of_a_segment(lanes, bursts):
    """1,460 octets that cross a border of 4 KiB, with 30 cycles of latency, in as few bursts as there can be."""
    bus = Bus(lanes, latency=30)
    words, cycles = segment_in_bursts(bus, bursts)
    # The first burst has to be known before it is sent; all others are gathered meanwhile.
    assert cycles <= words + 30 + bus.dut.burst + 8

    # A memory that serves one burst after the other waits once for each.
    bus = Bus(lanes, latency=30, one=True)
    words, cycles = segment_in_bursts(bus, bursts)
    assert cycles <= words + 33 * bursts + bus.dut.burst + 8


def test_an_error_of_the_bus_is_reported():
    errors_are_reported(Bus(1))


def test_a_write_that_the_engine_withdraws_in_a_reset_does_not_stand_for_the_next_one():
    bus = Bus(1, latency=20)
    idle = now_and_then(random.Random(0), 0)

    async def main(ctx):
        write = bus.dut.port.write
        ctx.set(write.payload, {"address": 1, "data": 1, "mask": 0xF, "last": 1})
        ctx.set(write.valid, 1)
        for _ in range(3):
            _, ready = await ctx.tick(write.ready)
            assert not ready
        ctx.set(write.valid, 0)
        await ctx.tick()
        await give(ctx, write, {"address": 2, "data": 2, "mask": 0xF, "last": 1}, idle)
        assert bus.octets == {4: 1, 5: 0, 6: 0, 7: 0, 8: 2, 9: 0, 10: 0, 11: 0}

    bus.run(main)


@pytest.mark.parametrize("burst", [1, 12, 512])
def test_unsuitable_bursts_are_rejected(burst):
    with pytest.raises(ValueError, match=f"^burst must be a power of 2 from 2 to 256, not {burst}$"):
        AxiMemory(1, burst=burst)
