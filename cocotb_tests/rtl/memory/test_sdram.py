# amaranth: UnusedElaboratable=no
"""SDRAM behind a memory port: LiteDRAM's controller, and its model of the chips, which this project did not write."""

import dataclasses
import functools
import itertools
import random
import sys

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from open_rnic.cocotb_tests.harness import bench, cycles, parameter, pauses, simulate
from open_rnic.cocotb_tests.harness.benches import PERIOD
from open_rnic.host_driver.devices.sim.sdram_model import SdramModel
from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with
from open_rnic.rtl.formats.memory_port import MemoryPort, word_bits
from open_rnic.rtl.memory import litedram
from open_rnic.rtl.memory.chips import CHIPS, M12L64322A, MT41K64M16, Kind
from open_rnic.rtl.memory.ports import Split
from open_rnic.rtl.memory.sdram import Sdram

HZ = {Kind.SDR: 50_000_000, Kind.DDR3: 75_000_000}  # of boards
KINDS = [M12L64322A, MT41K64M16.simulated]
WIRE = 1538 / 1448 * 32e-9  # seconds of a word at 1 Gb/s, in full frames with timestamps


class Simulated(wiring.Component):
    """An SDRAM of a board, with LiteDRAM's model of its chips."""

    def __init__(self, lanes, chip):
        self.lanes, self.chip = lanes, chip
        super().__init__({"port": In(MemoryPort(lanes)), "ready": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sdram = sdram = Sdram(self.lanes, self.chip, HZ[self.chip.kind])
        m.submodules.model = model = SdramModel(self.chip, HZ[self.chip.kind])
        wiring.connect(m, wiring.flipped(self.port), sdram.port)
        wiring.connect(m, sdram.dfi, model.dfi)
        m.d.comb += self.ready.eq(sdram.ready)
        return m


class Silent(wiring.Component):
    """A DDR3 SDRAM whose chips return nothing."""

    def __init__(self):
        super().__init__({"ready": Out(1), "failed": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sdram = sdram = Sdram(1, MT41K64M16.simulated, HZ[Kind.DDR3])
        m.d.comb += [
            self.ready.eq(sdram.ready), self.failed.eq(sdram.failed), sdram.port.write.valid.eq(1),
            sdram.dfi.delays.seen.eq(-1),
        ]  # fmt: skip
        return m


class Memory:
    """The user of the memory port, and what the memory should contain: octets by their addresses."""

    def __init__(self, dut, lanes):
        self.dut, self.lanes, self.size = dut, lanes, 4 * lanes
        self.edge = RisingEdge(dut.clk)
        self.octets = {}
        self.words = []  # that are due
        self.pause(0)
        for each in ("write", "read"):
            drive(self.handle(each, "valid"), 0)
        drive(self.handle("words", "ready"), 0)
        cocotb.start_soon(self._take())

    def pause(self, chance):
        """From now on, each side pauses now and then."""
        self.idle = [pauses(chance, 40) for _ in range(3)]

    def handle(self, name, part):
        return getattr(self.dut, f"port__{name}__{part}")

    async def _give(self, name, payload, side):
        if pause := next(self.idle[side]):
            await cycles(self.dut, pause)
        drive(self.handle(name, "payload"), payload)
        drive(self.handle(name, "valid"), 1)
        await rises_with(self.edge, self.handle(name, "ready"))
        drive(self.handle(name, "valid"), 0)

    async def write(self, address, octets):
        """Write octets at any address, as one run, which can be read back when this returns."""
        first, last = address // self.size, (address + len(octets) - 1) // self.size
        self.octets.update(zip(itertools.count(address), octets, strict=False))
        for word in range(first, last + 1):
            at = word * self.size
            inside = [address <= at + n < address + len(octets) for n in range(self.size)]
            given = bytes(octets[at + n - address] if inside[n] else random.randrange(256) for n in range(self.size))
            await self.beat(word, given, inside, word == last)

    async def beat(self, word, given, inside, last):
        bits = word_bits(self.lanes)
        payload = word | int.from_bytes(given, "little") << bits
        payload |= sum(1 << n for n in range(self.size) if inside[n]) << bits + 8 * self.size
        payload |= last << bits + 9 * self.size
        await self._give("write", payload, 0)

    async def read(self, words):
        """Ask for words."""
        for word in words:
            self.words.append((word, [self.octets.get(word * self.size + n) for n in range(self.size)]))
            await self._give("read", word, 1)

    async def _take(self):
        valid, payload, ready = (self.handle("words", each) for each in ("valid", "payload", "ready"))
        while True:
            if pause := next(self.idle[2]):
                drive(ready, 0)
                await cycles(self.dut, pause)
            drive(ready, 1)
            await rises_with(self.edge, valid)
            word, expected = self.words.pop(0)
            found = level(payload).to_bytes(self.size, "little")
            known = [each if each is not None else octet for each, octet in zip(expected, found, strict=True)]
            assert list(found) == known, f"word {word:#x}"

    async def taken(self):
        while self.words:
            await cycles(self.dut, 10)


@bench(cycles=2_000_000)
async def random_programs_are_done(dut):
    lanes, octets = (parameter(each) for each in ("lanes", "octets"))
    await rises_with(RisingEdge(dut.clk), dut.ready)
    memory = Memory(dut, lanes)
    for at in (octets - 5, 0):  # the end of the memory, and its beginning
        await memory.write(at, random.randbytes(5))
    await memory.read([0, octets // memory.size - 1, 1])
    for chance in (0, 0.3):
        memory.pause(chance)
        places = [random.randrange(octets - 32768) for _ in range(6)]
        for _ in range(60):
            at = random.choice(places) + random.randrange(64)
            await memory.write(at, random.randbytes(random.choice([1, 3, 8, 60, random.randrange(1, 1500)])))
            word = (random.choice(places) + random.randrange(64)) // memory.size
            count = random.choice([1, 2, random.randrange(1, 400 // lanes)])
            order = [range(word, word + count), [word] * 3, [word + 1, word]]
            reading = cocotb.start_soon(memory.read(random.choice(order)))
            if random.random() < 0.5:
                await reading
                await memory.taken()
            else:
                other = random.randrange(octets - 16384, octets - 8192)
                await memory.write(other, random.randbytes(random.randrange(1, 3000)))
                await reading
        await memory.taken()


@bench(cycles=400_000)
async def memory_is_faster_than_a_wire(dut):
    """Segments are written, and a long run is read: each alone, and both at once, in other rows of the same banks."""
    await rises_with(RisingEdge(dut.clk), dut.ready)
    memory = Memory(dut, 1)
    count, segment = 20, 1448
    slow, hz = (parameter(each) for each in ("slow", "hz"))

    async def writes():
        for number in range(count):
            await memory.write(0x10000 + segment * number, random.randbytes(segment))

    async def reads():
        await memory.read(range(0x80000 // 4, (0x80000 + count * segment) // 4))
        await memory.taken()

    for ways, most in (([writes], 1.05 + slow), ([reads], 1.02 + slow), ([writes, reads], WIRE * hz / 1.05)):
        began = get_sim_time("ns")
        for each in [cocotb.start_soon(way()) for way in ways]:
            await each
        took = (get_sim_time("ns") - began) / PERIOD / (count * segment / 4)
        cocotb.log.info("%d ways: a word in %.2f cycles", len(ways), took)
        assert took < most


@pytest.mark.parametrize("chip", KINDS, ids=str)
@pytest.mark.parametrize("lanes", [1, 2])
def test_random_programs_of_reads_and_writes_are_done(lanes, chip):
    given = {"lanes": lanes, "octets": chip.octets}
    simulate(functools.partial(Simulated, lanes, chip), random_programs_are_done, parameters=given)


@bench(cycles=200_000)
async def accesses_wait_until_the_sdram_is_ready(dut):
    memory = Memory(dut, 1)
    assert not level(dut.ready)
    reading = cocotb.start_soon(memory.read([9]))
    await memory.write(0x40, random.randbytes(60))
    await reading
    await memory.read(range(0x10, 0x1F))
    await memory.taken()


@pytest.mark.parametrize("chip", KINDS, ids=str)
def test_accesses_wait_until_the_sdram_is_ready(chip):
    simulate(functools.partial(Simulated, 1, chip), accesses_wait_until_the_sdram_is_ready)


@bench(cycles=200_000)
async def the_training_fails(dut):
    await rises_with(RisingEdge(dut.clk), dut.failed)
    await cycles(dut, 1000)
    assert level(dut.failed)
    assert not level(dut.ready)


def test_an_sdram_that_returns_nothing_fails():
    simulate(functools.partial(Silent), the_training_fails)


@pytest.mark.parametrize("chip", KINDS, ids=str)
def test_memory_is_faster_than_a_wire(chip):
    """A refresh of DDR3 SDRAM takes more of the time."""
    given = {"slow": 0.2 * (chip.kind is Kind.DDR3), "hz": HZ[chip.kind]}
    simulate(functools.partial(Simulated, 1, chip), memory_is_faster_than_a_wire, parameters=given)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "litedram.modules", None)
    with pytest.raises(ValueError, match=r"^SDRAM needs LiteDRAM: run pip install '.\[litex\]'$"):
        litedram.controller.__wrapped__(M12L64322A, HZ[Kind.SDR], "controller")


@pytest.mark.parametrize("chip", CHIPS, ids=str)
def test_chips_are_those_that_litedram_knows(chip):
    from litedram import modules

    assert vars(modules)[chip.name].nrows == chip.rows
    assert litedram.controller(chip, HZ[chip.kind], "controller").startswith("module controller(")
    with pytest.raises(ValueError, match=f"^LiteDRAM's {chip.name} has "):
        litedram.controller(dataclasses.replace(chip, rows=2 * chip.rows), HZ[chip.kind], "controller")


def test_words_that_do_not_fit_into_the_memorys_are_rejected():
    with pytest.raises(ValueError, match=r"^a word of 64 bits must have 1, 2, 4 or more words of 4 lanes$"):
        Split(4, 20, 64)
