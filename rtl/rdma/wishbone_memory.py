"""The memory port of the engine on a Wishbone bus."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Buffer
from open_rnic.rtl.rdma.bursts import Run, RunGatherer, WriteGatherer, check_burst, page_bits
from open_rnic.rtl.rdma.layouts import MemoryPort, word_bits

__all__ = ["WishboneMemory", "wishbone_ports"]

INCREMENTING, END = 0b010, 0b111  # CTI


def wishbone_ports(lanes: int) -> dict:
    """The ports of a Wishbone master with words of ``lanes`` lanes, whose addresses count words, as LiteX has them."""
    return {
        "wb_cyc": Out(1), "wb_stb": Out(1), "wb_we": Out(1), "wb_adr": Out(word_bits(lanes)), "wb_sel": Out(4 * lanes),
        "wb_dat_w": Out(32 * lanes), "wb_cti": Out(3), "wb_bte": Out(2),
        "wb_dat_r": In(32 * lanes), "wb_ack": In(1), "wb_err": In(1),
    }  # fmt: skip


class WishboneMemory(wiring.Component):
    """A :class:`.MemoryPort` as a master of Wishbone B4: classic cycles with registered feedback (B4 §4).

    Words with consecutive addresses are incrementing bursts (CTI 010, the last cycle 111, BTE 00) of at most ``burst``
    words, which cross no multiple of 4 KiB; see :class:`.RunGatherer`. A memory that ignores CTI acknowledges each word
    on its own. Runs of writes and of reads have the bus in turn. ``wb_stb`` is 0 within a burst while words that were
    read wait at ``port``.

    A write without octets to write is not sent. A write with ``last`` is transferred at ``port`` when all writes, this
    one included, have been acknowledged. ``wb_err``, which ends a cycle as ``wb_ack`` does, sets ``fault`` for 1 cycle,
    and for a write ``port.write_fault``; that of a read sets ``port.fault`` with its word. The burst goes on after it.

    The bus need not be reset with the engine: bursts that have begun are completed, and the words of all reads that
    were transferred at ``port`` still come.

    Latency: 1 cycle and that of the gatherer from ``port`` to the bus, and 1 cycle from the bus to ``port``.
    Throughput: a word per cycle, and a cycle more for each burst.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    burst : words of the longest burst, a power of 2 from 2 to 256. Writes wait in a queue of twice as many words.

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    fault : Out, 1 bit
        The bus reports an error.
    wb_*
        A Wishbone master; ``wb_adr`` is the number of a word.

    """

    def __init__(self, lanes: int, *, burst: int = 16):
        check_lanes(lanes)
        check_burst(burst)
        self.lanes = lanes
        self.burst = burst
        super().__init__({"port": In(MemoryPort(lanes)), "fault": Out(1), **wishbone_ports(lanes)})

    def elaborate(self, platform):
        m = Module()
        port = self.port
        m.submodules.writes = writes = WriteGatherer(self.lanes, self.burst)
        m.submodules.reads = reads = RunGatherer(self.lanes, self.burst)
        m.submodules.answers = answers = Buffer(data.StructLayout({"data": 32 * self.lanes, "fault": 1}))
        connect(m, flipped(port.write), writes.write)
        connect(m, flipped(port.read), reads.i)

        # A run has the bus until its last word.
        low = page_bits(self.lanes)
        busy = Signal()
        writing = Signal()  # the run is one of writes; or the last one was
        run = Signal(Run(self.lanes, self.burst))
        beat = Signal(range(self.burst))  # number of the word in the run
        last = Signal()
        ends = Signal()  # the cycle of a word
        leaves = Signal()  # the run
        m.d.comb += [
            run.eq(Mux(writing, writes.runs.payload, reads.o.payload)),
            last.eq(beat == run.more),
            ends.eq(self.wb_stb & (self.wb_ack | self.wb_err)),
            leaves.eq(ends & last),
        ]
        with m.If(~busy):
            m.d.sync += [
                busy.eq(writes.runs.valid | reads.o.valid),
                writing.eq(writes.runs.valid & (~reads.o.valid | ~writing)),
            ]
        with m.Elif(leaves):
            m.d.sync += busy.eq(0)
        with m.If(ends):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))

        m.d.comb += [
            self.wb_cyc.eq(busy),
            self.wb_stb.eq(busy & (writing | answers.i.ready)),
            self.wb_we.eq(writing),
            self.wb_adr.eq(Cat((run.address[:low] + beat)[:low], run.address[low:])),
            self.wb_sel.eq(Mux(writing, writes.words.payload.mask, -1)),
            self.wb_dat_w.eq(writes.words.payload.data),
            self.wb_cti.eq(Mux(last, END, INCREMENTING)),
            writes.words.ready.eq(ends & writing),
            writes.runs.ready.eq(leaves & writing),
            reads.o.ready.eq(leaves & ~writing),
            writes.settled.eq(1),
            answers.i.valid.eq(ends & ~writing),
            answers.i.payload.data.eq(self.wb_dat_r),
            answers.i.payload.fault.eq(self.wb_err),
            port.words.valid.eq(answers.o.valid),
            port.words.payload.eq(answers.o.payload.data),
            port.fault.eq(answers.o.payload.fault),
            answers.o.ready.eq(port.words.ready),
            port.write_fault.eq(ends & writing & self.wb_err),
            self.fault.eq(ends & self.wb_err),
        ]
        return m
