"""Packs the chunks of the MPA stream into full beats, and removes its markers (RFC 5044 §4.3)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, Packet, StreamBeat
from open_rnic.rtl.lib.copies import AT_ONCE, copies, parts_of
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import TURNED, rotate_lanes, steps_of
from open_rnic.rtl.lib.stream import Stage, Through

__all__ = ["ChunkPacker"]

OCTETS = 4 * INTERVAL  # from one marker to the next, itself included


def _sum(a: Value, b: Value) -> Value:
    """The sum of two short numbers without a carry chain: faster, as its tables can be merged with those behind it."""
    bits, carry = [], Const(0, 1)
    for at in range(max(len(a), len(b))):
        one, other = (each[at] if at < len(each) else Const(0, 1) for each in (a, b))
        bits.append(one ^ other ^ carry)
        carry = (one & other) | (carry & (one | other))
    return Cat(bits, carry)


class ChunkPacker(wiring.Component):
    """Packs chunks of any number of octets into full beats, and removes the markers from the stream.

    The places of markers depend on the stream offset only (RFC 5044 §4.3), so markers can be removed before the FPDUs
    are found. Each marker stays beside the lane that it preceded; that lane is in the FPDU whose CRC covers the marker.

    An incomplete beat is sent when no chunk is waiting, and again once it is complete. Only the last 1 to 3 octets of
    an incomplete lane are held back.

    Latency: 2 cycles, 5 cycles above 4 lanes. Throughput: one beat per cycle. The block stalls as a whole while
    ``o.ready`` is 0, so ``o.ready`` must not depend on ``o.valid``.

    Members
    -------
    i : In, stream of :class:`.Packet`
        Chunks, with ``octets`` valid on every beat.
    o : Out, stream of :class:`.StreamBeat`
        The stream without markers.
    markers : In, 1 bit
        The stream has markers.
    start : In, 7 bits
        Offset of the first octet in the marked stream, in lanes. This port and ``markers`` do not change once a chunk
        has been offered, even one of no octets, nor in the cycle before; and none is in the first cycle after reset.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(Packet(lanes))),
            "o": Out(stream.Signature(StreamBeat(lanes))),
            "markers": In(1),
            "start": In(range(INTERVAL)),
        })

    def elaborate(self, platform):
        m = Module()
        x = _Parts(self.lanes)
        m.submodules.measured = measured = (Stage if self.lanes > AT_ONCE else Through)(_Measured(self.lanes))
        located = stream.Signature(_Located(self.lanes)).create()
        m.d.comb += [self.i.ready.eq(self.o.ready), measured.o.ready.eq(self.o.ready)]
        self._measure(m, x, measured.i)
        first_turn = self._locate(m, x, measured.o, located)
        self._turn(m, x, located, first_turn)
        self._join(m, x)
        self._join_marker(m, x)
        self._show(m, x)
        return m

    def _measure(self, m, x, o):
        """Which octets of a marker the chunk has."""
        lanes, bits, width = self.lanes, x.bits, x.width
        between = OCTETS // width  # beats from one marker to the next
        measured = o.payload
        count = self.i.payload.octets
        started = Signal()
        passed = Signal(range(OCTETS))  # octets of the stream since the end of the last marker

        # The marker is near if it may begin in these octets: a short sum then finds its place.
        beats, low = passed[bits + 2:], passed[:bits + 2]
        near = Signal()  # ``beats`` is 2 less than their number between markers
        due = Signal()  # 1 less
        through = Signal(range(2 * width))
        m.d.comb += through.eq(_sum(low, count))

        def reaches_octet(n):
            """The stream, with this chunk, reaches octet ``n`` of the next marker."""
            return (due & (through > width - 4 + n)) | (near & (through > 2 * width - 4 + n))

        m.d.comb += [
            o.valid.eq(self.i.valid & (count != 0)),
            measured.data.eq(self.i.payload.data),
            measured.count.eq(count),
            measured.less.eq(Cat(count[:2], (count[2:] - 1)[:bits + 1])),
            measured.inside.eq(due & (low > width - 4)),
            measured.completes.eq(self.markers & due & (through >= width)),
            measured.has_marker.eq(self.markers & (measured.inside | reaches_octet(0))),
            *(measured.adds[n].eq(reaches_octet(n) & ~(due & (low > width - 4 + n))) for n in range(4)),
        ]
        with m.If(~started):
            m.d.sync += passed.eq(Cat(Const(0, 2), (self.start - 1)[:7]))
            for flag, number in ((near, between - 2), (due, between - 1)):  # without a wait for the difference
                m.d.sync += flag.eq(self.start.matches(*((number * lanes + n + 1) % INTERVAL for n in range(lanes))))
        with m.If(o.valid & self.o.ready):
            m.d.sync += started.eq(1)
        with m.If(self.i.valid & self.o.ready):  # a chunk of no octets changes nothing
            m.d.sync += passed.eq(Cat(through[:bits + 2], beats + through[bits + 2]))
            with m.If(through[bits + 2]):
                m.d.sync += [near.eq(beats == between - 3), due.eq(near)]

    def _locate(self, m, x, i, o):
        """Where in its beat the chunk ends, and where a marker lies in it.

        Lanes are counted on into the next beat. Octets before a marker belong into their lanes, those behind it arrive
        one lane too high.

        Return the bits of ``octet`` by which the first step rotates the chunk, of wide beats in copies.
        """
        lanes, width = self.lanes, x.width
        measured, located = i.payload, o.payload
        count, octet = measured.count, located.octet
        started = Signal()
        home = Signal(range(lanes))  # the lane of the beat to which the next marker belongs
        next_beat = Signal()  # ``home`` is in the next beat
        behind = Signal(range(2 * width))
        closed = Signal(range(2 * width))
        m.d.comb += [
            o.valid.eq(i.valid),
            *(located[name].eq(measured[name]) for name in ("data", "has_marker", "completes", "adds")),
            located.octet.eq(x.octet),
            next_beat.eq(~measured.inside & (Cat(Const(0, 2), home) < octet)),
            located.marker_lane.eq(Cat(home, next_beat)),
            behind.eq(_sum(octet, count)),
            closed.eq(_sum(octet, measured.less)),
        ]
        with m.If(located.completes):
            m.d.comb += located.end.eq(closed)
        with m.Elif(located.has_marker):
            m.d.comb += located.end.eq(Cat(Const(0, 2), located.marker_lane))
        with m.Else():
            m.d.comb += located.end.eq(behind)

        with m.If(~started):
            m.d.sync += home.eq(-self.start)  # there are 127 lanes from the end of a marker to the next one
        first_turn = located.octet[:TURNED]
        octet_next = Mux(located.completes, closed, behind)
        if lanes > AT_ONCE:
            # All octets of a chunk wait for its rotation: decisions have ``octet`` to themselves.
            turn = Mux(o.valid & self.o.ready, octet_next, x.octet)[:TURNED]
            first_turn = [copies(m, bit, parts_of(lanes), f"turn_{n}") for n, bit in enumerate(turn)]
        with m.If(o.valid & self.o.ready):
            m.d.sync += [started.eq(1), x.octet.eq(octet_next)]
            with m.If(located.completes):
                m.d.sync += home.eq(home - 1)
        return first_turn

    def _turn(self, m, x, i, by):
        """Rotate the chunk to its place in the beat, and register what the next cycle does with each octet."""
        lanes = self.lanes
        filled = Signal(range(x.width))  # octets of the beat that are not a marker's
        steps = steps_of(x.bits + 2)  # the bits of ``octet`` by which they rotate
        for at in steps[:-1]:
            m.submodules[f"turned_{at}"] = turned = (Stage if lanes > AT_ONCE else Through)(_Located(lanes))
            m.d.comb += [
                turned.i.valid.eq(i.valid),
                turned.i.payload.eq(i.payload),
                turned.i.payload.data.eq(rotate_lanes(m, i.payload.data, by, lane=8, at=at)),
                turned.o.ready.eq(self.o.ready),
            ]
            i = turned.o
            by = i.payload.octet[at + TURNED:at + 2 * TURNED]
        chunk = i.payload
        with m.If(self.o.ready):
            with m.If(i.valid):
                m.d.sync += filled.eq(chunk.end)
            m.d.sync += [
                x.turned_valid.eq(i.valid),
                x.turned.eq(rotate_lanes(m, chunk.data, by, lane=8, at=steps[-1])),
                x.keeps.eq(Cat(~i.valid | (n < filled) for n in range(x.width))),  # a chunk of no octets keeps all
                x.moves.eq(Cat(chunk.has_marker & (n >= chunk.marker_lane) for n in range(2 * lanes))),
                x.reaches.eq(chunk.end),
                x.spills.eq(Cat(i.valid & (chunk.end > x.width + 4 * n) for n in range(lanes))),
                x.marks.eq(i.valid & chunk.completes),
                x.at.eq(chunk.marker_lane),
                x.of_marker.eq(chunk.adds & i.valid.replicate(len(chunk.adds))),
            ]

    def _join(self, m, x):
        """Join the octets with those that the beat has, and close the gap that a marker leaves."""
        lanes = self.lanes
        new = Signal(8 * x.width)  # octets for this beat
        for n in range(lanes):
            own, next_ = x.turned.word_select(n, 32), x.turned.word_select((n + 1) % lanes, 32)
            m.d.comb += [
                new.word_select(n, 32).eq(Mux(x.moves[n], next_, own)),
                x.over.word_select(n, 32).eq(Mux(x.moves[n + lanes], next_, own)),
            ]
        m.d.comb += x.joined.eq(Cat(
            Mux(x.keeps[n], x.kept.word_select(n, 8), new.word_select(n, 8)) for n in range(x.width)
        ))

    def _join_marker(self, m, x):
        """Join the parts of a marker, which may arrive in several chunks. It stays until the next one begins."""
        part = Signal(32, reset_less=True)  # octets that have arrived
        m.d.comb += x.marker.eq(Cat(
            Mux(x.of_marker[n], x.turned.word_select(x.at[:x.bits], 32).word_select(n, 8), part.word_select(n, 8))
            for n in range(4)
        ))
        with m.If(self.o.ready & x.turned_valid):
            m.d.sync += part.eq(x.marker)

    def _show(self, m, x):
        """Send the beat if it is full, or if it has new lanes and no chunk is waiting."""
        lanes, o = self.lanes, self.o.payload
        held = Signal(range(x.width))  # octets kept
        shown = Signal(range(lanes))  # lanes of the kept beat that have been sent
        marked = Signal()  # the kept beat has a marker
        place = Signal(range(lanes))  # of that marker
        early = Signal()
        marks_this = Signal()  # the marker belongs to this beat, not to the next one
        m.d.comb += [
            x.fills.eq(x.turned_valid & (x.reaches >= x.width)),
            early.eq(~x.turned_valid & (held[2:] > shown)),
            marks_this.eq(x.marks & (x.at < lanes)),
        ]
        with m.If(self.o.ready):
            m.d.sync += [
                self.o.valid.eq(x.fills | early),
                o.data.eq(x.joined),
                o.count.eq(Mux(x.fills, lanes, held[2:])),
                o.marked.eq(marked | marks_this),
                o.place.eq(Mux(marks_this, x.at, place)),
                o.marker.eq(x.marker),  # the next one begins several beats later
                x.kept.eq(Cat(
                    Mux(x.spills[n] if lanes > AT_ONCE else x.fills, x.over.word_select(n, 32),
                        x.joined.word_select(n, 32))
                    for n in range(lanes)
                )),
            ]
            with m.If(x.turned_valid):
                m.d.sync += held.eq(x.reaches)  # modulo the width
            with m.If(x.fills):
                m.d.sync += [shown.eq(0), marked.eq(x.marks & ~marks_this)]
            with m.Elif(x.marks):
                m.d.sync += marked.eq(1)
            with m.If(early):
                m.d.sync += shown.eq(held[2:])
            with m.If(x.marks):
                m.d.sync += place.eq(x.at)


