"""The rings of TCP keep each octet until it may be overwritten, and return it unchanged (rtl/tcp)."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Cat, Mux, Signal, signed
from amaranth.lib import data

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import kept
from open_rnic.rtl.tcp.receive_ring import ReceiveRings
from open_rnic.rtl.tcp.ring import PacketReader, RingReader, RingWriter, _Beat
from open_rnic.rtl.tcp.send_ring import SendRings

_CONNECTIONS, _SIZE = 2, 8
_PLACE = 4  # bits of the numbers in the rings: modulo twice their size
_BITS = 5  # of sequence numbers in the proof


class _Watched:
    """Any one octet of any one connection: ``number`` is its sequence number, ``octet`` its value.

    ``there`` is 1 while the ring must keep the octet.
    """

    def __init__(self, m, rings):
        self._m = m
        self.rings = rings
        self.connection = Signal(range(_CONNECTIONS))
        self.number = Signal(_BITS)
        m.d.comb += [self.connection.eq(AnyConst(range(_CONNECTIONS))), self.number.eq(AnyConst(_BITS))]
        self.there = Signal()
        self.octet = Signal()
        at = Cat(self.number[2 : _PLACE - 1], self.connection)
        self._stored = rings.stored(m, "memory", at).word_select(self.number[:2], 8)[0]

    def enters(self, beat, first, octets):
        """The octets of a beat are written: ``first`` is the number of its octet 0. Only within an ``m.If``."""
        place = Signal(_BITS)
        self._m.d.comb += place.eq(self.number - first)
        with self._m.If(octets(place)):
            self._m.d.sync += [self.there.eq(1), self.octet.eq(beat.data.word_select(place[:2], 8)[0])]

    def leaves(self, beat, first, left):
        """Whether a beat has the octet: ``first`` is the number of its octet 0, of ``left`` that leave."""
        place = Signal(_BITS)
        self._m.d.comb += place.eq(self.number - first)
        return (place < 4) & (place < left) & (beat.data.word_select(place[:2], 8)[0] != self.octet)

    def kept(self, waits):
        """Whether the ring has the octet: in its memory or, if ``waits``, in the writer."""
        writer = self.rings["writer"]
        lane = self.number[:2]
        waits &= writer["waiting_mask"].bit_select(lane, 1) & (writer.address == self.number[2 : _PLACE - 1])
        return Mux(waits, writer["waiting"].word_select(lane, 8)[0], self._stored) == self.octet

    def read(self, first, left):
        """Whether the reader, which has ``left`` octets to output from ``first`` on, is in a reachable state."""
        reader = self.rings["reader"]
        have_word, have_both = reader["have_word"], reader["have_both"]
        word = Signal(_BITS - 2)
        place = Signal(_BITS)
        self._m.d.comb += [word.eq(self.number[2:] - first[2:]), place.eq(self.number - first)]
        lane = self.number[:2]
        before, current = (reader[name].word_select(lane, 8)[0] == self.octet for name in ("before", "word"))
        return (
            reader.busy
            & (have_word | ~have_both)
            & (reader["shift"] == first[:2])
            & (reader["left"] == left)
            & (left != 0)
            & (reader.address == (first[2:] + have_word + have_both)[: _PLACE - 3])
            & (
                ~self.there
                | (place >= left)
                | Mux(
                    have_both,
                    ((word != 0) | before) & ((word != 1) | current),
                    ~have_word | (word != 0) | current,
                )
            )
        )


class _Slot:
    """A word on its way, of a packet of the watched connection if it is ``mine``.

    ``number``: that of the octet with which its beat begins; ``left``: the octets of the packet from there on, of which
    there are none if the word has only the rest of the beat before.
    """

    def __init__(self, m, mine, name):
        self.number, self.left, self.real, self.of_mine, self.keeps, self.octets = (
            Signal(shape, name=f"{name}_{field}")
            for field, shape in (
                ("number", _BITS), ("left", signed(_BITS)), ("real", 1), ("of_mine", 1), ("keeps", 1), ("octets", _BITS)
            )
        )  # fmt: skip
        self.mine = self.real & self.of_mine
        self.has_beat = self.real & (self.left > 0)

    def fields(self):
        return self.number, self.left, self.real, self.of_mine, self.keeps, self.octets


class _Way:
    """The words on their way from the ring to the user: ``asks`` is asked for, ``returned`` at memory's output."""

    def __init__(self, m, rings, mine, head, asks):
        self._m, self._rings, self._mine = m, rings, mine
        self.beat, self.returned, self.asks = (_Slot(m, mine, name) for name in ("beat", "returned", "asks"))
        reader, asked = rings["reader"], rings.shown.reads.payload
        begins = rings.begin_receive & rings.ready & (rings.connection == mine)
        with m.If(reader.read):
            for to, of in ((self.beat, self.returned), (self.returned, self.asks)):
                m.d.sync += [here.eq(before) for here, before in zip(to.fields(), of.fields(), strict=True)]
            m.d.sync += [self.asks.number.eq(self.asks.number + 4), self.asks.left.eq(self.asks.left - 4)]
            with m.If(reader.i.ready):
                m.d.sync += self.asks.real.eq(0)
        with m.If(asks):
            m.d.sync += [
                self.asks.real.eq(1),
                self.asks.of_mine.eq(rings.shown.look_at == mine),
                self.asks.number.eq(head + asked.offset),
                self.asks.left.eq(asked.octets),
                self.asks.octets.eq(asked.octets),
                self.asks.keeps.eq(asked.keeps),
            ]
        with m.If(begins):  # what is on its way is of the connection before
            m.d.sync += [slot.of_mine.eq(0) for slot in (self.beat, self.returned, self.asks)]

    def _tags(self):
        reader = self._rings["reader"]
        layout = _Beat(reader.tag.shape())
        beat, returned = (data.View(layout, reader[name]) for name in ("beat", "returned"))
        return (self.beat, beat.tag.noted), (self.returned, returned.tag.noted), (self.asks, reader.tag.noted)

    def stale(self):
        """Whether octets of the connection before are on their way."""
        eras = self._rings["eras"].bit_select(self._mine, 1)
        return Cat(
            slot.real & (tag.connection == self._mine) & (tag.era != eras) for slot, tag in self._tags()
        ).any()

    def any_mine(self):
        return Cat(slot.mine for slot in (self.beat, self.returned, self.asks)).any()

    def _taken(self, slot, last):
        """The octets of the packet whose last beat is in ``slot``."""
        return Mux(slot.mine & slot.has_beat & last & ~slot.keeps, slot.octets, 0)

    def _all_taken(self):
        beat, returned = (self._taken(slot, slot.left <= 4) for slot in (self.beat, self.returned))
        return beat, returned, self._taken(self.asks, 1)

    def total(self, waiting):
        """Octets that have been asked for, and of which the program does not know yet that they have left."""
        total = Signal(_BITS + 3)
        self._m.d.comb += total.eq(sum(self._all_taken(), waiting))
        return total

    def states(self, watched, head, freed, limit):
        m, rings, mine = self._m, self._rings, self._mine
        reader = rings["reader"]
        layout = _Beat(reader.tag.shape())
        eras = rings["eras"].bit_select(mine, 1)
        for slot, tag in self._tags():
            m.states(~slot.real | (slot.of_mine == ((tag.connection == mine) & (tag.era == eras))))
            m.states(~slot.mine | ((tag.octets == slot.octets) & (tag.keeps == slot.keeps) & (slot.octets <= _SIZE)))
            m.states(~slot.real | ((slot.left <= _SIZE) & (slot.left > -4)))
        for slot, name in ((self.beat, "beat"), (self.returned, "returned")):
            view = data.View(layout, reader[name])
            m.states(view.valid == slot.has_beat)
            m.states(~slot.has_beat | ((view.last == (slot.left <= 4)) & (view.octets == slot.left[:3])))
            m.states(~slot.mine | (view.shift == slot.number[:2]))
        m.states(reader["busy"] == self.asks.real)
        m.states(~self.asks.real | (reader["left"] == self.asks.left))
        m.states(~self.asks.mine | (reader["shift"] == self.asks.number[:2]))
        m.states(~self.asks.mine | (reader.address == self.asks.number[2 : _PLACE - 1]))

        # The packets lie one behind the other, up to ``head``; first lanes lie behind what is taken before them.
        of_beat, of_returned, of_asks = self._all_taken()
        starts = [Signal(_BITS, name=f"start_{n}") for n in range(3)]
        m.d.comb += [
            starts[0].eq(head - of_asks - of_returned - of_beat),
            starts[1].eq(head - of_asks - of_returned),
            starts[2].eq(head - of_asks),
        ]
        for slot, start, younger in zip(
            (self.beat, self.returned, self.asks), starts, (self.returned, self.asks, None), strict=True
        ):
            behind = Signal(_BITS)
            end = Signal(_BITS)
            m.d.comb += [behind.eq(slot.number - start), end.eq(behind + slot.left)]
            there = slot.mine & slot.has_beat
            ends = (slot.left <= 4) if younger is not None else 1
            m.states(~(there & ends & ~slot.keeps) | (end == slot.octets))
            m.states(~(there & ends) | ((behind <= _SIZE) & (end <= (limit - start)[:_BITS])))
            if younger is not None:
                goes_on = slot.real & (slot.left + slot.number[:2] > 4)
                same = (younger.number == (slot.number + 4)[:_BITS]) & (younger.left == slot.left - 4)
                same &= (younger.octets == slot.octets) & (younger.keeps == slot.keeps)
                m.states(~(goes_on & slot.of_mine) | (younger.real & younger.of_mine & same))
                has_rest = younger.mine & (younger.left <= 0)  # of the beat before
                m.states(~has_rest | (slot.mine & (slot.left + slot.number[:2] > 4) & same))

        # Memory's output, and the word before it.
        delivered = watched.there & ((watched.number - freed)[:_BITS] < (limit - freed)[:_BITS])
        lane = watched.number[:2]
        for slot, word, used in (
            (self.returned, reader.word, self.returned.mine),
            (self.beat, reader["before"], self.beat.mine & self.beat.has_beat),
        ):
            # In this word, and in the packet or before it: the octets behind it may have come later.
            within = (slot.number[2:] == watched.number[2:]) & (
                (slot.number + slot.left - 1 - watched.number)[:_BITS] < _SIZE
            )
            m.states(~(used & delivered & within) | (word.word_select(lane, 8)[0] == watched.octet))


