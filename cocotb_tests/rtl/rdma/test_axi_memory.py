"""The memory port on AXI4, against a model of a memory whose responses take their time."""

import random

import pytest

from open_rnic.cocotb_tests.rtl.rdma.streams import give, now_and_then, pass_cycles, run, take, until
from open_rnic.rtl.rdma.axi_memory import AxiMemory


class Bus:
    """A memory on the bus: writes take effect, and reads return words, up to ``latency`` cycles after their address."""

    def __init__(self, lanes, seed, chance, latency):
        self.dut = AxiMemory(lanes, outstanding=4)
        self.lanes, self.latency = lanes, latency
        self.rng = random.Random(seed)
        self.chance = chance
        self.octets = {}
        self.unanswered = 0  # writes whose response has not been given
        self.addresses, self.data, self.reads = [], [], []
        self.response = 0

    async def channel(self, ctx, name, fields, into):
        stall = now_and_then(random.Random(self.rng.random()), self.chance)
        valid, ready = (getattr(self.dut, f"m_axi_{name}{each}") for each in ("valid", "ready"))
        fields = [getattr(self.dut, f"m_axi_{each}") for each in fields]
        while True:
            if pause := next(stall):
                await pass_cycles(ctx, pause)
            ctx.set(ready, 1)
            into.append(await until(ctx, valid, *fields))
            ctx.set(ready, 0 if self.chance else 1)

    async def aw(self, ctx):
        await self.channel(ctx, "aw", ("awaddr", "awlen", "awsize", "awburst"), self.addresses)

    async def w(self, ctx):
        await self.channel(ctx, "w", ("wdata", "wstrb", "wlast"), self.data)

    async def ar(self, ctx):
        await self.channel(ctx, "ar", ("araddr", "arlen", "arsize", "arburst"), self.reads)

    def checked(self, address, length, size, burst):
        assert (length, 1 << size, burst) == (0, 4 * self.lanes, 1)
        assert address % (4 * self.lanes) == 0
        return range(address, address + 4 * self.lanes)

    async def b(self, ctx):
        while True:
            while not (self.addresses and self.data):
                await ctx.tick()
            at, (data, strobes, last) = self.checked(*self.addresses.pop(0)), self.data.pop(0)
            assert last
            assert strobes
            self.unanswered += 1
            await pass_cycles(ctx, self.rng.randint(0, self.latency))
            for n, address in enumerate(at):
                if strobes >> n & 1:
                    self.octets[address] = data >> 8 * n & 0xFF
            ctx.set(self.dut.m_axi_bresp, self.response)
            ctx.set(self.dut.m_axi_bvalid, 1)
            await until(ctx, self.dut.m_axi_bready)
            self.unanswered -= 1
            ctx.set(self.dut.m_axi_bvalid, 0)

    async def r(self, ctx):
        while True:
            while not self.reads:
                await ctx.tick()
            at = self.checked(*self.reads.pop(0))
            await pass_cycles(ctx, self.rng.randint(0, self.latency))
            ctx.set(self.dut.m_axi_rdata, sum(self.octets.get(each, 0) << 8 * n for n, each in enumerate(at)))
            ctx.set(self.dut.m_axi_rresp, self.response)
            ctx.set(self.dut.m_axi_rvalid, 1)
            await until(ctx, self.dut.m_axi_rready)
            ctx.set(self.dut.m_axi_rvalid, 0)

    def run(self, main, *others, cycles=30_000):
        run(self.dut, main, self.aw, self.w, self.ar, self.b, self.r, *others, cycles=cycles)


