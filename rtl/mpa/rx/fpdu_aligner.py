"""Cuts the MPA stream into FPDUs, each of which has beats of its own."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import Found, StreamBeat, aligned
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import rotate_lanes

__all__ = ["FpduAligner"]


class FpduAligner(wiring.Component):
    """Cuts FPDUs out of the stream, and rotates each so that it begins in lane 0.

    The block has a window of two beats of the stream. A beat of an FPDU is sent as soon as all of its lanes have
    arrived, even if the stream's beat is incomplete, so no FPDU waits for octets behind it.

    After an FPDU that is ``too_long``, the input is discarded.

    Latency: 2 cycles from both inputs. Throughput: in each cycle a full beat, or the end of an FPDU.

    Members
    -------
    i : In, stream of :class:`.StreamBeat`
        The stream without markers.
    found : In, stream of :class:`.Found`
        The FPDUs in the stream.
    o : Out, signature :func:`.aligned`
        FPDUs.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(StreamBeat(lanes))),
            "found": In(stream.Signature(Found(lanes))),
            "o": Out(aligned(lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        o = self.o.payload

        # How the next FPDU will be cut.
        bits = (lanes - 1).bit_length()
        cuts = data.StructLayout({
            "length": 16, "too_long": 1, "lane": range(lanes),
            "turn": range(lanes),  # the rotation that moves its first lane to lane 0
            "lanes": range(lanes + 1),  # of its last beat, at least 1
            "reaches": 1,  # in the window, its last beat extends into the far beat
            "crosses": 1,  # the next FPDU begins in the far beat
            "needs": range(lanes + 1),  # lanes that it needs of the beat in which it ends
            "trailing": 2,  # beats at its end without octets of the ULPDU
            "octets": range(4 * lanes + 1),  # of the ULPDU in the last beat that has octets of it
        })  # fmt: skip
        found = self.found.payload
        cut = Signal(cuts)
        width = 4 * lanes
        final = Mux(found.too_long, 0, found.final[:bits])  # the FPDU's last lane, in its beat
        until = Signal(range(2 * lanes))  # the FPDU's last lane, in the window
        octet = Signal(range(width))  # the ULPDU's last octet, in its beat; 0 if the ULPDU is empty
        single = Signal()  # the first beat of the FPDU is its last
        brief = Signal()  # the first beat of the FPDU is the last of its ULPDU
        empty = found.length == 0
        m.d.comb += [
            *(cut[name].eq(found[name]) for name in ("length", "too_long", "lane")),
            single.eq(found.too_long | found.single),
            brief.eq(found.too_long | found.brief),
            until.eq(final + found.lane),
            octet.eq(Mux(empty, 0, found.length[:bits + 2] - 1)),
            cut.turn.eq(-found.lane),
            cut.lanes.eq(final + 1),
            cut.reaches.eq(until[bits:]),
            cut.crosses.eq(until >= lanes - 1),
            cut.needs.eq(until[:bits] + 1),
            cut.trailing.eq(Mux(empty, 5 // width, (octet + (1 + 2 + 3)) >> (bits + 2))),
            cut.octets.eq(Mux(empty, 0, octet + 1)),
        ]

        # The FPDU that is being cut, and its next beat.
        valid = Signal()
        fpdu = Signal(cuts, reset_less=True)
        left = Signal(15 - bits, reset_less=True)  # beats after this one
        last = Signal()
        gives = Signal()
        ends = Signal()
        needs_far = Signal()  # the beat extends into the far register
        frees_near = Signal()  # the near register has nothing beyond the beat
        needs_far_next = Signal()
        fires = Signal()  # a beat leaves; decided a cycle before
        takes = Signal()  # the next FPDU can be loaded
        m.d.comb += [takes.eq(~valid | (fires & last)), self.found.ready.eq(takes)]
        m.d.comb += needs_far_next.eq(needs_far)
        with m.If(takes):
            m.d.comb += needs_far_next.eq(~single | cut.reaches)
            m.d.sync += [
                valid.eq(self.found.valid),
                fpdu.eq(cut),
                left.eq(found.final[bits:]),
                last.eq(single),
                frees_near.eq(~single | cut.crosses),
                gives.eq(1),
                ends.eq(brief),
            ]
        with m.Elif(fires):
            m.d.comb += needs_far_next.eq((left != 1) | fpdu.reaches)
            m.d.sync += [
                left.eq(left - 1),
                last.eq(left == 1),
                frees_near.eq((left != 1) | fpdu.crosses),
                gives.eq(gives & ~ends),
                ends.eq(left == fpdu.trailing + 1),
            ]

        m.d.sync += needs_far.eq(needs_far_next)

        # The window. The far beat is empty while the near beat is incomplete.
        near = Signal(StreamBeat(lanes))
        far = Signal(StreamBeat(lanes))
        near_full = Signal()
        far_full = Signal()
        near_full_next = Signal()
        far_full_next = Signal()
        far_open = Signal(init=1)  # ``~far_full``, duplicated because of its fan-out
        moves = Signal()
        given = self.i.payload
        given_full = given.count[-1]
        stopped = Signal()
        m.d.comb += [
            self.i.ready.eq(moves | ~far_full | stopped),
            near_full_next.eq(near_full),
            far_full_next.eq(far_full),
        ]
        m.d.sync += [near_full.eq(near_full_next), far_full.eq(far_full_next), far_open.eq(~far_full_next)]
        with m.If(Mux(near_full, moves, self.i.valid)):
            with m.If(self.i.valid & far_open):
                m.d.comb += near_full_next.eq(given_full)
                m.d.sync += near.eq(given)
            with m.Else():
                m.d.comb += near_full_next.eq(far_full)
                m.d.sync += near.eq(far)
        with m.If(Mux(far_full, moves, self.i.valid & near_full)):
            m.d.comb += far_full_next.eq(given_full)
            m.d.sync += far.eq(given)
        with m.If(moves & ~(self.i.valid & far_full)):
            m.d.comb += far_full_next.eq(0)
            m.d.sync += [far.count.eq(0), far.marked.eq(0)]

        # A beat that is not the FPDU's last one also needs the next lane, for 2 octets of it. If the
        # stream's beats are incomplete, comparing their lanes takes a cycle.
        has = Signal(range(lanes + 1))
        needs = Signal(range(lanes + 1))
        # The beat can leave in the next cycle.
        whole = Signal()  # because the stream's beat will be complete
        enough = Signal()  # because the lanes that it needs have arrived
        m.d.comb += [
            has.eq(Mux(needs_far, far.count, near.count)),
            needs.eq(Mux(last, fpdu.needs, fpdu.lane + 1)),
            whole.eq(Mux(takes, self.found.valid, 1) & Mux(needs_far_next, far_full_next, near_full_next)),
            enough.eq(valid & ~fires & (has >= needs)),
            moves.eq(fires & frees_near),
        ]
        with m.If(fires & fpdu.too_long):
            m.d.sync += stopped.eq(1)
        m.d.sync += fires.eq((whole | enough) & self.o.room)

        window = Cat(
            Mux(n >= fpdu.lane, near.data.word_select(n, 32), far.data.word_select(n, 32)) for n in range(lanes)
        )
        turned = rotate_lanes(m, window, fpdu.turn)
        m.d.sync += [
            self.o.valid.eq(fires),
            o.data.eq(Cat(turned, far.data.word_select(fpdu.lane, 32)[:16])),
            o.count.eq(Mux(last, fpdu.lanes, lanes)),
            o.last.eq(last),
            o.length.eq(fpdu.length),
            o.too_long.eq(fpdu.too_long),
            # At most one of the two beats has a marker: markers are many beats apart.
            o.marked.eq(near.marked | far.marked),
            o.place.eq(Mux(near.marked, near.place, far.place + lanes) - fpdu.lane),
            o.marker.eq(Mux(near.marked, near.marker, far.marker)),
            o.gives.eq(gives),
            o.ends.eq(ends),
            o.octets.eq(fpdu.octets),
        ]
        return m