@proves(
    "an octet that has been queued is never overwritten before it is released, and a segment has the octets that were"
    " queued",
    lambda: SendRings(_CONNECTIONS, _SIZE),
    Mutant("a beat is written without room", SendRings, "<= self.size - 4", "<= self.size"),
    Mutant(
        "the octets behind a word's end are lost",
        RingWriter,
        "flush.eq(self.last & (turned_mask & ~above).any())",
        "flush.eq(0)",
    ),
    Mutant(
        "a segment begins with the word before", RingReader, "advance.eq(~have_both | self.o.ready)", "advance.eq(1)"
    ),
    name="send",
    of=f"SendRings, {_CONNECTIONS} rings of {_SIZE} octets",
    depth=1,
    reach=16,
)
def _(m, rings):
    watched = _Watched(m, rings)
    mine = watched.connection
    i, o = rings.i, rings.o
    beat = i.payload
    octets = Mux(beat.last, beat.octets, 4)
    value, reads_from = rings.value[:_BITS], rings.read.place[:_BITS]
    begins = rings.begin_send & (rings.connection == mine)
    sends = rings.sends.bit_select(mine, 1)

    # Packets have octets in all beats, or are a single beat without any, and belong to one connection.
    inside, packet_of = Signal(), Signal.like(mine)
    with m.If(i.valid & i.ready):
        m.d.sync += [inside.eq(~beat.last), packet_of.eq(beat.connection)]
    m.given(~(i.valid & beat.last) | ((beat.octets <= 4) & ((beat.octets != 0) | ~inside)))
    m.given(kept(m, i), ~(i.valid & inside) | (beat.connection == packet_of))
    # The connection cannot send before it is begun, nor in the two cycles after.
    begun, since = Signal(), Signal(2)
    m.given(~begins | ~sends, ~sends | (begun & (since == 2)))
    m.d.sync += since.eq(Mux(begins, 0, Mux(since == 2, 2, since + 1)))

    # The octets released, queued, and written; ``stale``: those that are written belong to an earlier connection.
    head, tail, count, stale = Signal(_BITS), Signal(_BITS), Signal(_BITS), Signal()
    end = Signal(_BITS)
    m.d.comb += end.eq(tail + count)
    takes = rings.within("Write") & i.valid & i.ready & (beat.connection == mine)
    queued = rings.queued & rings.noted & (rings.queued_of == mine)
    released = rings.release & (rings.connection == mine)
    m.given(rings.begin_send + rings.release + rings.noted <= 1)  # the program's writes, and events between them
    m.given(~released | (begun & ((value - head)[:_BITS] <= (tail - head)[:_BITS])))
    of_mine = rings["_ring"] == mine
    with m.If(rings.within("Begin") & of_mine):
        m.d.sync += [count.eq(0), stale.eq(0)]
        with m.If((watched.number - head)[:_BITS] >= (tail - head)[:_BITS]):
            m.d.sync += watched.there.eq(0)  # it was discarded
    with m.If(takes):
        m.d.sync += count.eq(count + octets)
        watched.enters(beat, end, lambda place: place < octets)
    with m.If(queued):
        m.always(rings.count == count, (end - head)[:_BITS] <= _SIZE)
        m.d.sync += [tail.eq(tail + rings.count), count.eq(0)]
    with m.If(released):
        m.d.sync += head.eq(value)
        with m.If((watched.number - head)[:_BITS] < (value - head)[:_BITS]):
            m.d.sync += watched.there.eq(0)
    with m.If(begins):
        m.d.sync += [begun.eq(1), head.eq(value), tail.eq(value), stale.eq(1), watched.there.eq(0)]

    # A segment is read: octets that have been queued, and not released.
    reads, at, left = Signal(), Signal(_BITS), Signal(_BITS)
    of_segment = rings.read.start & (rings.read.connection == mine)
    m.given(~(rings.read.start & rings["reader"].busy))
    m.given(~of_segment | (begun & ~begins & ~released & (rings.read.octets != 0)))
    m.given(
        ~of_segment
        | (
            ((reads_from - head)[:_BITS] <= _SIZE)
            & ((reads_from - head)[:_BITS] + rings.read.octets <= (tail - head)[:_BITS])
        )
    )
    with m.If(of_segment):
        m.d.sync += [reads.eq(1), at.eq(reads_from), left.eq(rings.read.octets)]
    with m.If(reads & o.valid & o.ready):
        m.d.sync += [at.eq(at + 4), left.eq(left - 4)]
        with m.If(o.payload.last):
            m.d.sync += reads.eq(0)
    with m.If(begins | (released & ((at + left - head)[:_BITS] < (value - head)[:_BITS]))):
        m.d.sync += reads.eq(0)
    m.always(~(reads & o.valid & watched.there & watched.leaves(o.payload, at, left)))
    m.always(~(reads & o.valid) | ((o.payload.last == (left <= 4)) & (~o.payload.last | (o.payload.octets == left))))

    reader, writer = rings["reader"], rings["writer"]
    writes, flushes, reports = (rings.within(name) for name in ("Write", "Flush", "Report"))
    active = begun & of_mine & ~stale & (writes | flushes | reports)
    size = _PLACE
    m.states(
        ~begun | ((rings.stored(m, "heads", mine) == head[:size]) & (rings.stored(m, "tails", mine) == tail[:size]))
    )
    m.states((tail - head)[:_BITS] <= _SIZE, begun | (~watched.there & ~reads))
    m.states(~active | (((end - head)[:_BITS] <= _SIZE) & (count <= _SIZE) & (rings.count == count)))
    m.states(~active | (rings["_tail"] == end[:size]))
    m.states(~(stale & of_mine & (writes | flushes | reports)) | (since <= reports), ~stale | ~watched.there)
    of_packet = Mux(inside, packet_of == rings["_ring"], i.valid & (beat.connection == rings["_ring"]))
    over = (flushes | reports) & rings["_ends"]
    m.states(~rings.within("Wait") | ~inside, rings.within("Wait") | Mux(over, ~inside, of_packet))
    m.states(flushes | ~writer["flush"])
    m.states(~(active & (writes | flushes)) | (writer["shift"] == tail[:2]))
    m.states(~(active & writes) | ((writer.address == end[2 : _PLACE - 1]) & (count[:2] == 0)))
    m.states(~(active & writes) | (writer["waiting_mask"] == Mux(count == 0, 0, (1 << tail[:2]) - 1)))
    m.states(~(active & writer["flush"]) | (end[:2] <= count))
    m.states(
        ~(active & writer["flush"])
        | ((writer.address == end[2 : _PLACE - 1]) & (writer["waiting_mask"] == (1 << end[:2]) - 1))
    )
    in_ring = (watched.number - head)[:_BITS] < (tail - head)[:_BITS]
    written = active & ((watched.number - tail)[:_BITS] < count)
    m.states(~(watched.there & (in_ring | written)) | watched.kept(active & (writes | writer["flush"])))
    m.states(~watched.there | ((watched.number - head)[:_BITS] < _SIZE))
    m.states(reader.busy | ~(reader["have_word"] | reader["have_both"]))
    m.states(~reads | ((rings["ring_read"] == mine) & watched.read(at, left)))
    m.states(~reads | ((at + left - head)[:_BITS] <= (tail - head)[:_BITS]), ~reads | (left <= _SIZE))


