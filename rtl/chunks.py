"""From chunks of any length to lanes: where the wire's segments end is forgotten here."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .packer import rotate_lanes
from .stream import Buffer, Packet, check_lanes

__all__ = ["ChunkPacker", "StreamBeat"]


class StreamBeat(data.StructLayout):
    """A beat of the MPA stream, in which lane 0 is always the same place modulo the width.

    ``count`` lanes of ``data`` have arrived, from lane 0 on. As long as that is not all of them, the next
    beat is this one again with more.
    """

    def __init__(self, lanes: int):
        super().__init__({"data": 32 * lanes, "count": range(lanes + 1)})


class ChunkPacker(wiring.Component):
    """Packs chunks of any number of octets into full beats.

    A beat that is not full is shown when no chunk is waiting, so nothing that has arrived is kept
    back but the last 1 to 3 octets of an unfinished lane.

    Latency 2 cycles; one beat a cycle. A beat shown early may take one cycle from the input.

    Members
    -------
    i : chunks
    o : :class:`StreamBeat`
    start : lane at which the stream begins; does not change once octets have come
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(Packet(lanes))),
            "o": Out(stream.Signature(StreamBeat(lanes))),
            "start": In(range(lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        width = 4 * lanes
        started = Signal()
        octet = Signal(range(width))  # where in its beat the next octet goes

        # First turn the octets to where they go in a beat.
        m.submodules.turned = turned = Buffer(data.StructLayout({"data": 8 * width, "count": range(width + 1)}))
        i = self.i.payload
        place = Signal.like(octet)
        count = Mux(i.last, i.octets, width)
        m.d.comb += [
            place.eq(Mux(started, octet, Cat(Const(0, 2), self.start))),
            turned.i.valid.eq(self.i.valid & (count != 0)),
            turned.i.payload.data.eq(rotate_lanes(m, i.data, place, lane=8)),
            turned.i.payload.count.eq(count),
            self.i.ready.eq(turned.i.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [started.eq(1), octet.eq(place + count)]

        # Then join them with those that are there already.
        kept = Signal(8 * width, reset_less=True)
        filled = Signal(range(width))  # octets kept
        joins = Signal()  # the first beat has been joined
        shown = Signal(range(lanes + 1))  # lanes of the kept beat that have been shown
        showing = Signal()  # a beat that is not full was offered, and not taken yet

        new = turned.o.payload
        present = Signal.like(filled)
        total = Signal(range(2 * width))
        joined = Signal(8 * width)
        m.d.comb += [
            present.eq(Mux(joins, filled, Cat(Const(0, 2), self.start))),
            joined.eq(Cat(
                Mux(n < present, kept.word_select(n, 8), new.data.word_select(n, 8)) for n in range(width)
            )),
        ]
        early = showing | (~turned.o.valid & (filled[2:] > shown))
        full = ~early & turned.o.valid & (total >= width)
        m.d.comb += [
            total.eq(present + new.count),
            self.o.valid.eq(early | full),
            self.o.payload.data.eq(Mux(early, kept, joined)),
            self.o.payload.count.eq(Mux(early, filled[2:], lanes)),
            turned.o.ready.eq(~early & (~full | self.o.ready)),
        ]
        m.d.sync += showing.eq(early & ~self.o.ready)
        with m.If(early & self.o.ready):
            m.d.sync += shown.eq(filled[2:])
        with m.If(turned.o.valid & turned.o.ready):
            m.d.sync += [
                joins.eq(1),
                filled.eq(total),  # modulo the width
                kept.eq(Mux(full, new.data, joined)),
            ]
            with m.If(full):
                m.d.sync += shown.eq(0)
        return m
