"""Markers: every 512 octets of the MPA stream, 4 octets that point back to the FPDU's start (RFC 5044 §4.3)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .packer import LanePacker, Ragged
from .stream import Buffer, Packet, check_lanes, last_lanes, swap_octets

__all__ = ["INTERVAL", "MarkedFpdu", "MarkerChecker", "MarkerInserter", "MarkerRemover"]

INTERVAL = 128  # lanes from one marker to the next, itself included: 512 octets


class MarkerInserter(wiring.Component):
    """Puts markers into FPDUs that have no CRC yet.

    A marker whose place is right behind the PAD goes there, before the CRC, which covers it (RFC 5044 §4.4); one
    whose place is between two FPDUs becomes the first lane of the second, when that one comes.

    Latency 2 cycles; one beat a cycle goes out.

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
        position: 7  # lanes since the last marker's place, at the next lane to go out

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
        i = self.i.payload
        ragged = Ragged(lanes, abort=1)
        m.submodules.packer = packer = LanePacker(lanes, looks_ahead=False, abort=1)
        m.submodules.buffer = buffer = Buffer(ragged)
        wiring.connect(m, buffer.o, packer.i)
        wiring.connect(m, packer.o, wiring.flipped(self.o))

        state = Signal(self.State)
        offset = Signal(14)  # lanes since ULPDU_Length, at the beat's first lane
        position = Signal(range(INTERVAL))
        m.d.comb += position.eq(Mux(state.started, state.position, self.start))

        used = Signal(range(lanes + 1))
        place = Signal(range(INTERVAL))  # the lane of the beat before which the next marker goes
        has_marker = Signal()
        count = Signal(range(lanes + 2))
        m.d.comb += [
            used.eq(last_lanes(i)),
            place.eq(-position),
            has_marker.eq(self.enable & ((place < used) | (i.last & (place == used)))),
            count.eq(used + has_marker),
        ]
        pointer = Signal(16)  # FPDUPTR
        m.d.comb += pointer.eq(Cat(Const(0, 2), offset + place))
        marker = Cat(Const(0, 16), swap_octets(pointer))

        beat = buffer.i.payload
        words = [i.data.word_select(n, 32) for n in range(lanes)]
        m.d.comb += [
            buffer.i.valid.eq(self.i.valid),
            self.i.ready.eq(buffer.i.ready),
            beat.data.eq(Cat(
                Mux(has_marker & (place == n), marker,
                    Mux(has_marker & (place < n), words[n - 1] if n else 0, words[n] if n < lanes else 0))
                for n in range(lanes + 1)
            )),
            beat.count.eq(count),
            beat.last.eq(i.last),
            beat.abort.eq(i.abort),
        ]
        with m.If(self.i.valid & self.i.ready):
            leading = has_marker & (offset == 0) & (place == 0)
            # The CRC that will follow the last beat takes a lane too.
            m.d.sync += [
                state.started.eq(1),
                state.position.eq(position + count + i.last),
                offset.eq(Mux(i.last, 0, offset + count - leading)),
            ]
            m.d.comb += self.inserted.eq(has_marker)
        return m


class MarkedFpdu(Packet):
    """A beat of an FPDU that was received, its CRC included.

    ``marked``: lane ``marker`` of the beat is a marker. ``length``: the FPDU's ULPDU_Length. ``too_long``: that is over
    the maximum, and this only beat stands for the FPDU, which is not given.
    """

    def __init__(self, lanes: int, **extra):
        super().__init__(lanes, marked=1, marker=range(lanes), length=16, too_long=1, **extra)


class MarkerChecker(wiring.Component):
    """Compares every FPDUPTR with where the FPDU began (RFC 5044 §8, error 3).

    Combinational. The lowest 2 bits of FPDUPTR and the reserved half of a marker are not looked at (RFC 5044 §4.3).

    Members
    -------
    i : :class:`MarkedFpdu`
    o : the same, and on the last beat ``astray``: one of the markers pointed elsewhere; ``pointer``: its FPDUPTR, or
        that of the first such marker
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(MarkedFpdu(lanes))),
            "o": Out(stream.Signature(MarkedFpdu(lanes, astray=1, pointer=16))),
        })

    def elaborate(self, platform):
        m = Module()
        i, o = self.i.payload, self.o.payload
        offset = Signal(14)  # lanes since ULPDU_Length, at the beat's first lane
        first = Signal(init=1)
        astray = Signal()
        pointer = Signal(16, reset_less=True)

        found = Signal(16)
        expected = Signal(14)
        wrong = Signal()
        m.d.comb += [
            found.eq(swap_octets(i.data.word_select(i.marker, 32)[16:])),
            expected.eq(offset + i.marker),
            wrong.eq(i.marked & (found[2:] != expected)),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            *(o[name].eq(i[name]) for name in MarkedFpdu(self.lanes).members),
            o.astray.eq(astray | wrong),
            o.pointer.eq(Mux(astray, pointer, found)),
        ]
        leading = first & i.marked & (i.marker == 0)
        with m.If(self.i.valid & self.i.ready):
            with m.If(i.last):
                m.d.sync += [offset.eq(0), first.eq(1), astray.eq(0)]
            with m.Else():
                m.d.sync += [offset.eq(offset + self.lanes - leading), first.eq(0), astray.eq(o.astray)]
            m.d.sync += pointer.eq(o.pointer)
        return m


class MarkerRemover(wiring.Component):
    """Takes the markers and the CRC field out of FPDUs.

    Latency 3 cycles; one beat a cycle goes out as long as enough lanes come in.

    Members
    -------
    i : :class:`MarkedFpdu`, with ``extra`` on the last beat
    o : ULPDU_Length, ULPDU and PAD in whole lanes, with the same ``extra``
    """

    def __init__(self, lanes: int, **extra):
        check_lanes(lanes)
        self.lanes = lanes
        self.extra = extra
        super().__init__({
            "i": In(stream.Signature(MarkedFpdu(lanes, **extra))),
            "o": Out(stream.Signature(Packet(lanes, **extra))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        i = self.i.payload
        m.submodules.buffer = buffer = Buffer(Ragged(lanes, **self.extra))
        m.submodules.packer = packer = LanePacker(lanes, looks_ahead=True, **self.extra)
        wiring.connect(m, buffer.o, packer.i)
        wiring.connect(m, packer.o, wiring.flipped(self.o))

        beat = buffer.i.payload
        words = [i.data.word_select(n, 32) for n in range(lanes)]
        m.d.comb += [
            buffer.i.valid.eq(self.i.valid),
            self.i.ready.eq(buffer.i.ready),
            beat.data.eq(Cat(
                Mux(i.marked & (i.marker <= n), words[n + 1] if n + 1 < lanes else 0, words[n]) for n in range(lanes)
            )),
            beat.count.eq(last_lanes(i) - i.marked - i.last),  # the last lane of an FPDU is its CRC
            beat.last.eq(i.last),
            *(beat[name].eq(i[name]) for name in self.extra),
        ]
        return m
