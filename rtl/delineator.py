"""Finds the FPDUs in the MPA stream, by ULPDU_Length (RFC 5044 §6)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .chunks import StreamBeat
from .markers import INTERVAL, MarkedFpdu
from .packer import rotate_lanes
from .stream import Buffer, check_lanes, swap_octets

__all__ = ["Delineator"]


class Delineator(wiring.Component):
    """Gives each FPDU as a packet of its own, from lane 0 on, and says where in it the markers lie.

    It looks through a window of two beats of the stream. As lane 0 of a beat is always at the same place of the stream
    modulo the width, which divides the distance of markers, a marker can only lie in lane 0; and how large an FPDU
    that began in a given lane would be is worked out as the beat comes in.

    A marker between two FPDUs belongs to the second one (RFC 5044 §4.3). So an FPDU is complete without it.

    Latency 2 cycles. In each cycle a full beat goes out, or the rest of an FPDU.

    After a ULPDU_Length over the maximum nothing can be found any more: one beat with ``too_long`` goes out, then
    what comes in is taken and dropped.

    Members
    -------
    i : :class:`rtl.chunks.StreamBeat`
    o : :class:`rtl.markers.MarkedFpdu`
    markers : the stream has markers
    start : where in the marked stream it begins, in lanes
    maximum : the largest ULPDU_Length; none of these three changes once octets have come
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(StreamBeat(lanes))),
            "o": Out(stream.Signature(MarkedFpdu(lanes))),
            "markers": In(1),
            "start": In(range(INTERVAL)),
            "maximum": In(16),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        bits = (lanes - 1).bit_length()

        # First: number the beats, and read in each lane what it would say as the first of an FPDU.
        sized = data.StructLayout({
            "data": 32 * lanes,
            "count": range(lanes + 1),
            "added": range(lanes + 1),  # how many of those lanes had not been shown before
            "marked": 1,  # lane 0 is a marker's place
            "next_marked": 2,  # so is that of the next beat, and of the one after it
            "sizes": data.ArrayLayout(15, lanes),  # of the FPDU with PAD and CRC, in lanes
            "too_long": lanes,
        })
        m.submodules.sized = arrived = Buffer(sized)
        started = Signal()
        index = Signal(range(INTERVAL // lanes))  # of the beat, since the last marker's place
        shown = Signal(range(lanes + 1))  # lanes of the beat that have been shown before
        first_lane = self.start[:bits]
        here = Signal.like(index)
        given, beat = self.i.payload, arrived.i.payload
        full = given.count == lanes
        m.d.comb += [
            here.eq(Mux(started, index, self.start[bits:])),
            arrived.i.valid.eq(self.i.valid),
            self.i.ready.eq(arrived.i.ready),
            beat.data.eq(given.data),
            beat.count.eq(given.count),
            beat.added.eq(given.count - Mux(started, shown, first_lane)),
            *(bit.eq(self.markers & ((here + n)[:len(here)] == 0))
              for n, bit in enumerate([beat.marked, *beat.next_marked])),
        ]
        for n in range(lanes):
            length = Signal(16, name=f"length_{n}")
            m.d.comb += [
                length.eq(swap_octets(given.data.word_select(n, 32)[:16])),
                beat.sizes[n].eq(((length + 2 + 3) >> 2) + 1),
                beat.too_long[n].eq(length > self.maximum),
            ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [started.eq(1), index.eq(here + full), shown.eq(Mux(full, 0, given.count))]

        # Then settle, for an FPDU that began in a lane, what its first two beats would be.
        entry = data.StructLayout({
            "count": range(lanes + 1),  # lanes of the first beat
            "ends": 1,  # there is no second
            "marked": 1,  # it has a marker
            "rest": 15,  # lanes that follow it, markers not counted
            "next_count": range(lanes + 1),
            "next_ends": 1,
            "next_marked": 1,
        })
        slot = data.StructLayout({
            "data": 32 * lanes,
            "count": range(lanes + 1),
            "marked": 1,
            "next_marked": 2,
            "too_long": lanes,
            "entries": data.ArrayLayout(entry, lanes),
        })
        beat = arrived.o.payload
        new = Signal(slot)
        m.d.comb += [
            *(new[name].eq(beat[name]) for name in ("data", "count", "marked", "next_marked", "too_long")),
        ]
        for n in range(lanes):
            one = new.entries[n]
            size, marked, next_marked = beat.sizes[n], beat.next_marked[0], beat.next_marked[1]
            if n == 0:
                marked, next_marked = beat.marked, beat.next_marked[0]
                if lanes > 1:  # behind the marker
                    size = Mux(beat.marked, beat.sizes[1], size)
                    m.d.comb += new.too_long[0].eq(Mux(beat.marked, beat.too_long[1], beat.too_long[0]))
            place = -n % lanes  # of that marker, in what goes out
            m.d.comb += [
                one.ends.eq(size <= lanes - marked),
                one.marked.eq(marked & (size > place)),
                one.count.eq(Mux(one.ends, size + one.marked, lanes)),
            ]
            with m.If(new.too_long[n]):  # so much as says so: ULPDU_Length, and a marker before it
                leads = beat.marked if n == 0 and lanes > 1 else 0
                m.d.comb += [one.ends.eq(1), one.marked.eq(leads), one.count.eq(1 + leads)]
            m.d.comb += _settle_next(one, lanes, size, place, marked, next_marked)

        never = {"entries": [{"count": 1}] * lanes}  # an empty slot has no FPDU of no lanes
        near, far = Signal(slot, init=never), Signal(slot, init=never)  # the window
        at = Signal(range(lanes))  # the first lane of the window that has not gone out
        position = Signal.like(at)
        m.d.comb += position.eq(Mux(started, at, first_lane))
        available = Signal(range(2 * lanes + 1))  # lanes of the window from there on
        inside = Signal()  # of an FPDU, of which ``step`` is the next beat
        step = Signal(entry)
        length = Signal(16, reset_less=True)  # its ULPDU_Length
        stopped = Signal()

        # What goes out: up to the end of the FPDU, or a full beat. In an FPDU of several beats ``at`` does not change.
        starts, later = Signal(entry), Signal(entry)
        count, ends, marked, too_long = Signal.like(starts.count), Signal(), Signal(), Signal()
        # A marker that fills a beat goes out by itself, before anything is known of the FPDU behind it.
        alone = ~inside & near.marked if lanes == 1 else Const(0)
        place = Signal(range(lanes))  # of a marker in what goes out
        m.d.comb += [
            place.eq(-position),
            starts.eq(near.entries[position]),
            too_long.eq(~inside & ~alone & near.too_long.bit_select(position, 1)),
            count.eq(Mux(inside, step.next_count, starts.count)),
            ends.eq(Mux(inside, step.next_ends, starts.ends)),
            marked.eq(Mux(inside, step.next_marked, starts.marked)),
            *_settle_next(later, lanes, step.rest, place,
                          Mux(position == 0, near.marked, near.next_marked[0]),
                          Mux(position == 0, near.next_marked[0], near.next_marked[1])),
        ]
        window = Signal(32 * lanes)
        words = [near.data.word_select(n, 32) for n in range(lanes)]
        m.d.comb += window.eq(Cat(
            Mux(n >= position, near.data.word_select(n, 32), far.data.word_select(n, 32)) for n in range(lanes)
        ))
        header = Array(words)[(position | (near.marked & (position == 0)))[:bits]]
        this_length = Signal(16)
        o = self.o.payload
        m.d.comb += [
            this_length.eq(Mux(inside, length, swap_octets(header[:16]))),
            self.o.valid.eq((available >= count) & ~stopped),
            o.data.eq(rotate_lanes(m, window, place)),
            o.octets.eq(Cat(Const(0, 2), count)),
            o.last.eq(ends & ~alone),
            o.marked.eq(marked | alone),
            o.marker.eq(place),
            o.length.eq(this_length),
            o.too_long.eq(too_long),
        ]
        moves = self.o.valid & self.o.ready
        with m.If(moves):
            m.d.sync += [
                inside.eq(~ends & ~alone),
                step.eq(Mux(inside, later, starts)),
                length.eq(this_length),
                stopped.eq(too_long),
            ]

        # The window moves on, and the new beat goes where there is room.
        moved = Signal(range(2 * lanes))
        shifts = Signal()
        next_near, next_far = Signal(slot), Signal(slot)
        fits_near, fits_far = Signal(), Signal()
        m.d.comb += [
            moved.eq(position + Mux(moves, count, 0)),
            shifts.eq(moved[bits]),
            next_near.eq(Mux(shifts, far, near)),
            next_far.eq(far),
            fits_near.eq(next_near.count != lanes),
            fits_far.eq(~fits_near & (next_far.count != lanes)),
            arrived.o.ready.eq(stopped | fits_near | fits_far),
        ]
        with m.If(shifts):
            m.d.comb += next_far.count.eq(0)
        takes = arrived.o.valid & (fits_near | fits_far) & ~stopped
        m.d.sync += [
            near.eq(Mux(takes & fits_near, new, next_near)),
            far.eq(Mux(takes & fits_far, new, next_far)),
            at.eq(moved),
            available.eq(available + Mux(takes, beat.added, 0) - Mux(moves, count, 0)),
        ]
        return m


def _settle_next(one, lanes, size, place, marked, next_marked):
    """For an FPDU of ``size`` more lanes, of which a full beat goes out now: what its next beat is.

    ``marked``, ``next_marked``: this beat and the next one reach a marker's place, which is lane ``place``.
    """
    most = Array([2 * lanes, 2 * lanes - 1])[marked | next_marked]  # at most one of both: markers are beats apart
    return [
        one.rest.eq(size + marked - lanes),
        one.next_ends.eq(size <= most),
        one.next_marked.eq(next_marked & (one.rest > place)),
        one.next_count.eq(Mux(one.next_ends, one.rest + one.next_marked, lanes)),
    ]
