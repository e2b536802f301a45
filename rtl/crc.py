"""The CRC field of FPDUs (RFC 5044 §4.4)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .crc32c import Crc32c, crc_matrices, times, undo_stages
from .stream import Fifo, Packet, check_lanes, last_lanes

__all__ = ["CrcAppender"]

DEPTH = 16  # beats that wait for a CRC: more than its latency, so that one-beat FPDUs do not wait for each other


def _feed(m: Module, i: stream.Interface, beats: Fifo, crc: Crc32c):
    """Send the beats of ``i`` both into the queue and into the CRC pipeline, which never waits."""
    first = Signal(init=1)
    m.d.comb += [
        beats.i.valid.eq(i.valid),
        beats.i.payload.eq(i.payload),
        i.ready.eq(beats.i.ready),
        crc.valid.eq(i.valid & i.ready),
        crc.data.eq(i.payload.data),
        crc.used.eq(last_lanes(i.payload)),
        crc.first.eq(first),
        crc.last.eq(i.payload.last),
    ]
    with m.If(i.valid & i.ready):
        m.d.sync += first.eq(i.payload.last)


class CrcAppender(wiring.Component):
    """Puts the CRC behind each FPDU.

    Latency 2 cycles for a beat that is not the last, and 11 at most for the CRC; one beat a cycle goes out. An FPDU
    that fills its last beat gets one more.

    Members
    -------
    i : FPDUs without CRC; one with ``abort`` on its last beat gets the complement of its CRC, so that no receiver takes
        it for good (without CRCs nothing can tell it so)
    o : whole FPDUs
    enable : make CRCs; the field is zero otherwise
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, abort=1))),
            "o": Out(stream.Signature(Packet(lanes))),
            "enable": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        m.submodules.beats = beats = Fifo(Packet(lanes, abort=1), DEPTH)
        m.submodules.crc = crc = Crc32c(lanes)
        m.submodules.crcs = crcs = Fifo(32, DEPTH)
        _feed(m, self.i, beats, crc)

        basis, _ = crc_matrices(lanes)
        done, value, missing = Signal(), Signal(32, reset_less=True), Signal.like(crc.missing, reset_less=True)
        m.d.sync += [done.eq(crc.z_valid), value.eq(times(basis, crc.z)), missing.eq(crc.missing)]
        for n, undo in enumerate(undo_stages(lanes)):
            before = done, value, missing
            done, value, missing = (Signal.like(s, name=f"{s.name}_{n}") for s in before)
            m.d.sync += [
                done.eq(before[0]),
                value.eq(Mux(before[2][n], times(undo, before[1]), before[1])),
                missing.eq(before[2]),
            ]
        m.d.comb += [crcs.i.valid.eq(done), crcs.i.payload.eq(value)]

        beat, o = beats.o.payload, self.o.payload
        used = last_lanes(beat)
        full = used == lanes
        alone = Signal()  # the beat that the CRC did not fit into has left, the CRC follows
        # Wire order: the CRC register's least significant octet first (RFC 5044 §4.4), so no swap.
        field = Mux(self.enable, crcs.o.payload ^ (~beat.abort).replicate(32), 0)
        with m.If(alone):
            m.d.comb += [o.data.eq(field), o.octets.eq(4), o.last.eq(1)]
        with m.Else():
            m.d.comb += [
                o.data.eq(Cat(
                    Mux(beat.last & (used == n), field, beat.data.word_select(n, 32)) for n in range(lanes)
                )),
                o.octets.eq(Cat(Const(0, 2), used + 1)),
                o.last.eq(beat.last & ~full),
            ]
        ends = beat.last & (alone | ~full)
        moves = self.o.valid & self.o.ready
        m.d.comb += [
            self.o.valid.eq(beats.o.valid & (~ends | crcs.o.valid)),
            beats.o.ready.eq(moves & (ends | ~beat.last)),
            crcs.o.ready.eq(moves & ends),
        ]
        with m.If(moves):
            m.d.sync += alone.eq(beat.last & ~ends)
        return m
