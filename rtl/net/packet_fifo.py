"""A queue of whole packets: a packet that is not good, or has no room, leaves no trace."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.stream import check_depth
from open_rnic.rtl.net.packet_memory import OutputRegister, PacketMemory, PacketWriter

__all__ = ["PacketFifo"]

_SOON = 352  # words, of 380 in a full frame


class PacketFifo(wiring.Component):
    """A queue in memory, into which packets are written in any order of their words.

    Latency: 3 cycles from ``commit`` to the first beat at ``o``. Throughput: one word per cycle.

    Parameters
    ----------
    depth : words, a power of 2

    Members
    -------
    i : In, signature :class:`PacketWriter`
    o : Out, stream of :class:`.Packet`
        The words of the packets, as written. They cannot be recognised as packets unless a word has ``last``.
    soon : Out, 1 bit
        Fewer than 352 words of the packets in the queue have not been read. The wire takes as long for so many as a
        full frame takes to be built.

    """

    def __init__(self, depth: int):
        check_depth(depth)
        self.depth = depth
        super().__init__({"i": In(PacketWriter(depth)), "o": Out(stream.Signature(Packet(1))), "soon": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = PacketMemory(self.depth)
        m.submodules.output = output = OutputRegister()
        wiring.connect(m, output.o, wiring.flipped(self.o))
        bits = len(memory.write_address) + 1
        begin = Signal(bits)  # of the packet that is being written
        target = Signal(bits)
        ahead = Signal(bits)  # distance from the next word to be read
        fetched = Signal(bits)
        more = Signal()
        left = Signal(bits)  # words of packets that have not been read
        m.d.comb += [
            left.eq(begin - fetched),
            self.soon.eq(left < _SOON),
            target.eq(begin + self.i.place),
            ahead.eq(target - fetched),
            self.i.fits.eq(~ahead[-1]),
            memory.write_address.eq(target),
            memory.word.eq(self.i.word),
            memory.low.eq(self.i.low & self.i.fits),
            memory.high.eq(self.i.high & self.i.fits),
            more.eq(fetched != begin),
            memory.read_address.eq(fetched),
            memory.read.eq(more & (output.i.ready | ~output.i.valid)),
            output.i.payload.eq(memory.held),
        ]
        with m.If(self.i.commit):
            m.d.sync += begin.eq(target)
        with m.If(output.i.ready | ~output.i.valid):
            m.d.sync += [output.i.valid.eq(more), fetched.eq(fetched + more)]
        return m
