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

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = OptionParser()
        beat = self.i.payload
        word = Signal(32)
        total = Signal(16)
        header = Signal(4)  # words of the header
        length = Signal(16)  # of the payload
        at = Signal(4)  # number of the current word
        flags = Signal(6)
        lane = Signal(2)
        syn = Signal()
        ended = Signal()  # the segment ended with its header
        m.d.comb += [
            syn.eq(flags[SegmentBit.SYN.bit_length() - 1]),
            word.eq(swap_octets(beat.data)),
            length.eq(total - Cat(0, 0, header)),
            parser.octet.eq(beat.data.word_select(lane, 8)),
            parser.room.eq(Cat(0, 0, header - SMALLEST)),
            self.o.payload.eq(Cat(beat.data, beat.octets, beat.last)),
        ]

        def give(place, value):
            m.d.comb += [self.give.eq(1), self.given.eq(value)]
            m.d.comb += self.place.eq(place.code - HEADER.start | self.page << 6)

        with m.FSM():
            with m.State("Source"):
                m.d.sync += [total.eq(beat.length), self.source.eq(beat.source), at.eq(0), header.eq(SMALLEST)]
                with m.If(self.i.valid):
                    give(segment.source, beat.source)
                    with m.If(self.given_ready):
                        m.next = "Ports"
            with m.State("Ports"):
                give(segment.ports, Cat(word[16:], word[:16]))
                m.d.sync += [self.ports.eq(Cat(word[16:], word[:16]))]
                with m.If(self.given_ready):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "Seq"
            for name, place, following in (("Seq", segment.seq, "Ack"), ("Ack", segment.ack, "Control")):
                with m.State(name):
                    m.d.comb += self.look.eq(name == "Seq")
                    with m.If(self.i.valid):
                        give(place, word)
                        with m.If(self.given_ready):
                            m.d.comb += self.i.ready.eq(1)
                            m.next = following
            with m.State("Control"):
                m.d.sync += [flags.eq(word[16:22]), header.eq(word[28:])]
                with m.If(self.i.valid):
                    give(segment.window, word[:16])
                    with m.If(self.given_ready):
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "Urgent"
            with m.State("Urgent"):  # the checksum has been checked; the urgent pointer is ignored
                m.d.comb += parser.start.eq(1)
                m.d.sync += [at.eq(SMALLEST), lane.eq(0), ended.eq(beat.last)]
                with m.If(self.i.valid):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "Length"
                    with m.If((header < SMALLEST) | (Cat(0, 0, header) > total)):
                        m.next = "Discard"
            with m.State("Length"):
                give(segment.length, length)
                with m.If(self.given_ready):
                    m.next = "Options"
                    with m.If(at == header):
                        m.next = "Flags"
            with m.State("Options"):
                with m.If(at == header):
                    m.next = "Flags"
                with m.Elif(self.i.valid):
                    # Only a SYN has options that count, so that those of other segments take a cycle a word.
                    m.d.comb += parser.valid.eq(1)
                    m.d.sync += lane.eq(lane + 1)
                    with m.If((lane == 3) | ~syn):
                        m.d.comb += self.i.ready.eq(1)
                        m.d.sync += [at.eq(at + 1), lane.eq(0), ended.eq(beat.last)]
            with m.State("Flags"):
                give(segment.flags, Cat(flags, parser.sack_permitted))
                with m.If(self.given_ready):
                    m.next = "Loaded"
                    with m.If(syn):
                        m.next = "Mss"
            with m.State("Mss"):
                give(segment.mss, parser.mss)
                with m.If(self.given_ready):
                    m.next = "Loaded"
            with m.State("Loaded"):
                m.d.comb += self.loaded.eq(1)
                with m.If(self.go):
                    m.d.sync += [self.page.eq(~self.page), self.has_payload.eq(~ended)]
                    m.next = "Payload"
                    with m.If(ended):
                        m.next = "Source"
            with m.State("Payload"):
                m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
                with m.If(self.i.valid & self.o.ready & beat.last):
                    m.d.sync += self.has_payload.eq(0)
                    m.next = "Source"
            with m.State("Discard"):
                m.d.comb += self.i.ready.eq(~ended)
                with m.If(ended | (self.i.valid & beat.last)):
                    m.next = "Source"
        return m
