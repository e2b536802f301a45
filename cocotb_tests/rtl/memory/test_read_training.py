# amaranth: UnusedElaboratable=no
"""The training of reads, with a PHY and DDR3 SDRAM that return what was written only with some settings."""

import functools
import itertools
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.host_driver.devices.sim.signals import drive, level
from open_rnic.rtl.memory.chips import MT41K64M16
from open_rnic.rtl.memory.litedram import Timing
from open_rnic.rtl.memory.read_training import DELAYS, SLIPS, ReadTraining

CHIP = MT41K64M16.simulated
TIMING = Timing(read_phase=0, write_phase=1, read_latency=13)
ACTIVATE, READ, WRITE, PRECHARGE = 0b011, 0b101, 0b100, 0b010  # RAS#, CAS#, WE#
OCTETS = CHIP.word // 8
LANES = range(CHIP.strobes)  # octet n of a word is that of lane n % 2


class Phy:
    """A PHY whose lanes return what was written with a setting, (slip, delay), that is in ``good`` of the lane.

    With those in ``seen``, by default the same, a lane notices bursts. Without ``writes``, nothing is written.
    """

    def __init__(self, dut, good, seen=None, *, writes=True):
        self.dut, self.good, self.seen, self.writes = dut, good, seen or good, writes
        self.settings = [[0, 0] for _ in LANES]
        self.word, self.open, self.bursts = random.randbytes(OCTETS), False, 0
        self.paused = True  # all lanes have paused together since the last change
        cocotb.start_soon(self._run())

    def _port(self, name):
        return getattr(self.dut, f"dfi__{name}")

    async def _run(self):
        edge = RisingEdge(self.dut.clk)
        due = {}  # words by the cycle in which they come
        for cycle in itertools.count(1):
            await edge
            self._change()
            for phase in range(2):
                off, *lines = (level(self._port(f"p{phase}__{name}_n")) for name in ("cs", "ras", "cas", "we"))
                if not off:
                    self._do(phase, lines[0] << 2 | lines[1] << 1 | lines[2], due, cycle)
            word = due.pop(cycle, None) or random.randbytes(OCTETS)
            for n in range(2):
                drive(self._port(f"p{n}__rddata"), int.from_bytes(word[8 * n : 8 * n + 8], "little"))
            drive(self._port("delays__seen"), self.bursts)

    def _change(self):
        """Change the settings of the selected lanes."""
        select, *moves = (level(self._port(f"delays__{name}")) for name in ("select", "slip", "later"))
        if level(self._port("delays__forget")):
            self.bursts = 0
        self.paused |= select == (1 << CHIP.strobes) - 1
        for lane in LANES:
            if any(moves) and select >> lane & 1:
                self.paused = False
                places = zip(self.settings[lane], moves, (SLIPS, DELAYS), strict=True)
                self.settings[lane] = [(place + move) % number for place, move, number in places]

    def _do(self, phase, command, due, cycle):
        assert self.paused
        assert not level(self._port("delays__select"))
        assert self.open == (command != ACTIVATE)
        match command:
            case c if c in (ACTIVATE, PRECHARGE):
                self.open = not self.open
            case c if c == WRITE:
                assert phase == TIMING.write_phase
                assert level(self._port("p1__wrdata_en"))
                if self.writes:
                    self.word = b"".join(level(self._port(f"p{n}__wrdata")).to_bytes(8, "little") for n in range(2))
            case c if c == READ:
                assert phase == TIMING.read_phase
                assert level(self._port("p0__rddata_en"))
                due[cycle + TIMING.read_latency - 1] = self._read()
            case _:
                raise AssertionError(f"command {command:03b}")

    def _read(self):
        """Return what comes: with a bad setting, each octet is one too late."""
        self.bursts = sum(1 << lane for lane in LANES if tuple(self.settings[lane]) in self.seen[lane])
        is_good = [tuple(self.settings[lane]) in self.good[lane] for lane in LANES]
        late = random.randbytes(CHIP.strobes) + self.word
        return bytes((self.word if is_good[n % CHIP.strobes] else late)[n] for n in range(OCTETS))


def run_of(slip, first, last):
    """Return the settings with these delays."""
    return [(slip, delay) for delay in range(first, last + 1)]


async def ends(dut):
    """Return whether a setting of each lane has been found."""
    drive(dut.start, 1)
    while not level(dut.done) and not level(dut.failed):
        await RisingEdge(dut.clk)
    return bool(level(dut.done))


@bench(cycles=60_000)
async def the_middle_of_the_longest_run_is_chosen(dut):
    good = [[tuple(setting) for setting in lane] for lane in parameter("good")]
    phy = Phy(dut, good)
    assert await ends(dut)
    assert [tuple(each) for each in phy.settings] == [tuple(each) for each in parameter("chosen")]


@bench(cycles=60_000)
async def a_lane_without_a_good_setting_is_a_failure(dut):
    every = [run_of(slip, 0, DELAYS - 1) for slip in range(SLIPS)]
    every = [list(itertools.chain(*every))] * CHIP.strobes
    lacks = {"words": ([every[0], []], every), "bursts": (every, [every[0], []]), "writes": (every, every)}
    kind = parameter("lacks")
    Phy(dut, *lacks[kind], writes=kind != "writes")
    assert not await ends(dut)


def trained(test, **parameters):
    simulate(functools.partial(ReadTraining, CHIP, TIMING), test, parameters=parameters)


@pytest.mark.parametrize(("good", "chosen"), [
    ([run_of(0, 0, 7), run_of(0, 0, 7)], [(0, 3), (0, 3)]),
    ([run_of(2, 3, 6), run_of(3, 7, 7)], [(2, 4), (3, 7)]),
    ([[*run_of(1, 0, 1), *run_of(1, 3, 5)], run_of(0, 0, 0)], [(1, 4), (0, 0)]),
    ([[*run_of(1, 6, 7), *run_of(2, 0, 1), *run_of(3, 0, 2)], run_of(1, 2, 4)], [(3, 1), (1, 3)]),  # runs do not join
])  # fmt: skip
def test_the_middle_of_the_longest_run_of_good_delays_is_chosen(good, chosen):
    trained(the_middle_of_the_longest_run_is_chosen, good=good, chosen=chosen)


@pytest.mark.parametrize("lacks", ["words", "bursts", "writes"])
def test_a_lane_without_a_good_setting_is_a_failure(lacks):
    trained(a_lane_without_a_good_setting_is_a_failure, lacks=lacks)


def test_a_word_that_comes_too_late_for_the_training_is_rejected():
    with pytest.raises(ValueError, match=r"^a word must come within 32 cycles of its read, not 32$"):
        ReadTraining(CHIP, Timing(0, 1, 32))
