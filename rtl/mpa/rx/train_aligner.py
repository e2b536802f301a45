"""Cuts the markers out of whole FPDUs of many connections (RFC 5044 §4.3)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, Train, aligned
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import rotate_lanes
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.lib.stream import swap_octets

__all__ = ["TrainAligner"]


class TrainAligner(wiring.Component):
    """:class:`.ChunkPacker` and :class:`.Delineator` for trains, at 2 lanes and more.

    A train is one FPDU that begins in lane 0, so none has to be found, and nothing is kept from one train to the next.
    The lanes behind a marker move down by one. A beat is sent once the lane behind it has arrived, for 2 octets of it,
    or the train has ended; the last beat of a train leaves while the first one of the next train arrives.

    Of an FPDU whose ULPDU_Length is over the maximum, one beat with ``too_long`` is sent, and the rest of the train is
    discarded.

    Latency: 4 cycles. Throughput: one beat per cycle.

    Members
    -------
    i : In, stream of :class:`.Train`
    o : Out, signature :func:`.aligned`
        FPDUs.
    markers, enable : In, 1 bit
        The stream of the connection of the beat at ``i`` has markers; its CRCs are checked.
    maximum : In, 16 bits
        Its largest ULPDU_Length.
    idle : Out, 1 bit
        No beat is in the block.
    """

    def __init__(self, lanes: int, connections: int):
        check_lanes(lanes)
        if lanes < 2:
            raise ValueError(f"trains are aligned at 2 lanes and more, not at {lanes!r}")
        self.lanes = lanes
        self.connections = connections
        super().__init__({
            "i": In(stream.Signature(Train(lanes, connections))), "o": Out(aligned(lanes, connections)),
            "markers": In(1), "enable": In(1), "maximum": In(16), "idle": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        moves = Signal()  # all stages go on
        m.d.sync += moves.eq(self.o.room)
        m.d.comb += self.i.ready.eq(moves)
        located = self._locate(m, moves)
        closed = self._close(m, moves, located)
        held = self._join(m, moves, closed)
        m.d.comb += self.idle.eq(~(located.valid | closed.valid | held | self.o.valid))
        return m

    def _locate(self, m, moves):
        """First stage: the lane that is a marker. There is at most one in a beat."""
        lanes, given = self.lanes, self.i.payload
        located = Signal(data.StructLayout({
            "valid": 1, "first": 1, "last": 1, "data": 32 * lanes, "count": range(lanes + 1), "marker": lanes,
            "maximum": 16, "crc": 1, "connection": connection_shape(self.connections),
        }))  # fmt: skip
        begins = Signal(init=1)
        place = Signal(range(INTERVAL))  # of the first lane
        next_place = Signal.like(place)
        count = Signal(range(lanes + 1))
        m.d.comb += [
            place.eq(Mux(begins, given.place, next_place)),
            count.eq(Mux(given.last, given.octets[2:], lanes)),
        ]
        with m.If(moves):
            m.d.sync += [
                located.valid.eq(self.i.valid),
                located.first.eq(begins),
                located.count.eq(count),
                located.marker.eq(Cat(self.markers & (place == -n % INTERVAL) & (n < count) for n in range(lanes))),
                located.maximum.eq(self.maximum),
                located.crc.eq(self.enable),
                *(located[name].eq(given[name]) for name in ("last", "data", "connection")),
            ]
            with m.If(self.i.valid):
                m.d.sync += [begins.eq(given.last), next_place.eq(place + lanes)]
        return located

    def _close(self, m, moves, located):
        """Second stage: the marker leaves its place, and the lanes behind it move down."""
        lanes, marker = self.lanes, located.marker
        words = [located.data.word_select(n, 32) for n in range(lanes)]
        closed = Signal(data.StructLayout({
            "valid": 1, "first": 1, "last": 1, "data": 32 * lanes, "count": range(lanes + 1),
            "marked": 1, "place": range(lanes), "marker": 32,
            "length": 16, "too_long": 1, "crc": 1, "connection": connection_shape(self.connections),
        }))  # fmt: skip
        first_word = Mux(marker[0], words[1], words[0])
        length = Signal(16)
        m.d.comb += length.eq(swap_octets(first_word[:16]))
        with m.If(moves):
            m.d.sync += [
                closed.data.eq(Cat(
                    Mux(marker[:n + 1].any(), words[min(n + 1, lanes - 1)], words[n]) for n in range(lanes)
                )),
                closed.count.eq(located.count - marker.any()),
                closed.marked.eq(marker.any()),
                closed.length.eq(length),
                closed.too_long.eq(length > located.maximum),
                *(closed[name].eq(located[name]) for name in ("valid", "first", "last", "crc", "connection")),
            ]
            for n in range(lanes):
                with m.If(marker[n]):
                    m.d.sync += [closed.place.eq(n), closed.marker.eq(words[n])]
        return closed

    def _join(self, m, moves, given):
        """Third stage: lanes are put behind those that are held. Return whether some are held."""
        lanes, o = self.lanes, self.o.payload
        held = Signal(32 * lanes, reset_less=True)
        count = Signal(range(lanes + 1))  # lanes that are held
        final = Signal()  # they are the FPDU's last ones
        stopped = Signal()  # the rest of the train is discarded
        arrives = Signal()
        base = Signal(range(lanes + 1))  # the place of the lanes that arrive
        reach = Signal(range(2 * lanes + 1))
        over = Signal()  # a beat is full, and the lane behind it is there
        sends = Signal()
        m.d.comb += [
            arrives.eq(given.valid & (given.first | ~stopped)),
            base.eq(Mux(final, 0, count)),
            reach.eq(base + given.count),
            over.eq(arrives & (reach > lanes)),
            sends.eq(final | over),
        ]
        turned = rotate_lanes(m, given.data, base[:(lanes - 1).bit_length()])
        with m.If(moves & arrives):
            m.d.sync += [
                held.eq(Cat(
                    Mux((base > n) & ~over, held.word_select(n, 32), turned.word_select(n, 32)) for n in range(lanes)
                )),
                count.eq(Mux(over, reach - lanes, reach)),
                final.eq(given.last | (given.first & given.too_long)),
                stopped.eq(given.first & given.too_long),
            ]
        with m.Elif(moves & final):
            m.d.sync += [count.eq(0), final.eq(0)]
        fpdu = self._measure(m, given, moves & arrives & given.first, moves & sends)
        self._mark(m, moves, given, arrives, base, over, final)
        m.d.sync += [
            self.o.valid.eq(moves & sends),
            o.data.eq(Cat(
                *(Mux(count > n, held.word_select(n, 32), turned.word_select(n, 32)) for n in range(lanes)),
                turned[:16],
            )),
            o.count.eq(Mux(final, Mux(fpdu.too_long, 1, count), lanes)),
            o.last.eq(final),
        ]  # fmt: skip
        return count != 0

    def _measure(self, m, given, begins, sends):
        """The octets of the ULPDU in each beat. Return what is known of the FPDU."""
        bits, width, o = (self.lanes - 1).bit_length(), 4 * self.lanes, self.o.payload
        fpdu = Signal(data.StructLayout({
            "length": 16, "too_long": 1, "crc": 1, "connection": connection_shape(self.connections),
        }), reset_less=True)  # fmt: skip
        left = Signal(16, reset_less=True)  # octets of the ULPDU that have not been sent
        gives = Signal()  # the next beat has some of them, or the ULPDU has none and this is its beat
        ends = Signal()
        m.d.comb += ends.eq(gives & (fpdu.too_long | ~left[bits + 2:].any() | (left == width)))
        with m.If(begins):
            m.d.sync += [
                *(fpdu[name].eq(given[name]) for name in fpdu.shape().members), left.eq(given.length), gives.eq(1),
            ]  # fmt: skip
        with m.Elif(sends):
            m.d.sync += [left.eq(left - width), gives.eq(gives & ~ends)]
        m.d.sync += [
            o.gives.eq(gives),
            o.ends.eq(ends),
            o.octets.eq(left),
            *(o[name].eq(fpdu[name]) for name in fpdu.shape().members),
        ]
        return fpdu

    def _mark(self, m, moves, given, arrives, base, over, final):
        """The marker that was cut out precedes a lane of the beat that is sent, or of a later one."""
        lanes, o = self.lanes, self.o.payload
        marked = Signal()  # a marker precedes lane ``place``
        place = Signal(range(lanes + 1))
        marker = Signal(32, reset_less=True)
        has_marker = Signal()
        marker_place = Signal(range(2 * lanes + 1))
        m.d.comb += [
            has_marker.eq((marked & ~final) | given.marked),
            marker_place.eq(Mux(marked & ~final, place, base + given.place)),
        ]
        with m.If(moves & arrives):
            m.d.sync += [
                marked.eq(has_marker & (~over | (marker_place >= lanes))),
                place.eq(Mux(over, marker_place - lanes, marker_place)),
            ]
            with m.If(given.marked):
                m.d.sync += marker.eq(given.marker)
        with m.Elif(moves & final):
            m.d.sync += marked.eq(0)
        m.d.sync += [
            o.marked.eq(marked | (given.marked & ~final)),
            o.place.eq(Mux(marked, place, marker_place)),
            o.marker.eq(Mux(marked, marker, given.marker)),
        ]
