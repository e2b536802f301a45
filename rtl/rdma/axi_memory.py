"""The memory port of the engine on an AXI4 bus."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.rdma.bursts import RunGatherer, WriteGatherer, check_burst
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, MemoryPort

__all__ = ["AxiMemory", "axi_ports"]

INCR = 1  # AxBURST
CACHE = 0b0011  # AxCACHE: normal, non-cacheable, bufferable


def axi_ports(lanes: int) -> dict:
    """The ports of an AXI4 manager with words of ``lanes`` lanes, IDs of 1 bit, and no user signals."""
    ports = {}
    for channel in ("aw", "ar"):
        ports |= {f"m_axi_{channel}{name}": Out(width) for name, width in (
            ("id", 1), ("addr", ADDRESS_BITS), ("len", 8), ("size", 3), ("burst", 2), ("lock", 1), ("cache", 4),
            ("prot", 3), ("valid", 1),
        )}  # fmt: skip
        ports[f"m_axi_{channel}ready"] = In(1)
    return ports | {
        "m_axi_wdata": Out(32 * lanes), "m_axi_wstrb": Out(4 * lanes), "m_axi_wlast": Out(1), "m_axi_wvalid": Out(1),
        "m_axi_wready": In(1),
        "m_axi_bid": In(1), "m_axi_bresp": In(2), "m_axi_bvalid": In(1), "m_axi_bready": Out(1),
        "m_axi_rid": In(1), "m_axi_rdata": In(32 * lanes), "m_axi_rresp": In(2), "m_axi_rlast": In(1),
        "m_axi_rvalid": In(1), "m_axi_rready": Out(1),
    }  # fmt: skip


class AxiMemory(wiring.Component):
    """A :class:`.MemoryPort` as an AXI4 manager.

    Words with consecutive addresses are INCR bursts with ID 0, of at most ``burst`` beats, which cross no multiple
    of 4 KiB; see :class:`.RunGatherer`. Many are outstanding. ``m_axi_wstrb`` has the octets to write; a write without
    any is not sent. A write with ``last`` is transferred at ``port`` when the responses to all writes, this one
    included, have arrived. Responses other than OKAY set ``fault`` for 1 cycle; that of a burst of writes sets
    ``port.write_fault``, too, and that of a beat of a read ``port.fault`` with its word.

    The bus need not be reset with the engine: transactions that have begun are completed, and the words of all reads
    that were transferred at ``port`` still come.

    Latency: that of the gatherer from ``port`` to the bus; words that were read pass without delay. Throughput: a write
    and a read in each cycle, also if no address follows the one before. ``m_axi_rready`` depends on
    ``port.words.ready`` in the same cycle.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    burst : beats of the longest burst, a power of 2 from 2 to 256. Writes wait in a queue of twice as many words.
    outstanding : bursts of writes that can be outstanding: 2 to this power, minus 1

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    fault : Out, 1 bit
        The bus reports an error.
    m_axi_*
        An AXI4 manager with addresses of 32 bits.

    """

    def __init__(self, lanes: int, *, burst: int = 16, outstanding: int = 8):
        check_lanes(lanes)
        check_burst(burst)
        self.lanes = lanes
        self.burst = burst
        self.outstanding = outstanding
        super().__init__({
            "port": In(MemoryPort(lanes)), "fault": Out(1), **axi_ports(lanes),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        size = (4 * self.lanes).bit_length() - 1  # octets of a word: 2 to this power
        m.d.comb += [
            self.m_axi_awsize.eq(size), self.m_axi_awburst.eq(INCR), self.m_axi_awcache.eq(CACHE),
            self.m_axi_arsize.eq(size), self.m_axi_arburst.eq(INCR), self.m_axi_arcache.eq(CACHE),
        ]  # fmt: skip
        m.d.comb += self.fault.eq(
            self.port.write_fault | (self.m_axi_rvalid & self.m_axi_rready & (self.m_axi_rresp != 0))
        )
        self._write(m, size)
        self._read(m, size)
        return m

    def _write(self, m, size):
        m.submodules.writes = writes = WriteGatherer(self.lanes, self.burst)
        connect(m, flipped(self.port.write), writes.write)
        runs, words = writes.runs, writes.words
        count = Signal(self.outstanding, name="writes_outstanding")
        goes = Signal(name="write_goes")  # a burst that has begun has it until it has left
        m.d.comb += [
            goes.eq(~count.all()),
            self.m_axi_awaddr.eq(Cat(Const(0, size), runs.payload.address)),
            self.m_axi_awlen.eq(runs.payload.more),
            self.m_axi_awvalid.eq(runs.valid & goes),
            runs.ready.eq(self.m_axi_awready & goes),
            self.m_axi_wdata.eq(words.payload.data),
            self.m_axi_wstrb.eq(words.payload.mask),
            self.m_axi_wlast.eq(words.payload.last),
            self.m_axi_wvalid.eq(words.valid & goes),
            words.ready.eq(self.m_axi_wready & goes),
            self.m_axi_bready.eq(1),
            self.port.write_fault.eq(self.m_axi_bvalid & (self.m_axi_bresp != 0)),
            writes.settled.eq(count == 0),
        ]
        m.d.sync += count.eq(count + writes.leaves - self.m_axi_bvalid)

    def _read(self, m, size):
        m.submodules.reads = reads = RunGatherer(self.lanes, self.burst)
        connect(m, flipped(self.port.read), reads.i)
        words = self.port.words
        m.d.comb += [
            self.m_axi_araddr.eq(Cat(Const(0, size), reads.o.payload.address)),
            self.m_axi_arlen.eq(reads.o.payload.more),
            self.m_axi_arvalid.eq(reads.o.valid),
            reads.o.ready.eq(self.m_axi_arready),
            words.valid.eq(self.m_axi_rvalid),
            words.payload.eq(self.m_axi_rdata),
            self.port.fault.eq(self.m_axi_rresp != 0),
            self.m_axi_rready.eq(words.ready),
        ]
