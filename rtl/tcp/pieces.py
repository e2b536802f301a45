"""Takes received octets from the rings as they come, connection after connection."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.tcp.receive_ring import shown_octets
from open_rnic.rtl.tcp.words import PIECE

__all__ = ["Pieces"]


class Pieces(wiring.Component):
    """Reads :class:`.ReceiveRings` in pieces of up to 1,024 octets, in turn among the connections.

    Members
    -------
    rings : In, :func:`.shown_octets`
    accept : In, 1 bit for each connection
        Begin a piece only of these connections.
    o : Out, stream of :class:`.Packet` with ``connection``
        Octets in order. A packet of no octets is the end.
    """

    def __init__(self, connections: int, size: int):
        self.connections = connections
        index = connection_shape(connections)
        super().__init__({
            "rings": In(shown_octets(connections, size, tag=0)),
            "accept": In(connections),
            "o": Out(packet(1, connection=index)),
        })

    def elaborate(self, platform):
        m = Module()
        rings, o = self.rings, self.o.payload
        ring = rings.look_at
        given = rings.o.payload
        closed = Signal(self.connections)  # connections whose end has left
        next_ring = following(ring, self.connections)
        m.d.comb += o.connection.eq(ring)
        m.d.sync += closed.eq(closed & rings.ended)
        with m.FSM():
            with m.State("Look"):
                m.d.sync += rings.reads.payload.octets.eq(Mux(rings.available > PIECE, PIECE, rings.available))
                with m.If(~self.accept.bit_select(ring, 1) | rings.begins):
                    m.d.sync += ring.eq(next_ring)
                with m.Elif(rings.available != 0):
                    m.next = "Read"
                with m.Elif(rings.ended.bit_select(ring, 1) & ~closed.bit_select(ring, 1)):
                    m.next = "End"
                with m.Else():
                    m.d.sync += ring.eq(next_ring)
            with m.State("Read"):
                m.d.comb += rings.reads.valid.eq(~rings.begins)
                with m.If(rings.begins):
                    m.next = "Look"
                with m.Elif(rings.reads.ready):
                    m.next = "Leave"
            with m.State("Leave"):
                m.d.comb += [
                    self.o.valid.eq(rings.o.valid),
                    rings.o.ready.eq(self.o.ready),
                    *(o[name].eq(given[name]) for name in ("data", "octets", "last")),
                ]
                with m.If(self.o.valid & self.o.ready & o.last):
                    m.next = "Look"
            with m.State("End"):
                m.d.comb += [self.o.valid.eq(1), o.last.eq(1), o.octets.eq(0)]
                with m.If(self.o.ready):
                    m.d.sync += closed.bit_select(ring, 1).eq(1)
                    m.next = "Look"
        return m