class _Measured(data.StructLayout):
    """A chunk and its octets of a marker.

    Members
    -------
    data : 32 * ``lanes`` bits
        The octets.
    count : range(4 * ``lanes`` + 1)
        Their number.
    less : as ``count``
        4 less than that, modulo the range.
    inside : 1 bit
        It begins inside a marker.
    has_marker, completes, adds
        As in :class:`_Located`.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes, "count": range(4 * lanes + 1), "less": range(4 * lanes + 1),
            "inside": 1, "has_marker": 1, "completes": 1, "adds": 4,
        })  # fmt: skip


class _Located(data.StructLayout):
    """A chunk and its place.

    Members
    -------
    data : 32 * ``lanes`` bits
        The octets.
    octet : range(4 * ``lanes``)
        Where in its beat the chunk begins; inside a marker, the lane is the marker's.
    end : range(8 * ``lanes``)
        Where its octets that are not a marker's end.
    has_marker : 1 bit
        It has octets of a marker.
    completes : 1 bit
        It has the last octet of a marker.
    marker_lane : range(2 * ``lanes``)
        The lane of that marker.
    adds : 4 bits
        The octets of the marker that it has.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes, "octet": range(4 * lanes), "end": range(8 * lanes),
            "has_marker": 1, "completes": 1, "marker_lane": range(2 * lanes), "adds": 4,
        })  # fmt: skip


class _Parts:
    """The signals that the parts of a :class:`ChunkPacker` share."""

    def __init__(self, lanes: int):
        self.bits = (lanes - 1).bit_length()
        self.width = width = 4 * lanes

        self.octet = Signal(range(width))  # :attr:`_Located.octet` of the next chunk

        # The chunk, rotated.
        self.turned_valid = Signal()
        self.turned = Signal(8 * width, reset_less=True)
        self.keeps = Signal(width)  # octets of the beat that have arrived before
        self.moves = Signal(2 * lanes, reset_less=True)  # lanes that take the octets of the next higher one
        self.reaches = Signal(range(2 * width), reset_less=True)  # ``end``
        self.spills = Signal(lanes)  # lanes of the next beat that it reaches
        self.marks = Signal()  # a marker is complete
        self.at = Signal(range(2 * lanes), reset_less=True)  # the marker's lane
        self.of_marker = Signal(4, reset_less=True)  # octets of the marker that this chunk has

        # The beat.
        self.fills = Signal()  # it is full
        self.kept = Signal(8 * width, reset_less=True)  # what has arrived of it
        self.joined = Signal(8 * width)  # with this chunk
        self.over = Signal(8 * width)  # octets for the next beat
        self.marker = Signal(32)
