"""Reads the header of each segment, and writes what the program needs of it to the sequencer."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.sequencer.isa import HEADER
from open_rnic.rtl.tcp.options import OptionParser
from open_rnic.rtl.tcp.words import SegmentBit, segment

__all__ = ["Loader"]

SMALLEST = 5  # words of a header


class Loader(wiring.Component):
    """Writes the words ``segment`` of :mod:`.words` for each segment, then lets its payload pass.

    The word ``mss`` is written for a SYN alone. A segment whose data offset is wrong is discarded. There are two pages
    of words: while the program works on one, the next segment is read, unless the first has a payload, which must pass
    before.

    Members
    -------
    i : In, stream of :class:`.Packet` with ``source`` (32 bits) and ``length`` (16 bits), valid on the first beat
    give, place, given, given_ready
        As in :class:`.Sequencer`, with the opposite directions.
    loaded : Out, 1 bit
        The words of a segment are in ``page``.
    page : Out, 1 bit
    look : Out, 1 bit
        Look up the connection with ``source`` and ``ports``.
    source, ports : Out, 32 bits
        Of the segment that is read. ``ports`` has the port of this end in its upper half.
    go : In, 1 bit
        The program begins to work on the segment. Only while ``loaded``.
    o : Out, :class:`.Packet`
        The payload. The first beat may be taken only after ``go``.
    has_payload : Out, 1 bit
        A payload waits or passes.
    """

    def __init__(self):
        super().__init__({
            "i": In(packet(1, source=32, length=16)),
            "give": Out(1), "place": Out(7), "given": Out(32), "given_ready": In(1),
            "loaded": Out(1), "page": Out(1), "look": Out(1), "source": Out(32), "ports": Out(32), "go": In(1),
            "o": Out(packet(1)), "has_payload": Out(1),
        })  # fmt: skip
        # The segment that is read.
        self._header = Signal(4)  # words of the header
        self._total = Signal(16)  # octets of the segment
        self._at = Signal(4)  # number of the current word
        self._lane = Signal(2)  # number of the current octet in it
        self._flags = Signal(6)
        self._ended = Signal()  # it ended with its header

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = OptionParser()
        beat = self.i.payload
        word = Signal(32)
        m.d.comb += [
            word.eq(swap_octets(beat.data)),
            parser.room.eq(Cat(0, 0, self._header - SMALLEST)),
            self.o.payload.eq(Cat(beat.data, beat.octets, beat.last)),
        ]
        with m.FSM():
            self._addresses(m, word)
            self._fixed_words(m, word)
            self._urgent(m, parser)
            self._options(m, parser)
            self._payload(m)
        return m

    def _give(self, m, place, value):
        m.d.comb += [self.give.eq(1), self.given.eq(value)]
        m.d.comb += self.place.eq(place.code - HEADER.start | self.page << 6)

    def _addresses(self, m, word):
        """The source's address, which comes beside the first word, and the ports."""
        beat = self.i.payload
        with m.State("Source"):
            m.d.sync += [self._total.eq(beat.length), self.source.eq(beat.source)]
            m.d.sync += [self._at.eq(0), self._header.eq(SMALLEST)]
            with m.If(self.i.valid):
                self._give(m, segment.source, beat.source)
                with m.If(self.given_ready):
                    m.next = "Ports"
        with m.State("Ports"):
            ports = Cat(word[16:], word[:16])
            self._give(m, segment.ports, ports)
            m.d.sync += self.ports.eq(ports)
            with m.If(self.given_ready):
                m.d.comb += self.i.ready.eq(1)
                m.next = "Seq"

    def _fixed_words(self, m, word):
        """SEG.SEQ, SEG.ACK, and the word of the flags, the data offset and the window (RFC 9293 §3.1)."""
        for name, place, value, following in (
            ("Seq", segment.seq, word, "Ack"),
            ("Ack", segment.ack, word, "Control"),
            ("Control", segment.window, word[:16], "Urgent"),
        ):
            with m.State(name):
                if name == "Seq":
                    m.d.comb += self.look.eq(1)
                if name == "Control":
                    m.d.sync += [self._flags.eq(word[16:22]), self._header.eq(word[28:])]
                with m.If(self.i.valid):
                    self._give(m, place, value)
                    with m.If(self.given_ready):
                        m.d.comb += self.i.ready.eq(1)
                        m.next = following

    def _urgent(self, m, parser):
        """The last fixed word: the checksum has been checked; the urgent pointer is ignored."""
        with m.State("Urgent"):
            m.d.comb += parser.start.eq(1)
            m.d.sync += [self._at.eq(SMALLEST), self._lane.eq(0), self._ended.eq(self.i.payload.last)]
            with m.If(self.i.valid):
                m.d.comb += self.i.ready.eq(1)
                m.next = "Length"
                with m.If((self._header < SMALLEST) | (Cat(0, 0, self._header) > self._total)):
                    m.next = "Discard"

    def _options(self, m, parser):
        """The words that need the options. Only a SYN has some that count: those of others take a cycle a word."""
        beat = self.i.payload
        length = Signal(16)  # of the payload
        syn = Signal()
        m.d.comb += [
            syn.eq(self._flags[SegmentBit.SYN.bit_length() - 1]),
            length.eq(self._total - Cat(0, 0, self._header)),
            parser.octet.eq(beat.data.word_select(self._lane, 8)),
        ]
        with m.State("Length"):
            self._give(m, segment.length, length)
            with m.If(self.given_ready):
                m.next = "Options"
                with m.If(self._at == self._header):
                    m.next = "Flags"
        with m.State("Options"):
            with m.If(self._at == self._header):
                m.next = "Flags"
            with m.Elif(self.i.valid):
                m.d.comb += parser.valid.eq(1)
                m.d.sync += self._lane.eq(self._lane + 1)
                with m.If((self._lane == 3) | ~syn):
                    m.d.comb += self.i.ready.eq(1)
                    m.d.sync += [self._at.eq(self._at + 1), self._lane.eq(0), self._ended.eq(beat.last)]
        with m.State("Flags"):
            self._give(m, segment.flags, Cat(self._flags, parser.sack_permitted))
            with m.If(self.given_ready):
                m.next = "Loaded"
                with m.If(syn):
                    m.next = "Mss"
        with m.State("Mss"):
            self._give(m, segment.mss, parser.mss)
            with m.If(self.given_ready):
                m.next = "Loaded"

    def _payload(self, m):
        """Let the payload pass once the program works on the segment; discard a segment with a wrong data offset."""
        last = self.i.payload.last
        with m.State("Loaded"):
            m.d.comb += self.loaded.eq(1)
            with m.If(self.go):
                m.d.sync += [self.page.eq(~self.page), self.has_payload.eq(~self._ended)]
                m.next = "Payload"
                with m.If(self._ended):
                    m.next = "Source"
        with m.State("Payload"):
            m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
            with m.If(self.i.valid & self.o.ready & last):
                m.d.sync += self.has_payload.eq(0)
                m.next = "Source"
        with m.State("Discard"):
            m.d.comb += self.i.ready.eq(~self._ended)
            with m.If(self._ended | (self.i.valid & last)):
                m.next = "Source"
