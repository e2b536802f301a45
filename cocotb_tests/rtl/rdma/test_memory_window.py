# amaranth: UnusedElaboratable=no
"""The host's access to the memory behind the engine, with the engine at work and with a memory that stalls."""

import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from open_rnic.cocotb_tests.harness import Part, bench, never, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.rdma.bench import OCTETS, Engine, cut_tagged, request
from open_rnic.host_driver.ddp import Opcode, ReadRequest
from open_rnic.rtl.rdma.block_ram_datapath import WINDOW_PAGE
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.memory_registers import BY_NAME
from open_rnic.rtl.rdma.memory_window import MemoryWindow
from open_rnic.rtl.rdma.registers import Right
from open_rnic.rtl.registers.bus import connect_pages

WRITTEN, READ, HOSTS = 0x1000, 0x4000, 0x8000  # the engine writes, the engine reads, the host accesses
LENGTH = 0x2000
STAG, SOURCE = 0x101, 0x202


class Windowed(wiring.Component):
    """An engine and a window to its memory, with the registers of both in one page."""

    def __init__(self, lanes):
        self.engine = RdmaEngine(lanes, regions=16, buffers=4, work=8, reads=4)
        self.window = MemoryWindow(lanes, OCTETS)
        super().__init__(dict(self.engine.signature.members))

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine = engine = self.engine
        m.submodules.window = window = self.window
        for name in self.engine.signature.members:
            mine, its = getattr(self, name), getattr(engine, name)
            if name == "memory":
                wiring.connect(m, its, window.port)
                wiring.connect(m, window.main, wiring.flipped(mine))
            elif name in ("irq",):
                m.d.comb += mine.eq(its)
            elif name in ("reset",):
                m.d.comb += its.eq(mine)
            elif name != "bus":
                wiring.connect(m, wiring.flipped(mine), its)
        of_window = self.bus.address[4:] == WINDOW_PAGE >> 6
        connect_pages(m, self.bus, ((engine.bus, ~of_window), (window.bus, of_window)))
        return m


class End(Engine):
    async def window(self, name, value=None):
        return await self._access(BY_NAME[f"MEMORY_{name}"], value)

    async def put(self, address, octets):
        await self.window("ADDRESS", address)
        for at in range(0, len(octets), 4):
            await self.window("WRITE", int.from_bytes(octets[at : at + 4], "little"))

    async def get(self, address, octets):
        await self.window("ADDRESS", address)
        words = [await self.window("READ") for _ in range(octets // 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)


def end_of(dut, busy):
    return End(dut, pauses(busy) if busy else never(), stalls(busy) if busy else never())


@cocotb.parametrize(busy=[0, 0.5])
@bench()
async def the_host_reads_what_it_has_written(dut, busy):
    end = end_of(dut, busy)
    assert await end.window("OCTETS") == OCTETS
    octets = random.randbytes(100)
    for address in (0, 4, 12, OCTETS - 100):
        await end.put(address, octets)
        assert await end.get(address, 100) == octets
        assert end.memory.get(address, 100) == octets
    before = await end.get(8, 8)
    await end.window("MASK", 0b0110)
    await end.put(8, b"abcdefgh")
    assert await end.get(8, 8) == bytes([before[0], *b"bc", before[3], before[4], *b"fg", before[7]])


@cocotb.parametrize(busy=[0, 0.5])
@bench(cycles=2_000_000)
async def the_host_and_the_engine_share_the_memory(dut, busy):
    """Neither disturbs the octets of the other."""
    end = end_of(dut, busy)
    await end.start()
    await end.region(STAG, WRITTEN, LENGTH, rights=Right.REMOTE_WRITE)
    await end.region(SOURCE, READ, LENGTH, rights=Right.REMOTE_READ)
    message, copy = random.randbytes(LENGTH), bytearray(LENGTH)
    end.receive(*cut_tagged(Opcode.RDMA_WRITE, STAG, 0, message, 180))
    for msn in range(1, 5):
        end.receive(request(msn, ReadRequest(7, 0, LENGTH // 2, SOURCE, msn)))
    await end.put(HOSTS, copy)
    for _ in range(60):
        at = 4 * random.randrange(LENGTH // 4 - 8)
        if random.random() < 0.5:
            octets = random.randbytes(4 * random.randint(1, 8))
            copy[at : at + len(octets)] = octets
            await end.put(HOSTS + at, octets)
        else:
            assert await end.get(HOSTS + at, 32) == copy[at : at + 32]
    segments = await end.segments()
    answered = b"".join(each.payload for each in segments)
    assert answered == b"".join(end.memory.get(READ + msn, LENGTH // 2) for msn in range(1, 5))
    assert await end.refused() is None
    assert end.memory.get(HOSTS, LENGTH) == copy
    assert await end.get(WRITTEN, 400) == end.memory.get(WRITTEN, 400)


@cocotb.parametrize(busy=[0, 0.7])
@bench()
async def a_message_has_the_octets_that_the_host_wrote_before_it(dut, busy):
    end = end_of(dut, busy)
    await end.start()
    for _ in range(20):
        octets = random.randbytes(24)
        await end.put(READ, octets)
        await end.work(Opcode.SEND, (READ, 24))
        [segment] = await end.segments()
        assert segment.payload == octets


SHORT, OTHERS = (1, 4), (2, 8, 16)


@pytest.mark.parametrize("lanes", shortened("wider words", 2, [*SHORT, *OTHERS]))
def test_memory_window(lanes):
    simulate(Part(Windowed, lanes, SHORT if lanes in SHORT else OTHERS), __name__, parameters={"lanes": lanes})
