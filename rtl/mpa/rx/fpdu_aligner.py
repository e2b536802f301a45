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
        plans = self._plan(m)
        fpdu, window = _Fpdu(plans.o.payload, self.lanes), _Window(self.lanes)
        self._cut(m, plans.o, fpdu)
        self._fill(m, window)
        self._decide(m, plans.o, fpdu, window)
        valid, beat = self._choose(m, fpdu, window)
        self._rotate(m, fpdu.cut.turn, valid, beat)
        return m

    def _plan(self, m):
        """Find out how the next FPDU will be cut, of wide beats a cycle before it begins; return the queue of plans."""
        lanes, bits = self.lanes, (self.lanes - 1).bit_length()
        m.submodules.plans = plans = (Through if lanes <= AT_ONCE else ReadyBuffer)(_Plan(lanes))
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
        return plans

    def _cut(self, m, plans, fpdu):
        """Load the next FPDU, or go on to the next beat of the one that is being cut."""
        plan = plans.payload
        m.d.comb += [fpdu.takes.eq(~fpdu.valid | (fpdu.fires & fpdu.last)), plans.ready.eq(fpdu.takes)]
        m.d.comb += fpdu.needs_far_next.eq(fpdu.needs_far)
        with m.If(fpdu.takes):
            m.d.comb += fpdu.needs_far_next.eq(plan.far)
            m.d.sync += [
                fpdu.valid.eq(plans.valid),
                fpdu.cut.eq(plan.cut),
                fpdu.left.eq(plan.left),
                fpdu.last.eq(plan.single),
                fpdu.one_left.eq(plan.left == 1),
                fpdu.then_far.eq((plan.left != 1) | plan.cut.reaches),
                fpdu.frees_near.eq(~plan.single | plan.cut.crosses),
                fpdu.gives.eq(1),
                fpdu.ends.eq(plan.brief),
            ]
        with m.Elif(fpdu.fires):
            m.d.comb += fpdu.needs_far_next.eq(fpdu.then_far)
            m.d.sync += [
                fpdu.left.eq(fpdu.left - 1),
                fpdu.last.eq(fpdu.one_left),
                fpdu.one_left.eq(fpdu.left == 2),
                fpdu.then_far.eq((fpdu.left != 2) | fpdu.cut.reaches),
                fpdu.frees_near.eq(~fpdu.one_left | fpdu.cut.crosses),
                fpdu.gives.eq(fpdu.gives & ~fpdu.ends),
                fpdu.ends.eq(fpdu.left == fpdu.cut.trailing + 1),
            ]
        m.d.sync += fpdu.needs_far.eq(fpdu.needs_far_next)

    def _fill(self, m, window):
        """Take the stream's beats into the window. The far beat is empty while the near beat is incomplete."""
        given, moves = self.i.payload, window.moves
        near_full, far_full = window.near_full, window.far_full
        far_open = Signal(init=1)  # ``~far_full``, duplicated because of its fan-out
        completes = Signal()  # the input has a complete beat, which is taken unless the window is full
        m.d.comb += [
            completes.eq(self.i.valid & given.count[-1]),
            self.i.ready.eq(moves | ~far_full | window.stopped),
            # Sums of products, because beats wait for them: the far beat is empty unless the near one is complete.
            window.near_full_next.eq(completes | (near_full & (~moves | far_full))),
            window.far_full_next.eq((far_full & (completes | ~moves)) | (completes & near_full & ~moves)),
            window.near_takes.eq(Mux(near_full, moves, self.i.valid)),
            window.near_takes_input.eq(self.i.valid & far_open),
            window.far_takes.eq(Mux(far_full, moves, self.i.valid & near_full)),
            window.far_empties.eq(moves & ~(self.i.valid & far_full)),
        ]
        m.d.sync += [
            near_full.eq(window.near_full_next), far_full.eq(window.far_full_next), far_open.eq(~window.far_full_next),
        ]  # fmt: skip
        with m.If(window.near_takes):
            with m.If(window.near_takes_input):
                m.d.sync += window.near_count.eq(given.count)
            with m.Else():
                m.d.sync += window.near_count.eq(window.far_count)
        with m.If(window.far_takes):
            m.d.sync += window.far_count.eq(given.count)
        with m.If(window.far_empties):
            m.d.sync += window.far_count.eq(0)

    def _decide(self, m, plans, fpdu, window):
        """Decide whether a beat leaves in the next cycle.

        A beat that is not the FPDU's last one also needs the next lane, for 2 octets of it. If the stream's beats are
        incomplete, comparing their lanes takes a cycle, and above 4 lanes two.
        """
        lanes = self.lanes
        has = Signal(range(lanes + 1))
        needs = Signal(range(lanes + 1))
        whole = Signal()  # it can, because the stream's beat will be complete
        enough = Signal()  # it can, because the lanes that it needs have arrived
        full_next = Mux(fpdu.needs_far_next, window.far_full_next, window.near_full_next)
        m.d.comb += [
            has.eq(Mux(fpdu.needs_far, window.far_count, window.near_count)),
            needs.eq(Mux(fpdu.last, fpdu.cut.needs, fpdu.cut.lane + 1)),
            whole.eq(Mux(fpdu.takes, plans.valid, 1) & full_next),
            # Above 4 lanes the comparison is a cycle old: the beat that it was about may be leaving.
            enough.eq(later(m, fpdu.valid & ~fpdu.fires & (has >= needs), lanes) & ~fpdu.fires),
            window.moves.eq(fpdu.fires & fpdu.frees_near),
        ]
        with m.If(fpdu.fires & fpdu.cut.too_long):
            m.d.sync += window.stopped.eq(1)
        m.d.sync += fpdu.fires.eq((whole | enough) & self.o.room)

    def _choose(self, m, fpdu, window):
        """Take the beat's lanes from the window; return whether there is one, and the beat before its rotation."""
        lanes, cut = self.lanes, fpdu.cut
        near = Signal(StreamBeat(lanes), reset_less=True)
        far = Signal(StreamBeat(lanes))
        follows = later(m, self.i.payload, lanes, reset_less=True)
        from_input = later(m, window.near_takes_input, lanes)
        with m.If(later(m, window.near_takes, lanes)):
            m.d.sync += near.eq(Mux(from_input, follows, far))
        with m.If(later(m, window.far_takes, lanes)):
            m.d.sync += far.eq(follows)
        with m.If(later(m, window.far_empties, lanes)):
            m.d.sync += far.marked.eq(0)

        # Each lane of the window that is in the beat: from the near register, or else from the far one.
        from_near = later(m, Cat(n >= cut.lane for n in range(lanes)), lanes)
        valid = later(m, fpdu.fires, lanes)
        beat = Signal(_Turned(lanes))
        m.d.comb += [
            beat.lane.eq(later(m, cut.lane, lanes)),
            beat.window.eq(Cat(
                Mux(from_near[n], near.data.word_select(n, 32), far.data.word_select(n, 32)) for n in range(lanes)
            )),
            beat.beyond.eq(Cat(far.data.word_select(n, 32)[:16] for n in range(lanes))),
            beat.count.eq(later(m, Mux(fpdu.last, cut.lanes, lanes), lanes)),
            *(beat[name].eq(later(m, value, lanes)) for name, value in {
                "last": fpdu.last, "length": cut.length, "too_long": cut.too_long, "gives": fpdu.gives,
                "ends": fpdu.ends, "octets": cut.octets,
            }.items()),
            # At most one of the two beats has a marker: markers are many beats apart.
            beat.marked.eq(near.marked | far.marked),
            beat.place.eq(Mux(near.marked, near.place, Cat(far.place, 1)) - beat.lane),
            beat.marker.eq(Mux(near.marked, near.marker, far.marker)),
        ]
        return valid, beat

    def _rotate(self, m, turn, valid, beat):
        """Rotate the beat, so that its FPDU begins in lane 0, and give it."""
        lanes, o = self.lanes, self.o.payload
        steps = steps_of((lanes - 1).bit_length())
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


