"""The memory port of the engine on an AXI4 bus."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes
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

    Each word is a transaction of one beat with ID 0, and many are outstanding. A write without octets to write is not
    sent. A write with ``last`` is transferred at ``port`` when the responses to all writes, this one included, have
    arrived. Responses other than OKAY set ``fault`` for 1 cycle; that of a write sets ``port.write_fault``, too, and
    that of a read ``port.fault`` with its word.

    The bus need not be reset with the engine: transactions that have begun are completed, and the words of all reads
    that were transferred at ``port`` still come.

    Latency: 1 cycle from ``port`` to the bus; words pass without delay. Throughput: a write and a read in each cycle.
    ``m_axi_rready`` depends on ``port.words.ready`` in the same cycle.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    outstanding : reads, and writes, that can be outstanding: 2 to this power, minus 1

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    fault : Out, 1 bit
        The bus reports an error.
    m_axi_*
        An AXI4 manager with addresses of 32 bits.

    """

    def __init__(self, lanes: int, *, outstanding: int = 8):
        check_lanes(lanes)
        self.lanes = lanes
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
        write, beat = self.port.write, self.port.write.payload
        count = Signal(self.outstanding, name="writes_outstanding")
        sent = Signal()  # the write with ``last`` that waits has been sent
        free = Signal(name="write_is_free")
        sends = Signal(name="write_sends")
        m.d.comb += [
            free.eq((~self.m_axi_awvalid | self.m_axi_awready) & (~self.m_axi_wvalid | self.m_axi_wready)),
            sends.eq(write.valid & beat.mask.any() & ~sent & free & ~count.all()),
            write.ready.eq(Mux(beat.last, (sent | ~beat.mask.any()) & (count == 0), sends | ~beat.mask.any())),
            self.m_axi_wlast.eq(1),
            self.m_axi_bready.eq(1),
            self.port.write_fault.eq(self.m_axi_bvalid & (self.m_axi_bresp != 0)),
        ]
        m.d.sync += [
            count.eq(count + sends - self.m_axi_bvalid),
            sent.eq((sent | sends) & beat.last & write.valid & ~write.ready),
        ]
        with m.If(self.m_axi_awready):
            m.d.sync += self.m_axi_awvalid.eq(0)
        with m.If(self.m_axi_wready):
            m.d.sync += self.m_axi_wvalid.eq(0)
        with m.If(sends):
            m.d.sync += [
                self.m_axi_awvalid.eq(1),
                self.m_axi_awaddr.eq(Cat(Const(0, size), beat.address)),
                self.m_axi_wvalid.eq(1),
                self.m_axi_wdata.eq(beat.data),
                self.m_axi_wstrb.eq(beat.mask),
            ]

    def _read(self, m, size):
        read, words = self.port.read, self.port.words
        count = Signal(self.outstanding, name="reads_outstanding")
        sends = Signal(name="read_sends")
        m.d.comb += [
            read.ready.eq((~self.m_axi_arvalid | self.m_axi_arready) & ~count.all()),
            sends.eq(read.valid & read.ready),
            words.valid.eq(self.m_axi_rvalid),
            words.payload.eq(self.m_axi_rdata),
            self.port.fault.eq(self.m_axi_rresp != 0),
            self.m_axi_rready.eq(words.ready),
        ]
        m.d.sync += count.eq(count + sends - (self.m_axi_rvalid & self.m_axi_rready))
        with m.If(self.m_axi_arready):
            m.d.sync += self.m_axi_arvalid.eq(0)
        with m.If(sends):
            m.d.sync += [self.m_axi_arvalid.eq(1), self.m_axi_araddr.eq(Cat(Const(0, size), read.payload))]