@pytest.mark.parametrize("latency", [0, 9])
@pytest.mark.parametrize("chance", [0.0, 0.4])
@pytest.mark.parametrize("lanes", [1, 4])
def test_words_are_read_back_after_the_last_write(lanes, chance, latency):
    bus = Bus(lanes, lanes, chance, latency)
    port, size, rng = bus.dut.port, 4 * lanes, random.Random(lanes + latency)
    model = [0] * 16
    expected = []
    idle = now_and_then(random.Random(1), chance)
    stall = now_and_then(random.Random(2), chance, until_valid=True)

    async def main(ctx):
        for _ in range(40):
            for number in range(count := rng.randrange(1, 6)):
                address, data = rng.randrange(16), rng.getrandbits(8 * size)
                mask = rng.choice([0, rng.getrandbits(size)])
                wide = sum(0xFF << 8 * n for n in range(size) if mask >> n & 1)
                model[address] = model[address] & ~wide | data & wide
                beat = {"address": 3 << 20 | address, "data": data, "mask": mask, "last": number == count - 1}
                await give(ctx, port.write, beat, idle)
            assert bus.unanswered == 0
            assert not bus.addresses
            for address in rng.choices(range(16), k=rng.randrange(1, 12)):
                expected.append(model[address])
                await give(ctx, port.read, 3 << 20 | address, idle)
            while expected:  # a write may overtake a read
                await ctx.tick()

    async def words(ctx):
        while True:
            assert await take(ctx, port.words, stall) == expected.pop(0)

    bus.run(main, words)
    assert {*bus.octets} <= {*range(3 * size << 20, (3 * size << 20) + 16 * size)}


def test_a_write_and_a_read_in_each_cycle():
    dut = AxiMemory(1)

    async def main(ctx):
        for ready in ("m_axi_awready", "m_axi_wready", "m_axi_arready", "m_axi_bvalid"):
            ctx.set(getattr(dut, ready), 1)
        ctx.set(dut.port.words.ready, 1)
        ctx.set(dut.port.read.valid, 1)
        ctx.set(dut.port.write.valid, 1)
        for number in range(500):
            ctx.set(dut.port.read.payload, number)
            ctx.set(dut.port.write.payload, {"address": number, "data": number, "mask": 0xF, "last": 0})
            ctx.set(dut.m_axi_bvalid, number > 4)
            ctx.set(dut.m_axi_rvalid, number > 9)  # words that come later do not hold up the reads
            ctx.set(dut.m_axi_rdata, number)
            _, _, *takes, address, data = await ctx.tick().sample(
                dut.port.read.ready, dut.port.write.ready, dut.m_axi_araddr, dut.m_axi_wdata
            )
            assert all(takes)
            assert number == 0 or (address == 4 * (number - 1) and data == number - 1)

    run(dut, main, cycles=600)


def test_an_error_of_the_bus_is_reported():
    bus = Bus(1, 0, 0.0, 0)
    faults, of_writes = [], []

    async def watch(ctx):
        while True:
            _, _, fault, of_write = await ctx.tick().sample(bus.dut.fault, bus.dut.port.write_fault)
            faults.append(fault)
            of_writes.append(of_write)

    async def main(ctx):
        idle = now_and_then(random.Random(0), 0)
        for response, due in ((0, 0), (2, 1), (0, 0), (3, 1)):
            bus.response = response
            faults.clear()
            of_writes.clear()
            await give(ctx, bus.dut.port.write, {"address": 1, "data": 7, "mask": 1, "last": 1}, idle)
            assert sum(of_writes) == due
            await ctx.tick()
            assert sum(faults) == due
            await give(ctx, bus.dut.port.read, 1, idle)
            assert await take(ctx, bus.dut.port.words, idle) == 7
            await ctx.tick()
            assert (sum(faults), sum(of_writes)) == (2 * due, due)

    bus.run(main, watch)


def test_a_write_that_the_engine_withdraws_in_a_reset_does_not_stand_for_the_next_one():
    bus = Bus(1, 0, 0.0, 0)
    idle = now_and_then(random.Random(0), 0)
    bus.latency = 20

    async def main(ctx):
        write = bus.dut.port.write
        ctx.set(write.payload, {"address": 1, "data": 1, "mask": 0xF, "last": 1})
        ctx.set(write.valid, 1)
        for _ in range(3):
            _, _, ready = await ctx.tick().sample(write.ready)
            assert not ready
        ctx.set(write.valid, 0)
        await ctx.tick()
        await give(ctx, write, {"address": 2, "data": 2, "mask": 0xF, "last": 1}, idle)
        assert bus.octets == {4: 1, 5: 0, 6: 0, 7: 0, 8: 2, 9: 0, 10: 0, 11: 0}

    bus.run(main)
