"""Holds octets of the user until the peer has acknowledged them. Retransmissions are read from here."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, packet
from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.tcp.config import RingMemory
from open_rnic.rtl.tcp.ring import AheadReader, RingRead, RingReader, RingWriter
from open_rnic.rtl.tcp.ring_memory import WriteQueue, connect_memory, memory_members

__all__ = ["ROOM", "SendRings"]

ROOM = 2048  # octets of room that ``room`` reports


class SendRings(wiring.Component):
    """A ring of ``size`` octets, a power of 2, for each connection.

    A packet for which there is no room stalls until octets before it have been acknowledged, so that it is not split
    into segments of any size; if it has filled half the ring, its octets so far are queued. A packet of a connection
    that cannot send is discarded. A packet of no octets closes this end's half, behind all octets.

    With ``memory``, the rings lie behind a memory port. A read waits until the octets that were queued before it can be
    read; the user, while words wait to be written.

    Members
    -------
    begin_send, release : In, 1 bit; write ``value`` to this port, for ``connection``: the number of the first octet;
        the number before which all octets have been acknowledged
    value, connection : In, 32 bits; In
    i : In, stream of :class:`.Packet` with ``connection``; packets of the user
    sends : In, 1 bit for each connection; it can send
    room : Out, 1 bit for each connection; a packet of up to 2,048 octets does not stall, or is discarded because the
        connection cannot send. A packet of another connection waits behind a stalled one
    queued, count, queued_of : Out, 1 bit, 16 bits, number; ``count`` octets of ``queued_of`` have been queued, as a
        packet; 0 for the end. Stays until ``noted``
    noted : In, 1 bit
    begins : Out, 1 bit; a packet of ``queued_of`` begins, from the next cycle on until it is queued
    stored, beat : Out, 1 bit, :class:`.Packet`; a beat of it has been written
    spoilt : Out, 1 bit; the packet is discarded
    read : In, :class:`.RingRead`; read these octets
    o : Out, stream of :class:`.Packet`; the octets that are read
    memory, memory_failed : with ``memory``: :func:`.memory_members`
    """

    def __init__(self, connections: int, size: int, memory: RingMemory | None = None):
        self.connections = connections
        self.size = size
        self.outside = memory
        index = connection_shape(connections)
        super().__init__({
            "begin_send": In(1), "release": In(1), "value": In(32), "connection": In(index),
            "i": In(packet(1, connection=index)), "sends": In(connections),
            "room": Out(connections),
            "queued": Out(1), "count": Out(16), "queued_of": Out(index), "noted": In(1),
            "begins": Out(1), "stored": Out(1), "beat": Out(Packet(1)), "spoilt": Out(1),
            "read": In(RingRead(index)), "o": Out(packet(1)),
            **memory_members(memory),
        })  # fmt: skip
        # The packet that is written.
        self._ring = Signal(index)  # its connection's; between packets, each ring in turn
        self._tail = Signal(range(2 * size))  # behind its octets so far; in the memory, behind the packets before
        self._moves = Signal()  # a beat is written
        self._ends = Signal()  # the last beat has been written
        self._closes = Signal()  # it had no octets
        self._done = Signal()  # its octets belong to the ring
        self._has_room = Signal(connections)  # as last seen; the peer's acknowledgments only add to it
        self._flushes = Signal()  # the octets of a packet have been given to the memory in this cycle, or before

    def elaborate(self, platform):
        m = Module()
        if self.outside is None:
            m.submodules.memory = memory = Memory(shape=32, depth=self.connections * self.size // 4, init=[])
            self._read(m, late_read(m, memory))  # of octets that have been queued, which stay until they are released
            self._write(m, memory.write_port(granularity=8), room=Const(1))
        else:
            start = self.outside.send
            m.submodules.queue = queue = WriteQueue(self.connections * self.size // 4, start, self.outside.writes)
            m.submodules.reader = reader = AheadReader(self.size, self.connection.shape(), ahead=self.outside.ahead)
            connect_memory(m, self, queue, reader, reader.read.payload.tag)
            self._read_ahead(m, queue, reader)
            self._write(m, queue, room=queue.room)
        return m

    def _read(self, m, port):
        m.submodules.reader = reader = RingReader(self.size)
        ring = Signal.like(self.connection, name="ring_read")
        m.d.comb += [
            reader.start.eq(self.read.start), reader.place.eq(self.read.place), reader.length.eq(self.read.octets),
            reader.word.eq(port.data), port.en.eq(reader.read), port.addr.eq(Cat(reader.address, ring)),
            self.o.payload.eq(reader.o.payload), self.o.valid.eq(reader.o.valid), reader.o.ready.eq(self.o.ready),
        ]  # fmt: skip
        with m.If(self.read.start):
            m.d.sync += ring.eq(self.read.connection)

    def _read_ahead(self, m, queue, reader):
        """Read what is asked for when the packets that have been queued before it can be read."""
        flushed = Signal()  # a packet has been given to the queue
        unsettled = Signal(range(self.outside.writes + 2))  # packets that cannot be read yet
        ahead = Signal.like(unsettled)  # those before the read that waits
        waits = Signal()
        asked = reader.i.payload
        m.d.comb += [
            queue.notes.eq(flushed),
            reader.i.valid.eq(waits & (ahead == 0)),
            *(self.o.payload[name].eq(reader.o.payload[name]) for name in ("data", "octets", "last")),
            self.o.valid.eq(reader.o.valid),
            reader.o.ready.eq(self.o.ready),
        ]
        m.d.sync += flushed.eq(self._flushes)
        count_up_down(m, unsettled, flushed, queue.settles)
        with m.If(self.read.start):
            m.d.sync += [
                waits.eq(1), ahead.eq(unsettled + flushed - queue.settles),
                asked.place.eq(self.read.place), asked.length.eq(self.read.octets), asked.tag.eq(self.read.connection),
            ]  # fmt: skip
        with m.Else():
            with m.If(queue.settles & (ahead != 0)):
                m.d.sync += ahead.eq(ahead - 1)
            with m.If(reader.i.valid & reader.i.ready):
                m.d.sync += waits.eq(0)

    def _write(self, m, port, room):
        """Write packets to their rings through ``port``, while it has ``room``."""
        m.submodules.writer = writer = RingWriter(self.size)
        beat = self.i.payload
        old_tail, head = self._pointers(m)
        used = Signal.like(self._tail)
        fits = Signal()
        m.d.comb += [
            used.eq(old_tail - head),
            fits.eq((self._tail - head)[: len(used)] <= self.size - 4),
            writer.place.eq(old_tail),
            writer.data.eq(beat.data),
            writer.mask.eq(Mux(beat.last, (1 << beat.octets) - 1, 0b1111)),
            writer.valid.eq(self._moves),
            writer.last.eq(beat.last),
            port.addr.eq(Cat(writer.address, self._ring)),
            port.data.eq(writer.word),
            port.en.eq(writer.write),
            self.queued_of.eq(self._ring),
            self.room.eq(self._has_room | ~self.sends),
        ]
        m.d.sync += self.stored.eq(self._moves)
        m.d.sync += (self.beat[name].eq(beat[name]) for name in ("data", "octets", "last"))
        sends = self.sends.bit_select(self._ring, 1)
        with m.FSM():
            self._wait(m, used)
            with m.State("Begin"):
                m.d.comb += writer.start.eq(1)
                m.d.sync += [self._tail.eq(old_tail), self.count.eq(0)]
                m.next = "Write"
            self._store(m, writer, sends, fits, room)
            self._report(m, sends)

    def _pointers(self, m):
        """Keep the ends of the rings; return those of the packet's ring."""
        shape, depth = self._tail.shape(), max(2, self.connections)
        m.submodules.tails = tails = Memory(shape=shape, depth=depth, init=[])
        m.submodules.heads = heads = Memory(shape=shape, depth=depth, init=[])
        write_tail, write_head = tails.write_port(), heads.write_port()
        old_tail, head = tails.read_port(domain="comb"), heads.read_port(domain="comb")
        m.d.comb += [
            old_tail.addr.eq(self._ring),
            head.addr.eq(self._ring),
            write_head.en.eq(self.begin_send | self.release),
            write_head.addr.eq(self.connection),
            write_head.data.eq(self.value),
            write_tail.en.eq(self.begin_send | self._done),
            write_tail.addr.eq(Mux(self.begin_send, self.connection, self._ring)),
            write_tail.data.eq(Mux(self.begin_send, self.value, self._tail)),
        ]
        return old_tail.data, head.data

    def _wait(self, m, used):
        """Look at the room of one ring after the other until a packet begins."""
        with m.State("Wait"):
            m.d.sync += [
                self._has_room.bit_select(self._ring, 1).eq(used <= self.size - ROOM),
                self._ring.eq(following(self._ring, self.connections)),
            ]
            with m.If(self.i.valid):
                m.d.comb += self.begins.eq(1)
                m.d.sync += self._ring.eq(self.i.payload.connection)
                m.next = "Begin"

    def _store(self, m, writer, sends, fits, room):
        """Store the packet's beats, or half a ring of them, or discard them."""
        beat = self.i.payload
        octets = Signal(3)
        m.d.comb += octets.eq(Mux(beat.last, beat.octets, 4))
        with m.State("Write"):
            m.d.sync += [self._ends.eq(0), self._closes.eq(0)]
            with m.If(~sends):
                m.next = "Discard"
            with m.Elif(fits):
                m.d.comb += [self._moves.eq(self.i.valid & room), self.i.ready.eq(room)]
                with m.If(self._moves):
                    m.d.sync += [self._tail.eq(self._tail + octets), self.count.eq(self.count + octets)]
                    m.d.sync += [self._ends.eq(beat.last), self._closes.eq(octets == 0)]
                    with m.If(beat.last):
                        m.next = "Flush"
            with m.Elif((self.count >= self.size // 2) & room):
                m.d.comb += [writer.valid.eq(1), writer.mask.eq(0), writer.last.eq(1)]
                m.next = "Flush"
        with m.State("Discard"):
            m.d.comb += [self.i.ready.eq(1), self.spoilt.eq(1)]
            with m.If(self.i.valid & beat.last):
                m.next = "Wait"

    def _report(self, m, sends):
        """Queue the octets that have been stored, unless the connection cannot send any more."""
        with m.State("Flush"):
            m.d.comb += self._flushes.eq(1)
            m.d.sync += self._has_room.bit_select(self._ring, 1).eq(0)
            m.next = "Report"
        with m.State("Report"):
            m.d.comb += self.queued.eq(sends & ((self.count != 0) | self._closes))
            m.d.comb += self.spoilt.eq(~self.queued)
            with m.If(~self.queued | self.noted):
                m.d.comb += self._done.eq(self.queued & ~self.begin_send)
                m.next = "Begin"
                with m.If(self._ends):
                    m.next = "Wait"
