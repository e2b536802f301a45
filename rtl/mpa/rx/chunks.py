"""From chunks of any length to lanes: where the wire's segments end is forgotten here, and markers are set aside."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import INTERVAL, Packet, StreamBeat
from open_rnic.rtl.lib.rotate import rotate_lanes
from open_rnic.rtl.lib.stream import check_lanes

__all__ = ["ChunkPacker"]

OCTETS = 4 * INTERVAL


def _sum(a: Value, b: Value) -> Value:
    """The sum of two short numbers from tables alone, which may join what follows: sooner than out of a carry chain."""
    bits, carry = [], Const(0, 1)
    for at in range(max(len(a), len(b))):
        one, other = (each[at] if at < len(each) else Const(0, 1) for each in (a, b))
        bits.append(one ^ other ^ carry)
        carry = (one & other) | (carry & (one | other))
    return Cat(bits, carry)


class ChunkPacker(wiring.Component):
    """Packs chunks of any number of octets into full beats, and takes the markers out of the stream.

    Where markers lie depends on nothing but the place in the stream (RFC 5044 §4.3), so they can go before it is known
    where FPDUs begin. Each stays beside the lane that it preceded, which is in the FPDU whose CRC covers it.

    A beat that is not full is shown when no chunk is waiting, so nothing that has arrived is kept
    back but the last 1 to 3 octets of an unfinished lane.

    Latency 2 cycles; one beat a cycle. It stands still while ``o.ready`` is 0, which must not wait for ``o.valid``.

    Members
    -------
    i : chunks, with ``octets`` valid on every beat
    o : :class:`StreamBeat`
    markers : the stream has markers
    start : where in the marked stream it begins, in lanes; neither changes once octets have come
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
        lanes = self.lanes
        width = 4 * lanes
        i, o = self.i.payload, self.o.payload

        # First turn the octets to where they go in a beat: those before a marker in their lanes, those behind it one
        # lane too high. Lanes here are counted on into the next beat.
        started = Signal()
        octet = Signal(range(width))  # where in its beat the next octet goes; the lane is the marker's, inside of one
        passed = Signal(range(OCTETS))  # octets of the stream since the last marker's end
        home = Signal(range(lanes))  # the lane of the beat to which the next marker belongs
        filled = Signal(range(width))  # octets of the beat that are not a marker's
        count = i.octets
        inside = Signal()
        completes = Signal()
        has_marker = Signal()
        next_beat = Signal()  # ``home`` is in the next one
        marker_lane = Signal(range(2 * lanes))
        behind = Signal(range(2 * width))
        closed = Signal(range(2 * width))
        end = Signal(range(2 * width))  # where octets that are not a marker's end

        # The marker is near when it may begin in these octets: a short sum then says where.
        bits = (lanes - 1).bit_length()
        near, due = passed[bits + 2:] == OCTETS // width - 2, passed[bits + 2:] == OCTETS // width - 1
        low = passed[:bits + 2]
        through = Signal(range(2 * width))
        m.d.comb += through.eq(_sum(low, count))

        def reaches_octet(n):
            """Of the stream, counted from the place of the next marker."""
            return (due & (through > width - 4 + n)) | (near & (through > 2 * width - 4 + n))

        m.d.comb += [
            completes.eq(self.markers & due & (through >= width)),
            inside.eq(due & (low > width - 4)),
            has_marker.eq(self.markers & (inside | reaches_octet(0))),
            next_beat.eq(~inside & (Cat(Const(0, 2), home) < octet)),
            marker_lane.eq(Cat(home, next_beat)),
            behind.eq(_sum(octet, count)),
            closed.eq(_sum(octet, Cat(count[:2], (count[2:] - 1)[:bits + 1]))),  # less 4
        ]
        with m.If(completes):
            m.d.comb += end.eq(closed)
        with m.Elif(has_marker):
            m.d.comb += end.eq(Cat(Const(0, 2), marker_lane))
        with m.Else():
            m.d.comb += end.eq(behind)
        turned_valid = Signal()
        turned = Signal(8 * width, reset_less=True)
        keeps = Signal(width)  # octets that are there already
        moves = Signal(2 * lanes, reset_less=True)  # lanes that come from the next one
        reaches = Signal(range(2 * width), reset_less=True)  # ``end``
        marks = Signal()  # a marker is complete
        at = Signal(range(2 * lanes), reset_less=True)  # the marker's lane
        of_marker = Signal(4, reset_less=True)  # octets that are its
        in_place = rotate_lanes(m, i.data, octet, lane=8)
        comes = Signal()
        takes = Signal()
        goes = self.o.ready
        m.d.comb += [self.i.ready.eq(goes), comes.eq(self.i.valid & (count != 0)), takes.eq(goes & comes)]
        with m.If(~started):
            # From a marker's end to the next one it is 127 lanes.
            m.d.sync += [passed.eq(Cat(Const(0, 2), (self.start - 1)[:7])), home.eq(-self.start)]
        with m.If(takes):
            m.d.sync += [
                started.eq(1),
                octet.eq(Mux(completes, closed, behind)),
                passed.eq(Cat(through[:bits + 2], passed[bits + 2:] + through[bits + 2])),
                filled.eq(end),
            ]
            with m.If(completes):
                m.d.sync += home.eq(home - 1)
        with m.If(goes):
            m.d.sync += [
                turned_valid.eq(comes),
                turned.eq(in_place),
                keeps.eq(Cat(~comes | (n < filled) for n in range(width))),  # without octets what is kept stays
                moves.eq(Cat(has_marker & (n >= marker_lane) for n in range(2 * lanes))),
                reaches.eq(end),
                marks.eq(comes & completes),
                at.eq(marker_lane),
                of_marker.eq(Cat(
                    reaches_octet(n) & ~(due & (low > width - 4 + n)) for n in range(4)
                )),
            ]

        # Then join them with those that are there already.
        kept = Signal(8 * width, reset_less=True)
        held = Signal(range(width))  # octets kept
        shown = Signal(range(lanes))  # lanes of the kept beat that have been shown
        new = Signal(8 * width)  # octets for this beat
        over = Signal(8 * width)  # octets for the next beat
        joined = Signal(8 * width)
        for n in range(lanes):
            own, next_ = turned.word_select(n, 32), turned.word_select((n + 1) % lanes, 32)
            m.d.comb += [
                new.word_select(n, 32).eq(Mux(moves[n], next_, own)),
                over.word_select(n, 32).eq(Mux(moves[n + lanes], next_, own)),
            ]
        m.d.comb += joined.eq(Cat(
            Mux(keeps[n], kept.word_select(n, 8), new.word_select(n, 8)) for n in range(width)
        ))

        # A marker may come in parts, and may belong to the next beat.
        part = Signal(32, reset_less=True)
        marker = Signal(32)
        marked = Signal()  # the kept beat has a marker
        place = Signal(range(lanes))  # of that marker
        value = Signal(32, reset_less=True)  # of that marker
        m.d.comb += marker.eq(Cat(
            Mux(of_marker[n], turned.word_select(at[:bits], 32).word_select(n, 8), part.word_select(n, 8))
            for n in range(4)
        ))

        full = Signal()
        early = Signal()
        here = Signal()
        m.d.comb += [
            full.eq(turned_valid & (reaches >= width)),
            early.eq(~turned_valid & (held[2:] > shown)),
            here.eq(marks & (at < lanes)),
        ]
        with m.If(goes):
            m.d.sync += [
                self.o.valid.eq(full | early),
                o.data.eq(joined),
                o.count.eq(Mux(full, lanes, held[2:])),
                o.marked.eq(marked | here),
                o.place.eq(Mux(here, at, place)),
                o.marker.eq(Mux(here, marker, value)),
                kept.eq(Mux(full, over, joined)),
            ]
            with m.If(turned_valid):
                m.d.sync += [held.eq(reaches), part.eq(marker)]  # modulo the width
            with m.If(full):
                m.d.sync += [shown.eq(0), marked.eq(marks & ~here)]
            with m.Elif(marks):
                m.d.sync += marked.eq(1)
            with m.If(early):
                m.d.sync += shown.eq(held[2:])
            with m.If(marks):
                m.d.sync += [place.eq(at), value.eq(marker)]
        return m
