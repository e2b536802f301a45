"""A queue of whole packets: a packet that is not good, or has no room, leaves no trace."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import Packet
from open_rnic.rtl.lib.stream import check_depth

__all__ = ["PacketFifo", "PacketWriter"]


class PacketWriter(wiring.Signature):
    """The input of a :class:`PacketFifo`.

    The words of a packet are written at any places, in any order, and more than once. Then ``commit`` appends the
    packet to the queue. A packet that is not committed is discarded when the next one is written.

    Parameters
    ----------
    depth : words in the queue

    Members
    -------
    place : Out, range(``depth``)
        The place of the word in its packet. With ``commit``, the number of words of the packet.
    word : Out, :class:`.Packet`
        The word.
    low, high : Out, 1 bit
        Write the low or high half of the word, if it fits. ``octets`` is written with the low half, ``last`` with the
        high half.
    commit : Out, 1 bit
        The packet is complete. In this cycle, nothing is written. All words of the packet must have fit.
    fits : In, 1 bit
        There is room for a word at ``place``. It remains until the packet is committed.

    """

    def __init__(self, depth: int):
        super().__init__({
            "place": Out(range(depth)),
            "word": Out(Packet(1)),
            "low": Out(1),
            "high": Out(1),
            "commit": Out(1),
            "fits": In(1),
        })


class PacketFifo(wiring.Component):
    """A queue in memory, into which packets are written in any order of their words.

    Latency: 2 cycles from ``commit`` to the first beat at ``o``. Throughput: one word per cycle.

    Parameters
    ----------
    depth : words, a power of 2

    Members
    -------
    i : In, signature :class:`PacketWriter`
    o : Out, stream of :class:`.Packet`
        The words of the packets, as written. They cannot be recognised as packets unless a word has ``last``.

    """

    def __init__(self, depth: int):
        check_depth(depth)
        self.depth = depth
        super().__init__({"i": In(PacketWriter(depth)), "o": Out(stream.Signature(Packet(1)))})

    def elaborate(self, platform):
        m = Module()
        # A word is never read in the cycle in which it is written.
        m.submodules.memory = memory = Memory(shape=36, depth=self.depth, init=[], attrs={"no_rw_check": 1})
        write, read = memory.write_port(granularity=18), memory.read_port(domain="comb")
        bits = len(write.addr) + 1
        begin = Signal(bits)  # of the packet that is being written
        target = Signal(bits)
        ahead = Signal(bits)  # distance from the next word to be read
        fetched = Signal(bits)
        held = Signal(36, reset_less=True)  # the output register of the memory
        more = Signal()
        word, out = self.i.word, self.o.payload
        m.d.comb += [
            target.eq(begin + self.i.place),
            ahead.eq(target - fetched),
            self.i.fits.eq(~ahead[-1]),
            write.addr.eq(target),
            write.data.eq(Cat(word.data[:16], word.octets[:2], word.data[16:], word.octets[2], word.last)),
            write.en.eq(Cat(self.i.low, self.i.high) & self.i.fits.replicate(2)),
            read.addr.eq(fetched),
            more.eq(fetched != begin),
            Value.cast(out).eq(Cat(held[:16], held[18:34], held[16:18], held[34:])),
        ]
        with m.If(self.i.commit):
            m.d.sync += begin.eq(target)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [self.o.valid.eq(more), fetched.eq(fetched + more)]
            with m.If(more):
                m.d.sync += held.eq(read.data)
        return m
