"""The RDMA engine accesses memory only where it may (rtl/rdma; RFC 5040 §5, §8; RFC 5041 §5, §8)."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Cat, Mux, ResetInserter, Signal, Value
from amaranth.lib import data

from open_rnic.cocotb_tests.proofs.harness import NO_LANES, Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import kept
from open_rnic.rtl.rdma.command_loader import CommandLoader
from open_rnic.rtl.rdma.realigner import Realigner
from open_rnic.rtl.rdma.regions import Access, RegionTable
from open_rnic.rtl.rdma.registers import Command

_RUN = 18  # bits of a position in a run: a run has the octets of a ULPDU, less than 2^16


@proves(
    "the octets of a run leave unchanged, at their places in its words, and the masks of these words have no others",
    lambda lanes: Realigner(lanes, 1),
    Mutant("an octet behind the run is written", Realigner, "(n >= place) & (n < end)", "(n >= place) & (n <= end)"),
    Mutant("the octets in front of the run are written", Realigner, "(n >= place) & (n < end)", "n < end"),
    Mutant("the next piece overwrites the last word", Realigner, "step & (tail | ~twice)", "step"),
    Mutant("octets of the run before are written", Realigner, "m.d.sync += has.eq(0)", "pass"),
    Mutant("octets in the last word are not seen inside", Realigner, "turned_valid | self.o.valid", "turned_valid"),
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


_AGAIN = Signal()  # resets the table in any cycle; its memories keep their words


class _Region:
    """What the host has registered in any one row of the table, or has revoked there."""

    def __init__(self, m, table):
        write = table.write
        self.row, self.there = Signal(range(table.rows)), Signal()
        self.stag, self.rights, self.address, self.octets = Signal(32), Signal(4), Signal(32), Signal(32)
        self.to = Signal(64)
        m.d.comb += self.row.eq(AnyConst(range(table.rows)))
        mine = write.row == self.row
        self.goes = Signal()  # in this cycle
        comes = write.key & table.free & mine
        m.d.comb += self.goes.eq(
            (table.invalidate & (table.invalidate_row == self.row)) | (table.revoke & table.free & mine) | comes
        )
        with m.If(self.goes | _AGAIN):
            m.d.sync += self.there.eq(comes & ~_AGAIN)
        with m.If(comes):
            m.d.sync += [self.stag.eq(Cat(self.row, write.word[len(self.row) :])), self.rights.eq(write.rights)]
        self.parts = {"address": self.address, "octets": self.octets, "to_low": self.to[:32], "to_high": self.to[32:]}
        for name, part in self.parts.items():
            with m.If(getattr(write, name) & mine):
                m.d.sync += part.eq(write.word)
            m.given(~(getattr(write, name) & ((mine & self.there) | write.key)))
        self.does_not_wrap = self.to + self.octets <= 1 << 64
        m.given(~comes | self.does_not_wrap)

    def holds(self, access):
        """Whether the octets of ``access`` lie in the region."""
        return (access.to >= self.to) & (access.to + access.octets <= self.to + self.octets)

    def address_of(self, to):
        """The address in memory of the octet with this TO."""
        return (self.address + (to - self.to)[:32])[:32]


@proves(
    "no word of a row is written while the table has a region there, but the one that makes it valid",
    lambda lanes: CommandLoader(2, 2),
    Mutant(
        "a region's row is not revoked first",
        CommandLoader,
        "(first & (command == Command.REGION)) | (~first & (kind == Command.REVOKE))",
        "~first & (kind == Command.REVOKE)",
    ),
    Mutant(
        "the row is another one than that of the first word",
        CommandLoader,
        "with m.Elif(kind == Command.REVOKE):",
        "with m.Else():",
    ),
    name="commands",
    of="CommandLoader, 2 rows",
    lanes=NO_LANES,
    depth=1,
    reach=16,
)
def _(m, loader):
    write = loader.region
    row, there = Signal(range(loader.rows)), Signal()
    m.d.comb += row.eq(AnyConst(range(loader.rows)))
    mine = write.row == row
    parts = write.address | write.octets | write.to_low | write.to_high
    m.given(~loader.push | loader.free | ~(loader.revoke | parts | write.key))
    with m.If(loader.free & (loader.revoke | write.key) & mine):
        m.d.sync += there.eq(write.key)
    m.always(~(parts & mine & there))
    m.always(parts + write.key + loader.revoke <= 1)

    writes = Cat(write.address, write.octets, write.to_low, write.to_high, write.key)
    left, is_region = loader["left"], loader["kind"] == Command.REGION
    busy = is_region & (left != 0)
    m.states(~is_region | (left <= len(writes)), ~(busy & mine & there) | (loader.revoke & (left == len(writes))))
    m.states(
        *(~one | (is_region & (left == len(writes) - 1 - n)) for n, one in enumerate(writes)),
        ~loader.revoke | ~is_region | (left == len(writes)),
        ~(write.key & mine) | ~there,
    )


@proves(
    "a lookup finds a region only if the host has registered it under that STag, and it has not been revoked since;"
    " the result has its rights, whether all octets are inside, and their address",
    lambda lanes: ResetInserter(_AGAIN)(RegionTable(2)),
    Mutant(
        "a region is found after it was revoked", RegionTable, "self.revoke | self.write.key", "self.write.key"
    ),
    Mutant(
        "a lookup under way finds a region that has been revoked",
        RegionTable,
        "still_live(near_live, near_row, self)), self.found.fits",
        "near_live), self.found.fits",
    ),
    Mutant(
        "a lookup under way finds a region that is revoked while it stalls",
        RegionTable,
        "asked_live.eq(still_live(asked_live, asked_row, self))",
        "asked_live.eq(asked_live)",
    ),
    Mutant("a region is found under another STag", RegionTable, "key.valid & (key.high ==", "key.valid | (key.high =="),
    Mutant("octets behind the region are in it", RegionTable, "near & (end <= length)", "near & (offset <= length)"),
    Mutant("octets far behind the region are in it", RegionTable, "near.eq(~distance[32:].any())", "near.eq(1)"),
    Mutant(
        "regions of the last connection are found",
        RegionTable,
        "asked_live.eq(still_live(self.ready, row, self))",
        "asked_live.eq(still_live(self.step, row, self))",
    ),
    name="lookup",
    of="RegionTable, 2 rows",
    lanes=NO_LANES,
    depth=1,
    reach=14,
)
def _(m, table):
    m.d.comb += _AGAIN.eq(AnySeq(1))
    region = _Region(m, table)
    begins = table.step & (table.receive.valid | table.transmit.valid)
    access = data.View(Access, Mux(table.receive.valid, table.receive.access, table.transmit.access))
    m.always(table.receive.granted == table.step, table.transmit.granted == (table.step & ~table.receive.valid))
    m.always((table.revokes & (table.revoked_row == region.row)) == region.goes)

    # The lookups that are under way, and whether the region has been there since they began.
    lookups = []
    under_way, whole = begins, region.there & (access.stag == region.stag)
    for n in range(3):
        now = Signal(data.StructLayout({"valid": 1, "access": Access, "whole": 1}), name=f"lookup_{n}")
        with m.If(table.step):
            m.d.sync += [now.valid.eq(under_way), now.access.eq(access), now.whole.eq(whole & ~region.goes)]
        with m.Elif(region.goes):
            m.d.sync += now.whole.eq(0)
        with m.If(_AGAIN):
            m.d.sync += [now.valid.eq(0), now.whole.eq(0)]
        under_way, access, whole = now.valid, now.access, now.whole
        lookups.append(now)

    first, second, third = lookups
    mine = [each.valid & (each.access.stag[: len(region.row)] == region.row) for each in lookups]
    found, access = table.found, third.access
    is_region = region.there & (region.stag == access.stag)
    right = mine[2] & found.live
    m.always(~third.valid | (found.row == access.stag[: len(region.row)]))
    m.always(~right | is_region, ~(mine[2] & third.whole) | found.live)
    m.always(~right | (access.octets == 0) | (found.fits == region.holds(access)))
    m.always(~right | (found.rights == region.rights))
    m.always(~(right & found.fits) | (found.address == region.address_of(access.to)))
    m.always(~(right & found.fits) | (found.ends == ((access.to + access.octets - region.to)[:64] == region.octets)))
    m.always(~(right & found.fits) | (found.offset == (access.to - region.to)[:32]))

    # The table has the region; the stages have its words.
    stored = {name: table.stored(m, name, region.row) for name in (*region.parts, "key")}
    m.states(*(stored[name] == part for name, part in region.parts.items()), ~region.there | table.ready)
    cleared = table["cleared"]
    m.states(cleared <= table.rows, (cleared <= region.row) | (stored["key"][-1] == region.there))
    m.states(~region.there | (stored["key"][:-1] == Cat(region.stag[len(region.row) :], region.rights)))
    m.states(~region.there | (region.stag[: len(region.row)] == region.row), ~region.there | region.does_not_wrap)
    m.states(*(~each.whole | (region.there & (each.access.stag == region.stag)) for each in lookups))

    read = {name: table[name]["read__data"] for name in stored}
    m.states(~first.valid | (table["asked"] == Value.cast(first.access)))
    m.states(~first.valid | (table["asked_row"] == first.access.stag[: len(region.row)]))
    asked = mine[0] & table["asked_live"]
    m.states(~(mine[0] & first.whole) | table["asked_live"], ~asked | table.ready)
    m.states(~asked | (read["key"][-1] == region.there))
    for name, word in stored.items():
        m.states(~(asked & region.there) | (read[name] == word))
    near = mine[1] & table["near_live"]
    distance = Signal(64)
    m.d.comb += distance.eq(second.access.to - region.to)
    m.states(~(mine[1] & second.whole) | table["near_live"])
    m.states(~second.valid | (table["near_row"] == second.access.stag[: len(region.row)]))
    m.states(~near | (region.there & (region.stag == second.access.stag)))
    m.states(~near | ((table["near"] == (distance[32:] == 0)) & (table["offset"] == distance[:32])))
    m.states(~near | ((table.signal("octets") == second.access.octets) & (table["length"] == region.octets)))
    m.states(~near | ((table.signal("address") == region.address) & (table["rights"] == region.rights)))
