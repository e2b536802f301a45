"""The memory port of the engine on an AXI4 bus."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from open_rnic.rtl.lib.buses import Axi4
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.rdma.bursts import RunGatherer, WriteGatherer, check_burst
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, MemoryPort

__all__ = ["AxiMemory"]

INCR = 1  # AxBURST
CACHE = 0b0011  # AxCACHE: normal, non-cacheable, bufferable


class AxiMemory(wiring.Component):
    """A :class:`.MemoryPort` as an AXI4 manager.

    Words with consecutive addresses are INCR bursts with ID 0, of at most ``burst`` beats, which cross no multiple
    of 4 KiB; see :class:`.RunGatherer`. Many are outstanding. ``m_axi.wstrb`` has the octets to write; a write without
    any is not sent. A write with ``last`` is transferred at ``port`` when the responses to all writes, this one
    included, have arrived. Responses other than OKAY set ``fault`` for 1 cycle; that of a burst of writes sets
    ``port.write_fault``, too, and that of a beat of a read ``port.fault`` with its word.

    The bus need not be reset with the engine: transactions that have begun are completed, and the words of all reads
    that were transferred at ``port`` still come.

    Latency: that of the gatherer from ``port`` to the bus; words that were read pass without delay. Throughput: a write
    and a read in each cycle, also if no address follows the one before. ``m_axi.rready`` depends on
    ``port.words.ready`` in the same cycle.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    burst : beats of the longest burst, a power of 2 from 2 to 256. Writes wait in a queue of twice as many words.
    outstanding : bursts of writes that can be outstanding: 2 to this power, minus 1
    size : octets of the memory, a power of 2; addresses are taken modulo this number

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    fault : Out, 1 bit
        The bus reports an error.
    m_axi : Out, :class:`.Axi4`
        The side of the bus, with addresses of 32 bits.

    """

    def __init__(self, lanes: int, *, burst: int = 16, outstanding: int = 8, size: int = 1 << ADDRESS_BITS):
        check_lanes(lanes)
        check_burst(burst)
        self.lanes = lanes
        self.burst = burst
        self.outstanding = outstanding
        self.size = size
        super().__init__({"port": In(MemoryPort(lanes)), "fault": Out(1), "m_axi": Out(Axi4(lanes, ADDRESS_BITS))})

    def elaborate(self, platform):
        m = Module()
        axi = self.m_axi
        width = (4 * self.lanes).bit_length() - 1  # octets of a word: 2 to this power
        m.d.comb += [
            axi.awsize.eq(width), axi.awburst.eq(INCR), axi.awcache.eq(CACHE),
            axi.arsize.eq(width), axi.arburst.eq(INCR), axi.arcache.eq(CACHE),
        ]  # fmt: skip
        m.d.comb += self.fault.eq(self.port.write_fault | (axi.rvalid & axi.rready & (axi.rresp != 0)))
        self._write(m, width)
        self._read(m, width)
        return m

    def _write(self, m, width):
        axi = self.m_axi
        m.submodules.writes = writes = WriteGatherer(self.lanes, self.burst)
        connect(m, flipped(self.port.write), writes.write)
        runs, words = writes.runs, writes.words
        count = Signal(self.outstanding, name="writes_outstanding")
        begins = Signal(name="write_begins")  # a burst that has begun has it until it has left
        m.d.comb += [
            begins.eq(~count.all()),
            axi.awaddr.eq(Cat(Const(0, width), runs.payload.address) & (self.size - 1)),
            axi.awlen.eq(runs.payload.more),
            axi.awvalid.eq(runs.valid & begins),
            runs.ready.eq(axi.awready & begins),
            axi.wdata.eq(words.payload.data),
            axi.wstrb.eq(words.payload.mask),
            axi.wlast.eq(words.payload.last),
            axi.wvalid.eq(words.valid & begins),
            words.ready.eq(axi.wready & begins),
            axi.bready.eq(1),
            self.port.write_fault.eq(axi.bvalid & (axi.bresp != 0)),
            writes.settled.eq(count == 0),
        ]
        m.d.sync += count.eq(count + writes.leaves - axi.bvalid)

    def _read(self, m, width):
        axi = self.m_axi
        m.submodules.reads = reads = RunGatherer(self.lanes, self.burst)
        connect(m, flipped(self.port.read), reads.i)
        words = self.port.words
        m.d.comb += [
            axi.araddr.eq(Cat(Const(0, width), reads.o.payload.address) & (self.size - 1)),
            axi.arlen.eq(reads.o.payload.more),
            axi.arvalid.eq(reads.o.valid),
            reads.o.ready.eq(axi.arready),
            words.valid.eq(axi.rvalid),
            words.payload.eq(axi.rdata),
            self.port.fault.eq(axi.rresp != 0),
            axi.rready.eq(words.ready),
        ]
