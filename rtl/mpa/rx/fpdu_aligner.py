"""Cuts the MPA stream into FPDUs, each of which has beats of its own."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import AlignedBeat, Found, StreamBeat, aligned
from open_rnic.rtl.lib.copies import AT_ONCE, copies, later, parts_of
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import TURNED, rotate_lanes, steps_of
from open_rnic.rtl.lib.stream import ReadyBuffer, Through

__all__ = ["FpduAligner"]


class FpduAligner(wiring.Component):
    """Cuts FPDUs out of the stream, and rotates each so that it begins in lane 0.

    The block has a window of two beats of the stream. A beat of an FPDU is sent as soon as all of its lanes have
    arrived, even if the stream's beat is incomplete, so no FPDU waits for octets behind it.

    After an FPDU that is ``too_long``, the input is discarded.

    Above 4 lanes, octets follow one cycle behind the decisions about them, so that each decision that many octets wait
    for comes from a register, and they are rotated in several cycles.

    Latency: 2 cycles from both inputs; above 4 lanes 4 cycles from ``i``, and 5 from ``found``. Throughput: in each
    cycle a full beat, or the end of an FPDU. While the stream's beat is incomplete, an FPDU's beat takes a cycle more,
    and above 4 lanes two.

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
        # Of wide beats, found out a cycle before the FPDU begins.
        planned = data.StructLayout({
            "cut": cuts, "left": 15 - bits,  # beats after the first
            "single": 1,  # the first beat of the FPDU is its last
            "far": 1,  # the first beat of the FPDU extends into the far beat
            "brief": 1,  # the first beat of the FPDU is the last of its ULPDU
        })  # fmt: skip
        m.submodules.plans = plans = (Through if lanes <= AT_ONCE else ReadyBuffer)(planned)
        found, cut = self.found.payload, plans.i.payload.cut
        width = 4 * lanes
        final = Mux(found.too_long, 0, found.final[:bits])  # the FPDU's last lane, in its beat
        until = Signal(range(2 * lanes))  # the FPDU's last lane, in the window
        octet = Signal(range(width))  # the ULPDU's last octet, in its beat; 0 if the ULPDU is empty
        empty = found.length == 0
        m.d.comb += [
            *(cut[name].eq(found[name]) for name in ("length", "too_long", "lane")),
            plans.i.valid.eq(self.found.valid),
            self.found.ready.eq(plans.i.ready),
            plans.i.payload.left.eq(found.final[bits:]),
            plans.i.payload.single.eq(found.too_long | found.single),
            plans.i.payload.far.eq(~plans.i.payload.single | cut.reaches),
            plans.i.payload.brief.eq(found.too_long | found.brief),
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
        plan, single = plans.o.payload, plans.o.payload.single
        valid = Signal()
        fpdu = Signal(cuts, reset_less=True)
        left = Signal(15 - bits, reset_less=True)  # beats after this one
        last = Signal()
        one_left = Signal()  # the FPDU's last beat is the next one
        gives = Signal()
        ends = Signal()
        needs_far = Signal()  # the beat extends into the far register
        frees_near = Signal()  # the near register has nothing beyond the beat
        needs_far_next = Signal()
        then_far = Signal()  # the FPDU's next beat extends into it
        fires = Signal()  # a beat leaves; decided a cycle before
        takes = Signal()  # the next FPDU can be loaded
        m.d.comb += [takes.eq(~valid | (fires & last)), plans.o.ready.eq(takes)]
        m.d.comb += needs_far_next.eq(needs_far)
        with m.If(takes):
            m.d.comb += needs_far_next.eq(plan.far)
            m.d.sync += [
                valid.eq(plans.o.valid),
                fpdu.eq(plan.cut),
                left.eq(plan.left),
                last.eq(single),
                one_left.eq(plan.left == 1),
                then_far.eq((plan.left != 1) | plan.cut.reaches),
                frees_near.eq(~single | plan.cut.crosses),
                gives.eq(1),
                ends.eq(plan.brief),
            ]
        with m.Elif(fires):
            m.d.comb += needs_far_next.eq(then_far)
            m.d.sync += [
                left.eq(left - 1),
                last.eq(one_left),
                one_left.eq(left == 2),
                then_far.eq((left != 2) | fpdu.reaches),
                frees_near.eq(~one_left | fpdu.crosses),
                gives.eq(gives & ~ends),
                ends.eq(left == fpdu.trailing + 1),
            ]

        m.d.sync += needs_far.eq(needs_far_next)

        # The window. The far beat is empty while the near beat is incomplete.
        near_count = Signal(range(lanes + 1))
        far_count = Signal(range(lanes + 1))
        near_full = Signal()
        far_full = Signal()
        near_full_next = Signal()
        far_full_next = Signal()
        far_open = Signal(init=1)  # ``~far_full``, duplicated because of its fan-out
        moves = Signal()
        near_takes = Signal()  # the near register takes a beat: the input's, or else the far one
        near_takes_input = Signal()
        far_takes = Signal()  # the far register takes the input's beat
        far_empties = Signal()
        given = self.i.payload
        completes = Signal()  # the input has a complete beat, which is taken unless the window is full
        stopped = Signal()
        m.d.comb += [
            completes.eq(self.i.valid & given.count[-1]),
            self.i.ready.eq(moves | ~far_full | stopped),
            # Sums of products, because beats wait for them: the far beat is empty unless the near one is complete.
            near_full_next.eq(completes | (near_full & (~moves | far_full))),
            far_full_next.eq((far_full & (completes | ~moves)) | (completes & near_full & ~moves)),
            near_takes.eq(Mux(near_full, moves, self.i.valid)),
            near_takes_input.eq(self.i.valid & far_open),
            far_takes.eq(Mux(far_full, moves, self.i.valid & near_full)),
            far_empties.eq(moves & ~(self.i.valid & far_full)),
        ]
        m.d.sync += [near_full.eq(near_full_next), far_full.eq(far_full_next), far_open.eq(~far_full_next)]
        with m.If(near_takes):
            with m.If(near_takes_input):
                m.d.sync += near_count.eq(given.count)
            with m.Else():
                m.d.sync += near_count.eq(far_count)
        with m.If(far_takes):
            m.d.sync += far_count.eq(given.count)
        with m.If(far_empties):
            m.d.sync += far_count.eq(0)

        # A beat that is not the FPDU's last one also needs the next lane, for 2 octets of it. If the
        # stream's beats are incomplete, comparing their lanes takes a cycle, and above 4 lanes two.
        has = Signal(range(lanes + 1))
        needs = Signal(range(lanes + 1))
        # The beat can leave in the next cycle.
        whole = Signal()  # because the stream's beat will be complete
        enough = Signal()  # because the lanes that it needs have arrived
        m.d.comb += [
            has.eq(Mux(needs_far, far_count, near_count)),
            needs.eq(Mux(last, fpdu.needs, fpdu.lane + 1)),
            whole.eq(Mux(takes, plans.o.valid, 1) & Mux(needs_far_next, far_full_next, near_full_next)),
            # Above 4 lanes the comparison is a cycle old: the beat that it was about may be leaving.
            enough.eq(later(m, valid & ~fires & (has >= needs), lanes) & ~fires),
            moves.eq(fires & frees_near),
        ]
        with m.If(fires & fpdu.too_long):
            m.d.sync += stopped.eq(1)
        m.d.sync += fires.eq((whole | enough) & self.o.room)

        # The octets in the window.
        near = Signal(StreamBeat(lanes), reset_less=True)
        far = Signal(StreamBeat(lanes))
        follows = later(m, given, lanes, reset_less=True)
        from_input = later(m, near_takes_input, lanes)
        with m.If(later(m, near_takes, lanes)):
            m.d.sync += near.eq(Mux(from_input, follows, far))
        with m.If(later(m, far_takes, lanes)):
            m.d.sync += far.eq(follows)
        with m.If(later(m, far_empties, lanes)):
            m.d.sync += far.marked.eq(0)

        # Each lane of the window that is in the beat: from the near register, or else from the far one.
        from_near = later(m, Cat(n >= fpdu.lane for n in range(lanes)), lanes)
        valid = later(m, fires, lanes)
        beat = Signal(_Turned(lanes))
        m.d.comb += [
            beat.lane.eq(later(m, fpdu.lane, lanes)),
            beat.window.eq(Cat(
                Mux(from_near[n], near.data.word_select(n, 32), far.data.word_select(n, 32)) for n in range(lanes)
            )),
            beat.beyond.eq(Cat(far.data.word_select(n, 32)[:16] for n in range(lanes))),
            beat.count.eq(later(m, Mux(last, fpdu.lanes, lanes), lanes)),
            *(beat[name].eq(later(m, value, lanes)) for name, value in {
                "last": last, "length": fpdu.length, "too_long": fpdu.too_long, "gives": gives, "ends": ends,
                "octets": fpdu.octets,
            }.items()),
            # At most one of the two beats has a marker: markers are many beats apart.
            beat.marked.eq(near.marked | far.marked),
            beat.place.eq(Mux(near.marked, near.place, Cat(far.place, 1)) - beat.lane),
            beat.marker.eq(Mux(near.marked, near.marker, far.marker)),
        ]
        steps = steps_of(bits)
        turn = fpdu.turn
        for at in steps:
            by = turn[at:at + TURNED]
            if lanes > AT_ONCE:
                by = [copies(m, bit, parts_of(lanes), f"turn_{at + n}") for n, bit in enumerate(by)]
            chosen = beat.lane[at:at + TURNED]
            group = 16 << len(chosen)
            turned = Signal.like(beat, name=f"beat_{at}")
            m.d.comb += [
                turned.eq(beat),
                turned.window.eq(rotate_lanes(m, beat.window, by, at=at)),
                turned.beyond.eq(Cat(
                    beat.beyond.word_select(n, group).word_select(chosen, 16) for n in range(16 * lanes // group)
                )),
            ]
            if at < steps[-1]:
                turn = later(m, turn, lanes)
                valid = later(m, valid, lanes)
                turned = later(m, turned, lanes, reset_less=True)
            beat = turned
        marked = beat.marked if lanes <= AT_ONCE else beat.marked & (beat.place < beat.count)
        m.d.sync += [
            self.o.valid.eq(valid),
            o.data.eq(Cat(beat.window, beat.beyond[:16])),
            *(o[name].eq(marked if name == "marked" else beat[name]) for name in o.shape().members if name != "data"),
        ]
        return m


class _Turned(data.StructLayout):
    """A beat that is being rotated, with the fields of :class:`.AlignedBeat` but ``data``.

    ``window``: its lanes, of which ``lane`` moves to lane 0. ``beyond``: 2 octets of each lane of the far beat, of
    which those of ``lane`` follow the beat; each step leaves fewer.
    """

    def __init__(self, lanes: int):
        members = AlignedBeat(lanes).members
        super().__init__({
            "lane": range(lanes), "window": 32 * lanes, "beyond": 16 * lanes,
            **{name: shape for name, shape in members.items() if name != "data"},
        })  # fmt: skip
