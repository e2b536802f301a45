"""The RDMA engine accesses memory only where it may (rtl/rdma; RFC 5040 §5, §8; RFC 5041 §5, §8)."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Cat, Mux, Signal

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import kept
from open_rnic.rtl.rdma.realigner import Realigner

_RUN = 18  # bits of a position in a run: a run has the octets of a ULPDU, less than 2^16


@proves(
    "the octets of a run leave unchanged, at their places in its words, and the masks of these words have no others",
    lambda lanes: Realigner(lanes, 1),
    Mutant("an octet behind the run is written", Realigner, "(n >= place) & (n < end)", "(n >= place) & (n <= end)"),
    Mutant("the octets in front of the run are written", Realigner, "(n >= place) & (n < end)", "n < end"),
    Mutant("the next piece overwrites the last word", Realigner, "step & (tail | ~twice)", "step"),
    Mutant("octets of the run before are written", Realigner, "m.d.sync += has.eq(0)", "pass"),
    Mutant("octets in the last word are not seen to be inside", Realigner, "| has.any() | self.o.valid", "| has.any()"),
    name="words",
    of="Realigner",
    reach=12,
)
def _(m, realigner):
    octets = 4 * realigner.lanes
    i, o = realigner.i, realigner.o
    piece, word = i.payload, o.payload
    enters, leaves = i.valid & i.ready, o.valid & o.ready
    inside = Signal()  # a run has begun at the input, and not ended
    m.given(kept(m, i))
    m.given(~i.valid | (piece.first == ~inside))
    m.given(~i.valid | ((piece.count <= octets - piece.start) & ((piece.count != 0) | (piece.first & piece.last))))
    with m.If(enters):
        m.d.sync += inside.eq(~piece.last)
    runs = Signal(2)  # that have begun at the input, and not ended at the output
    m.d.sync += runs.eq(runs + (enters & piece.first) - (leaves & word.last))

    # Any one run, and any one bit of one of its octets. Positions are counted from the beginning of its first word.
    # It is ``behind`` the last word of another run, or ``over`` at the input.
    watched, behind, over = Signal(), Signal(), Signal()
    at, fed, out, note = Signal(range(octets)), Signal(_RUN), Signal(_RUN), Signal()
    place, seen, bit = Signal(_RUN), Signal(), Signal()
    m.d.comb += place.eq(AnyConst(_RUN))
    begins = Signal()
    of_run = Signal()
    start = Signal(_RUN)
    m.d.comb += [
        begins.eq(enters & piece.first & ~watched & AnySeq(1)),
        of_run.eq(begins | (enters & watched & ~over)),
        start.eq(Mux(piece.first, piece.at, fed)),
    ]
    m.given(~of_run | (start + piece.count < 1 << (_RUN - 1)), ~(of_run & ~begins) | (piece.note == note))
    with m.If(of_run):
        m.d.sync += [fed.eq(start + piece.count), over.eq(piece.last), note.eq(piece.note)]
        with m.If((place >= start) & (place < start + piece.count)):
            lane = (piece.start + place - start)[: len(piece.start)]
            m.d.sync += [seen.eq(1), bit.eq(piece.data.word_select(lane, 8)[0])]
    with m.If(begins):
        m.d.sync += [watched.eq(1), behind.eq((runs - (leaves & word.last))[:2] != 0), at.eq(piece.at), out.eq(0)]
    with m.If(leaves & behind):
        m.d.sync += behind.eq(0)
    with m.If(leaves & watched & ~behind):
        m.d.sync += out.eq(out + octets)
        with m.If(word.last):
            m.d.sync += [watched.eq(0), seen.eq(0)]

    def among(position, end):
        return (position >= at) & (position < end)

    lane_of_place = place[: len(piece.start)]
    mine = watched & ~behind & o.valid
    m.always(~mine | (word.mask == Cat(among(out + n, fed) for n in range(octets))))
    m.always(~mine | ((word.first == (out == 0)) & (word.last == (over & (fed <= out + octets)))))
    m.always(~mine | word.last | (fed >= out + octets), ~mine | (word.note == note))
    m.always(~(mine & word.last) | (word.octets == fed - out))
    has_place = seen & (place >= out) & (place < out + octets)
    m.always(~(mine & has_place) | (word.data.word_select(lane_of_place, 8)[0] == bit))
    m.always(~(watched & (over | (fed > Mux(out > at, out, at)))) | realigner.busy)

    # The piece that is being moved.
    begin, end = Signal(range(octets)), Signal(range(2 * octets + 1))
    with m.If(enters):
        m.d.sync += [
            begin.eq(Mux(piece.first, piece.at, realigner["next_place"])),
            end.eq(Mux(piece.first, piece.at, realigner["next_place"]) + piece.count),
        ]
    turned, ends, tail, has = (realigner[name] for name in ("turned_valid", "ends", "tail", "has"))
    m.states(~turned | (realigner["here"] == Cat((n >= begin) & (n < end) for n in range(octets))))
    m.states(~turned | (realigner["beyond"] == Cat(n + octets < end for n in range(octets))))
    m.states(~turned | ((realigner["fills"] == (end >= octets)) & (realigner["runs_over"] == (end > octets))))
    m.states(~turned | (realigner["end_place"] == Mux(end > octets, end - octets, end)))
    m.states(~turned | ((end >= begin) & (end - begin <= octets)), ~tail | (turned & ends & realigner["runs_over"]))
    m.states(~(inside & turned & ends), inside | ~turned | ends)
    m.states(inside | turned | ((has == 0) & ~realigner["begun"]))
    m.states(runs == (o.valid & word.last) + (turned & ends) + inside, ~(o.valid & ~word.last) | inside | turned)

    # The words of the run that are made: the one whose first position is ``base`` is next.
    making = Signal()
    base = Signal(_RUN)
    m.d.comb += [making.eq(watched & ~(mine & word.last)), base.eq(out + Mux(mine, octets, 0))]
    m.states(~behind | (watched & o.valid & word.last & (out == 0)), ~watched | (out[: len(piece.start)] == 0))
    m.states(~making | Mux(over, turned & ends, inside), ~(watched & ~making) | over)
    m.states(~making | (realigner["begun"] == (base != 0)), ~watched | (fed < 1 << (_RUN - 1)) & (fed >= at))
    m.states(~making | (realigner["next_place"] == fed[: len(piece.start)]))
    m.states(~(making & turned) | (realigner["note"] == note))
    moving = making & turned & ~tail
    m.states(~moving | ((base + end == fed) & (base + begin >= at)))
    m.states(~(moving & ~realigner["begun"]) | (begin >= at))
    m.states(~moving | (has == Cat(among(base + n, base + begin) for n in range(octets))))
    m.states(~(making & ~moving) | (has == Cat(among(base + n, fed) for n in range(octets))))
    m.states(~(making & tail) | (base + realigner["end_place"] == fed))
    m.states(~(making & ~turned) | ((fed >= base) & (fed < base + octets)))
    m.states(~(watched & seen) | among(place, fed), ~seen | watched)
    in_kept = making & seen & (place >= base) & ~(moving & (place >= base + begin))
    m.states(~in_kept | (realigner["kept"].word_select(lane_of_place, 8)[0] == bit))
    in_turned = moving & seen & (place >= base + begin)
    m.states(~in_turned | (realigner["turned_data"].word_select(lane_of_place, 8)[0] == bit))
