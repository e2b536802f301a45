"""A queue through which frames pass from one clock domain to another while they arrive."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.stream import check_depth
from open_rnic.rtl.mac.clock_exchange import Exchange
from open_rnic.rtl.mac.delivery import deliver
from open_rnic.rtl.net.layouts import Frame

__all__ = ["Arrivals"]


class Arrivals(wiring.Component):
    """Takes the words of frames in the domain ``write``, and delivers them in the domain ``read``.

    The last beat of a frame says whether it is bad. A frame for whose first word there is no room is discarded; one
    that has begun ends with a bad beat instead of a word for which there is none, and also when ``frozen``.

    Latency: 2 to 3 cycles of ``read`` after the other domain has been shown (:class:`.Exchange`) a word. Throughput:
    one word per cycle.

    Parameters
    ----------
    words : room for words, a power of 2, at least 4

    Members
    -------
    i : In, stream of :class:`.Packet`; in the domain ``write``
        ``ready`` is always 1.
    bad, committed, dropped, frozen, empty
        See :class:`.FrameFifo`; a frame that ends too early is ``dropped``.
    o : Out, stream of :class:`.Frame`; in the domain ``read``

    """

    def __init__(self, words: int):
        check_depth(words)
        if words < 4:
            raise ValueError(f"words must be at least 4, not {words!r}")
        self.words = words
        super().__init__({
            "i": In(stream.Signature(Packet(1))), "bad": In(1), "committed": Out(1), "dropped": Out(1),
            "o": Out(stream.Signature(Frame())), "frozen": In(1), "empty": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Frame(), depth=self.words, init=[])
        write, read = memory.write_port(domain="write"), memory.read_port(domain="read")
        bits = self.words.bit_length()  # one more than an address has: pointers differ if the queue is full
        m.submodules.exchange = exchange = Exchange(bits)

        tail = Signal(bits)
        inside = Signal()  # a word of the frame is stored, and a place is free behind it
        roomy = Signal()  # so may this word be; may stay 0 for some cycles too long
        lost = Signal()  # the rest of the frame is discarded
        stores = Signal()
        cut = Signal()
        ends = self.i.valid & self.i.payload.last
        m.d.comb += [
            self.i.ready.eq(1),
            stores.eq(self.i.valid & ~lost & (roomy | inside)),
            cut.eq(stores & ~roomy & ~self.i.payload.last),
            write.addr.eq(tail),
            write.data.eq(self.i.payload.as_value()),
            write.en.eq(stores),
            exchange.written.eq(tail),
            self.committed.eq(ends & stores & ~self.bad),
            self.dropped.eq(ends & ~stores & ~self.bad),
        ]
        with m.If(self.i.payload.last):
            m.d.comb += write.data.bad.eq(self.bad)
        with m.If(cut):
            m.d.comb += [write.data.last.eq(1), write.data.bad.eq(1)]
        m.d.write += [
            tail.eq(tail + stores),
            roomy.eq(((exchange.read_seen ^ self.words) - tail)[:bits] > 2),  # if this cycle takes a place, too
        ]
        with m.If(self.i.valid):
            m.d.write += [
                lost.eq(~self.i.payload.last & (lost | cut | ~stores)),
                inside.eq(~self.i.payload.last & stores & ~cut),
            ]

        words = stream.Signature(Frame()).create()
        head, empty = deliver(m, read, exchange.written_seen, words)
        begun = Signal()  # the frame at ``o`` has not ended
        breaks = Signal()
        m.d.comb += [
            exchange.read.eq(head),
            exchange.frozen.eq(self.frozen),
            breaks.eq(self.frozen & empty & begun),
            self.empty.eq(empty & ~begun),
            self.o.valid.eq(words.valid | breaks),
            self.o.payload.eq(words.payload),
            words.ready.eq(self.o.ready),
        ]
        with m.If(breaks):
            m.d.comb += [self.o.payload.octets.eq(4), self.o.payload.last.eq(1), self.o.payload.bad.eq(1)]
        with m.If(self.o.valid & self.o.ready):
            m.d.read += begun.eq(~self.o.payload.last)
        return m
