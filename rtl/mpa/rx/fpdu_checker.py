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
        ulpdus, crcs, notes = self._queues(m, platform)
        beat = self._register(m)
        self._check_crc(m, beat, crcs)
        self._check_markers(m, beat, notes)
        enable = self._enable(m, beat.fpdu, notes.note, notes.checked) if self.connections > 1 else self.enable
        m.d.sync += notes.noted.eq(notes.noted + notes.ends)
        given = self._judge(m, ulpdus, crcs, notes, enable)
        self._give(m, given)
        if self.connections > 1:
            m.d.comb += self.idle.eq(~(self.i.valid | ulpdus.o.valid | given.o.valid))
        return m

    def _queues(self, m, platform):
        """Store ULPDUs, from the third octet of the FPDU on; return their queue, that of CRCs' verdicts, and notes."""
        i, many = self.i.payload, self.connections > 1
        shape = Packet(self.lanes, length=16, **connection_field(self.connections))
        m.submodules.ulpdus = ulpdus = Fifo(shape, DEPTH, spare=ROOM + room_latency(self.lanes))
        m.submodules.crcs = crcs = Fifo(1, DEPTH)
        notes = _Notes(m, platform, has_crc=many)
        m.d.sync += self.i.room.eq(ulpdus.spare)
        m.d.comb += [
            ulpdus.i.valid.eq(self.i.valid & i.gives),
            ulpdus.i.payload.data.eq(i.data[16:]),
            ulpdus.i.payload.octets.eq(i.octets),
            ulpdus.i.payload.last.eq(i.ends),
            ulpdus.i.payload.length.eq(i.length),
            ulpdus.i.payload.connection.eq(i.connection),
        ]
        return ulpdus, crcs, notes

    def _register(self, m):
        """Return the beat, for the checks; the place of its marker is decoded on the way."""
        lanes, i = self.lanes, self.i.payload
        beat = _Beat(lanes, self.connections)
        begins = Signal(init=1)
        has_marker = i.marked & (i.place < i.count) if self.connections > 1 or lanes <= AT_ONCE else i.marked
        marked_lane = i.place[:(lanes - 1).bit_length()]
        m.d.sync += [
            beat.valid.eq(self.i.valid),
            beat.fpdu.eq(i),
            beat.first.eq(begins),
            beat.marked.eq(has_marker),
            beat.before.eq(Cat(has_marker & (n < marked_lane) for n in range(lanes + 1))),
            beat.here.eq(Cat(has_marker & (n == marked_lane) for n in range(lanes + 1))),
        ]
        with m.If(self.i.valid):
            m.d.sync += begins.eq(i.last)
        return beat

    def _check_crc(self, m, beat, crcs):
        """Queue whether each CRC is right: with a marker, lanes before it move one place down, all others stay."""
        lanes = self.lanes
        m.submodules.crc = crc = Crc32c(lanes, markers=True)
        words = [beat.fpdu.data.word_select(n, 32) for n in range(lanes)]
        m.d.comb += [
            crc.valid.eq(beat.valid),
            crc.data.eq(Cat(
                Mux(beat.here[n], beat.fpdu.marker,
                    Mux(beat.before[n], words[n] if n < lanes else 0, words[n - 1] if n else 0))
                for n in range(lanes + 1)
            )),
            crc.used.eq(beat.fpdu.count),
            crc.marked.eq(beat.marked),
            crc.first.eq(beat.first),
            crc.last.eq(beat.fpdu.last),
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

    def _check_markers(self, m, beat, notes):
        """Compare the markers' distance from ULPDU_Length with their FPDUPTR, and note what was found of the FPDU."""
        fpdu, note = beat.fpdu, notes.note
        passed = Signal(14)  # lanes of the FPDU in earlier beats, markers included except one before ULPDU_Length
        leads = beat.first & beat.here[0]
        checks = Signal()
        ended = Signal()
        place = Signal(14, reset_less=True)
        pointer = Signal(16, reset_less=True)
        m.d.sync += [
            checks.eq(beat.valid & beat.marked),
            ended.eq(beat.valid & fpdu.last),
            place.eq(passed + fpdu.place),
            pointer.eq(swap_octets(fpdu.marker[16:])),
        ]
        with m.If(beat.valid):
            m.d.sync += passed.eq(Mux(fpdu.last, 0, passed + self.lanes + (beat.marked & ~leads)))

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
            length.eq(fpdu.length),
            too_long.eq(fpdu.too_long),
            size.eq((fpdu.length + (2 + 3 + 4))[2:]),
            # A cycle later, the findings about the whole FPDU:
            notes.ends.eq(ended),
            note.too_long.eq(too_long),
            note.length.eq(length),
            note.astray.eq(found_wrong),
            note.pointer.eq(Mux(astray, first_astray, pointer)),
            note.size.eq((Cat(1, size) + Cat(checks, markers))[1:]),  # one carry chain: ``checks`` is carried in
            note.markers.eq(markers + checks),
        ]
        with m.If(ended):
            m.d.sync += [astray.eq(0), markers.eq(0)]
        with m.Else():
            m.d.sync += [astray.eq(found_wrong), markers.eq(markers + checks)]
        with m.If(~astray):
            m.d.sync += first_astray.eq(pointer)

    def _judge(self, m, ulpdus, crcs, notes, enable):
        """Put the verdict beside the last beat of each ULPDU; return the buffer behind."""
        ulpdu, checked = ulpdus.o.payload, notes.checked
        m.submodules.given = given = ReadyBuffer(self.o.payload.shape())
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
            notes.passed_next.eq(notes.passed_on + (crcs.o.valid & crcs.o.ready)),
        ]
        m.d.sync += notes.passed_on.eq(notes.passed_next)
        return given

    def _give(self, m, given):
        wiring.connect(m, given.o, wiring.flipped(self.o))
        if self.lanes > AT_ONCE:
            # The clock enables of a wide ReadyBuffer are too many for ``ready``, which comes late. The octets therefore
            # have a buffer of their own, and only the fields that say what becomes of them come from registers.
            m.submodules.octets = octets = Buffer(32 * self.lanes)
            m.d.comb += [
                octets.i.valid.eq(given.i.valid),
                octets.i.payload.eq(given.i.payload.data),
                octets.o.ready.eq(given.o.ready),
                self.o.payload.data.eq(octets.o.payload),
            ]

    def _enable(self, m, beat, note, checked):
        """Whether the CRC of the FPDU that is judged is checked."""
        crc = Signal()
        m.d.sync += [crc.eq(beat.crc), note.crc.eq(crc)]
        return checked.crc


