"""The memory port on Wishbone, against a memory with classic cycles, and one that acknowledges bursts in each cycle."""

import random

import pytest

from open_rnic.cocotb_tests.plugins.lengths import shortened, widths
from open_rnic.cocotb_tests.rtl.rdma.memory_programs import (
    errors_are_reported,
    segment_in_bursts,
    transfers_equal_the_model,
)
from open_rnic.cocotb_tests.rtl.rdma.streams import run
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.rdma.bursts import PAGE
from open_rnic.rtl.rdma.wishbone_memory import WishboneMemory

INCREMENTING, END = 0b010, 0b111


class Bus:
    """A memory whose acknowledge comes from a register, ``latency`` cycles after the strobe or later.

    With ``ahead``, it acknowledges the next word of a burst, too, unless that is faulty or it pauses.
    """

    unanswered = 0  # an acknowledged word is in memory

    def __init__(self, lanes, seed=0, chance=0.0, latency=0, ahead=True, **options):
        self.dut = WishboneMemory(lanes, **options)
        self.lanes, self.latency, self.chance, self.ahead = lanes, latency, chance, ahead
        self.rng = random.Random(seed)
        self.octets = {}
        self.faulty = set()
        self.now = 0
        self.written, self.read = [], []  # words of each burst

    def word(self, number):
        width = 4 * self.lanes
        return range(number * width, (number + 1) * width)

    def bad(self, number, sel=-1):
        return any(sel >> n & 1 and octet in self.faulty for n, octet in enumerate(self.word(number)))

    def answer(self, ctx, number=None, error=False):
        """Acknowledge the word in the next cycle."""
        ctx.set(self.dut.wb.ack, number is not None and not error)
        ctx.set(self.dut.wb.err, error)
        octets = () if number is None else self.word(number)
        data = sum(self.octets.get(octet, 0) << 8 * n for n, octet in enumerate(octets))
        ctx.set(self.dut.wb.dat_r, ~data if error else data)

    def wait(self):
        return self.latency + (self.rng.randrange(9) if self.rng.random() < self.chance else 0)

    async def serve(self, ctx):
        dut = self.dut
        answered, wait, length, inside = None, self.wait(), 0, None
        while True:
            _, cyc, stb, we, number, sel, data, cti, bte = await ctx.tick(
                dut.wb.cyc, dut.wb.stb, dut.wb.we, dut.wb.adr, dut.wb.sel, dut.wb.dat_w, dut.wb.cti, dut.wb.bte
            )
            self.now += 1
            assert cyc or not stb
            assert inside is None or cyc, "a burst ended without its last cycle"
            if not stb:
                answered = None
                self.answer(ctx)
                continue
            assert bte == 0
            assert cti in (INCREMENTING, END)
            assert sel if we else sel == (1 << 4 * self.lanes) - 1
            assert inside in (None, (number, we))
            if answered is None:  # the word is asked for
                if wait:
                    wait -= 1
                else:
                    answered = number
                    self.answer(ctx, number, self.bad(number, sel if we else -1))
                continue
            assert answered == number
            for n, octet in enumerate(self.word(number)):
                if we and sel >> n & 1:
                    self.octets[octet] = data >> 8 * n & 0xFF
            length += 1
            inside = (number + 1, we) if cti == INCREMENTING else None
            if inside:
                assert inside[0] * 4 * self.lanes % PAGE, "a burst crosses a multiple of 4 KiB"
            else:
                assert length <= dut.burst
                (self.written if we else self.read).append(length)
                length = 0
            if inside and self.ahead and not self.bad(number + 1) and self.rng.random() >= self.chance:
                answered = number + 1
                self.answer(ctx, answered)
            else:
                answered, wait = None, self.wait() if not inside or self.chance else 0
                self.answer(ctx)

    def run(self, main, *others, cycles=60_000):
        run(self.dut, main, self.serve, *others, cycles=cycles)


@pytest.mark.parametrize(("chance", "ahead"), shortened(
    "each of both once", 2, [(0.4, False), (0.0, True), (0.4, True), (0.0, False)]
))  # fmt: skip
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_programs_of_writes_and_reads_equal_the_model(lanes, chance, ahead):
    bus = Bus(lanes, lanes, chance, ahead=ahead)
    transfers_equal_the_model(bus, seed=lanes + ahead)
    assert min(max(bus.written), max(bus.read)) >= bus.dut.burst // 2


@pytest.mark.parametrize(("lanes", "bursts"), [(1, 23), (4, 6)])
def test_cycles_and_bursts_of_a_segment(lanes, bursts):
    """1,460 octets that cross a border of 4 KiB: with 30 cycles of latency for each burst, a word in each cycle."""
    bus = Bus(lanes, latency=30)
    words, cycles = segment_in_bursts(bus, bursts)
    assert cycles <= words + 33 * bursts + bus.dut.burst + 8


def test_an_error_of_the_bus_is_reported():
    errors_are_reported(Bus(1))
