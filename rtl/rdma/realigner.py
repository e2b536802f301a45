"""Moves octets to another position in their words."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import rotate_lanes

__all__ = ["Piece", "Realigner", "Turned", "Word"]


class Piece(data.StructLayout):
    """Some octets of a run, from one word.

    Members
    -------
    data : 32 * ``lanes`` bits
    start : range(4 * ``lanes``)
        The first of the octets in ``data``.
    count : range(4 * ``lanes`` + 1)
        Their number; 0 only in a run of no octets.
    first, last : 1 bit
        The run begins, or ends, with these octets.
    at : range(4 * ``lanes``)
        With ``first``, the position of the run's first octet in its word.
    note : ``note``
        With ``first``, a note on the run.
    """

    def __init__(self, lanes: int, note):
        check_lanes(lanes)
        octets = 4 * lanes
        super().__init__({
            "data": 32 * lanes, "start": range(octets), "count": range(octets + 1), "first": 1, "last": 1,
            "at": range(octets), "note": note,
        })  # fmt: skip


class Word(data.StructLayout):
    """A word of a run.

    Members
    -------
    data : 32 * ``lanes`` bits
    mask : 4 * ``lanes`` bits
        The octets of the run: those in front of it and behind it are not set.
    octets : range(4 * ``lanes`` + 1)
        With ``last``, the end of the run: the number of octets of the word up to it.
    first, last : 1 bit
        The run begins, or ends, in this word.
    note : ``note``
    """

    def __init__(self, lanes: int, note):
        check_lanes(lanes)
        octets = 4 * lanes
        super().__init__({
            "data": 32 * lanes, "mask": octets, "octets": range(octets + 1), "first": 1, "last": 1, "note": note,
        })  # fmt: skip


class Turned(data.StructLayout):
    """A piece that has been rotated to its place.

    ``here`` and ``beyond`` mark its octets in this word and in the next one. ``fills``: it completes the word;
    ``runs_over``: it goes on in the next one; ``ends``: the run ends with it, behind ``end`` octets of its last word.
    """

    def __init__(self, lanes: int):
        octets = 4 * lanes
        super().__init__({
            "data": 32 * lanes, "here": octets, "beyond": octets, "fills": 1, "runs_over": 1, "ends": 1,
            "end": range(octets + 1),
        })  # fmt: skip


class Realigner(wiring.Component):
    """Makes words of runs of octets that come in pieces.

    For example, with words of 4 octets a run of 5 octets that begins at position 3 comes as pieces of 2, 2 and 1
    octets; it leaves as words with the masks 1000 and 1111 (octet 3 first).

    Latency: 3 cycles. Throughput: a piece, or a word, per cycle: a run takes a cycle more if its last piece ends in
    another word than it begins in. It stalls as a whole while ``o.ready`` is 0.

    Members
    -------
    i : In, stream of :class:`Piece`
    o : Out, stream of :class:`Word`
    busy : Out, 1 bit
        Octets are inside.
    moving : Out, 1 bit
        Some of them will leave even if no piece comes.
    forgets : In, 1 bit
        The run ends here: its octets that have not left are forgotten. Only if ``abandons``, while not ``moving``.
    """

    def __init__(self, lanes: int, note, *, abandons: bool = False):
        self.lanes = lanes
        self.abandons = abandons
        super().__init__({
            "i": In(stream.Signature(Piece(lanes, note))), "o": Out(stream.Signature(Word(lanes, note))),
            "busy": Out(1), "moving": Out(1), **({"forgets": In(1)} if abandons else {}),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        step = Signal()  # the output is free
        twice = Signal()  # the piece ends the run in another word than it begins in
        tail = Signal()  # that word is next
        turned = Signal(Turned(self.lanes), reset_less=True)
        turned_valid = Signal()
        kept = Signal(32 * self.lanes, reset_less=True)
        has = Signal(4 * self.lanes)  # the octets of ``kept``
        leaves = Signal()  # a word does
        m.d.comb += [
            step.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(step & (tail | ~twice)),
            twice.eq(turned_valid & turned.ends & turned.runs_over),
            leaves.eq(turned_valid & (turned.fills | turned.ends)),
            self.moving.eq(turned_valid | self.o.valid),
            self.busy.eq(self.moving | has.any()),
        ]
        note = self._rotate(m, turned, turned_valid)
        begun = self._merge(m, turned, note, step, leaves, twice, tail, kept, has)
        with m.If(step):
            with m.If(tail):
                m.d.sync += has.eq(0)
            with m.Elif(turned_valid):
                m.d.sync += has.eq(Mux(turned.fills, turned.beyond, Mux(turned.ends, 0, has | turned.here)))
                for n in range(len(has)):
                    with m.If(turned.fills | ~has[n]):
                        m.d.sync += kept.word_select(n, 8).eq(turned.data.word_select(n, 8))
        if self.abandons:
            with m.If(self.forgets):
                m.d.sync += [has.eq(0), begun.eq(0)]
        return m

    def _rotate(self, m, turned, turned_valid):
        """Stage 1: rotate a piece to its place in the word; return the note on its run."""
        octets = 4 * self.lanes
        piece = self.i.payload
        next_place = Signal(range(octets))
        place = Signal(range(octets))
        end = Signal(range(2 * octets))
        m.d.comb += [
            place.eq(Mux(piece.first, piece.at, next_place)),
            end.eq(place + piece.count),
        ]
        rotated = rotate_lanes(m, piece.data, (place - piece.start)[: len(place)], lane=8)
        note = Signal(piece.note.shape() if hasattr(piece.note, "shape") else len(piece.note), reset_less=True)
        with m.If(self.i.ready):
            m.d.sync += [
                turned_valid.eq(self.i.valid),
                turned.data.eq(rotated),
                turned.here.eq(Cat((n >= place) & (n < end) for n in range(octets))),
                turned.beyond.eq(Cat(n + octets < end for n in range(octets))),
                turned.fills.eq(end >= octets),
                turned.runs_over.eq(end > octets),
                turned.ends.eq(piece.last),
                turned.end.eq(Mux(end > octets, end - octets, end)),
            ]
            with m.If(self.i.valid):
                m.d.sync += next_place.eq(end)
                with m.If(piece.first):
                    m.d.sync += note.eq(piece.note)
        return note

    def _merge(self, m, turned, note, step, leaves, twice, tail, kept, has):
        """Stage 2: merge it with what is kept of the pieces before; return whether a word of the run has left."""
        begun = Signal()
        out = Signal.like(self.o.payload)
        m.d.comb += [
            out.data.eq(Cat(
                Mux(has[n], kept.word_select(n, 8), turned.data.word_select(n, 8)) for n in range(len(has))
            )),
            out.mask.eq(has | Mux(tail, 0, turned.here)),
            out.octets.eq(turned.end),
            out.first.eq(~begun),
            out.last.eq(tail | (turned.ends & ~turned.runs_over)),
            out.note.eq(note),
        ]  # fmt: skip
        with m.If(step):
            m.d.sync += [self.o.valid.eq(leaves), self.o.payload.eq(out), tail.eq(twice & ~tail)]
            with m.If(leaves):
                m.d.sync += begun.eq(~out.last)
        return begun