class _Plan(data.StructLayout):
    """How an FPDU is cut, and what its first beat is."""

    def __init__(self, lanes: int):
        super().__init__({
            "cut": data.StructLayout({
                "length": 16, "too_long": 1, "lane": range(lanes),
                "turn": range(lanes),  # the rotation that moves its first lane to lane 0
                "lanes": range(lanes + 1),  # of its last beat, at least 1
                "reaches": 1,  # in the window, its last beat extends into the far beat
                "crosses": 1,  # the next FPDU begins in the far beat
                "needs": range(lanes + 1),  # lanes that it needs of the beat in which it ends
                "trailing": 2,  # beats at its end without octets of the ULPDU
                "octets": range(4 * lanes + 1),  # of the ULPDU in the last beat that has octets of it
            }),
            "left": 15 - (lanes - 1).bit_length(),  # beats after the first
            "single": 1,  # the first beat of the FPDU is its last
            "far": 1,  # the first beat of the FPDU extends into the far beat
            "brief": 1,  # the first beat of the FPDU is the last of its ULPDU
        })  # fmt: skip


class _Fpdu:
    """The FPDU that is being cut, and its next beat."""

    def __init__(self, plan: data.View, lanes: int):
        self.valid = Signal()
        self.cut = Signal(plan.cut.shape(), name="fpdu", reset_less=True)
        self.left = Signal.like(plan.left, name="left", reset_less=True)  # beats after this one
        self.last = Signal()
        self.one_left = Signal()  # the FPDU's last beat is the next one
        self.gives = Signal()
        self.ends = Signal()
        self.needs_far = Signal()  # the beat extends into the far register
        self.frees_near = Signal()  # the near register has nothing beyond the beat
        self.needs_far_next = Signal()
        self.then_far = Signal()  # the FPDU's next beat extends into it
        self.fires = Signal()  # a beat leaves; decided a cycle before
        self.takes = Signal()  # the next FPDU can be loaded


class _Window:
    """What the two beats of the window have, and take."""

    def __init__(self, lanes: int):
        self.near_count = Signal(range(lanes + 1))
        self.far_count = Signal(range(lanes + 1))
        self.near_full = Signal()
        self.far_full = Signal()
        self.near_full_next = Signal()
        self.far_full_next = Signal()
        self.moves = Signal()
        self.near_takes = Signal()  # the near register takes a beat: the input's, or else the far one
        self.near_takes_input = Signal()
        self.far_takes = Signal()  # the far register takes the input's beat
        self.far_empties = Signal()
        self.stopped = Signal()  # the input is discarded


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
