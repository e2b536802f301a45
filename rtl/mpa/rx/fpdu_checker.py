"""Checks the CRC and the markers of received FPDUs (RFC 5044 §4.3, §4.4, §8)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import AlignedBeat, CheckedUlpdu, Packet, aligned, room_latency
from open_rnic.rtl.lib.copies import AT_ONCE, later
from open_rnic.rtl.lib.crc32c import Crc32c, residue
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import connection_field
from open_rnic.rtl.lib.stream import Buffer, Fifo, ReadyBuffer, stored_beats, swap_octets
from open_rnic.rtl.registers import Cause

__all__ = ["FpduChecker"]

# Beats that wait for a verdict, and those for which ``spare`` keeps room. One-beat FPDUs do not stall each other; one
# place less would do above 4 lanes.
DEPTH = 16
ROOM = 2  # beats: one, and one until ``room`` is known; those that were promised a place before come in addition

_NOTE = {"too_long": 1, "length": 16, "astray": 1, "pointer": 16, "size": 15, "markers": 8}


class FpduChecker(wiring.Component):
    """Extracts the ULPDUs from FPDUs, and reports on the last beat of each whether its FPDU is good.

    The cause is the first of these errors: ULPDU_Length over the maximum; CRC; a FPDUPTR that is not the distance to
    ULPDU_Length (RFC 5044 §8: error 3 applies to FPDUs whose CRC is good). The lowest 2 bits of FPDUPTR and the
    reserved half of a marker are not checked (RFC 5044 §4.3).

    The checks run in parallel with the ULPDUs; only the last beat of a ULPDU waits for them.

    Latency: 2 cycles for a beat that is not the last, at most 9 cycles for the last beat, 11 above 4 lanes.
    Throughput: one beat per cycle.

    Members
    -------
    i : In, signature :func:`.aligned`
        FPDUs.
    o : Out, stream of :class:`.CheckedUlpdu`
        ULPDUs; the additional fields are valid on the last beat.
    enable : In, 1 bit
        Check CRCs. Only with one connection.
    idle : Out, 1 bit
        No beat is in the block. Only with many connections.
    """

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        super().__init__({
            "i": In(aligned(lanes, connections)),
            "o": Out(stream.Signature(CheckedUlpdu(lanes, connections))),
            **({"idle": Out(1)} if connections > 1 else {"enable": In(1)}),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        i, o = self.i.payload, self.o.payload
        many = self.connections > 1
        shape = Packet(lanes, length=16, **connection_field(self.connections))
        m.submodules.ulpdus = ulpdus = Fifo(shape, DEPTH, spare=ROOM + room_latency(lanes))
        m.submodules.crc = crc = Crc32c(lanes, markers=True)
        m.submodules.crcs = crcs = Fifo(1, DEPTH)
        # An FPDU's note is there before the verdict of its CRC, and there are no more notes than beats in ``ulpdus``.
        # So nobody has to ask whether a note is there, or has a place, which takes time.
        ends = Signal()  # an FPDU has ended, and ``note`` is about it
        note = Signal(data.StructLayout(_NOTE | ({"crc": 1} if many else {})))
        noted = Signal(range(DEPTH))  # FPDUs that are noted, modulo DEPTH
        passed_on = Signal.like(noted)  # FPDUs whose last beat has left
        passed_next = Signal.like(noted)
        checked = data.View(
            note.shape(), stored_beats(m, platform, note, DEPTH, ends, noted, passed_next, passed_on)
        )

        # The ULPDU, from the third octet of the FPDU on.
        m.d.sync += self.i.room.eq(ulpdus.spare)
        m.d.comb += [
            ulpdus.i.valid.eq(self.i.valid & i.gives),
            ulpdus.i.payload.data.eq(i.data[16:]),
            ulpdus.i.payload.octets.eq(i.octets),
            ulpdus.i.payload.last.eq(i.ends),
            ulpdus.i.payload.length.eq(i.length),
            *([ulpdus.i.payload.connection.eq(i.connection)] if many else []),
        ]

        # The beat, for the checks; the place of its marker is decoded on the way.
        valid = Signal()
        first = Signal(init=1)
        beat = Signal(AlignedBeat(lanes, self.connections), reset_less=True)
        marked = Signal()
        before = Signal(lanes + 1)  # lanes before the marker
        here = Signal(lanes + 1)  # the marker's lane
        begins = Signal(init=1)
        has_marker = i.marked & (i.place < i.count) if many or lanes <= AT_ONCE else i.marked
        marked_lane = i.place[:(lanes - 1).bit_length()]
        m.d.sync += [
            valid.eq(self.i.valid),
            beat.eq(i),
            first.eq(begins),
            marked.eq(has_marker),
            before.eq(Cat(has_marker & (n < marked_lane) for n in range(lanes + 1))),
            here.eq(Cat(has_marker & (n == marked_lane) for n in range(lanes + 1))),
        ]
        with m.If(self.i.valid):
            m.d.sync += begins.eq(i.last)

        # The CRC: with a marker, the lanes after it keep their places, those before it move one place down.
        words = [beat.data.word_select(n, 32) for n in range(lanes)]
        m.d.comb += [
            crc.valid.eq(valid),
            crc.data.eq(Cat(
                Mux(here[n], beat.marker,
                    Mux(before[n], words[n] if n < lanes else 0, words[n - 1] if n else 0))
                for n in range(lanes + 1)
            )),
            crc.used.eq(beat.count),
            crc.marked.eq(marked),
            crc.first.eq(first),
            crc.last.eq(beat.last),
        ]
        expected = Array(Const(residue(missing), 32) for missing in range(lanes))
        difference = crc.z ^ expected[crc.missing]
        differs = Signal(16, reset_less=True)  # of each 2 bits
        done = Signal()
        m.d.sync += [differs.eq(Cat(difference[n:n + 2].any() for n in range(0, 32, 2))), done.eq(crc.z_valid)]
        # The CRC of a wide beat lies so far from the queue that its verdict would come late.
        m.d.comb += [
            crcs.i.valid.eq(later(m, done, lanes, name="decided")),
            crcs.i.payload.eq(later(m, differs == 0, lanes, name="is_right")),
        ]

        # The markers: their distance from ULPDU_Length in lanes, and their FPDUPTR.
        passed = Signal(14)  # lanes of the FPDU in earlier beats, markers included except one before ULPDU_Length
        leads = first & here[0]
        checks = Signal()
        ended = Signal()
        place = Signal(14, reset_less=True)
        pointer = Signal(16, reset_less=True)
        m.d.sync += [
            checks.eq(valid & marked),
            ended.eq(valid & beat.last),
            place.eq(passed + beat.place),
            pointer.eq(swap_octets(beat.marker[16:])),
        ]
        with m.If(valid):
            m.d.sync += passed.eq(Mux(beat.last, 0, passed + lanes + (marked & ~leads)))

        astray = Signal()
        first_astray = Signal(16, reset_less=True)
        markers = Signal(8)
        wrong = Signal()
        found_wrong = astray | wrong
        m.d.comb += wrong.eq(checks & (pointer[2:] != place))
        length = Signal(16)
        too_long = Signal()
        size = Signal(15)
        m.d.sync += [
            length.eq(beat.length),
            too_long.eq(beat.too_long),
            size.eq((beat.length + (2 + 3 + 4))[2:]),
            # A cycle later, the findings about the whole FPDU:
            ends.eq(ended),
            note.too_long.eq(too_long),
            note.length.eq(length),
            note.astray.eq(found_wrong),
            note.pointer.eq(Mux(astray, first_astray, pointer)),
            note.size.eq((Cat(1, size) + Cat(checks, markers))[1:]),  # one carry chain: ``checks`` is carried in
            note.markers.eq(markers + checks),
        ]
        enable = self._enable(m, beat, note, checked) if many else self.enable
        m.d.sync += noted.eq(noted + ends)
        with m.If(ended):
            m.d.sync += [astray.eq(0), markers.eq(0)]
        with m.Else():
            m.d.sync += [astray.eq(found_wrong), markers.eq(markers + checks)]
        with m.If(wrong & ~astray):
            m.d.sync += first_astray.eq(pointer)

        # Beat and verdict.
        ulpdu = ulpdus.o.payload
        m.submodules.given = given = ReadyBuffer(o.shape())
        out = given.i.payload
        with m.If(checked.too_long):
            m.d.comb += [out.cause.eq(Cause.RX_LENGTH), out.value.eq(checked.length)]
        with m.Elif(enable & ~crcs.o.payload.all()):
            m.d.comb += [out.cause.eq(Cause.CRC), out.value.eq(checked.length)]
        with m.Elif(checked.astray):
            m.d.comb += [out.cause.eq(Cause.FPDUPTR), out.value.eq(checked.pointer)]
        with m.Else():
            m.d.comb += out.value.eq(checked.length)
        judged = Signal()
        m.d.comb += [
            *(out[name].eq(ulpdu[name]) for name in ulpdu.shape().members),
            out.size.eq(checked.size),
            out.markers.eq(checked.markers),
            judged.eq(~ulpdu.last | crcs.o.valid),
            out.none.eq(ulpdu.last & checked.too_long),
            given.i.valid.eq(ulpdus.o.valid & judged),
            ulpdus.o.ready.eq(given.i.ready & judged),
            crcs.o.ready.eq(given.i.ready & ulpdus.o.valid & ulpdu.last),
            passed_next.eq(passed_on + (crcs.o.valid & crcs.o.ready)),
        ]
        m.d.sync += passed_on.eq(passed_next)
        wiring.connect(m, given.o, wiring.flipped(self.o))
        if lanes > AT_ONCE:
            # The clock enables of a wide ReadyBuffer are too many for ``ready``, which comes late. The octets therefore
            # have a buffer of their own, and only the fields that say what becomes of them come from registers.
            m.submodules.octets = octets = Buffer(32 * lanes)
            m.d.comb += [
                octets.i.valid.eq(given.i.valid),
                octets.i.payload.eq(out.data),
                octets.o.ready.eq(given.o.ready),
                o.data.eq(octets.o.payload),
            ]
        if many:
            m.d.comb += self.idle.eq(~(self.i.valid | ulpdus.o.valid | given.o.valid))
        return m

    def _enable(self, m, beat, note, checked):
        """Whether the CRC of the FPDU that is judged is checked."""
        crc = Signal()
        m.d.sync += [crc.eq(beat.crc), note.crc.eq(crc)]
        return checked.crc
