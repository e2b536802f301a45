# amaranth: UnusedElaboratable=no
"""Samples through the sample writer, the RDMA engine and MPA, as fast as the MPA stream takes them, and faster."""

import functools
import struct
from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Probe, bench, parameter, simulate
from open_rnic.cocotb_tests.harness.datapath import taken
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.rdma.bench import OnDatapath
from open_rnic.host_driver.ddp import TAGGED_OCTETS, UNTAGGED_OCTETS, Opcode, Tagged, decode
from open_rnic.rtl.rdma.registers import Right
from open_rnic.rtl.rdma.sample_registers import BY_NAME, RECORD_OCTETS, Doorbell
from open_rnic.rtl.rdma.sampling import SamplingDatapath

RING_STAG, RING_TO, RING = 0x5555_0001, 0xFFFF_FFFF_8000, 1 << 15
HEAD_STAG, HEAD_AT = 0x6666_0001, 0x1238
WRITE, WRITES = 1408, 8  # octets of an RDMA Write, and RDMA Writes for each doorbell
FRAMING = 6  # octets of ULPDU_Length and CRC


class Samples(OnDatapath):
    """Offers numbered samples of a word, and is a peer that checks its ring whenever a doorbell has come.

    ``delay`` is the number of cycles after which the peer frees what a doorbell has announced.
    """

    def __init__(self, dut, delay=0):
        super().__init__(dut)
        self.size = 4 * parameter("lanes")
        self._delay = delay
        self._ring = bytearray(RING)
        self._heads = deque()
        self.tail = self.offered = self.dropped = self.cycle = 0
        self.received = []
        self._next = 0  # the number of the next sample, unless some have been dropped
        dut.samples__valid.value = dut.tick.value = 0

    async def begin(self):
        await self.start(mulpdu=TAGGED_OCTETS + WRITE)
        await self.region(HEAD_STAG, HEAD_AT, 8, rights=Right.REMOTE_WRITE)
        for name, value in {
            "RING_STAG": RING_STAG, "RING_TO_LO": RING_TO & 0xFFFF_FFFF, "RING_TO_HI": RING_TO >> 32,
            "RING_OCTETS": RING - RING % WRITE, "WRITE_OCTETS": WRITE, "BELL_OCTETS": WRITES * WRITE,
            "HEAD_ADDRESS": HEAD_AT,
        }.items():  # fmt: skip
            await self.sample(name, value)
        await self.sample("CONTROL", Doorbell.SEND << 4 | 0b11)
        cocotb.start_soon(self._peer())

    async def sample(self, name, value=None):
        return await self._access(BY_NAME[f"SAMPLE_{name}"], value)

    async def offer(self, count, cycles, of):
        """Offer samples: ``of`` in ``cycles`` cycles."""
        credit = 0
        end = self.offered + count
        while self.offered < end:
            credit += of
            self.dut.samples__valid.value = credit >= cycles
            if credit >= cycles:
                self.dut.samples__payload.value = self.offered
            await self._edge
            if credit >= cycles:
                assert self.dut.samples__ready.value, "a sample waits"
                credit -= cycles
                self.offered += 1
        self.dut.samples__valid.value = 0

    async def finish(self):
        """Have all samples sent, and return the number of those that were dropped."""
        await self.sample("CONTROL", Doorbell.SEND << 4 | 0b10)
        while await self.sample("STATUS") >> 3:  # pending or busy
            pass
        await self.cycles(2000)
        assert self.tail == self.size * len(self.received)
        return await self.sample("DROPPED_LO")

    async def _peer(self):
        while True:
            await self._edge
            self.cycle += 1
            for ulpdu in self._ulpdus(await taken(self.tx)):
                self._take(decode(ulpdu))
            if self._heads and self._heads[0][0] <= self.cycle:
                head = self._heads.popleft()[1]
                self.receive(Tagged(Opcode.RDMA_WRITE, HEAD_STAG, 0, True, struct.pack("<Q", head)))

    def _take(self, segment):
        if segment.opcode is Opcode.RDMA_WRITE:
            place = segment.to - RING_TO
            assert place == self.tail % (RING - RING % WRITE)
            self._ring[place : place + len(segment.payload)] = segment.payload
            self.tail += len(segment.payload)
            return
        tail, dropped = struct.unpack("<QQ", segment.payload)
        assert tail == self.tail
        self._next += dropped - self.dropped
        self.dropped = dropped
        for at in range(len(self.received) * self.size, tail, self.size):
            place = at % (RING - RING % WRITE)
            number = int.from_bytes(self._ring[place : place + self.size], "little")
            assert number == self._next
            self.received.append(number)
            self._next += 1
        self._heads.append((self.cycle + self._delay, tail))


def beats_of(octets):
    """Beats of an FPDU."""
    return -(-(octets + FRAMING) // (4 * parameter("lanes")))


@bench(cycles=200_000)
async def no_sample_is_dropped_at_line_rate(dut):
    """All beats of the MPA stream are needed for the FPDUs, and all are used."""
    samples = Samples(dut)
    tx = Probe(dut, "tx_mpa")
    moved = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            moved.append(tx.moved() is not None)

    await samples.begin()
    cocotb.start_soon(watch())
    of = WRITES * WRITE // samples.size
    cycles = WRITES * beats_of(TAGGED_OCTETS + WRITE) + beats_of(UNTAGGED_OCTETS + RECORD_OCTETS)
    await samples.offer(6 * of, cycles, of)
    assert await samples.finish() == 0
    assert samples.received == [*range(samples.offered)]
    first, last = moved.index(True), len(moved) - moved[::-1].index(True)
    assert moved[first:last].count(True) == 6 * cycles
    assert last - first <= 6 * cycles + parameter("idle"), f"{last - first - 6 * cycles} beats were not used"


@bench(cycles=400_000)
async def a_slow_peer_loses_samples_and_knows_which(dut):
    samples = Samples(dut, delay=12_000)
    await samples.begin()
    await samples.offer(12_000, 1, 1)
    dropped = await samples.finish()
    assert dropped > 1000
    assert len(samples.received) + dropped == samples.offered
    assert samples.received == sorted(set(samples.received))


@pytest.mark.parametrize("lanes", shortened("other widths of the same rate", 1, [1, 2, 4]))
def test_line_rate(lanes):
    options = {"sample": 4 * lanes, "sample_buffer": 8192, "regions": 16, "buffers": 4, "work": 8, "reads": 4}
    made = functools.partial(SamplingDatapath, lanes, **options)
    simulate(made, __name__, parameters={"lanes": lanes, "idle": 40})
