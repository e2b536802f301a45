"""Writes octets to a ring of words, and reads them, from any octet on."""

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.lib.rotate import rotate_lanes
from open_rnic.rtl.lib.stream import Fifo

__all__ = ["AheadReader", "PacketReader", "RingRead", "RingReader", "RingWriter"]


class RingRead(wiring.Signature):
    """An order to read octets of a connection's ring.

    Members
    -------
    start : Out, 1 bit
        Read; for one cycle.
    place : Out, 32 bits
        The number of the first octet.
    octets : Out, 16 bits
        Their number, at least 1.
    connection : Out
    """

    def __init__(self, index):
        super().__init__({"start": Out(1), "place": Out(32), "octets": Out(16), "connection": Out(index)})


class RingWriter(wiring.Component):
    """Writes beats of 4 octets to a ring of ``size`` octets, a power of 2, each octet where its number says.

    Throughput: a beat in every cycle; the last one takes a cycle more if it reaches into another word.

    Members
    -------
    start : In, 1 bit
        The next beat's octet 0 belongs to ``place``.
    place : In
        Number of an octet of the ring.
    valid : In, 1 bit
    data : In, 32 bits
    mask : In, 4 bits
        The octets of the beat that are written.
    last : In, 1 bit
        After this beat, the octets that wait are written.
    ready : Out, 1 bit
    address : Out
        A word of the ring.
    write : Out, 4 bits
        Its octets that are written.
    word : Out, 32 bits
    """

    def __init__(self, size: int):
        words = range(size // 4)
        super().__init__({
            "start": In(1), "place": In(range(size)),
            "valid": In(1), "data": In(32), "mask": In(4), "last": In(1), "ready": Out(1),
            "address": Out(words), "write": Out(4), "word": Out(32),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        shift = Signal(2)
        waiting = Signal(32, reset_less=True)  # octets of the last beat for the current word
        waiting_mask = Signal(4)
        flush = Signal()
        turned = rotate_lanes(m, self.data, shift, lane=8)
        turned_mask = Signal(4)
        above = Signal(4)  # octets that the current beat has for the current word
        m.d.comb += [
            turned_mask.eq(Cat(self.mask[(i - s) % 4] for s in range(4) for i in range(4)).word_select(shift, 4)),
            above.eq((0b1111 << shift)[:4]),
            self.ready.eq(~flush),
        ]
        for i in range(4):
            octet = slice(8 * i, 8 * i + 8)
            m.d.comb += self.word[octet].eq(Mux(above[i] & ~flush, turned[octet], waiting[octet]))
        with m.If(flush):
            m.d.comb += self.write.eq(waiting_mask)
            m.d.sync += [flush.eq(0), waiting_mask.eq(0)]
        with m.Elif(self.valid):
            m.d.comb += self.write.eq((turned_mask & above) | waiting_mask)
            m.d.sync += [
                waiting.eq(turned),
                waiting_mask.eq(turned_mask & ~above),
                flush.eq(self.last & (turned_mask & ~above).any()),
                self.address.eq(self.address + 1),
            ]
        with m.If(self.start):
            m.d.sync += [self.address.eq(self.place >> 2), shift.eq(self.place[:2]), waiting_mask.eq(0)]
        return m


class RingReader(wiring.Component):
    """Reads octets of a ring of ``size`` octets, a power of 2, as a packet.

    Latency: 3 cycles from ``start`` to the first beat. Throughput: a beat in every cycle.

    Members
    -------
    start : In, 1 bit
        Read ``length`` octets, at least 1, from ``place`` on. Only while ``busy`` is 0.
    place : In
        Number of an octet of the ring.
    length : In, 16 bits
    busy : Out, 1 bit
    address : Out
        A word of the ring.
    read : Out, 1 bit
        ``word`` is this word from the next cycle on, until the next one is read.
    word : In, 32 bits
    o : Out, stream of :class:`.Packet`
    """

    def __init__(self, size: int):
        super().__init__({
            "start": In(1), "place": In(range(size)), "length": In(16), "busy": Out(1),
            "address": Out(range(size // 4)), "read": Out(1), "word": In(32),
            "o": Out(packet(1)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        shift = Signal(2)
        left = Signal(16)  # octets that have not left
        before = Signal(32, reset_less=True)  # the word before ``word``
        have_word = Signal()
        have_both = Signal()
        advance = Signal()
        both = Signal(64)
        m.d.comb += [
            advance.eq(~have_both | self.o.ready),
            both.eq(Cat(before, self.word)),
            self.o.valid.eq(have_both),
            self.o.payload.data.eq(Cat(both[8 * s : 8 * s + 32] for s in range(4)).word_select(shift, 32)),
            self.o.payload.last.eq(left <= 4),
            self.o.payload.octets.eq(left),
            self.read.eq(advance),
        ]
        with m.If(self.busy & advance):
            m.d.sync += [self.address.eq(self.address + 1), have_word.eq(1), have_both.eq(have_word)]
            m.d.sync += before.eq(self.word)
        with m.If(have_both & self.o.ready):
            m.d.sync += left.eq(left - 4)
            with m.If(self.o.payload.last):
                m.d.sync += [self.busy.eq(0), have_word.eq(0), have_both.eq(0)]
        with m.If(self.start):
            m.d.sync += [
                self.busy.eq(1),
                self.address.eq(self.place >> 2),
                shift.eq(self.place[:2]),
                left.eq(self.length),
            ]
        return m


class PacketReader(wiring.Component):
    """Reads octets of a ring of ``size`` octets, a power of 2, as packets.

    Latency: 3 cycles. Throughput: a beat in every cycle, without a pause between packets; a packet whose octets reach
    into one word more than it has beats takes a cycle more.

    Members
    -------
    i : In, stream of ``place``, ``length`` (16 bits) and ``tag``
        Read ``length`` octets, at least 1, from ``place``, the number of an octet of the ring, on.
    address : Out
        A word of the ring.
    read : Out, 1 bit
        ``word`` is this word from the next cycle on, until the next one is read.
    word : In, 32 bits
    tag : Out
        That of the word's packet.
    o : Out, stream of :class:`.Packet` with ``tag``
    """

    def __init__(self, size: int, tag: ShapeLike = 0):
        super().__init__({
            "i": In(stream.Signature(_Asked(size, tag))),
            "address": Out(range(size // 4)), "read": Out(1), "word": In(32), "tag": Out(tag),
            "o": Out(packet(1, tag=tag)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        advance = Signal()  # all stages go on
        m.d.comb += [advance.eq(~self.o.valid | self.o.ready), self.read.eq(advance)]
        _, asks = self._ask(m, advance, self.address, self.tag)

        # The word that memory returns begins a beat; a cycle later, the word behind it is there, too.
        returned, beat = (Signal(_Beat(self.tag.shape()), name=name) for name in ("returned", "beat"))
        before = Signal(32, reset_less=True)
        with m.If(advance):
            m.d.sync += [returned.eq(asks), beat.eq(returned), before.eq(self.word)]
        m.d.comb += self.o.valid.eq(beat.valid)
        self._give(m, beat, before, self.word)
        return m

    def _ask(self, m, advance, address, tag):
        """Go on to the next word of a packet as it may ``advance``; return whether there is one, and its beat."""
        asked = self.i.payload
        busy = Signal()
        shift = Signal(2)  # the place in a word of the packet's octet 0, and so of each beat's
        left = Signal(signed(17))  # from the word's beat on; negative: the word has the rest of the last beat only
        ends = Signal()  # it is the packet's last word
        m.d.comb += [ends.eq(left + shift <= 4), self.i.ready.eq(advance & (~busy | ends))]
        with m.If(advance):
            m.d.sync += [address.eq(address + 1), left.eq(left - 4)]
            with m.If(~busy | ends):
                m.d.sync += [
                    busy.eq(self.i.valid),
                    address.eq(asked.place >> 2),
                    shift.eq(asked.place[:2]),
                    left.eq(asked.length),
                    tag.eq(asked.tag),
                ]
        asks = Signal(_Beat(asked.tag.shape()))
        m.d.comb += [
            asks.valid.eq(busy & (left > 0)),
            asks.shift.eq(shift),
            asks.last.eq(left <= 4),
            asks.octets.eq(left),
            asks.tag.eq(tag),
        ]
        return busy, asks

    def _give(self, m, beat, before, word):
        """Output a beat, which begins in the word ``before``."""
        both = Signal(64)
        m.d.comb += [
            both.eq(Cat(before, word)),
            self.o.payload.data.eq(Cat(both[8 * s : 8 * s + 32] for s in range(4)).word_select(beat.shift, 32)),
            *(self.o.payload[name].eq(beat[name]) for name in ("last", "octets", "tag")),
        ]


class AheadReader(PacketReader):
    """A :class:`PacketReader` for a memory that takes its time.

    Up to ``ahead`` words have been asked for and not used. There is a place for each of them, so that they are always
    taken. A word with ``fault`` and all that follow it are not used: nothing leaves any more.

    Latency: 3 cycles, and those of the memory. Throughput: that of the memory, up to a beat in every cycle, if its
    latency is less than ``ahead`` - 1 cycles; a packet whose octets reach into one word more than it has beats takes a
    cycle more.

    Parameters
    ----------
    size, tag
        See :class:`PacketReader`.
    ahead : a power of 2, at least 2

    Members
    -------
    i, o
        See :class:`PacketReader`.
    read : Out, stream of ``address`` and ``tag``
        Words of the ring to read, with the tag of their packet.
    words : In, stream of 32 bits
        The words, in the order of the reads. ``words.ready`` is always 1.
    fault : In, 1 bit
        With a word: it could not be read.
    failed : Out, 1 bit
        A word could not be read, since the reset.
    idle : Out, 1 bit
        No word is on its way.

    """

    def __init__(self, size: int, tag: ShapeLike = 0, *, ahead: int):
        self.ahead = ahead
        wiring.Component.__init__(self, {
            "i": In(stream.Signature(_Asked(size, tag))),
            "read": Out(stream.Signature(data.StructLayout({"address": range(size // 4), "tag": tag}))),
            "words": In(stream.Signature(32)), "fault": In(1),
            "failed": Out(1), "idle": Out(1),
            "o": Out(packet(1, tag=tag)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        word = self.read.payload
        m.submodules.due = due = Fifo(_Beat(word.tag.shape()), self.ahead)  # of words that have been asked for
        m.submodules.there = there = Fifo(32, self.ahead)  # words that have come: as many as are due, at most
        advance = Signal()
        busy, asks = self._ask(m, advance, word.address, word.tag)
        m.d.comb += [
            self.read.valid.eq(busy & due.i.ready),
            advance.eq(~busy | (self.read.ready & due.i.ready)),
            due.i.valid.eq(busy & self.read.ready),
            due.i.payload.eq(asks),
            self.words.ready.eq(1),
            there.i.valid.eq(self.words.valid & ~self.fault & ~self.failed),
            there.i.payload.eq(self.words.payload),
        ]
        m.d.sync += self.failed.eq(self.failed | (self.words.valid & self.fault))

        beat = Signal(_Beat(word.tag.shape()))
        before = Signal(32, reset_less=True)
        reaches = Signal()  # the beat reaches into the word behind ``before``
        moves = Signal()
        steps = Signal()  # a word takes the place of the one before
        m.d.comb += [
            reaches.eq(beat.shift + Mux(beat.last, beat.octets, 4) > 4),
            self.o.valid.eq(beat.valid & (~reaches | there.o.valid)),
            moves.eq(self.o.valid & self.o.ready),
            steps.eq(there.o.valid & (~beat.valid | moves)),
            there.o.ready.eq(steps),
            due.o.ready.eq(steps),
            self.idle.eq(~busy & ~due.o.valid & ~beat.valid),
        ]
        with m.If(steps):
            m.d.sync += [beat.eq(due.o.payload), before.eq(there.o.payload)]
        with m.Elif(moves):
            m.d.sync += beat.valid.eq(0)
        self._give(m, beat, before, there.o.payload)
        return m


class _Asked(data.StructLayout):
    """A packet to read."""

    def __init__(self, size: int, tag: ShapeLike):
        super().__init__({"place": range(size), "length": 16, "tag": tag})


class _Beat(data.StructLayout):
    """A beat of a packet, without its data, which begin in octet ``shift`` of a word."""

    def __init__(self, tag: ShapeLike):
        super().__init__({"valid": 1, "shift": 2, "last": 1, "octets": 3, "tag": tag})
