"""Finds the time at which a PHY of DDR3 SDRAM takes the words that are read."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from open_rnic.rtl.memory.chips import Chip
from open_rnic.rtl.memory.litedram import Timing
from open_rnic.rtl.memory.ports import dfi_of

__all__ = ["DELAYS", "PATTERNS", "SLIPS", "ReadTraining"]

DELAYS, SLIPS = 8, 4  # of each strobe of LiteDRAM's PHY for an ECP5
#: The words that are written, from the digits of π: no octet is like one beside it.
PATTERNS = (0x243F6A88_85A308D3_13198A2E_03707344, 0xA4093822_299F31D0_082EFA98_EC4E6C89)
_SLOT = 32  # cycles for a command and its word, or for a change of the setting: a power of 2


class ReadTraining(wiring.Component):
    """Finds a setting of each strobe of a PHY with which reads return what was written.

    A setting is tried with two words, each of which is written and read: it is good if both come back, and the PHY has
    seen their bursts. All settings of a strobe are tried, and the middle of the longest run of good delays is chosen
    and tried again; then the next strobe follows.

    Latency: some 11,000 cycles for each strobe. The first word of the SDRAM is lost.

    Parameters
    ----------
    chip : the SDRAM
    timing : of the PHY

    Members
    -------
    start : In, 1 bit
        The SDRAM is initialised: begin.
    dfi : Out, :class:`.Dfi`
        Of a PHY that begins with the first setting of each strobe.
    done, failed : Out, 1 bit
        Each strobe has a good setting, or one has none.

    """

    def __init__(self, chip: Chip, timing: Timing):
        if timing.read_latency >= _SLOT:
            raise ValueError(f"a word must come within {_SLOT} cycles of its read, not {timing.read_latency}")
        self.chip, self.timing = chip, timing
        super().__init__({
            "start": In(1), "dfi": Out(dfi_of(chip)), "done": Out(1), "failed": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        self._time = Signal(range(_SLOT))  # in a slot
        self._begins, self._ends = Signal(), Signal()  # the first and the last cycle of a slot
        self._pattern = Signal()
        self._strobe = Signal(range(self.chip.strobes))
        self._setting = Signal(range(DELAYS * SLIPS))  # the delay is in its low bits
        self._good = Signal()  # nothing is wrong with the setting so far
        self._searches = Signal(init=1)  # none has been chosen yet
        self._chosen = Signal.like(self._setting)
        m.d.sync += self._time.eq(self._time + 1)
        m.d.comb += [self._begins.eq(self._time == 0), self._ends.eq(self._time == _SLOT - 1)]
        with m.FSM():
            with m.State("IDLE"), m.If(self.start & self._ends):
                m.next = "ACTIVATE"
            self._try(m)
            with m.State("JUDGE"), m.If(self._ends):
                self._judge(m)
            with m.State("CHANGE"):
                self._change(m)
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
            with m.State("FAILED"):
                m.d.comb += self.failed.eq(1)
        return m

    def _command(self, m, phase, following, *lines):
        """Give a command at the begin of a slot, and go on behind it."""
        m.d.comb += [line.eq(~self._begins) for line in (phase.cs_n, *lines)]
        with m.If(self._ends):
            m.next = following

    def _try(self, m):
        """Write and read a word of each pattern."""
        p0, p1 = self.dfi.p0, self.dfi.p1
        writes, reads = ((p0, p1)[each] for each in (self.timing.write_phase, self.timing.read_phase))
        pattern = Signal(self.chip.word)
        m.d.comb += [
            pattern.eq(Array(Const(each, self.chip.word) for each in PATTERNS)[self._pattern]),
            Cat(p0.wrdata, p1.wrdata).eq(pattern),
        ]
        with m.State("ACTIVATE"):
            self._command(m, p0, "WRITE", p0.ras_n)
            with m.If(self._begins & (self._pattern == 0)):
                m.d.sync += self._good.eq(1)
        with m.State("WRITE"):
            self._command(m, writes, "READ", writes.cas_n, writes.we_n)
            m.d.comb += writes.wrdata_en.eq(self._begins)
        with m.State("READ"):
            self._command(m, reads, "CLOSE", reads.cas_n)
            m.d.comb += [reads.rddata_en.eq(self._begins), self.dfi.delays.forget.eq(self._begins)]
            with m.If((self._time == self.timing.read_latency) & ~self._returns(Cat(p0.rddata, p1.rddata), pattern)):
                m.d.sync += self._good.eq(0)
        with m.State("CLOSE"):
            self._command(m, p0, "ACTIVATE", p0.ras_n, p0.we_n)
            with m.If(self._begins & ~self.dfi.delays.seen.bit_select(self._strobe, 1)):
                m.d.sync += self._good.eq(0)
            with m.If(self._ends):
                m.d.sync += self._pattern.eq(~self._pattern)
                with m.If(self._pattern == 1):
                    m.next = "JUDGE"

    def _returns(self, word, pattern):
        """Return whether the octets of the strobe are those of the pattern."""
        strobes = self.chip.strobes
        lanes = [[each.word_select(n, 8) for n in range(lane, self.chip.word // 8, strobes)]
                 for each in (word, pattern) for lane in range(strobes)]  # fmt: skip
        return Array(Cat(lanes[n]) == Cat(lanes[strobes + n]) for n in range(strobes))[self._strobe]

    def _judge(self, m):
        """Note the longest run of good delays; if the setting was the chosen one, go to the next strobe."""
        delay = self._setting[: exact_log2(DELAYS)]
        run, longest = Signal(range(DELAYS + 1)), Signal(range(DELAYS + 1))
        longer = Signal.like(run)
        m.d.comb += longer.eq(Mux(self._good, run + 1, 0))
        m.next = "CHANGE"
        with m.If(self._searches):
            m.d.sync += [run.eq(Mux(delay == DELAYS - 1, 0, longer)), self._searches.eq(~self._setting.all())]
            with m.If(longer > longest):
                m.d.sync += [longest.eq(longer), self._chosen.eq(self._setting - (longer >> 1))]
        with m.Elif(~self._good):
            m.next = "FAILED"
        with m.Else():
            m.d.sync += [
                longest.eq(0), self._searches.eq(1), self._setting.eq(0), self._strobe.eq(self._strobe + 1),
            ]  # fmt: skip
            m.next = "ACTIVATE"
            with m.If(self._strobe == self.chip.strobes - 1):
                m.next = "DONE"

    def _change(self, m):
        """Go to the next setting, until it is one to try. All clocks of strobes pause together in the end."""
        delays = self.dfi.delays
        following = Signal.like(self._setting)
        moves = Signal()
        m.d.comb += [following.eq(self._setting + 1), moves.eq(self._time == _SLOT // 8)]
        with m.Switch(self._time[-2:]):
            with m.Case(0):
                m.d.comb += delays.select.eq(1 << self._strobe)
            with m.Case(2):
                m.d.comb += delays.select.eq(-1)
        m.d.comb += [
            delays.later.eq(moves), delays.slip.eq(moves & (following[: exact_log2(DELAYS)] == 0)),
        ]  # fmt: skip
        with m.If(self._ends):
            m.d.sync += self._setting.eq(following)
            with m.If(self._searches | (following == self._chosen)):
                m.next = "ACTIVATE"