class _Beat:
    """A beat of an FPDU, and where its marker is."""

    def __init__(self, lanes: int, connections: int):
        self.valid = Signal()
        self.first = Signal(init=1)
        self.fpdu = Signal(AlignedBeat(lanes, connections), name="beat", reset_less=True)
        self.marked = Signal()
        self.before = Signal(lanes + 1)  # lanes before the marker
        self.here = Signal(lanes + 1)  # the marker's lane


class _Notes:
    """What is found of whole FPDUs, the oldest one in ``checked``.

    An FPDU's note is there before the verdict of its CRC, and there are no more notes than beats of ULPDUs in their
    queue. So nobody has to ask whether a note is there, or has a place, which takes time.
    """

    def __init__(self, m: Module, platform, *, has_crc: bool):
        self.ends = Signal()  # an FPDU has ended, and ``note`` is about it
        self.note = Signal(data.StructLayout(_NOTE | ({"crc": 1} if has_crc else {})))
        self.noted = Signal(range(DEPTH))  # FPDUs that are noted, modulo DEPTH
        self.passed_on = Signal.like(self.noted, name="passed_on")  # FPDUs whose last beat has left
        self.passed_next = Signal.like(self.noted, name="passed_next")
        self.checked = data.View(self.note.shape(), stored_beats(
            m, platform, self.note, DEPTH, self.ends, self.noted, self.passed_next, self.passed_on
        ))  # fmt: skip
