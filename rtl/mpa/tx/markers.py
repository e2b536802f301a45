"""Markers: every 512 octets of the MPA stream, 4 octets that point back to the FPDU's start (RFC 5044 §4.3)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import INTERVAL, Packet
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import rotate_lanes
from open_rnic.rtl.lib.stream import Stage, Through, swap_octets

__all__ = ["MarkerInserter"]

AT_ONCE = 8  # lanes that are turned without a register in between


class MarkerInserter(wiring.Component):
    """Puts markers into FPDUs that have no CRC yet.

    A marker whose place is right behind the PAD goes there, before the CRC, which covers it (RFC 5044 §4.4); one
    whose place is between two FPDUs becomes the first lane of the second, when that one comes.

    A beat gets one marker at most, and each moves all that is behind it in its FPDU by one lane. So when an FPDU has
    had ``n`` markers, ``n`` lanes, modulo the width, wait for its next beat. What waits goes out in a beat of its own,
    and holds the input up for 1 cycle, when it fills one, and when the FPDU's last beat has no room for it.

    Latency 2 cycles, at 16 lanes 3; one beat a cycle goes out. It stands still while ``o.ready`` is 0, which must not
    wait for ``o.valid``.

    Members
    -------
    i, o : FPDUs, with ``abort`` on the last beat
    enable : insert markers; does not change while FPDUs are on their way
    start : where in the marked stream the first FPDU begins, in lanes; does not change either
    inserted : a marker is being put in
    """

    class State(data.Struct):
        """What lasts from one FPDU to the next."""

        started: 1
        place: 7  # lanes to go to where the next marker belongs

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, abort=1))),
            "o": Out(stream.Signature(Packet(lanes, abort=1))),
            "enable": In(1),
            "start": In(7),
            "inserted": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        m.submodules.measured = measured = Stage(_Measured(lanes))
        m.submodules.placed = placed = (Stage if lanes > AT_ONCE else Through)(_Placed(lanes))
        m.submodules.turned = turned = Stage(_Turned(lanes), twice="more")
        i, beat = self.i.payload, measured.i.payload
        used = i.octets[2:]
        m.d.comb += [
            measured.i.valid.eq(self.i.valid),
            self.i.ready.eq(measured.i.ready),
            *(beat[name].eq(i[name]) for name in ("data", "last", "abort")),
            beat.reach.eq(Mux(i.last, Array(range(1, lanes + 2))[used], lanes)),
            beat.highest.eq(Mux(i.last, Array([0, *range(lanes)])[used], lanes - 1)),
        ]
        self._place(m, measured.o, placed.i)
        self._turn(m, placed.o, turned.i)
        self._insert(m, turned.o, turned.again)
        return m

    def _place(self, m, i, o):
        """Find where in the beat a marker belongs, and begin to turn the beat."""
        lanes = self.lanes
        beat, placed = i.payload, o.payload
        moves = i.valid & i.ready
        state = Signal(self.State)

        reach = Signal(7)
        left = Signal(signed(8))  # lanes to go behind this beat, if no marker belongs into it
        marked = Signal()
        m.d.comb += [
            reach.eq(beat.reach),
            left.eq(state.place - reach),
            marked.eq(self.enable & (left < 0)),
        ]
        with m.If(i.ready):
            with m.If(i.valid):
                # ~reach is INTERVAL - 1 - reach: the marker itself is one of the lanes of an interval.
                m.d.sync += [state.started.eq(1), state.place.eq(Mux(marked, state.place + ~reach, left))]
            with m.Elif(~state.started):
                m.d.sync += state.place.eq(-self.start)

        # What the beat before has brought is counted one beat late: ``marked`` comes too late in the cycle to count.
        counts = Signal()
        first = Signal(init=1)
        leads = first & (state.place == 0)  # if it is a marker, it is before ULPDU_Length, not inside the FPDU
        low = Signal(7)
        intervals = Signal(7)
        lanes_before = Signal(range(lanes))
        passed = Signal.like(intervals)  # intervals from ULPDU_Length to the next marker, over ``low`` lanes
        waiting = Signal.like(lanes_before)  # lanes that wait
        m.d.comb += [passed.eq(intervals + counts), waiting.eq(lanes_before + counts)]
        pointer = Cat(Mux(first, state.place, low), passed)  # FPDUPTR, in lanes
        with m.If(moves):
            m.d.sync += [
                first.eq(beat.last),
                counts.eq(marked & ~beat.last),
                low.eq(Mux(leads, INTERVAL - 1, pointer[:7])),
                intervals.eq(Mux(beat.last, 0, Mux(leads, -1, passed))),
                lanes_before.eq(Mux(beat.last, 0, waiting)),
            ]

        # How far the last beat fills beats of the output, counted from 0.
        highest = Signal(range(2 * lanes))
        with_marker = Signal.like(highest)
        m.d.comb += [highest.eq(waiting + beat.highest), with_marker.eq(waiting + beat.highest + 1)]
        filled = Mux(marked, with_marker, highest)
        ends, over = filled[:len(waiting)], filled[len(waiting)]

        m.d.comb += [
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            self.inserted.eq(moves & marked),
            placed.data.eq(rotate_lanes(m, beat.data, waiting & 3)),
            placed.waiting.eq(waiting),
            placed.marked.eq(marked),
            placed.at.eq(state.place[:lanes.bit_length()] + waiting),
            placed.pointer.eq(pointer),
            placed.more.eq(Mux(beat.last, over, marked & (waiting == lanes - 1))),
            placed.used.eq(Array(range(1, lanes + 1))[ends]),
            placed.last.eq(beat.last),
            placed.abort.eq(beat.abort),
        ]

    def _turn(self, m, i, o):
        """Turn the beat, so that it joins the lanes that wait, and with it what is known of its lanes."""
        lanes = self.lanes
        placed, turned = i.payload, o.payload

        def marker(lane):
            return placed.marked & (placed.at == lane)

        def moved(lane):
            return placed.marked & placed.at.matches(*range(lane))

        m.d.comb += [
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            turned.data.eq(rotate_lanes(m, placed.data, placed.waiting & ~3)),
            turned.waits.eq(Cat(~placed.waiting.matches(*range(n + 1)) for n in range(lanes))),
            turned.marker.eq(Cat(marker(n) for n in range(lanes))),
            turned.moved.eq(Cat(moved(n) for n in range(lanes))),
            turned.next_marker.eq(Cat(marker(lanes + n) for n in range(lanes))),
            turned.next_moved.eq(Cat(moved(lanes + n) for n in range(lanes))),
            *(turned[name].eq(placed[name]) for name in ("pointer", "more", "used", "last", "abort")),
        ]

    def _insert(self, m, i, alone):
        """Put the marker between the lanes of the beat, and the beat behind the lanes that wait."""
        lanes = self.lanes
        beat, o = i.payload, self.o
        kept = Signal(32 * lanes, reset_less=True)  # the lanes that wait; ``alone``: they are a beat of their own
        marker = Cat(Const(0, 16), swap_octets(Cat(Const(0, 2), beat.pointer)))

        def inserted(is_marker, is_moved):
            words = [beat.data.word_select(n, 32) for n in range(lanes)]
            return [Mux(is_marker[n], marker, Mux(is_moved[n], words[n - 1], words[n])) for n in range(lanes)]

        m.d.comb += [
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            o.payload.data.eq(Cat(
                Mux(alone | waits, kept.word_select(n, 32), word)
                for n, (waits, word) in enumerate(zip(beat.waits, inserted(beat.marker, beat.moved), strict=True))
            )),
            o.payload.octets.eq(Cat(Const(0, 2), beat.used)),
            o.payload.last.eq(beat.last & (alone | ~beat.more)),
            o.payload.abort.eq(beat.abort),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += kept.eq(Cat(inserted(beat.next_marker, beat.next_moved)))


class _Measured(data.StructLayout):
    """A beat, and how long it is.

    ``reach``: its lanes; the CRC behind the last beat is one, as a marker may belong right before it. ``highest``: the
    highest of its own lanes.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes, "reach": range(lanes + 2), "highest": range(lanes), "last": 1, "abort": 1
        })  # fmt: skip


class _Placed(data.StructLayout):
    """A beat, and what is to be done with it.

    ``waiting``: so many lanes wait. ``marked``: a marker belongs into lane ``at``, counted from the first lane that
    waits. ``pointer``: its FPDUPTR, in lanes. ``more``, ``used``: as of :class:`_Turned`.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes, "waiting": range(lanes), "marked": 1, "at": range(2 * lanes), "pointer": 14,
            "more": 1, "used": range(lanes + 1), "last": 1, "abort": 1,
        })  # fmt: skip


class _Turned(data.StructLayout):
    """A beat, turned by as many lanes as wait, and what becomes of its lanes.

    ``waits``: lanes that go out from those that wait. Of the others, ``marker``: those that are the marker, with
    FPDUPTR ``pointer``; ``moved``: those that take what the lane before them was. ``next_marker``, ``next_moved``: the
    same of the lanes that have gone round the end, to wait. ``more``: these make a beat of their own. ``used``: lanes
    of the last beat.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes,
            **dict.fromkeys(("waits", "marker", "moved", "next_marker", "next_moved"), lanes),
            "pointer": 14, "more": 1, "used": range(lanes + 1), "last": 1, "abort": 1,
        })  # fmt: skip
