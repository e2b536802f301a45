"""The CRC field of FPDUs at 1 lane (RFC 5044 §4.4)."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, carried
from open_rnic.rtl.lib.crc32c import ONES, WORD, times
from open_rnic.rtl.lib.rows import connection_field
from open_rnic.rtl.lib.stream import Buffer, Stage

__all__ = ["LaneAppender"]


class LaneAppender(wiring.Component):
    """:class:`.CrcAppender` for a width of 1 lane, at which the CRC has a beat of its own and no beat waits for it.

    Latency: 2 cycles, 3 cycles for the CRC. Throughput: one beat per cycle at ``o``.

    Members
    -------
    i : In, stream of :class:`.Packet` with ``abort`` (1 bit)
    o : Out, stream of :class:`.Packet`
        See :class:`.CrcAppender`.
    """

    def __init__(self, connections: int = 1):
        self.carried = carried(connections, "crc")
        self.connection = connection_field(connections)
        super().__init__({
            "i": In(stream.Signature(Packet(1, abort=1, **self.carried))),
            "o": Out(stream.Signature(Packet(1, **self.connection))),
        })

    def elaborate(self, platform):
        m = Module()
        # The last beat is transferred twice; the second time it is replaced by the CRC.
        m.submodules.stage = stage = Stage(Packet(1, abort=1, twice=1, **self.carried), twice="twice")
        m.d.comb += [
            stage.i.valid.eq(self.i.valid),
            self.i.ready.eq(stage.i.ready),
            *(stage.i.payload[name].eq(self.i.payload[name]) for name in self.i.payload.shape().members),
            stage.i.payload.twice.eq(self.i.payload.last & (self.i.payload.crc | ~self.i.payload.abort)),
        ]
        m.submodules.given = given = Buffer(self.o.payload.shape())  # the stage's ``ready`` must be independent
        wiring.connect(m, given.o, wiring.flipped(self.o))
        beat, o = stage.o.payload, given.i.payload
        crc = Signal(32, init=ONES)
        m.d.comb += [
            given.i.valid.eq(stage.o.valid),
            stage.o.ready.eq(given.i.ready),
            # Wire order: the CRC register's least significant octet first, so no swap.
            o.data.eq(Mux(stage.again, Mux(beat.crc, crc ^ (~beat.abort).replicate(32), 0), beat.data)),
            o.octets.eq(4),
            o.last.eq(beat.last & (stage.again | ~beat.twice)),
            o.connection.eq(beat.connection),
        ]
        with m.If(given.i.valid & given.i.ready):
            m.d.sync += crc.eq(Mux(stage.again, Const(ONES, 32), times(WORD, crc ^ beat.data)))
        return m
