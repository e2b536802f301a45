"""Finds the FPDUs in the MPA stream, by ULPDU_Length (RFC 5044 §6)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .chunks import StreamBeat
from .markers import INTERVAL, MarkedFpdu
from .packer import rotate_lanes
from .stream import check_lanes, swap_octets

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
        header = data.StructLayout({"size": 15, "too_long": 1})  # of an FPDU that would begin in a lane
        slot = data.StructLayout({
            "data": 32 * lanes,
            "count": range(lanes + 1),
            "marked": 1,  # lane 0 is a marker's place
            "headers": data.ArrayLayout(header, lanes),
        })

        # A beat as it comes in, with what its lanes would say as the first of an FPDU.
        started = Signal()
        index = Signal(range(INTERVAL // lanes))  # of the beat, since the last marker's place
        here = Mux(started, index, self.start[bits:])
        new = Signal(slot)
        m.d.comb += [
            new.data.eq(self.i.payload.data),
            new.count.eq(self.i.payload.count),
            new.marked.eq(self.markers & (here == 0)),
        ]
        for n in range(lanes):
            length = Signal(16, name=f"length_{n}")
            m.d.comb += [
                length.eq(swap_octets(self.i.payload.data.word_select(n, 32)[:16])),
                new.headers[n].size.eq(((length + 2 + 3) >> 2) + 1),  # with PAD and CRC, in lanes
                new.headers[n].too_long.eq(length > self.maximum),
            ]

        near, far = Signal(slot), Signal(slot)  # the window
        at = Signal(range(lanes))  # the first lane of the window that has not gone out
        position = Signal.like(at)
        m.d.comb += position.eq(Mux(started, at, self.start[:bits]))
        inside = Signal()  # of an FPDU
        left = Signal(15, reset_less=True)  # lanes of it that have not gone out, later markers not counted
        length = Signal(16, reset_less=True)  # ULPDU_Length
        stopped = Signal()

        # The header is in the first lane of an FPDU, or behind the marker there.
        leads = near.marked & (position == 0)
        if lanes == 1:
            lane_headers = Array([near.headers[0], far.headers[0]])
            lane_words = Array([near.data[:16], far.data[:16]])
            header_at = leads
            header_came = Mux(leads, far.count != 0, near.count != 0)
        else:
            lane_headers = Array(near.headers[n] for n in range(lanes))
            lane_words = Array(near.data.word_select(n, 32)[:16] for n in range(lanes))
            header_at = position | leads
            header_came = header_at < near.count
        this_header = Signal(header)
        this_length = Signal(16)
        m.d.comb += [
            this_header.eq(Mux(inside, 0, data.View(header, lane_headers[header_at]))),
            this_length.eq(Mux(inside, length, swap_octets(lane_words[header_at]))),
        ]

        # What goes out: up to the end of the FPDU, or a full beat.
        wanted = Signal(15)  # lanes of the FPDU from here on, markers not counted
        marker = Signal(range(lanes))  # where a marker would lie in what goes out
        marked = Signal()
        ends = Signal()
        count = Signal(range(lanes + 1))
        came = Signal(range(2 * lanes + 1))
        m.d.comb += [
            wanted.eq(Mux(inside, left, this_header.size)),
            marker.eq(-position),
            marked.eq(Mux(position == 0, near.marked, far.marked) & (wanted > marker)),
            ends.eq(wanted + marked <= lanes),
            count.eq(Mux(ends, wanted + marked, lanes)),
            came.eq(near.count + far.count),
        ]
        o = self.o.payload
        window = Signal(32 * lanes)
        m.d.comb += window.eq(Cat(
            Mux(n >= position, near.data.word_select(n, 32), far.data.word_select(n, 32)) for n in range(lanes)
        ))
        too_long = this_header.too_long
        m.d.comb += [
            self.o.valid.eq((inside | header_came) & ((came >= position + count) | too_long) & ~stopped),
            o.data.eq(rotate_lanes(m, window, (-position)[:bits])),
            o.octets.eq(Cat(Const(0, 2), Mux(too_long, 1, count))),
            o.last.eq(ends | too_long),
            o.marked.eq(marked & ~too_long),
            o.marker.eq(marker),
            o.length.eq(this_length),
            o.too_long.eq(too_long),
        ]

        moves = self.o.valid & self.o.ready
        moved = Signal(range(2 * lanes))
        shifts = Signal()
        m.d.comb += [
            moved.eq(Mux(moves, position + count, position)),
            shifts.eq(moved >= lanes),
        ]
        with m.If(moves):
            m.d.sync += [
                inside.eq(~ends),
                left.eq(wanted + marked - lanes),
                length.eq(this_length),
                stopped.eq(too_long),
            ]

        # The window moves on, and the new beat goes where there is room.
        next_near, next_far = Signal(slot), Signal(slot)
        m.d.comb += next_near.eq(Mux(shifts, far, near))
        with m.If(~shifts):
            m.d.comb += next_far.eq(far)
        fits_near = next_near.count != lanes
        fits_far = ~fits_near & (next_far.count != lanes)
        m.d.comb += self.i.ready.eq(stopped | fits_near | fits_far)
        m.d.sync += [near.eq(next_near), far.eq(next_far), at.eq(moved)]
        with m.If(self.i.valid & ~stopped):
            m.d.sync += started.eq(1)
            with m.If(fits_near):
                m.d.sync += near.eq(new)
            with m.Elif(fits_far):
                m.d.sync += far.eq(new)
            with m.If((fits_near | fits_far) & (new.count == lanes)):
                m.d.sync += index.eq(here + 1)
            with m.Else():
                m.d.sync += index.eq(here)
        return m