@proves(
    "an octet that has been received is never overwritten before it is taken, nor is any octet written outside of the"
    " window; the user takes the octets that were received",
    lambda: ReceiveRings(_CONNECTIONS, _SIZE),
    Mutant(
        "octets are delivered while they arrive",
        ReceiveRings,
        "waits & self.at_rest & room",
        "waits",
    ),
    Mutant(
        "octets may be overwritten before the last of a packet leave",
        ReceiveRings,
        "o.payload.last & ~left.keeps",
        "~left.keeps",
    ),
    Mutant("the last word of a packet is not read", PacketReader, "left + shift <= 4", "left <= 4"),
    name="receive",
    of=f"ReceiveRings, {_CONNECTIONS} rings of {_SIZE} octets",
    depth=1,
    reach=16,
)
def _(m, rings):
    watched = _Watched(m, rings)
    mine = watched.connection
    i, o = rings.i, rings.shown.o
    value = rings.value[:_BITS]
    written = rings.ready & (rings.connection == mine)
    begins, delivers = rings.begin_receive & written, rings.deliver & written
    writes = ("place", "first", "take", "deliver", "finish", "begin_receive")
    m.given(sum(getattr(rings, name) for name in writes) + rings.noted <= 1)

    # The octets of which the program knows that they have left, those that have been asked for, and those delivered.
    begun, freed, head, limit = Signal(), Signal(_BITS), Signal(_BITS), Signal(_BITS)
    ready = Signal(_BITS)
    m.d.comb += ready.eq(limit - freed)
    m.given(~delivers | (begun & ((value - freed)[:_BITS] >= ready) & ((value - freed)[:_BITS] <= _SIZE)))
    asked, asks = rings.shown.reads.payload, rings.shown.reads.valid & rings.shown.reads.ready
    mine_asks = asks & (rings.shown.look_at == mine)
    m.given(~mine_asks | begun, asked.keeps | (asked.offset == 0), asked.octets != 0)
    there = rings.shown.available
    m.given(~asks | ((asked.octets + asked.offset <= there) & (there <= _SIZE)))
    way = _Way(m, rings, mine, head, asks)
    # A connection begins anew at most once while its octets are on their way.
    m.given(~begins | ~way.stale())
    m.always(~(way.beat.mine & o.valid & watched.there & watched.leaves(o.payload, way.beat.number, way.beat.left)))
    m.always(~(way.beat.mine & o.valid) | (o.payload.last == (way.beat.left <= 4)))
    with m.If(mine_asks & ~asked.keeps):
        m.d.sync += head.eq(head + asked.octets)
    noted = rings.taken & rings.noted & (rings.taken_of == mine)
    m.given(~rings.noted | rings.taken)
    with m.If(noted):
        m.always(rings.count <= (head - freed)[:_BITS])
        m.d.sync += freed.eq(freed + rings.count)
        with m.If((watched.number - freed)[:_BITS] < rings.count):
            m.d.sync += watched.there.eq(0)
    due, delivering = Signal(_BITS), rings["delivering"] & (rings["due_of"] == mine)
    with m.If(delivers):
        m.d.sync += due.eq(value)
    with m.If(delivering & rings["at_rest"]):
        m.d.sync += limit.eq(due)
    with m.If(begins):
        m.d.sync += [begun.eq(1), freed.eq(value), head.eq(value), limit.eq(value), watched.there.eq(0)]

    # A payload: its octets ``first`` to ``end`` are written, and lie between those delivered and the right edge.
    placed, place, first, end, of = Signal(), Signal(_BITS), Signal(_BITS), Signal(_BITS), Signal.like(mine)
    at = Signal(_BITS)
    copies, writer = rings["copies"], rings["writer"]
    start = Signal(_BITS)
    m.d.comb += start.eq(place + first - freed)
    with m.If(rings.place & rings.ready):
        m.d.sync += [place.eq(value), placed.eq(1)]
    with m.If(rings.first & rings.ready):
        m.d.sync += first.eq(value)
    m.given(~rings.first | (rings.value < 2 * _SIZE))
    with m.If(rings.take & rings.ready & rings.has_payload):
        m.d.sync += [end.eq(value), at.eq(0), placed.eq(0), of.eq(rings.connection)]
        m.given(
            (rings.value == 0)
            | (placed & (rings.value < 2 * _SIZE) & (value > first))
            & (
                (rings.connection != mine)
                | (begun & (start >= ready) & (start <= _SIZE) & ((start + value - first)[:_BITS] <= _SIZE))
            )
        )
    m.given(~(copies & i.valid) | (at < 2 * _SIZE))  # the payload is not that long
    with m.If(copies & i.valid):
        m.d.sync += at.eq(at + 4)
        with m.If(of == mine):
            watched.enters(
                i.payload,
                place + at,
                lambda lane: (lane < 4) & ((lane + at)[:_BITS] >= first) & ((lane + at)[:_BITS] < end),
            )

    size = _PLACE
    passes = copies | writer["flush"]
    m.states(
        ~begun | ((rings.stored(m, "heads", mine) == head[:size]) & (rings.stored(m, "limits", mine) == limit[:size]))
    )
    m.states(ready <= _SIZE, begun | ~watched.there)
    m.states(~delivering | (begun & (rings["due"] == due[:size])))
    m.states(~delivering | (((due - freed)[:_BITS] >= ready) & ((due - freed)[:_BITS] <= _SIZE)))
    m.states(rings["first_offset"] == first, ~(copies & writer["flush"]), ~(placed & passes))
    m.states(~placed | (writer.address == place[2 : _PLACE - 1]), writer["shift"] == place[:2])
    m.states(passes | (writer["waiting_mask"] == 0))
    m.states(~passes | ((rings["ring"] == of) & (rings["end_offset"] == end)))
    m.states(
        ~passes | (end == 0) | (writer.address == (place + at)[2 : _PLACE - 1]),
        ~passes | (at <= 2 * _SIZE + 4),
        at[:2] == 0,
    )
    m.states(~copies | (rings["payload_word"] == at[2:]))
    m.states(~passes | (end == 0) | ((end > first) & (end < 2 * _SIZE)))
    for lane in range(4):
        offset = Signal(_BITS, name=f"offset_{lane}")
        m.d.comb += offset.eq(at - place[:2] + lane)
        waits = (at != 0) & (lane < place[:2]) & (offset >= first) & (offset < end)
        m.states(~passes | (writer["waiting_mask"][lane] == waits))
    m.states(
        ~passes
        | (of != mine)
        | (end == 0)
        | (begun & (start >= ready) & (start <= _SIZE) & ((start + end - first)[:_BITS] <= _SIZE))
    )
    m.states(
        ~watched.there | ((watched.number - freed)[:_BITS] < _SIZE),
        ~watched.there | watched.kept(passes & (of == mine)),
    )
    waiting = Mux(rings["waiting"].bit_select(mine, 1), rings.stored(m, "counts", mine), 0)
    m.states((head - freed)[:_BITS] <= ready, ~begun | (way.total(waiting) == (head - freed)[:_BITS]))
    m.states(begun | ~(rings["waiting"].bit_select(mine, 1) | way.any_mine()))
    way.states(watched, head, freed, limit)
