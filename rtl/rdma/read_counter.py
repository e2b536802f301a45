"""Counts the RDMA Reads of both ends."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Cells, Clear, InFlight, connection_shape, forget, only_many
from open_rnic.rtl.lib.stream import Fifo
from open_rnic.rtl.rdma.layouts import Sink
from open_rnic.rtl.rdma.row_queue import is_read

__all__ = ["ReadCounter"]


class ReadTurn(wiring.Signature):
    """The connections of a :class:`ReadCounter`'s ports.

    Those of ``outstanding``, ``none`` and ``asks`` (``loader``); of ``answers`` (``sender``); of ``sinks``,
    ``requested`` and ``requests`` (``receiver``); of ``answered`` (``placed``); of ``starts``; of ``rtr_answered``
    (``rtr``). All are outputs.
    """

    def __init__(self, connections: int):
        names = "loader", "sender", "receiver", "placed", "starts", "rtr"
        super().__init__(dict.fromkeys(names, Out(connection_shape(connections))))


class ReadsShown(wiring.Signature):
    """The RDMA Reads of ``connection`` (In), as in a :class:`ReadCounter`: ``outstanding`` and ``requests`` (Out).

    ``oldest`` (Out) is the number of the peer's oldest RDMA Read Request, modulo ``reads``.
    """

    def __init__(self, reads: int, connections: int):
        super().__init__({
            "connection": In(connection_shape(connections)),
            "outstanding": Out(8), "requests": Out(8), "oldest": Out(range(reads)),
        })  # fmt: skip


class ReadCounter(wiring.Component):
    """The RDMA Reads that are outstanding: this end's, which ORD limits, and the peer's, which IRD limits.

    Members
    -------
    loads : In, 1 bit
        An RDMA Read of this end will be sent.
    asks : In, 1 bit
        Its RDMA Read Request is being sent; ``asked`` is its sink.
    asked : In, :class:`.Sink`
    answered : In, 1 bit
        A Read Response is complete.
    sinks : Out, stream of :class:`.Sink`
        The sinks of the RDMA Reads that have been sent.
    outstanding : Out, 8 bits
        RDMA Reads of this end, with a Read RTR.
    none : Out, 1 bit
        There is none but a Read RTR.
    starts : In, 1 bit
        The Read RTR, if ``read_rtr``, is settled.
    read_rtr, rtr_answered : In, 1 bit
        This end sends a Read RTR; its Read Response has arrived.
    requested : In, 1 bit
        The peer has sent an RDMA Read Request.
    answers : In, 1 bit
        The last octets of a Read Response to the peer are being sent.
    requests : Out, 8 bits
        RDMA Read Requests of the peer.

    With many connections, ``loads`` is not used, ``starts`` is 1 for one cycle, and there are

    turn : In, :class:`ReadTurn`
    shown : Out, :class:`ReadsShown`
    settled : Out, 1 bit
        ``sinks.valid`` is not 0 for the time that block RAM takes.
    clear : In, :class:`.Clear`
    """

    def __init__(self, reads: int, connections: int = 1):
        self.reads = reads
        self.connections = connections
        many = {
            "turn": In(ReadTurn(connections)), "shown": Out(ReadsShown(reads, connections)),
            "settled": Out(1), "clear": In(Clear(connections)),
        }  # fmt: skip
        super().__init__({
            **only_many(connections, many),
            "loads": In(1), "asks": In(1), "asked": In(Sink), "answered": In(1),
            "sinks": Out(stream.Signature(Sink)), "outstanding": Out(8), "none": Out(1),
            "starts": In(1), "read_rtr": In(1), "rtr_answered": In(1),
            "requested": In(1), "answers": In(1), "requests": Out(8),
        })  # fmt: skip

    def elaborate(self, platform):
        if self.connections > 1:
            return self._many()
        m = Module()
        m.submodules.sinks = sinks = Fifo(Sink, self.reads)
        wiring.connect(m, sinks.o, wiring.flipped(self.sinks))
        own_reads = Signal(range(self.reads + 1))
        peer_reads = Signal(range(self.reads + 1))
        rtr = Signal()  # the Read RTR has not been answered
        m.d.comb += [
            sinks.i.valid.eq(self.asks),
            sinks.i.payload.eq(self.asked),
            self.outstanding.eq(own_reads + rtr),
            self.none.eq(own_reads == 0),
            self.requests.eq(peer_reads),
        ]
        count_up_down(m, own_reads, self.loads, self.answered)
        count_up_down(m, peer_reads, self.requested, self.answers)
        with m.If(~self.starts):
            m.d.sync += rtr.eq(self.read_rtr)
        with m.Elif(self.rtr_answered):
            m.d.sync += rtr.eq(0)
        return m

    def _many(self):
        m = Module()
        turn, shown = self.turn, self.shown
        counts = range(2 * self.reads)
        own_reads = InFlight(m, "own_reads", counts, self.connections, turn.loader, turn.placed, self.clear)
        peer_reads = InFlight(m, "peer_reads", counts, self.connections, turn.receiver, turn.sender, self.clear)
        used = Signal(counts, name="used_sinks")
        all_used = Cells(m, used, self.connections, turn.receiver, self.clear)
        own_reads.begun.count(m, self.asks)
        own_reads.ended.count(m, self.answered)
        peer_reads.begun.count(m, self.requested)
        peer_reads.ended.count(m, self.answers)
        all_used.count(m, self.sinks.valid & self.sinks.ready)

        m.submodules.sinks = memory = Memory(shape=Sink, depth=self.reads * self.connections, init=[])
        write, read = memory.write_port(), late_read(m, memory)  # of a sink that is ``known``
        rtr = Signal(self.connections)  # the Read RTR has not been answered
        place = Signal(range(self.reads * self.connections))
        some = Signal()
        known = Signal()
        bits = (self.reads - 1).bit_length()
        own = own_reads.number(m, turn.loader)
        m.d.comb += [
            write.addr.eq(Cat(own_reads.begun.signal[:bits], turn.loader)),
            write.data.eq(self.asked),
            write.en.eq(self.asks),
            place.eq(Cat(used[:bits], turn.receiver)),
            read.addr.eq(place),
            some.eq(used != own_reads.begun.read(m, turn.receiver)),
            known.eq(is_read(m, place, some)),
            self.sinks.valid.eq(some & known),
            self.sinks.payload.eq(read.data),
            self.settled.eq(~some | known),
            self.outstanding.eq(own + rtr.bit_select(turn.loader, 1)),
            self.none.eq(own == 0),
            self.requests.eq(peer_reads.number(m, turn.receiver)),
            shown.outstanding.eq(own_reads.number(m, shown.connection) + rtr.bit_select(shown.connection, 1)),
            shown.requests.eq(peer_reads.number(m, shown.connection)),
            shown.oldest.eq(peer_reads.ended.read(m, shown.connection)),
        ]
        with m.If(self.starts):
            m.d.sync += rtr.bit_select(turn.starts, 1).eq(self.read_rtr)
        with m.If(self.rtr_answered):
            m.d.sync += rtr.bit_select(turn.rtr, 1).eq(0)
        forget(m, self.clear, rtr)
        return m
