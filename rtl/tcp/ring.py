"""Writes octets to a ring of words, and reads them, from any octet on."""

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import packet
from open_rnic.rtl.lib.rotate import rotate_lanes

__all__ = ["PacketReader", "RingReader", "RingWriter"]


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
            "i": In(stream.Signature(data.StructLayout({"place": range(size), "length": 16, "tag": tag}))),
            "address": Out(range(size // 4)), "read": Out(1), "word": In(32), "tag": Out(tag),
            "o": Out(packet(1, tag=tag)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        asked = self.i.payload
        advance = Signal()  # all stages go on
        m.d.comb += [advance.eq(~self.o.valid | self.o.ready), self.read.eq(advance)]

        # The word that is asked for: of a packet that has ``left`` octets from its octet 0 on.
        busy = Signal()
        shift = Signal(2)  # the place in a word of the packet's octet 0, and so of each beat's
        left = Signal(signed(17))  # negative: the word has the rest of the last beat only
        ends = Signal()  # it is the packet's last word
        m.d.comb += [ends.eq(left + shift <= 4), self.i.ready.eq(advance & (~busy | ends))]
        with m.If(advance):
            m.d.sync += [self.address.eq(self.address + 1), left.eq(left - 4)]
            with m.If(~busy | ends):
                m.d.sync += [
                    busy.eq(self.i.valid),
                    self.address.eq(asked.place >> 2),
                    shift.eq(asked.place[:2]),
                    left.eq(asked.length),
                    self.tag.eq(asked.tag),
                ]

        # The word that memory returns begins a beat; a cycle later, the word behind it is there, too.
        returned, beat = (Signal(_Beat(self.tag.shape()), name=name) for name in ("returned", "beat"))
        before = Signal(32, reset_less=True)
        both = Signal(64)
        with m.If(advance):
            m.d.sync += [
                returned.valid.eq(busy & (left > 0)),
                returned.shift.eq(shift),
                returned.last.eq(left <= 4),
                returned.octets.eq(left),
                returned.tag.eq(self.tag),
                beat.eq(returned),
                before.eq(self.word),
            ]
        m.d.comb += [
            both.eq(Cat(before, self.word)),
            self.o.valid.eq(beat.valid),
            self.o.payload.data.eq(Cat(both[8 * s : 8 * s + 32] for s in range(4)).word_select(beat.shift, 32)),
            *(self.o.payload[name].eq(beat[name]) for name in ("last", "octets", "tag")),
        ]
        return m


class _Beat(data.StructLayout):
    """A beat of a packet, without its data, which begin in octet ``shift`` of a word."""

    def __init__(self, tag: ShapeLike):
        super().__init__({"valid": 1, "shift": 2, "last": 1, "octets": 3, "tag": tag})
