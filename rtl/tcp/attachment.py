"""Attaches the data path of a connection to TCP."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.tcp.words import PIECE

__all__ = ["Attachment"]


class Attachment(wiring.Component):
    """The queue between the TCP engine and the data path of one connection, and what passes between them, counted.

    A piece of received octets is only accepted if the queue has room for all of it, so that a data path that stalls
    does not stall the others. Packets to send pass without delay.

    Members
    -------
    reset : In, 1 bit
        The data path is reset: empty the queue, clear the counters, and end a packet of which a part has been sent.
        The engine must have no piece on its way: ``wanted`` was 0 before.
    wanted : In, 1 bit
        The host wants octets.
    accept : Out, 1 bit
        The engine may begin a piece.
    received : In, stream of :class:`.Packet`
        Pieces of the connection; one of no octets is the end.
    rx_mpa : Out, stream of :class:`.Packet`
        The octets, for the data path.
    tx_mpa : In, stream of :class:`.Packet`
        Packets of the data path.
    to_send : Out, stream of :class:`.Packet`
        The same, for the engine.
    packets : Out, 32 bits
        Number of packets that the engine has taken.
    octets : Out, 32 bits
        Number of octets received.
    finished : Out, 1 bit
        The end has been received.
    ends : Out, 1 bit
        It is received in this cycle.
    """

    def __init__(self):
        super().__init__({
            "reset": In(1), "wanted": In(1), "accept": Out(1),
            "received": In(packet(1)), "rx_mpa": Out(packet(1)),
            "tx_mpa": In(packet(1)), "to_send": Out(packet(1)),
            "packets": Out(32), "octets": Out(32), "finished": Out(1), "ends": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        self._receive(m)
        self._send(m)
        return m

    def _receive(self, m):
        given, beat = self.received, self.received.payload
        piece = PIECE // 4
        fifo = SyncFIFOBuffered(width=len(Value.cast(beat)), depth=2 * piece)
        m.submodules.queue = ResetInserter(self.reset)(fifo)
        moves = Signal()
        octets = Signal(3)
        m.d.comb += [
            given.ready.eq(fifo.w_rdy),
            moves.eq(given.valid & given.ready),
            octets.eq(Mux(beat.last, beat.octets, 4)),
            self.ends.eq(moves & (octets == 0)),
            fifo.w_data.eq(beat),
            fifo.w_en.eq(moves & ~self.ends),
            self.rx_mpa.valid.eq(fifo.r_rdy),
            Value.cast(self.rx_mpa.payload).eq(fifo.r_data),
            fifo.r_en.eq(self.rx_mpa.ready),
        ]
        m.d.sync += self.accept.eq(self.wanted & (fifo.level <= piece))
        with m.If(self.reset):
            m.d.sync += [self.octets.eq(0), self.finished.eq(0)]
        with m.Elif(moves):
            m.d.sync += [self.octets.eq(self.octets + octets), self.finished.eq(self.ends)]

    def _send(self, m):
        out, beat = self.to_send, self.tx_mpa.payload
        begun = Signal()  # a part of a packet has been sent
        cut = Signal()  # the rest of it will not come
        moves = Signal()
        m.d.comb += [
            out.valid.eq(self.tx_mpa.valid | cut),
            out.payload.eq(beat),
            self.tx_mpa.ready.eq(out.ready & ~cut),
            moves.eq(out.valid & out.ready),
        ]
        with m.If(cut):
            m.d.comb += [out.payload.last.eq(1), out.payload.octets.eq(0)]
        with m.If(moves):
            m.d.sync += [begun.eq(~out.payload.last), cut.eq(0)]
        with m.If(self.reset):
            m.d.sync += [cut.eq((begun | moves) & ~(moves & out.payload.last)), self.packets.eq(0)]
        with m.Elif(moves & beat.last & ~cut):
            m.d.sync += self.packets.eq(self.packets + 1)
