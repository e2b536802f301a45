"""A queue of frames between two clock domains."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.stream import check_depth
from open_rnic.rtl.mac.clock_exchange import Exchange
from open_rnic.rtl.mac.delivery import deliver

__all__ = ["FrameFifo"]


class FrameFifo(wiring.Component):
    """Stores frames in the domain ``write``, and delivers them in the domain ``read``, when they are there as a whole.

    A frame that is bad, or does not fit, is discarded as a whole. A frame has no pauses at ``o``, unless ``o.ready``
    makes them.

    With ``early``, a frame is delivered as soon as so many of its words have been stored. It must then not be ``bad``,
    and at ``o`` it may have pauses. If it is too long, the rest is cut off. It may be longer than the queue.

    Latency: 2 to 3 cycles of ``read`` after the other domain has been shown (:class:`.Exchange`) that the frame is
    there. Throughput: one word per cycle.

    Parameters
    ----------
    words : room for words, a power of 2
    longest : the most words of a frame; a longer one is discarded, and so is one of a single word. While there is no
        room for the next word, ``i`` is stalled. None: ``i`` is never stalled, and a frame without room is discarded.
    early : words of a frame, 2 or more, after which it is delivered; fewer than ``longest``, and at most ``words``.
        None: it is complete before

    Members
    -------
    i : In, stream of :class:`.Packet`; in the domain ``write``
    bad : In, 1 bit; in the domain ``write``
        With the last beat of a frame: discard the frame.
    committed : Out, 1 bit; in the domain ``write``
        Pulses when a frame has been stored.
    dropped : Out, 1 bit; in the domain ``write``
        Pulses when a frame has been discarded, unless it was ``bad``.
    o : Out, stream of :class:`.Packet`; in the domain ``read``
    frozen : In, 1 bit; in the domain ``read``
        Deliver the frames of which this side knows, and no others.
    empty : Out, 1 bit; in the domain ``read``
        All frames of which this side knows have been delivered.

    """

    def __init__(self, words: int, *, longest: int | None = None, early: int | None = None):
        check_depth(words)
        if longest is not None and early is None and not 1 < longest <= words:
            raise ValueError(f"longest must be 2 to {words} words, not {longest!r}")
        if early is not None and (longest is None or not 1 < early < longest or early > words):
            raise ValueError(f"early must be 2 to {words} words, and fewer than longest, not {early!r}")
        self.words = words
        self.longest = longest
        self.early = early
        super().__init__({
            "i": In(stream.Signature(Packet(1))),
            "bad": In(1),
            "committed": Out(1),
            "dropped": Out(1),
            "o": Out(stream.Signature(Packet(1))),
            "frozen": In(1),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Packet(1), depth=self.words, init=[])
        write, read = memory.write_port(domain="write"), memory.read_port(domain="read")
        bits = self.words.bit_length()  # one more than an address has: pointers differ if the queue is full
        m.submodules.exchange = exchange = Exchange(bits)

        tail = Signal(bits)
        begin = Signal(bits)  # of the frame that is being written
        lost = Signal()  # the frame is to be discarded
        misfits = Signal()  # the frame cannot be stored
        taken = Signal()
        cut = Signal()  # the frame, of which a part may have been read, ends before this word
        after = Signal(bits)
        m.d.comb += [
            after.eq(tail + 1),
            taken.eq(self.i.valid & self.i.ready),
            write.addr.eq(tail),
            write.data.eq(self.i.payload),
            exchange.written.eq(begin),
        ]
        full = self._full(m, tail, exchange.read_seen, write.en)
        m.d.comb += write.en.eq(taken & ~lost & ~full & ~cut)
        if self.longest is None:
            m.d.comb += [self.i.ready.eq(1), misfits.eq(full)]
        else:
            stored = self._stored(m, taken, misfits)
            m.d.comb += [
                misfits.eq((stored == self.longest) | ((stored == 0) & self.i.payload.last)),
                self.i.ready.eq(~full | lost | misfits),
            ]
            if self.early is not None:
                with m.If((stored >= self.early) & ~lost):
                    m.d.comb += exchange.written.eq(tail)
                with m.If((stored == self.longest - 1) & ~self.i.payload.last):  # the frame ends here in any case
                    m.d.comb += [write.data.last.eq(1), write.data.octets.eq(4)]
                m.d.comb += cut.eq(taken & misfits & (stored != 0) & ~lost)
        with m.If(write.en):
            m.d.write += tail.eq(after)
        with m.If(taken):
            m.d.write += lost.eq(lost | misfits)
            with m.If(self.i.payload.last):
                m.d.comb += [
                    self.committed.eq(~lost & ~misfits & ~self.bad),
                    self.dropped.eq((lost | misfits) & ~self.bad),
                ]
                m.d.write += lost.eq(0)
                with m.If(self.committed):
                    m.d.write += begin.eq(after)
                with m.Elif(~cut):
                    m.d.write += tail.eq(begin)
        with m.If(cut):
            m.d.write += begin.eq(tail)

        head, empty = deliver(m, read, exchange.written_seen, self.o)
        m.d.comb += [exchange.read.eq(head), exchange.frozen.eq(self.frozen), self.empty.eq(empty)]
        return m

    def _full(self, m, tail, read_seen, writes):
        """Return whether there is no room for a word; this may stay 1 for some cycles too long."""
        limit = Signal.like(tail, init=self.words)  # where ``tail`` must stop
        before_limit = Signal.like(tail, init=self.words - 1)
        full = Signal()
        m.d.write += [
            limit.eq(read_seen ^ self.words),
            before_limit.eq((read_seen ^ self.words) - 1),
            full.eq((tail == limit) | (writes & (tail == before_limit))),
        ]
        return full

    def _stored(self, m, taken, misfits):
        """Return how many words of the frame have been stored."""
        stored = Signal(range(self.longest + 1))
        with m.If(taken & self.i.payload.last):
            m.d.write += stored.eq(0)
        with m.Elif(taken & ~misfits):
            m.d.write += stored.eq(stored + 1)
        return stored
