"""The RDMA engine accesses memory only where it may (rtl/rdma; RFC 5040 §5, §8; RFC 5041 §5, §8)."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Cat, Mux, ResetInserter, Signal, Value
from amaranth.lib import data

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import fifo_states, kept
from open_rnic.rtl.formats.opcodes import SENDS, TAGGED_OCTETS, UNTAGGED_OCTETS, Opcode
from open_rnic.rtl.rdma.command_loader import CommandLoader
from open_rnic.rtl.rdma.header_reader import Header, PayloadBeat
from open_rnic.rtl.rdma.layouts import word_bits
from open_rnic.rtl.rdma.message_loader import MessageLoader
from open_rnic.rtl.rdma.read_counter import ReadCounter
from open_rnic.rtl.rdma.realigner import Realigner, Turned
from open_rnic.rtl.rdma.receiver import Note, RdmaReceiver, _One
from open_rnic.rtl.rdma.regions import MAY_INVALIDATE, Access, RegionTable
from open_rnic.rtl.rdma.registers import Command, Right
from open_rnic.rtl.rdma.sender import RdmaSender

_RUN = 18  # bits of a position in a run: a run has the octets of a ULPDU, less than 2^16


@proves(
    "the octets of a run leave unchanged, at their places in its words, and the masks of these words have no others",
    lambda lanes: Realigner(lanes, 1),
    Mutant("an octet behind the run is written", Realigner, "(n >= place) & (n < end)", "(n >= place) & (n <= end)"),
    Mutant("the octets in front of the run are written", Realigner, "(n >= place) & (n < end)", "n < end"),
    Mutant("the next piece overwrites the last word", Realigner, "step & (tail | ~twice)", "step"),
    Mutant("octets of the run before are written", Realigner, "m.d.sync += has.eq(0)", "pass"),
    Mutant("a word that waits does not keep it busy", Realigner, "turned_valid | self.o.valid", "turned_valid"),
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
    m.given(~of_run | (start + piece.count < 1 << (_RUN - 1)))
    with m.If(of_run):
        m.d.sync += [fed.eq(start + piece.count), over.eq(piece.last)]
        with m.If((place >= start) & (place < start + piece.count)):
            lane = (piece.start + place - start)[: len(piece.start)]
            m.d.sync += [seen.eq(1), bit.eq(piece.data.word_select(lane, 8)[0])]
    with m.If(begins):
        m.d.sync += [
            watched.eq(1), behind.eq((runs - (leaves & word.last))[:2] != 0), out.eq(0),
            at.eq(piece.at), note.eq(piece.note),
        ]  # fmt: skip
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
    turned, tail, has = (realigner[name] for name in ("turned_valid", "tail", "has"))
    rotated = Turned(realigner.lanes)(realigner["turned"])
    ends = rotated.ends
    m.states(~turned | (rotated.here == Cat((n >= begin) & (n < end) for n in range(octets))))
    m.states(~turned | (rotated.beyond == Cat(n + octets < end for n in range(octets))))
    m.states(~turned | ((rotated.fills == (end >= octets)) & (rotated.runs_over == (end > octets))))
    m.states(~turned | (rotated.end == Mux(end > octets, end - octets, end)))
    m.states(~turned | ((end >= begin) & (end - begin <= octets)), ~tail | (turned & ends & rotated.runs_over))
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
    m.states(~making | (realigner["note"] == note))
    moving = making & turned & ~tail
    m.states(~moving | ((base + end == fed) & (base + begin >= at)))
    m.states(~(moving & ~realigner["begun"]) | (begin >= at))
    m.states(~moving | (has == Cat(among(base + n, base + begin) for n in range(octets))))
    m.states(~(making & ~moving) | (has == Cat(among(base + n, fed) for n in range(octets))))
    m.states(~(making & tail) | (base + rotated.end == fed))
    m.states(~(making & ~turned) | ((fed >= base) & (fed < base + octets)))
    m.states(~(watched & seen) | among(place, fed), ~seen | watched)
    in_kept = making & seen & (place >= base) & ~(moving & (place >= base + begin))
    m.states(~in_kept | (realigner["kept"].word_select(lane_of_place, 8)[0] == bit))
    in_turned = moving & seen & (place >= base + begin)
    m.states(~in_turned | (rotated.data.word_select(lane_of_place, 8)[0] == bit))


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
        comes = write.fields.key & table.free & mine
        m.d.comb += self.goes.eq(
            (table.invalidate & (table.invalidate_row == self.row)) | (table.revoke & table.free & mine) | comes
        )
        with m.If(self.goes | _AGAIN):
            m.d.sync += self.there.eq(comes & ~_AGAIN)
        with m.If(comes):
            m.d.sync += [self.stag.eq(Cat(self.row, write.word[len(self.row) :])), self.rights.eq(write.rights)]
        self.parts = {"address": self.address, "octets": self.octets, "to_low": self.to[:32], "to_high": self.to[32:]}
        for name, part in self.parts.items():
            with m.If(write.fields[name] & mine):
                m.d.sync += part.eq(write.word)
            m.given(~(write.fields[name] & ((mine & self.there) | write.fields.key)))
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
    lambda: CommandLoader(2, 2),
    Mutant(
        "a region's row is not revoked first",
        CommandLoader,
        "(first & (command == Command.REGION)) | (~first & (kind == Command.REVOKE))",
        "~first & (kind == Command.REVOKE)",
    ),
    Mutant(
        "the row is another one than that of the first word",
        CommandLoader,
        "Mux(kind == Command.REVOKE, self.word, row)",
        "self.word",
    ),
    name="commands",
    of="CommandLoader, 2 rows",
    depth=1,
    reach=16,
)
def _(m, loader):
    write = loader.region
    row, there = Signal(range(loader.rows)), Signal()
    m.d.comb += row.eq(AnyConst(range(loader.rows)))
    mine = write.row == row
    parts = write.fields.address | write.fields.octets | write.fields.to_low | write.fields.to_high
    m.given(~loader.push | loader.free | ~(loader.revoke | parts | write.fields.key))
    with m.If(loader.free & (loader.revoke | write.fields.key) & mine):
        m.d.sync += there.eq(write.fields.key)
    m.always(~(parts & mine & there))
    m.always(parts + write.fields.key + loader.revoke <= 1)

    writes = Cat(write.fields.address, write.fields.octets, write.fields.to_low, write.fields.to_high, write.fields.key)
    left, is_region = loader["left"], loader["kind"] == Command.REGION
    busy = is_region & (left != 0)
    m.states(~is_region | (left <= len(writes)), ~(busy & mine & there) | (loader.revoke & (left == len(writes))))
    m.states(
        *(~one | (is_region & (left == len(writes) - 1 - n)) for n, one in enumerate(writes)),
        ~loader.revoke | ~is_region | (left == len(writes)),
        ~(write.fields.key & mine) | ~there,
    )


@proves(
    "a lookup finds a region only if the host has registered it under that STag, and it has not been revoked since;"
    " the result has its rights, whether all octets are inside, and their address",
    lambda: ResetInserter(_AGAIN)(RegionTable(2)),
    Mutant(
        "a region is found after it was revoked",
        RegionTable,
        "self.revoke | self.write.fields.key",
        "self.write.fields.key",
    ),
    Mutant(
        "a lookup under way finds a region that has been revoked",
        RegionTable,
        "still_live(near_live, near_row, self.answer)), self.answer.found.fits",
        "near_live), self.answer.found.fits",
    ),
    Mutant(
        "a lookup under way finds a region that is revoked while it stalls",
        RegionTable,
        "asked_live.eq(still_live(asked_live, asked_row, self.answer))",
        "asked_live.eq(asked_live)",
    ),
    Mutant("a region is found under another STag", RegionTable, "key.valid & (key.high ==", "key.valid | (key.high =="),
    Mutant("octets behind the region are in it", RegionTable, "room.eq(length - end)", "room.eq(length - offset)"),
    Mutant("octets far behind the region are in it", RegionTable, "(far == 0) & ~room[-1]", "~room[-1]"),
    Mutant(
        "regions of the last connection are found",
        RegionTable,
        "asked_live.eq(still_live(self._is_ready(row), row, self.answer))",
        "asked_live.eq(still_live(self.step, row, self.answer))",
    ),
    name="lookup",
    of="RegionTable, 2 rows",
    depth=1,
    reach=14,
)
def _(m, table):
    m.d.comb += _AGAIN.eq(AnySeq(1))
    region = _Region(m, table)
    begins = table.step & (table.receive.valid | table.transmit.valid)
    access = data.View(Access(), Mux(table.receive.valid, table.receive.access, table.transmit.access))
    m.always(table.receive.granted == table.step, table.transmit.granted == (table.step & ~table.receive.valid))
    m.always((table.answer.revokes & (table.answer.revoked_row == region.row)) == region.goes)

    # The lookups that are under way, and whether the region has been there since they began.
    lookups = []
    under_way, whole = begins, region.there & (access.stag == region.stag)
    for n in range(3):
        now = Signal(data.StructLayout({"valid": 1, "access": Access(), "whole": 1}), name=f"lookup_{n}")
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
    found, access = table.answer.found, third.access
    is_region = region.there & (region.stag == access.stag)
    right = mine[2] & found.live
    m.always(~third.valid | (found.row == access.stag[: len(region.row)]))
    m.always(~right | is_region, ~(mine[2] & third.whole) | found.live)
    m.always(~right | (access.octets == 0) | (found.fits == region.holds(access)))
    m.always(~right | (found.rights == region.rights))
    m.always(~(right & found.fits) | (found.address == region.address_of(access.to)))
    m.always(~(right & found.fits) | (found.offset == (access.to - region.to)[:32]))
    m.always(~(right & found.fits) | (found.end == (access.to + access.octets - region.to)[:32]))
    m.always(~(right & found.fits) | (found.end + found.room == region.octets))

    # The table has the region; the stages have its words.
    stored = {name: table.stored(m, name, region.row) for name in (*region.parts, "key")}
    m.states(*(stored[name] == part for name, part in region.parts.items()), ~region.there | table.ready)
    m.states((~table.ready & (table["visited"] <= region.row)) | (stored["key"][-1] == region.there))
    m.states(~region.there | (stored["key"][:-1] == Cat(region.stag[len(region.row) :], region.rights)))
    m.states(~region.there | (region.stag[: len(region.row)] == region.row), ~region.there | region.does_not_wrap)
    m.states(*(~each.whole | (region.there & (each.access.stag == region.stag)) for each in lookups))

    read = {name: table[f"{name}_read"] for name in stored}
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
    m.states(~near | (Cat(table["offset"], table["far"]) == distance))
    m.states(~near | ((table.signal("octets") == second.access.octets) & (table["length"] == region.octets)))
    m.states(~near | ((table.signal("address") == region.address) & (table["rights"] == region.rights)))


class _Registered:
    """A row of the table, as other blocks see it, and any one access to it.

    ``there``: the row has a region with the STag of the access. Then ``holds``: the octets of the access lie in it;
    ``address`` is that of the first one, and ``rights`` are the region's. All this may change in a cycle in which the
    row is revoked, and in no other.
    """

    def __init__(self, m, block):
        self.access, self.row = Signal(Access()), Signal(range(block.rows))
        m.d.comb += [self.access.eq(AnyConst(Value.cast(self.access).shape())), self.row.eq(self.access.stag)]
        goes = block.answer.revokes & (block.answer.revoked_row == self.row)
        self.there, self.holds, self.rights, self.address = Signal(), Signal(), Signal(4), Signal(32)
        with m.If(goes):
            m.d.sync += [each.eq(AnySeq(len(each))) for each in (self.there, self.holds, self.rights, self.address)]

    def is_of(self, stag, to, octets):
        """Whether this is the access."""
        return (self.access.stag == stag) & (self.access.to == to) & (self.access.octets == octets)

    def found(self, lookup, found):
        """What ``rdma.lookup`` proves of the result of a lookup."""
        access = lookup.access
        live = lookup.valid & found.live & self.is_of(access.stag, access.to, access.octets)
        return [
            ~lookup.valid | (found.row == access.stag[: len(self.row)]),
            ~live | (self.there & (found.rights == self.rights)),
            ~live | (access.octets == 0) | (found.fits == self.holds),
            ~(live & found.fits) | (found.address == self.address),
        ]


def _under_way(m, valid, access, step):
    """The lookups in the three cycles of the table; the last one has its result now."""
    lookups = []
    for n in range(3):
        now = Signal(data.StructLayout({"valid": 1, "access": Access()}), name=f"lookup_{n}")
        with m.If(step):
            m.d.sync += [now.valid.eq(valid), now.access.eq(access)]
        valid, access = now.valid, now.access
        lookups.append(now)
    return lookups


_HEADER = Header()
_BEAT = data.StructLayout({"valid": 1, "open": 1, "end": _RUN, "header": _HEADER})  # ``end`` in the payload


def _header_octets(header):
    return Mux(header.tagged, TAGGED_OCTETS, UNTAGGED_OCTETS)


def _has_right(region, opcode):
    """Whether the region has the right that a message needs to write to it."""
    right = Mux(opcode == Opcode.RDMA_WRITE, Right.REMOTE_WRITE, Right.LOCAL_WRITE)
    return (region.rights & right) != 0


def _is_valid(header):
    """Whether the engine processes ULPDUs with this header."""
    writes = header.opcode.matches(Opcode.RDMA_WRITE, Opcode.RDMA_READ_RESPONSE)
    return Mux(header.tagged, writes, (header.opcode == Opcode.RDMA_READ_REQUEST) | header.opcode.matches(*SENDS))


@proves(
    "an octet is placed only in a region that is valid in this cycle, with the right, at its TO; or in a posted buffer,"
    " at its MO",
    lambda lanes: RdmaReceiver(lanes, 2, 2),
    Mutant(
        "the range is not checked",
        RdmaReceiver,
        "~u.some | (u.found_live & found.fits & found.rights[Right.REMOTE_WRITE.bit])",
        "~u.some | (u.found_live & found.rights[Right.REMOTE_WRITE.bit])",
    ),
    Mutant("the right is not checked", RdmaReceiver, "found.rights[Right.REMOTE_WRITE.bit]", "(found.rights != 0)"),
    Mutant(
        "a Read Response may write to any region",
        RdmaReceiver,
        "found.rights[Right.LOCAL_WRITE.bit]",
        "found.rights[0] | found.rights[1]",
    ),
    Mutant("a ULPDU goes on after a revocation", RdmaReceiver, "m.d.sync += live.eq(0)", "m.d.sync += live.eq(live)"),
    Mutant(
        "a ULPDU goes on after a revocation in the cycle of its checks",
        RdmaReceiver,
        "still_live(~header.tagged | u.found_live, found.row, self.answer) | ~header.tagged",
        "~header.tagged | u.found_live",
    ),
    Mutant(
        "a Send is longer than its buffer",
        RdmaReceiver,
        "early_end <= self.buffer.payload.octets",
        "self.status.mo <= self.buffer.payload.octets",
    ),
    Mutant(
        "a Send is placed without a buffer",
        RdmaReceiver,
        "u.good & ~(u.is_send & ~u.order.has_buffer) &",
        "u.good &",
    ),
    Mutant(
        "an RDMA Write is placed behind the Send that invalidates its STag",
        RdmaReceiver,
        "found.live & ~(self.invalidate.valid & (self.invalidate.row == found.row))",
        "found.live",
    ),
    Mutant(
        "a ULPDU that has been refused is placed",
        RdmaReceiver,
        "u.valid & places & ~refused & (",
        "u.valid & places & (",
    ),
    name="placed",
    of="RdmaReceiver, 2 rows",
    lanes=(2, 1),
    depth=1,
    reach=20,
)
def _(m, receiver):
    octets = 4 * receiver.lanes
    reader, realigner = receiver["reader"], receiver["realigner"]
    i, o, piece = receiver.i, reader.o, realigner.i.payload
    step, refused = receiver.step, receiver.status.refused
    region = _Registered(m, receiver)

    # ULPDUs: ``fed`` of their octets have been taken.
    inside, fed, length = Signal(), Signal(_RUN), Signal(16)
    taken, whole = i.valid & i.ready, Signal(16)
    m.d.comb += whole.eq(Mux(inside, length, i.payload.length))
    m.given(~i.valid | ~receiver.settings.enable | Mux(
        i.payload.last,
        (fed + i.payload.octets == whole) & (i.payload.octets <= octets) & ((i.payload.octets != 0) | ~inside),
        fed + octets < whole,
    ))  # fmt: skip
    m.given(~(inside | m.last(i.valid & ~i.ready)) | (receiver.settings.enable == m.last(receiver.settings.enable)))
    m.given(kept(m, i))
    with m.If(taken):
        m.d.sync += [inside.eq(~i.payload.last), length.eq(whole), fed.eq(Mux(i.payload.last, 0, fed + octets))]

    # The beats with octets of a payload: in the reader, in the three cycles of the lookup, and behind.
    out = Signal(_BEAT)
    position = fed + Mux(i.payload.last, i.payload.octets, octets) - _header_octets(reader.header)
    m.d.comb += [out.valid.eq(o.valid), out.open.eq(~o.payload.last), out.header.eq(reader.header)]
    out_end = Signal(_RUN)
    m.d.comb += out.end.eq(out_end)
    with m.If(~o.valid | o.ready):
        m.d.sync += out_end.eq(position)
    stages = []
    arriving, arrives = out, o.valid & o.ready & ~refused
    for n in range(3):
        now = Signal(_BEAT, name=f"stage_{n}")
        with m.If(step):
            m.d.sync += [now.eq(arriving), now.valid.eq(arrives)]
        arriving, arrives = now, now.valid & ~refused
        stages.append(now)
    current = Signal(_BEAT)  # the ULPDU that is being placed
    with m.If(step & arrives):
        m.d.sync += [current.eq(arriving), current.valid.eq(arriving.open)]
    lookups = _under_way(m, receiver.lookup.valid, receiver.lookup.access, step)
    m.given(*region.found(lookups[2], receiver.answer.found))
    # A buffer that has been posted may be withdrawn, and stays otherwise.
    buffer = receiver.buffer
    place = Cat(buffer.payload.address, buffer.payload.octets)
    m.given(~m.last(buffer.valid & ~buffer.ready) | (buffer.valid & (place == m.last(place))))

    # The property.
    beat, header = stages[2], _HEADER(stages[2].header.as_value())
    first = piece.first
    places = realigner.i.valid & realigner.i.ready
    run, request = Signal(), Signal()
    writes = places & ~Mux(first, piece.note.request, request) & (piece.count != 0)
    address, begun, buffered = Signal(32), Signal(), Signal()  # of the ULPDU's first octet; it has been placed
    at, mo_end = Signal(32), Signal(34)
    posted, mo = receiver.buffer.payload, receiver.status.mo
    m.d.comb += [
        at.eq(Mux(first, Cat(piece.at, piece.note.word), address)),
        mo_end.eq(mo + header.payload),
    ]
    in_buffer = receiver.buffer.valid & (mo_end <= posted.octets) & (at == (posted.address + mo)[:32])
    with m.If(step & beat.valid & ~refused):
        m.d.sync += begun.eq(places & ~piece.last)
        with m.If(first):
            m.d.sync += [address.eq(at), buffered.eq(in_buffer)]
    mine = region.is_of(header.stag, header.to, header.payload)
    in_region = region.there & _has_right(region, header.opcode) & region.holds
    m.always(~writes | (beat.valid & (beat.end <= header.payload)), ~(places & ~first) | begun)
    m.always(~(writes & header.tagged & mine) | (in_region & (at == region.address)))
    m.always(~(writes & ~header.tagged) | (header.opcode.matches(*SENDS) & Mux(first, in_buffer, buffered)))
    # A Send that invalidates an STag: the region may be invalidated, and nothing is placed in it behind the Send.
    row = header.stag[: len(region.row)]
    m.always(~receiver.invalidate.valid | ~m.last(mine) | m.last(region.there & region.rights[MAY_INVALIDATE]))
    m.always(~receiver.invalidate.valid | (receiver.invalidate.row == m.last(row)))
    m.always(~(receiver.invalidate.valid & writes & header.tagged) | (receiver.invalidate.row != row))
    # What rdma.words assumes.
    with m.If(places):
        m.d.sync += run.eq(~piece.last)
        with m.If(first):
            m.d.sync += request.eq(piece.note.request)
    m.always(~places | (first == ~run))
    m.always(~places | ((piece.count <= octets - piece.start) & ((piece.count != 0) | (first & piece.last))))
    m.always(~places | (beat.end < 1 << 16))

    # The reader.
    own = inside & ~reader["chosen_passes"] & ~reader["chosen_discards"]
    size = _header_octets(reader.header)
    beats_of_header = Mux(reader["was_tagged"], -(-TAGGED_OCTETS // octets), -(-UNTAGGED_OCTETS // octets))
    behind = reader["behind"]
    m.states(inside == reader["inside"], inside | (~behind & (reader["number"] == 0) & (fed == 0)))
    enabled = inside & receiver.settings.enable
    m.states(~enabled | (behind == (fed >= octets * beats_of_header)))
    m.states(~enabled | behind | (fed == octets * reader["number"]), fed[: len(o.payload.start)] == 0)
    m.states(~enabled | ((fed < length) & (fed != 0)), receiver.settings.enable | ~own)
    m.states(~(reader["chosen_passes"] & reader["chosen_discards"]) | ~inside)
    m.states(~own | ((reader.header.tagged == reader["was_tagged"]) & (reader.header.length == length)))
    m.states(~own | _is_valid(reader.header))
    m.states(~own | ((length >= size) & (reader.header.payload == length - size)))

    def last_of(newest, before):
        """The most recent one of a beat, if it is valid, and those before it."""
        both = Signal(_BEAT, name=f"last_{len(chain)}")
        m.d.comb += both.eq(Mux(newest.valid, newest, before))
        return both

    chain = [current]
    for n in (2, 1, 0, None):
        each = out if n is None else stages[n]
        its = _HEADER(each.header.as_value())
        its_beat = o.payload if n is None else data.View(PayloadBeat(receiver.lanes), receiver[f"beat_{n}"])
        before = chain[-1]
        count = its_beat.count
        good = (
            (its_beat.last == ~each.open)
            & (its_beat.start + count <= octets)
            & (each.open == (each.end != its.payload))
            & (each.end <= its.payload)
            & (its.payload < (1 << 16) - 1)
            & _is_valid(its)
            & Mux(
                its_beat.header,
                (each.end == count) & ((count != 0) | (its.payload == 0)) & ~(before.valid & before.open),
                (count != 0) & before.valid & before.open
                & (before.end == each.end - count) & (before.header == each.header),
            )
        )  # fmt: skip
        m.states(~each.valid | refused | good)
        chain.append(last_of(each, before))
        if n is not None:
            m.states(refused | (each.valid == receiver[f"beat_valid_{n}"]))
            m.states(~(each.valid & its_beat.header) | refused | (
                lookups[n].valid & (lookups[n].access.stag == its.stag) & (lookups[n].access.to == its.to)
                & (lookups[n].access.octets == its.payload)
            ))  # fmt: skip
            newest = chain[-1]
            m.states(~newest.valid | refused | (receiver[f"header_{n}"] == newest.header.as_value()))
    newest = chain[-1]
    m.states(refused | Mux(
        own & behind,
        newest.valid & newest.open & (newest.end == fed - size) & (newest.header == reader.header),
        ~(newest.valid & newest.open),
    ))  # fmt: skip
    m.states(current.open == current.valid)

    # The ordered ULPDU in the lookup, and its checks.
    ordered = [receiver[f"ordered_{n}"] for n in range(3)]
    for n, each in enumerate(ordered):
        its_beat = data.View(PayloadBeat(receiver.lanes), receiver[f"beat_{n}"])
        opcode = _HEADER(stages[n].header.as_value()).opcode
        m.states(refused | (each == (stages[n].valid & its_beat.header & (opcode != Opcode.RDMA_WRITE))))
    m.states(sum(ordered) <= 1)
    m.states(~ordered[1] | refused | (receiver["early_end"] == mo + _HEADER(stages[1].header.as_value()).payload))
    checked = ordered[2] & ~refused & receiver["has_buffer"]
    m.states(~checked | (receiver.buffer.valid & (receiver["in_buffer"] == (mo_end <= posted.octets))))
    m.states(~(ordered[2] & ~refused) | (receiver["end"] == mo_end))
    m.states(~checked | (receiver["address"] == (posted.address + mo)[:32]))

    # The ULPDU that is being placed.
    goes_on = current.valid & ~refused
    head = _HEADER(current.header.as_value())
    on, live = receiver["places_on"], receiver["live"]
    m.states(~(receiver.invalidate.valid & goes_on & head.tagged))
    head_mine = region.is_of(head.stag, head.to, head.payload)
    m.states(~goes_on | (run == begun), run | refused | ~begun, ~(run & ~refused) | goes_on)
    m.states(~(goes_on & on) | begun, ~(goes_on & begun) | on)
    m.states(~(goes_on & head.tagged) | (receiver["row"] == head.stag[: len(region.row)]))
    m.states(~(goes_on & ~head.tagged) | live)
    m.states(~(goes_on & on) | (request == (~head.tagged & (head.opcode == Opcode.RDMA_READ_REQUEST))))
    m.states(~(goes_on & on & ~head.tagged & ~request) | buffered)
    m.states(
        ~(goes_on & on & live & head.tagged & head_mine)
        | (
            region.there & _has_right(region, head.opcode) & region.holds & (address == region.address)
        )
    )  # fmt: skip


@proves(
    "the words of a ULPDU are written to addresses that follow each other, from that of its first octet on, with the"
    " masks of their octets; an RDMA Read Request is not written to memory",
    lambda lanes: RdmaReceiver(lanes, 2, 2),
    Mutant("all words are written to one address", RdmaReceiver, "next_word.eq(number + 1)", "next_word.eq(number)"),
    Mutant(
        "an RDMA Read Request is written to memory",
        RdmaReceiver,
        "self.write.valid.eq(realigner.o.valid & ~target.request)",
        "self.write.valid.eq(realigner.o.valid)",
    ),
    name="addresses",
    of="RdmaReceiver, 2 rows",
    lanes=(1, 2),
    depth=1,
    reach=20,
)
def _(m, receiver):
    o, write = receiver["realigner"].o, receiver.write
    word = o.payload
    follows = Signal(word_bits(receiver.lanes))
    address = Mux(word.first, word.note.word, follows)
    with m.If(o.valid & o.ready):
        m.d.sync += follows.eq(address + 1)
    m.always(write.valid == (o.valid & ~word.note.request), ~write.valid | (write.ready == o.ready))
    m.always(~write.valid | ((write.payload.address == address) & (write.payload.mask == word.mask)))
    m.always(~write.valid | ((write.payload.data == word.data) & (write.payload.last == word.last)))
    m.states(receiver["next_word"] == follows)


@proves(
    "while the source of a Read Response may be read, all of its octets lie in a region with REMOTE_READ, which has not"
    " been revoked",
    lambda lanes: MessageLoader(lanes, 2, 2, 2),
    Mutant(
        "the range is not checked",
        MessageLoader,
        "found.live & found.fits & found.rights",
        "found.live & found.rights",
    ),
    Mutant("the right is not checked", MessageLoader, "found.rights[Right.REMOTE_READ.bit]", "found.live"),
    Mutant(
        "the source is read after a revocation",
        MessageLoader,
        "Mux(looked_up, found.row, row), self.answer",
        "found.row, self.answer",
    ),
    Mutant(
        "the source is read after a revocation in the cycle of its checks",
        MessageLoader,
        "Mux(looked_up, found.row, row), self.answer",
        "row, self.answer",
    ),
    Mutant("the result of another lookup is used", MessageLoader, "with m.If(steps == 2):", "with m.If(steps == 1):"),
    name="source",
    of="MessageLoader, 2 rows",
    lanes=(1,),
    depth=1,
    reach=24,
)
def _(m, loader):
    region = _Registered(m, loader)
    access = region.access
    message, fragment = loader.message, loader.fragment
    answering, live = loader.segments.answering, loader.segments.live
    lookup, looks = loader.lookup, loader.lookup.valid & loader.lookup.granted
    m.given(~lookup.granted | loader.step)
    lookups = _under_way(m, looks, lookup.access, loader.step)
    m.given(*region.found(lookups[2], loader.answer.found))

    # The response that is offered, or being sent.
    offered = message.valid & message.payload.response
    m.given(~message.ready | fragment.ready, ~(offered & fragment.ready) | message.ready)
    taken = m.last(offered & message.ready)
    m.given(~taken | answering, taken | ~answering | m.last(answering))
    watched = Signal()  # the lookup was that access
    with m.If(looks):
        m.d.sync += watched.eq(region.is_of(lookup.access.stag, lookup.access.to, lookup.access.octets))
    mine = watched & (offered | answering)
    some = access.octets != 0
    readable = region.there & region.holds & ((region.rights & Right.REMOTE_READ) != 0)
    m.always(~(mine & some & live) | readable)
    m.always(~(offered & watched) | (message.payload.octets == access.octets))
    m.always(~offered | (fragment.payload.last & (fragment.valid == (message.payload.octets != 0))))
    m.always(~(live & answering & m.last(answering & ~live)))
    m.always(~(offered & watched & some & live) | (fragment.payload.address == region.address))

    request, ask, look = (loader.within(name) for name in ("Request", "Ask", "Look"))
    loading = request | ask | look
    steps, source = loader["steps"], data.View(Access(), loader["source"])
    m.states(~offered | loader.within("Choose"), ~taken | ~offered)
    m.states(~message.payload.response | loader.within("Choose") | loading)
    m.states(~loading | (message.payload.response & ~message.valid & ~fragment.valid & ~answering & ~taken))
    m.states(~look | (steps <= 2))
    for n, each in enumerate(lookups):
        m.states(~(look & (steps == n)) | (
            each.valid & (each.access.stag == source.stag) & (each.access.to == source.to)
            & (each.access.octets == message.payload.octets)
            & (watched == region.is_of(each.access.stag, each.access.to, each.access.octets))
        ))  # fmt: skip
    m.states(~(mine & loader["readable"]) | (loader["row"] == region.row), ~mine | (loader["empty"] == ~some))
    m.states(~(offered & answering), ~(taken & offered))


@proves(
    "no read of memory is offered for a Read Response once its source has been revoked, and none is withdrawn; the"
    " octets read are those from the fragment's address on, in their order, as many as the message has",
    lambda lanes: RdmaSender(lanes),
    Mutant(
        "a word is read after a revocation",
        RdmaSender,
        "self.read.valid.eq(~dead & state.sources.i.ready)",
        "self.read.valid.eq(state.sources.i.ready)",
    ),
    Mutant(
        "a read is withdrawn",
        RdmaSender,
        "~state.in_header & self.segments.answering & ~self.segments.live & ~offered",
        "~state.in_header & self.segments.answering & ~self.segments.live",
    ),
    Mutant(
        "the last word has octets behind the message",
        RdmaSender,
        "Mux(few, state.payload_left, in_word)",
        "in_word",
    ),
    Mutant(
        "the second segment begins with the first one's octets",
        RdmaSender,
        "Mux(loads, fragment.address, state.address + state.count)",
        "Mux(loads, fragment.address, state.address + 4 * self.lanes)",
    ),
    name="reads",
    of="RdmaSender",
    lanes=(1, 2),
    depth=1,
    reach=24,
)
def _(m, sender):
    octets = 4 * sender.lanes
    message, fragment, read = sender.message, sender.fragment, sender.read
    answering, source_live = sender.segments.answering, sender.segments.live
    sources = sender["sources"].i
    source, moves = sources.payload, sources.valid & sources.ready
    count = Mux(source.some == 0, octets, source.some)
    offered = m.last(read.valid & ~read.ready)
    live = answering & (source_live | offered)

    # The Read Response: ``done`` of its octets have been read.
    takes = message.valid & message.ready
    base, total, done = Signal(32), Signal(32), Signal(32)
    m.given(~(takes & message.payload.response) | fragment.payload.last)
    m.given(~(takes & message.payload.response) | (message.payload.opcode == Opcode.RDMA_READ_RESPONSE))
    m.given(~(answering & source_live) | ~m.last(answering & ~source_live))
    reads = read.valid & read.ready & answering
    with m.If(takes):
        m.d.sync += [base.eq(fragment.payload.address), total.eq(message.payload.octets), done.eq(0)]
    with m.If(reads):
        m.d.sync += done.eq(done + count)
    m.always(~(read.valid & answering) | live, reads == (moves & source.memory & answering))
    m.always(kept(m, read))
    m.always(~reads | (Cat(source.start, read.payload) == (base + done)[:32]))
    m.always(~reads | ((count <= octets - source.start) & (done + count <= total)))

    m.states(sender["offered"] == offered, fifo_states(sender["sources"]))
    m.states(~offered | (read.valid & sender["in_segment"] & ~sender["in_header"]))
    inside, left = sender["in_segment"], sender["payload_left"]
    payload, to_send = sender["payload"], Signal(33)
    m.d.comb += to_send.eq(Mux(inside, sender.status.left - payload + left, sender.status.left))
    m.states(~answering | (sender["goes_on"] & sender["last_fragment"]))
    m.states(~answering | (sender["opcode"] == Opcode.RDMA_READ_RESPONSE))
    m.states(~live | ((sender["address"] == (base + done)[:32]) & (total - done == to_send)))
    m.states(~(live & inside) | ((left <= payload) & (payload <= sender.status.left)))
    m.states(~(live & inside) | (sender["last_segment"] == (payload == sender.status.left)))
    m.states(~(live & inside) | (left != 0) | sender["in_header"], ~inside | sender["goes_on"])
    m.states(~(live & inside & sender["in_header"]) | (left == payload))


@proves(
    "no ULPDU ends with its octets as they were gathered once one of them was not read, or could not be; it has as many"
    " lanes",
    lambda lanes: RdmaSender(lanes),
    Mutant(
        "a Read Response ends with octets of a header",
        RdmaSender,
        "source.start.eq(Mux(dead, _VOID, start))",
        "source.start.eq(Mux(dead, 0, start))",
    ),
    Mutant(
        "a ULPDU with octets that were not read is sent",
        RdmaSender,
        "ruined.eq(ruined | fails | void)",
        "ruined.eq(ruined | fails)",
    ),
    Mutant(
        "a ULPDU with a word that could not be read is sent",
        RdmaSender,
        "ruined.eq(ruined | fails | void)",
        "ruined.eq(ruined | void)",
    ),
    Mutant(
        "a ULPDU of another length needs another lane",
        RdmaSender,
        "((octets - 1) ^ 1) + 1",
        "octets ^ 1",
    ),
    name="given_up",
    of="RdmaSender",
    lanes=(1, 2),
    depth=1,
    reach=24,
)
def _(m, sender):
    given, taken, word = sender["sources"].i, sender["sources"].o, sender["realigner"].o
    source = given.payload
    header = sender["in_segment"] & sender["in_header"]
    m.always(~(given.valid & ~header) | source.memory | (source.start == 1))
    not_read = ~taken.payload.memory & (taken.payload.start == 1)
    wrong = m.ever(taken.valid & taken.ready & (not_read | (taken.payload.memory & sender.fault)))
    ends, octets = sender.o.valid & sender.o.payload.last, sender.o.payload.octets
    m.always(~ends | ((octets != word.payload.octets) == wrong))
    m.always(~ends | ((octets + 3)[2:] == (word.payload.octets + 3)[2:]))
    m.states(sender["spoilt"] == wrong, ~sender.status.failed | wrong)
    for valid, end in (
        (sender["realigner"]["turned_valid"], Turned(sender.lanes)(sender["realigner"]["turned"]).end),
        (word.valid, word.payload.octets),
    ):
        m.states(~valid | ((end != 0) & (end <= 4 * sender.lanes)))


@proves(
    "the checks of a ULPDU, if it is not that of an RDMA Write, begin when those of the last one of these have ended",
    lambda lanes: RdmaReceiver(lanes, 2, 2),
    Mutant(
        "a Send is checked before the one in front of it has been",
        RdmaReceiver,
        "(self.status.blocked | under_way",
        "(self.status.blocked",
    ),
    name="order",
    of="RdmaReceiver, 2 rows",
    lanes=(1, 16),
    depth=1,
    reach=20,
)
def _(m, receiver):
    checked = receiver["ordered_2"]
    m.always(sum(receiver[f"ordered_{n}"] for n in range(3)) <= 1, ~checked | receiver["beat_valid_2"])


@proves(
    "an RDMA Read Request is accepted only while fewer than IRD are unanswered",
    lambda lanes: RdmaReceiver(lanes, 2, 2),
    Mutant("one more is accepted", RdmaReceiver, "self.settings.outstanding < self.settings.ird",
           "self.settings.outstanding <= self.settings.ird"),
    name="accepts",
    of="RdmaReceiver, 2 rows",
    lanes=(1,),
    depth=1,
    reach=20,
)
def _(m, receiver):
    m.always(~receiver.status.requested | (receiver.settings.outstanding < receiver.settings.ird))


@proves(
    "once memory could not write a word, the receiver has failed, and neither a message nor a request is complete",
    lambda lanes: RdmaReceiver(lanes, 2, 2),
    Mutant("a message completes after a fault", RdmaReceiver, "moves & word.last & ~failed", "moves & word.last"),
    Mutant("a fault is forgotten", _One, "failed | (self.receiver", "(self.receiver"),
    name="faults",
    of="RdmaReceiver, 2 rows",
    lanes=(1, 16),
    depth=1,
    reach=20,
)
def _(m, receiver):
    faulty = m.ever(receiver.write_fault & receiver.settings.enable)
    m.always(receiver.status.failed == faulty)
    m.always(~faulty | ((receiver.note == Note.NONE) & ~receiver.requests.arrived))


@proves(
    "the RDMA Read Requests that have been accepted and not answered are counted, and are never more than IRD",
    lambda: ReadCounter(4),
    Mutant(
        "a request is not counted that comes with an answer",
        ReadCounter,
        "count_up_down(m, peer_reads, self.requested, self.answers)",
        "count_up_down(m, peer_reads, self.requested & ~self.answers, self.answers)",
    ),
    name="ird",
    of="ReadCounter, 4 requests",
    depth=1,
)
def _(m, counter):
    ird, requested, answered = Signal(8), Signal(16), Signal(16)
    m.fixed(ird)
    unanswered = Signal(16)
    m.d.comb += unanswered.eq(requested - answered)
    m.d.sync += [requested.eq(requested + counter.requested), answered.eq(answered + counter.answers)]
    m.given(ird <= counter.reads, ~counter.requested | (counter.requests < ird), ~counter.answers | (unanswered != 0))
    m.always(counter.requests == unanswered, unanswered <= ird)
