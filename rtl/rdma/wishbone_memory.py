"""The memory port of the engine on a Wishbone bus."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from open_rnic.rtl.lib.buses import Wishbone
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Buffer
from open_rnic.rtl.rdma.bursts import Run, RunGatherer, WriteGatherer, check_burst, page_bits
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, MemoryPort, word_bits

__all__ = ["WishboneMemory"]

INCREMENTING, END = 0b010, 0b111  # CTI


class WishboneMemory(wiring.Component):
    """A :class:`.MemoryPort` as a master of Wishbone B4: classic cycles with registered feedback (B4 §4).

    Words with consecutive addresses are incrementing bursts (CTI 010, the last cycle 111, BTE 00) of at most ``burst``
    words, which cross no multiple of 4 KiB; see :class:`.RunGatherer`. A memory that ignores CTI acknowledges each word
    on its own. Runs of writes and of reads have the bus in turn. ``wb.stb`` is 0 within a burst while words that were
    read wait at ``port``.

    A write without octets to write is not sent. A write with ``last`` is transferred at ``port`` when all writes, this
    one included, have been acknowledged. ``wb.err``, which ends a cycle as ``wb.ack`` does, sets ``fault`` for 1 cycle,
    and for a write ``port.write_fault``; that of a read sets ``port.fault`` with its word. The burst goes on after it.

    The bus need not be reset with the engine: bursts that have begun are completed, and the words of all reads that
    were transferred at ``port`` still come.

    Latency: 1 cycle and that of the gatherer from ``port`` to the bus, and 1 cycle from the bus to ``port``.
    Throughput: a word per cycle, and a cycle more for each burst.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    burst : words of the longest burst, a power of 2 from 2 to 256. Writes wait in a queue of twice as many words.
    size : octets of the memory, a power of 2; addresses are taken modulo this number

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    fault : Out, 1 bit
        The bus reports an error.
    wb : Out, :class:`.Wishbone`
        The side of the bus.

    """

    def __init__(self, lanes: int, *, burst: int = 16, size: int = 1 << ADDRESS_BITS):
        check_lanes(lanes)
        check_burst(burst)
        self.lanes = lanes
        self.burst = burst
        self.size = size
        super().__init__({"port": In(MemoryPort(lanes)), "fault": Out(1), "wb": Out(Wishbone(lanes, word_bits(lanes)))})

    def elaborate(self, platform):
        m = Module()
        port, wb = self.port, self.wb
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
            ends.eq(wb.stb & (wb.ack | wb.err)),
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
            wb.cyc.eq(busy),
            wb.stb.eq(busy & (writing | answers.i.ready)),
            wb.we.eq(writing),
            wb.adr.eq(Cat((run.address[:low] + beat)[:low], run.address[low:]) & (self.size // (4 * self.lanes) - 1)),
            wb.sel.eq(Mux(writing, writes.words.payload.mask, -1)),
            wb.dat_w.eq(writes.words.payload.data),
            wb.cti.eq(Mux(last, END, INCREMENTING)),
            writes.words.ready.eq(ends & writing),
            writes.runs.ready.eq(leaves & writing),
            reads.o.ready.eq(leaves & ~writing),
            writes.settled.eq(1),
            answers.i.valid.eq(ends & ~writing),
            answers.i.payload.data.eq(wb.dat_r),
            answers.i.payload.fault.eq(wb.err),
            port.words.valid.eq(answers.o.valid),
            port.words.payload.eq(answers.o.payload.data),
            port.fault.eq(answers.o.payload.fault),
            answers.o.ready.eq(port.words.ready),
            port.write_fault.eq(ends & writing & wb.err),
            self.fault.eq(ends & wb.err),
        ]
        return m
