"""The CRC field of FPDUs (RFC 5044 §4.4)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, carried
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.crc32c import BASIS, Crc32c, times, undone
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import connection_field
from open_rnic.rtl.lib.stream import Buffer, Fifo, ReadyFifo, Through
from open_rnic.rtl.mpa.tx.crc_lane_appender import LaneAppender

__all__ = ["CrcAppender", "crc_appender"]

UNDONE = 2  # bits of the number of lanes to undo that a cycle processes
DEPTH = 16  # beats that wait for a CRC: more than its latency, so that one-beat FPDUs do not stall each other


def _feed(m: Module, i: stream.Interface, beats: Fifo, crc: Crc32c):
    """Send the beats of ``i`` to the CRC pipeline, which never stalls, and to the queue; the caller sets the data."""
    first = Signal(init=1)
    m.d.comb += [
        beats.i.valid.eq(i.valid),
        i.ready.eq(beats.i.ready),
        crc.valid.eq(i.valid & i.ready),
        crc.data.eq(i.payload.data),
        crc.used.eq(i.payload.octets[2:]),
        crc.first.eq(first),
        crc.last.eq(i.payload.last),
    ]
    with m.If(i.valid & i.ready):
        m.d.sync += first.eq(i.payload.last)


class CrcAppender(wiring.Component):
    """Appends the CRC field to each FPDU.

    Latency: 1 cycle for a beat that is not the last, 2 cycles above 4 lanes; for the CRC 6 cycles at 2 lanes, 7 at 4
    and 10 above. Throughput: one beat per cycle at ``o``. An FPDU that fills its last beat becomes one beat longer.

    Members
    -------
    i : In, stream of :class:`.Packet` with ``abort`` (1 bit)
        FPDUs without CRC. With ``abort`` on its last beat, an FPDU gets the complement of its CRC, so that the receiver
        rejects it. If CRCs are disabled, its last lane is left out, so that the receiver waits for its end.
    o : Out, stream of :class:`.Packet`
        Complete FPDUs, with ``connection``.

    ``i`` has the fields of :func:`.carried` with ``crc``: generate the CRC; otherwise the field is zero.
    """

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connection = connection_field(connections)
        self._wide = lanes > AT_ONCE
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, abort=1, **carried(connections, "crc")))),
            "o": Out(stream.Signature(Packet(lanes, **self.connection))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, wide = self.lanes, self._wide
        # One queue for beats that wait for their CRC, another one for CRCs that wait for their beat.
        m.submodules.beats = beats = ReadyFifo(_Queued(lanes, self.connection), DEPTH)
        m.submodules.crc = crc = Crc32c(lanes)
        m.submodules.crcs = crcs = (ReadyFifo if wide else Fifo)(32, DEPTH)
        _feed(m, self.i, beats, crc)
        queued = self._queue(m, beats)
        self._complete(m, crc, crcs)
        self._append(m, beats.o, queued, crcs.o)
        return m

    def _queue(self, m, beats):
        """Put beats into their queue. Return the octets of the beat at its output."""
        i, beat = self.i.payload, beats.i.payload
        cuts = Signal()  # the last lane is left out
        fills = i.octets[-1] & ~cuts  # all lanes are in use
        m.d.comb += [
            cuts.eq(i.last & i.abort & ~i.crc),
            beat.used.eq(i.octets[2:] - cuts),
            beat.ends.eq(i.last & ~fills),
            beat.full.eq(i.last & fills),
            beat.connection.eq(i.connection),
        ]
        if not self._wide:
            m.d.comb += beat.data.eq(i.data)
            return beats.o.payload.data
        # Octets of wide beats come straight from memory: a register for them would be stalled by too late a signal.
        m.submodules.octets = octets = Fifo(32 * self.lanes, DEPTH)
        m.d.comb += [
            octets.i.valid.eq(self.i.valid),
            octets.i.payload.eq(i.data),
            octets.o.ready.eq(beats.o.ready),
            beat.place.eq(Cat(i.last & ~fills & (beat.used == n) for n in range(self.lanes))),
        ]
        return octets.o.payload

    def _complete(self, m, crc, crcs):
        """Undo the lanes of zeros, UNDONE bits of their number per cycle; the result is the CRC. Queue it."""
        done, z, missing = crc.z_valid, crc.z, crc.missing
        stages = range(0, len(missing), UNDONE)
        for at in stages:
            before = done, undone(m, z, missing[at:at + UNDONE], 1 << at), missing
            done = Signal(name=f"done_{at}")
            z = Signal(32, name=f"z_{at}", reset_less=True)
            missing = Signal.like(missing, name=f"missing_{at}", reset_less=True)
            m.d.sync += [done.eq(before[0]), z.eq(before[1]), missing.eq(before[2])]
        abort, enable = self.i.payload.abort, self.i.payload.crc
        for stage in range(crc.latency + len(stages)):
            before = abort, enable
            abort, enable = (Signal(name=f"{name}_{stage}", reset_less=True) for name in ("abort", "enable"))
            m.d.sync += [abort.eq(before[0]), enable.eq(before[1])]
        # Wire order: the CRC register's least significant octet first (RFC 5044 §4.4), so no swap.
        m.d.sync += [
            crcs.i.valid.eq(done),
            crcs.i.payload.eq(Mux(enable, times(BASIS, z) ^ (~abort).replicate(32), 0)),
        ]

    def _append(self, m, beats, queued, crcs):
        """Send beats, each last one with its CRC, or the CRC behind it."""
        lanes, wide = self.lanes, self._wide
        # A wide beat is registered with its CRC: too many octets depend on ``ready``, which may come late.
        m.submodules.given = given = (Buffer if wide else Through)(self.o.payload.shape())
        wiring.connect(m, given.o, wiring.flipped(self.o))
        o, beat = given.i.payload, beats.payload
        alone = Signal()  # the full last beat has been sent, but stays at the queue's output; the CRC follows
        lane = Signal(range(lanes))  # of the CRC
        # Of a beat with the CRC alone, no other lane has a meaning.
        places = Cat((alone | beat.ends) & (lane == n) for n in range(lanes))
        holds = beat.place | alone if wide else places
        m.d.comb += [
            lane.eq(Mux(alone, 0, beat.used)),
            o.data.eq(Cat(Mux(holds[n], crcs.payload, queued.word_select(n, 32)) for n in range(lanes))),
            o.octets.eq(Array(range(4, 4 * lanes + 4, 4))[lane]),
            o.last.eq(alone | beat.ends),
            o.connection.eq(beat.connection),
            given.i.valid.eq(Mux(alone, crcs.valid, beats.valid & (crcs.valid | ~beat.ends))),
            beats.ready.eq(given.i.ready & Mux(alone | beat.ends, crcs.valid, ~beat.full)),
            crcs.ready.eq(given.i.ready & (alone | beat.ends)),  # a CRC that is valid has its beat at the output
        ]
        with m.If(given.i.valid & given.i.ready):
            m.d.sync += alone.eq(~alone & beat.full)


def crc_appender(lanes: int, connections: int = 1) -> CrcAppender | LaneAppender:
    """The block that appends the CRC field at this width."""
    return LaneAppender(connections) if lanes == 1 else CrcAppender(lanes, connections)


class _Queued(data.StructLayout):
    """A beat that waits for its CRC.

    ``ends``: the FPDU ends with this beat and its CRC. ``full``: it ends; the CRC needs another beat. ``used``: with
    ``ends``, the lane of the CRC. Above 4 lanes, ``place`` has the same as a bit for each lane, which is its choice;
    the octets are in a queue of their own.
    """

    def __init__(self, lanes: int, also):
        wide = lanes > AT_ONCE
        super().__init__({
            **({"place": lanes} if wide else {"data": 32 * lanes}), "used": range(lanes), "ends": 1, "full": 1, **also,
        })  # fmt: skip
