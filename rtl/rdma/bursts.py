"""Words of a memory port on their way to a bus with bursts: runs of words with consecutive addresses."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Fifo
from open_rnic.rtl.rdma.layouts import MemoryWrite, word_bits

__all__ = ["PAGE", "PATIENCE", "Run", "RunGatherer", "RunWord", "WriteGatherer", "check_burst", "page_bits"]

PAGE = 4096  # octets: no burst of AXI4 crosses a multiple of this
PATIENCE = 4  # cycles without a word after which a run ends


def check_burst(burst: int) -> None:
    """Raise ValueError if ``burst`` is not a number of words of the longest burst: a power of 2, 2 to 256."""
    if not 2 <= burst <= 256 or burst & (burst - 1):
        raise ValueError(f"burst must be a power of 2 from 2 to 256, not {burst!r}")


def page_bits(lanes: int) -> int:
    """Bits of the number of a word in its 4 KiB."""
    return (PAGE // (4 * lanes)).bit_length() - 1


class Run(data.StructLayout):
    """Words with consecutive addresses.

    Members
    -------
    address : bits of a word's address
        The first word.
    more : number below ``burst``
        Words after the first one.
    """

    def __init__(self, lanes: int, burst: int):
        super().__init__({"address": word_bits(lanes), "more": range(burst)})


class RunWord(data.StructLayout):
    """A word of a run to write. ``last`` marks the last one; ``mask`` has at least one octet."""

    def __init__(self, lanes: int):
        super().__init__({"data": 32 * lanes, "mask": 4 * lanes, "last": 1})


class RunGatherer(wiring.Component):
    """Joins words with consecutive addresses in runs.

    A run ends with ``burst`` words, with the last word of 4 KiB, before a word that does not follow, with ``ends``, or
    after :data:`PATIENCE` cycles without a word. A word that is withdrawn before its transfer leaves no trace.

    Latency: 2 cycles from the last word of a run, or 1 from the word that ends it, to the run. Throughput: a word per
    cycle. ``i.ready`` depends on ``o.ready`` and ``i.payload`` in the same cycle.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    burst : words of the longest run, a power of 2 from 2 to 256

    Members
    -------
    i : In, stream of a word's address
    o : Out, stream of :class:`Run`
    ends : In, 1 bit
        The run ends, unless a word follows in this cycle.
    open : Out, 1 bit
        A run has begun that has not reached ``o``.

    """

    def __init__(self, lanes: int, burst: int):
        check_lanes(lanes)
        check_burst(burst)
        self.lanes = lanes
        self.burst = burst
        super().__init__({
            "i": In(stream.Signature(word_bits(lanes))),
            "o": Out(stream.Signature(Run(lanes, burst))),
            "ends": In(1),
            "open": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        run = Signal(Run(self.lanes, self.burst), reset_less=True)
        low = page_bits(self.lanes)
        next_in_page = Signal(low, reset_less=True)
        whole = Signal()  # the run has all words that it may have
        follows = Signal()
        free = Signal()
        takes = Signal()
        leaves = Signal()
        pause = Signal(range(PATIENCE))  # cycles without a word
        paused = Signal()
        m.d.comb += [
            whole.eq((run.more == self.burst - 1) | (next_in_page == 0)),
            follows.eq(self.open & ~whole & (self.i.payload == Cat(next_in_page, run.address[low:]))),
            free.eq(~self.o.valid | self.o.ready),
            paused.eq(pause == PATIENCE - 1),
            leaves.eq(self.open & free & (whole | Mux(self.i.valid, ~follows, self.ends | paused))),
            self.i.ready.eq(~self.open | follows | free),
            takes.eq(self.i.valid & self.i.ready),
        ]
        m.d.sync += [
            self.open.eq(takes | (self.open & ~leaves)),
            self.o.valid.eq(leaves | (self.o.valid & ~self.o.ready)),
            pause.eq(Mux(self.i.valid, 0, pause + ~paused)),
        ]
        with m.If(free):
            m.d.sync += self.o.payload.eq(run)
        with m.If(takes):
            m.d.sync += [
                next_in_page.eq(self.i.payload + 1),
                run.more.eq(Mux(follows, run.more + 1, 0)),
            ]
            with m.If(~follows):
                m.d.sync += run.address.eq(self.i.payload)
        return m


class WriteGatherer(wiring.Component):
    """The writes of a :class:`.MemoryPort` as runs, and their words.

    The words of a run are offered with the run; all of them have left before those of the next one. A write without
    octets is in no run. A write with ``last`` ends the run, and is transferred when all runs have left and ``settled``
    is set. A write that the engine withdraws in a reset is written or not; the runs that have begun leave.

    Latency: see :class:`RunGatherer`. Throughput: a word per cycle.

    Parameters
    ----------
    lanes, burst
        See :class:`RunGatherer`.

    Members
    -------
    write : In, stream of :class:`.MemoryWrite`
    runs : Out, stream of :class:`Run`
    words : Out, stream of :class:`RunWord`
        The words of the run at ``runs``, which may be transferred before it, with it, or after it.
    leaves : Out, 1 bit
        A run and all of its words have been transferred, in this cycle the last of them.
    settled : In, 1 bit
        The memory has responded to all runs that have left.

    """

    def __init__(self, lanes: int, burst: int):
        check_lanes(lanes)
        check_burst(burst)
        self.lanes = lanes
        self.burst = burst
        super().__init__({
            "write": In(stream.Signature(MemoryWrite(lanes))),
            "runs": Out(stream.Signature(Run(lanes, burst))),
            "words": Out(stream.Signature(RunWord(lanes))),
            "leaves": Out(1),
            "settled": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.gatherer = gatherer = RunGatherer(self.lanes, self.burst)
        stored = data.StructLayout({"data": 32 * self.lanes, "mask": 4 * self.lanes})
        m.submodules.queue = queue = Fifo(stored, 2 * self.burst)
        write, beat = self.write, self.write.payload

        # A word enters the queue as its address enters a run.
        entered = Signal()  # the write with ``last`` that waits has entered
        offered = Signal()
        enters = Signal()
        done = Signal()
        m.d.comb += [
            offered.eq(write.valid & beat.mask.any() & ~entered),
            gatherer.i.payload.eq(beat.address),
            gatherer.i.valid.eq(offered & queue.i.ready),
            gatherer.ends.eq(write.valid & beat.last & ~offered),
            queue.i.valid.eq(offered & gatherer.i.ready),
            queue.i.payload.data.eq(beat.data),
            queue.i.payload.mask.eq(beat.mask),
            enters.eq(gatherer.i.valid & gatherer.i.ready),
            done.eq(~gatherer.open & ~gatherer.o.valid & self.settled),
            write.ready.eq(Mux(beat.last, (entered | ~beat.mask.any()) & done, enters | ~beat.mask.any())),
        ]
        m.d.sync += entered.eq((entered | enters) & beat.last & write.valid & ~write.ready)

        # A run stays until it and its last word have been transferred.
        run = gatherer.o
        named = Signal()  # the run has been transferred
        emptied = Signal()  # its last word has
        number = Signal(range(self.burst))  # of the word in the run
        names = Signal()
        empties = Signal()
        m.d.comb += [
            self.runs.payload.eq(run.payload),
            self.runs.valid.eq(run.valid & ~named),
            self.words.payload.data.eq(queue.o.payload.data),
            self.words.payload.mask.eq(queue.o.payload.mask),
            self.words.payload.last.eq(number == run.payload.more),
            self.words.valid.eq(run.valid & ~emptied),
            queue.o.ready.eq(self.words.valid & self.words.ready),
            names.eq(named | (self.runs.valid & self.runs.ready)),
            empties.eq(emptied | (queue.o.ready & self.words.payload.last)),
            run.ready.eq(names & empties),
            self.leaves.eq(run.valid & run.ready),
        ]
        m.d.sync += [named.eq(names & ~run.ready), emptied.eq(empties & ~run.ready)]
        with m.If(queue.o.ready):
            m.d.sync += number.eq(Mux(self.words.payload.last, 0, number + 1))
        return m
