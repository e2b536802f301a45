"""Markers: every 512 octets of the MPA stream, 4 octets that point back to the FPDU's start (RFC 5044 §4.3)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .packer import LanePacker, Ragged
from .stream import Buffer, Packet, check_lanes, last_lanes, swap_octets

__all__ = ["INTERVAL", "MarkerInserter"]

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
