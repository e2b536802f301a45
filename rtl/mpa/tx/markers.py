"""Markers: every 512 octets of the MPA stream, 4 octets that point back to the FPDU's start (RFC 5044 §4.3)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, Packet, carried
from open_rnic.rtl.lib.conveyor import Conveyor
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import rotate_part, steps_of
from open_rnic.rtl.lib.rows import Clear, Rows, connection_shape
from open_rnic.rtl.lib.stream import Stage, swap_octets

__all__ = ["MarkerInserter"]


class MarkerInserter(wiring.Component):
    """Inserts markers into FPDUs that have no CRC yet.

    A marker directly after the PAD is inserted before the CRC, which covers it (RFC 5044 §4.4). A marker between two
    FPDUs becomes the first lane of the second FPDU, once that arrives.

    A beat gets at most one marker, and each marker moves the rest of its FPDU by one lane. After ``n`` markers, ``n``
    lanes, modulo the width, wait for the FPDU's next beat. Waiting lanes are sent in a beat of their own, which stalls
    the input for 1 cycle, if they fill a beat or if the FPDU's last beat has no room for them.

    Latency: 2 cycles, 6 cycles above 4 lanes. Throughput: one beat per cycle at ``o``. Up to 4 lanes, the block stalls
    as a whole while ``o.ready`` is 0, so ``o.ready`` must not depend on ``o.valid``. Wider beats are rotated in the
    steps of a :class:`.Conveyor`.

    Members
    -------
    i, o : In, Out, stream of :class:`.Packet` with ``abort`` (1 bit)
        FPDUs. Both have the fields of :func:`.carried`, ``i`` with ``markers`` and ``crc``, ``o`` with ``crc``.
    connection : Out
        The connection of which ``start`` is expected.
    start : In, 7 bits
        Offset of the first FPDU in the marked stream, in lanes. It does not change after the first FPDU.
    inserted : Out, 1 bit
        A marker is inserted in this cycle.
    placed : Out, 1 bit
        The last beat of an FPDU of ``connection`` has got its marker, or needs none.
    clear : In, :class:`.Clear`
        Nothing of the connection is on its way. The only connection is reset with the block.

    A change of connection takes 1 cycle more, and the first FPDU after it of a connection another one.
    """

    class State(data.Struct):
        """The state that lasts from one FPDU to the next."""

        started: 1
        place: 7  # lanes to the place of the next marker

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        self.carried = carried(connections, "crc")
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, abort=1, **carried(connections, "markers", "crc")))),
            "o": Out(stream.Signature(Packet(lanes, abort=1, **self.carried))),
            "connection": Out(connection_shape(connections)),
            "start": In(7),
            "inserted": Out(1),
            "placed": Out(1),
            "clear": In(Clear(connections)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        m.submodules.measured = measured = Stage(_Measured(lanes, {"markers": 1, **self.carried}))
        i, beat = self.i.payload, measured.i.payload
        used = i.octets[2:]
        every = i.last.replicate(len(beat.reach))
        m.d.comb += [
            measured.i.valid.eq(self.i.valid),
            self.i.ready.eq(measured.i.ready),
            *(beat[name].eq(i[name]) for name in ("data", "last", "abort", "markers", *self.carried)),
            # Sums of products: of a choice, synthesis would make a late reset of the next register.
            beat.reach.eq((Array(range(1, lanes + 2))[used] & every) | (lanes & ~every)),
            beat.highest.eq(Array([0, *range(lanes)])[used] | ~every),
        ]
        turned_shape = _Turned(lanes, self.carried)
        if lanes > AT_ONCE:
            *steps, last = steps_of((lanes - 1).bit_length())
            shape = _Placed(lanes, self.carried)
            m.submodules.conveyor = conveyor = Conveyor(
                shape, self.o.payload.shape(), twice="more", steps=len(steps) + 1
            )
            m.submodules.found = found = Stage(shape)
            m.submodules.turned = turned = Stage(turned_shape)
            self._place(m, measured.o, found.i)
            wiring.connect(m, found.o, conveyor.i)
            self._fill(m, found.o.payload, conveyor.i.payload)
            placed = stream.Signature(shape).create()
            wiring.connect(m, conveyor.begun, wiring.flipped(placed))
            m.d.comb += placed.payload.alone.eq(conveyor.again)
            for at in steps:
                m.submodules[f"turned_{at}"] = step = Stage(shape)
                wiring.connect(m, placed, step.i)
                m.d.comb += step.i.payload.data.eq(rotate_part(m, placed.payload.data, placed.payload.waiting, at))
                placed = step.o
            self._turn(m, placed, turned.i, last)
            self._insert(m, turned.o, 0, conveyor.given)
            wiring.connect(m, conveyor.o, wiring.flipped(self.o))
        else:
            placed = stream.Signature(_Placed(lanes, self.carried)).create()
            m.submodules.turned = turned = Stage(turned_shape, twice="more")
            self._place(m, measured.o, placed)
            self._fill(m, placed.payload, placed.payload)
            self._turn(m, placed, turned.i)
            self._insert(m, turned.o, turned.again, self.o)
        return m

    def _place(self, m, i, o):
        """Find the marker's place in the beat, and the beat's place behind the waiting lanes."""
        lanes = self.lanes
        beat, placed = i.payload, o.payload
        moves = i.valid & i.ready
        rows = Rows(self.State, self.connections)
        state = rows.state

        reach = Signal(7)
        left = Signal(signed(8))  # lanes to the next marker after this beat; negative: the marker is in this beat
        marked = Signal()
        m.d.comb += [
            reach.eq(beat.reach),
            left.eq(state.place - reach),
            marked.eq(beat.markers & (left < 0)),
        ]
        changes = i.valid & ~rows.are_of(beat.connection)
        is_placed = Signal(init=1)  # since the last change of connection, ``place`` was set by ``start``
        has_place = Signal()  # ``place`` is that of the beat
        m.d.comb += has_place.eq(rows.are_of(beat.connection) & (state.started | is_placed))
        m.d.sync += is_placed.eq(~(changes | self.clear.now))
        with m.If(moves):
            # ~reach is INTERVAL - 1 - reach: the marker itself is one of the lanes of an interval.
            m.d.sync += [state.started.eq(1), state.place.eq(Mux(marked, state.place + ~reach, left))]
        with m.Elif(~state.started):
            m.d.sync += state.place.eq(-self.start)
        rows.switch(m, beat.connection, changes, self.clear)
        m.d.comb += [self.connection.eq(rows.active), self.placed.eq(moves & beat.last)]

        waiting, pointer = self._point(m, moves, beat.last, marked, state.place)
        m.d.comb += [
            o.valid.eq(i.valid & has_place),
            i.ready.eq(o.ready & (has_place | ~i.valid)),
            self.inserted.eq(moves & marked),
            placed.data.eq(beat.data),
            placed.highest.eq(beat.data[-32:]),
            placed.waiting.eq(waiting),
            placed.marked.eq(marked),
            placed.at.eq(state.place[:lanes.bit_length()] + waiting),
            placed.behind.eq(state.place[lanes.bit_length() - 1]),  # a place in reach is not beyond ``lanes``
            placed.pointer.eq(pointer),
            placed.end.eq(waiting + beat.highest),
            placed.brims.eq(beat.highest == ~waiting),
            placed.fills.eq(waiting == lanes - 1),
            placed.last.eq(beat.last),
            placed.abort.eq(beat.abort),
            *(placed[name].eq(beat[name]) for name in self.carried),
        ]

    def _point(self, m, moves, last, marked, place):
        """Count markers and lanes. Return the number of waiting lanes, and the FPDUPTR of the next marker, in lanes."""
        # The previous beat's marker is counted one beat late, because ``marked`` is late in the cycle.
        counts = Signal()
        first = Signal(init=1)
        leads = first & (place == 0)  # a marker here precedes ULPDU_Length, and is not inside the FPDU
        low = Signal(7)
        intervals = Signal(7)
        lanes_before = Signal(range(self.lanes))
        passed = Signal.like(intervals)  # intervals from ULPDU_Length to the next marker, over ``low`` lanes
        waiting = Signal.like(lanes_before)  # lanes that wait
        m.d.comb += [passed.eq(intervals + counts), waiting.eq(lanes_before + counts)]
        pointer = Cat(Mux(first, place, low), passed)
        with m.If(moves):
            m.d.sync += [
                first.eq(last),
                counts.eq(marked & ~last),
                low.eq(Mux(leads, INTERVAL - 1, pointer[:7])),
                intervals.eq(Mux(last, 0, Mux(leads, -1, passed))),
                lanes_before.eq(Mux(last, 0, waiting)),
            ]
        return waiting, pointer

    def _fill(self, m, beat, filled):
        """Whether the waiting lanes will need a beat of their own, and how many lanes of the last beat are used."""
        lanes = self.lanes
        bits = len(beat.waiting)
        end, over = beat.end[:bits], beat.end[bits] | (beat.marked & beat.brims)
        m.d.comb += [
            filled.more.eq(Mux(beat.last, over, beat.marked & beat.fills)),
            filled.used.eq(Mux(beat.marked, Array([*range(2, lanes + 1), 1])[end], Array(range(1, lanes + 1))[end])),
        ]

    def _turn(self, m, i, o, at=0):
        """Rotate the beat to its place behind the waiting lanes, and decode the flags of its lanes."""
        lanes = self.lanes
        placed, turned = i.payload, o.payload
        waits = Signal(lanes)

        def either(test):
            """``test`` of the place of each lane, which is in the next beat if the lane waits."""
            return Cat(placed.marked & Mux(waits[n], test(lanes + n), test(n)) for n in range(lanes))

        m.d.comb += [
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            waits.eq(Cat(~placed.waiting.matches(*range(n + 1)) for n in range(lanes))),
            turned.data.eq(rotate_part(m, placed.data, placed.waiting, at)),
            turned.takes.eq(waits | placed.alone.replicate(lanes)),
            turned.marker.eq(either(lambda place: placed.at == place)),
            turned.moved.eq(either(lambda place: placed.at.matches(*range(place)))),
            turned.behind.eq(placed.marked & placed.behind),
            turned.more.eq(placed.more & ~placed.alone),
            *(turned[name].eq(placed[name]) for name in (
                "highest", "pointer", "used", "last", "abort", *self.carried,
            )),
        ]

    def _insert(self, m, i, alone, o):
        """Insert the marker between the lanes of the beat, and join the beat with the waiting lanes.

        ``alone``: the waiting lanes are a beat of their own.
        """
        lanes = self.lanes
        beat = i.payload
        kept = Signal(32 * lanes, reset_less=True)  # the waiting lanes
        marker = Cat(Const(0, 16), swap_octets(Cat(Const(0, 2), beat.pointer)))
        words = [beat.data.word_select(n, 32) for n in range(lanes)]
        placed = Signal(32 * lanes, name="with_marker")
        beyond = Signal(32)  # waits in addition, if there is a marker
        m.d.comb += [
            placed.eq(Cat(
                Mux(beat.marker[n], marker, Mux(beat.moved[n], words[n - 1], words[n])) for n in range(lanes)
            )),
            beyond.eq(Mux(beat.behind, marker, beat.highest)),
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            o.payload.data.eq(Cat(
                Mux(alone | beat.takes[n], kept.word_select(n, 32), placed.word_select(n, 32)) for n in range(lanes)
            )),
            o.payload.octets.eq(Cat(Const(0, 2), beat.used)),
            o.payload.last.eq(beat.last & (alone | ~beat.more)),
            o.payload.abort.eq(beat.abort),
            *(o.payload[name].eq(beat[name]) for name in self.carried),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += kept.eq(Cat(
                Mux(beat.takes[n], placed.word_select(n, 32), beyond) for n in range(lanes)
            ))


class _Measured(data.StructLayout):
    """A beat and its length.

    ``reach``: the number of its lanes; on the last beat the CRC counts as one lane, because a marker may be due
    directly before it. ``highest``: the highest of its own lanes.
    """

    def __init__(self, lanes: int, also):
        super().__init__({
            "data": 32 * lanes, "reach": range(lanes + 2), "highest": range(lanes), "last": 1, "abort": 1,
            **also,
        })  # fmt: skip


class _Placed(data.StructLayout):
    """A beat and its place.

    ``waiting``: the number of waiting lanes, by which the beat is rotated. ``alone``: the beat comes for the second
    time, for the waiting lanes alone. ``highest``: its last lane; ``end``: the place in the output, without a marker,
    of the highest lane in use; ``brims``: that place is the last lane of a beat; ``fills``: all lanes but one wait.
    ``marked``: a marker is due in lane ``at``, counted from the first waiting lane; ``behind``: in the lane behind the
    beat. ``pointer``: its FPDUPTR, in lanes. ``more``, ``used``: see
    :class:`_Turned`.
    """

    def __init__(self, lanes: int, also):
        super().__init__({
            "data": 32 * lanes, "highest": 32, "end": range(2 * lanes), "brims": 1, "fills": 1,
            "waiting": range(lanes), "alone": 1,
            "marked": 1, "at": range(2 * lanes), "behind": 1, "pointer": 14,
            "more": 1, "used": range(lanes + 1), "last": 1, "abort": 1, **also,
        })  # fmt: skip


class _Turned(data.StructLayout):
    """A beat, rotated by the number of waiting lanes, and the use of its lanes.

    ``takes``: output lanes that come from the waiting lanes; those that were rotated there wait, and so does the lane
    behind them if the beat has a marker. It is ``highest``, or with ``behind`` the marker. Of all lanes, ``marker`` is
    the marker, with FPDUPTR ``pointer``, and those in ``moved`` take the previous lane. ``more``: the waiting lanes
    need another beat. ``used``: the number of lanes of the last beat.
    """

    def __init__(self, lanes: int, also):
        super().__init__({
            "data": 32 * lanes, "highest": 32, **dict.fromkeys(("takes", "marker", "moved"), lanes), "behind": 1,
            "pointer": 14, "more": 1, "used": range(lanes + 1), "last": 1, "abort": 1, **also,
        })  # fmt: skip
