"""Receive at 1 lane: delineation (RFC 5044 §6), markers (§4.3) and CRC (§4.4)."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, CheckedUlpdu, StreamBeat, Train
from open_rnic.rtl.lib.crc32c import ONES, WORD, times
from open_rnic.rtl.lib.gf2 import apply
from open_rnic.rtl.lib.rows import connection_field
from open_rnic.rtl.lib.stream import ReadyBuffer, swap_octets
from open_rnic.rtl.registers import Cause

__all__ = ["LaneReceiver"]


class LaneReceiver(wiring.Component):
    """:class:`.Delineator` and :class:`.FpduChecker` in one block, for a width of 1 lane.

    At this width a marker has a beat of its own, every FPDU begins in lane 0, and a CRC is known a cycle after its
    beat. Nothing has to be aligned or queued; only the last beat of a ULPDU waits for the CRC field.

    Many connections share the block by trains: each ends at the end of an FPDU, so nothing has to be kept for its
    connection but the place of the next marker, which the next train brings along.

    After a ULPDU_Length over the maximum, no later FPDU can be found: the block sends one beat with cause RX_LENGTH,
    then discards its input, up to the end of the train.

    Latency: 4 cycles. Throughput: one beat per cycle.

    Members
    -------
    i : In, stream of :class:`.StreamBeat`; with many connections, of :class:`.Train`
        The stream, with its markers.
    o : Out, stream of :class:`.CheckedUlpdu`
        ULPDUs.
    markers : In, 1 bit
        The stream has markers.
    start : In, 7 bits
        Offset of the first lane in the marked stream, in lanes. Only with one connection.
    maximum : In, 16 bits
        The largest ULPDU_Length.
    enable : In, 1 bit
        Check CRCs.

    idle : Out, 1 bit
        No beat is in the block. Only with many connections.

    With one connection, the inputs besides ``i`` do not change once octets have arrived. With many, they are those of
    the connection of the beat at ``i``.
    """

    def __init__(self, connections: int = 1):
        self.connections = connections
        self._many = many = connections > 1
        one = {"i": In(stream.Signature(StreamBeat(1))), "start": In(range(INTERVAL))}
        super().__init__({
            **({"i": In(stream.Signature(Train(1, connections))), "idle": Out(1)} if many else one),
            "o": Out(stream.Signature(CheckedUlpdu(1, connections))),
            "markers": In(1),
            "maximum": In(16),
            "enable": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.given = given = ReadyBuffer(self.o.payload.shape())
        wiring.connect(m, given.o, wiring.flipped(self.o))
        moves = given.i.ready  # registered; all stages stall while it is 0
        m.d.comb += self.i.ready.eq(moves)
        lane = _Lane()
        train_begins = self._locate(m, moves, lane)
        self._delimit(m, moves, lane, train_begins)
        beat = self._gather(m, moves, lane)
        findings = self._check(m, lane)
        judged = self._judge(m, moves, beat, lane.length, findings)
        self._send(m, judged, given.i)
        if self._many:
            m.d.comb += self.idle.eq(~(lane.there | beat["valid"] | judged.valid | given.o.valid))
        return m

    def _locate(self, m, moves, lane):
        """First stage: is the lane a marker? Return whether it is the first one of a train."""
        started = Signal()
        place = Signal(range(INTERVAL))  # lanes since the last place of a marker
        train_begins = Signal(init=1)
        if self._many:
            with m.If(moves & self.i.valid):
                m.d.sync += train_begins.eq(self.i.payload.last)
            lane_place = Mux(train_begins, self.i.payload.place, place)
        else:
            lane_place = place
            with m.If(~started):
                m.d.sync += place.eq(self.start)
        with m.If(moves):
            m.d.sync += [
                lane.there.eq(self.i.valid),
                lane.word.eq(self.i.payload.data),
                lane.is_marker.eq(self.markers & (lane_place == 0)),
            ]
            with m.If(self.i.valid):
                m.d.sync += [started.eq(1), place.eq(lane_place + 1)]
        return train_begins

    def _delimit(self, m, moves, lane, train_begins):
        """Second stage: the lane's place in its FPDU."""
        stopped = Signal()
        announced = Signal(16)
        if self._many:
            maximum = Signal(16, reset_less=True)
            resumes = Signal()  # the lane is the first of a train
            with m.If(moves):
                m.d.sync += [maximum.eq(self.maximum), resumes.eq(train_begins)]
            m.d.comb += lane.comes.eq(moves & lane.there & (resumes | ~stopped))
            with m.If(lane.comes):
                m.d.sync += stopped.eq(0)
        else:
            maximum = self.maximum
            m.d.comb += lane.comes.eq(moves & lane.there & ~stopped)
        m.d.comb += [announced.eq(swap_octets(lane.word[:16])), lane.too_long.eq(announced > maximum)]
        with m.If(lane.comes):
            m.d.sync += lane.fresh.eq(lane.ends & ~lane.is_marker)
        with m.If(lane.comes & ~lane.is_marker):
            m.d.sync += lane.begins.eq(lane.ends)
            with m.If(lane.begins):
                m.d.sync += [
                    lane.length.eq(announced),
                    lane.left.eq((announced + 2 + 3)[2:]),
                    lane.ends.eq(announced <= 2),
                    lane.tail.eq((announced[:2] == 1) | (announced[:2] == 2)),
                    stopped.eq(lane.too_long),
                ]
            with m.Else():
                m.d.sync += [lane.left.eq(lane.left - 1), lane.ends.eq(lane.left == 2)]

    def _gather(self, m, moves, lane):
        """Beats of the ULPDU, from the third octet of the FPDU on. The last beat is sent with the CRC's lane."""
        upper = Signal(16, reset_less=True)
        beat = Signal(32, reset_less=True)
        gives = Signal()
        last = Signal()
        over = Signal()
        with m.If(lane.comes & ~lane.is_marker):
            m.d.sync += upper.eq(lane.word[16:])
            with m.If(~lane.ends | lane.tail):
                m.d.sync += beat.eq(upper | (lane.word[:16] << 16))
        whole = lane.tail | lane.ends | (lane.left != 2)
        with m.If(moves):
            m.d.sync += [
                gives.eq(lane.comes & ~lane.is_marker & Mux(lane.begins, lane.too_long, whole)),
                last.eq(lane.begins | lane.ends),
                over.eq(lane.begins),
            ]
        return {"valid": gives, "data": beat, "last": last, "over": over}

    def _check(self, m, lane):
        """CRC and markers. A marker before ULPDU_Length has FPDUPTR 0."""
        comes, is_marker, fresh = lane.comes, lane.is_marker, lane.fresh
        crc = Signal(32, reset_less=True)
        passed = Signal(14)  # lanes since ULPDU_Length
        size = Signal(15, reset_less=True)
        led = Signal()  # a marker precedes ULPDU_Length; it counts in ``size``
        marks = Signal(8, reset_less=True)
        pointer = Signal(16)
        astray = Signal()
        first_astray = Signal(16, reset_less=True)
        m.d.comb += pointer.eq(swap_octets(lane.word[16:]))
        wrong = is_marker & (pointer[2:] != passed)
        with m.If(comes):
            m.d.sync += [
                crc.eq(times(WORD, Mux(fresh, Const(ONES, 32), crc) ^ lane.word)),
                marks.eq(Mux(fresh, 0, marks) + is_marker),
                astray.eq((astray & ~fresh) | wrong),
                led.eq(Mux(fresh, is_marker, led)),
                passed.eq(Mux(lane.ends & ~is_marker, 0, passed + ~(lane.begins & is_marker))),
                size.eq(passed + 1 + led),
            ]
            with m.If(wrong & (fresh | ~astray)):
                m.d.sync += first_astray.eq(pointer)
        if self._many:  # the lane behind one that is discarded begins an FPDU
            with m.If(comes & ~is_marker & lane.begins & lane.too_long):
                m.d.sync += [lane.begins.eq(1), lane.ends.eq(0), fresh.eq(1), passed.eq(0)]
        return {"good": crc == apply(WORD, ONES), "astray": astray, "pointer": first_astray, "size": size,
                "markers": marks}  # fmt: skip

    def _judge(self, m, moves, beat, length, findings):
        """Third stage: the verdict. The comparison of the CRC takes a cycle."""
        judged = Signal(data.StructLayout({
            "valid": 1, "data": 32, "last": 1, "over": 1, "good": 1, "astray": 1, "length": 16, "pointer": 16,
            "size": 15, "markers": 8, "empty": 1, **connection_field(self.connections),
        }))  # fmt: skip
        enable = self.enable
        if self._many:  # of the beat in this stage
            connection = self.i.payload.connection
            for stage in (2, 3):
                before = enable, connection
                enable = Signal(name=f"enable_{stage}", reset_less=True)
                connection = Signal.like(self.i.payload.connection, name=f"connection_{stage}", reset_less=True)
                with m.If(moves):
                    m.d.sync += [enable.eq(before[0]), connection.eq(before[1])]
            with m.If(moves):
                m.d.sync += judged.connection.eq(connection)
        facts = {**beat, **findings, "good": findings["good"] | ~enable, "length": length, "empty": length == 0}
        with m.If(moves):
            m.d.sync += [judged[name].eq(fact) for name, fact in facts.items()]
        return judged

    def _send(self, m, judged, given):
        out = given.payload
        m.d.comb += [
            given.valid.eq(judged.valid),
            *(out[name].eq(judged[name]) for name in (
                "data", "last", "size", "markers", "length", "connection",
            )),
            out.octets.eq(Mux(judged.length[:2] == 0, Mux(judged.empty, 0, 4), judged.length[:2])),
            out.value.eq(judged.length),
            out.none.eq(judged.over),
        ]  # fmt: skip
        with m.If(judged.over):
            m.d.comb += out.cause.eq(Cause.RX_LENGTH)
        with m.Elif(~judged.good):
            m.d.comb += out.cause.eq(Cause.CRC)
        with m.Elif(judged.astray):
            m.d.comb += [out.cause.eq(Cause.FPDUPTR), out.value.eq(judged.pointer)]


class _Lane:
    """The lane in the second stage of :class:`LaneReceiver`, and its place in its FPDU."""

    def __init__(self):
        self.there = Signal()
        self.word = Signal(32, reset_less=True)
        self.is_marker = Signal()
        self.comes = Signal()  # it is there, and not discarded
        self.begins = Signal(init=1)  # the next lane that is not a marker holds ULPDU_Length
        self.ends = Signal()  # the lane is the CRC
        self.fresh = Signal(init=1)  # the lane is the first of the FPDU, or a marker before it
        self.left = Signal(15)  # lanes from the previous lane to the CRC
        self.tail = Signal()  # the lane before the CRC has octets of the ULPDU's last beat
        self.length = Signal(16)
        self.too_long = Signal()
