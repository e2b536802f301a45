"""Holds octets of the user until the peer has acknowledged them. Retransmissions are read from here."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, packet
from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.tcp.config import RingMemory
from open_rnic.rtl.tcp.ring import AheadReader, RingReader, RingWriter
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
    begin_send, release : In, 1 bit
        A write of ``value`` to one of these ports, for ``connection``: the number of the first octet; the number
        before which all octets have been acknowledged.
    value : In, 32 bits
    connection : In
    i : In, stream of :class:`.Packet` with ``connection``
        Packets of the user.
    sends : In, 1 bit for each connection
        The connection can send.
    room : Out, 1 bit for each connection
        A packet of up to 2,048 octets does not stall. A packet of another connection waits behind a stalled one.
    queued : Out, 1 bit
        ``count`` octets of ``queued_of`` have been queued, as a packet; 0 for the end. Stays until ``noted``.
    count : Out, 16 bits
    queued_of : Out
    noted : In, 1 bit
    begins : Out, 1 bit
        A packet of ``queued_of`` begins, from the next cycle on until it is queued.
    stored, beat : Out, 1 bit, :class:`.Packet`
        A beat of it has been written.
    spoilt : Out, 1 bit
        The packet is discarded.
    reads, reads_from, reads_octets, reads_of : In
        Read ``reads_octets`` octets of the connection ``reads_of``, from number ``reads_from`` on.
    o : Out, stream of :class:`.Packet`
        The octets that are read.
    memory, memory_failed
        With ``memory``: :func:`.memory_members`.
    """

    def __init__(self, connections: int, size: int, memory: RingMemory | None = None):
        self.connections = connections
        self.size = size
        self.outside = memory
        index = range(max(2, connections))
        super().__init__({
            "begin_send": In(1), "release": In(1), "value": In(32), "connection": In(index),
            "i": In(packet(1, connection=index)), "sends": In(connections),
            "room": Out(connections),
            "queued": Out(1), "count": Out(16), "queued_of": Out(index), "noted": In(1),
            "begins": Out(1), "stored": Out(1), "beat": Out(Packet(1)), "spoilt": Out(1),
            "reads": In(1), "reads_from": In(32), "reads_octets": In(16), "reads_of": In(index), "o": Out(packet(1)),
            **memory_members(memory),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        self.flushes = Signal()  # the octets of a packet have been given to the memory in this cycle, or before
        if self.outside is None:
            m.submodules.memory = memory = Memory(shape=32, depth=self.connections * self.size // 4, init=[])
            self._read(m, memory.read_port())
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
            reader.start.eq(self.reads), reader.place.eq(self.reads_from), reader.length.eq(self.reads_octets),
            reader.word.eq(port.data), port.en.eq(reader.read), port.addr.eq(Cat(reader.address, ring)),
            self.o.payload.eq(reader.o.payload), self.o.valid.eq(reader.o.valid), reader.o.ready.eq(self.o.ready),
        ]  # fmt: skip
        with m.If(self.reads):
            m.d.sync += ring.eq(self.reads_of)

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
        m.d.sync += flushed.eq(self.flushes)
        count_up_down(m, unsettled, flushed, queue.settles)
        with m.If(self.reads):
            m.d.sync += [
                waits.eq(1), ahead.eq(unsettled + flushed - queue.settles),
                asked.place.eq(self.reads_from), asked.length.eq(self.reads_octets), asked.tag.eq(self.reads_of),
            ]  # fmt: skip
        with m.Else():
            with m.If(queue.settles & (ahead != 0)):
                m.d.sync += ahead.eq(ahead - 1)
            with m.If(reader.i.valid & reader.i.ready):
                m.d.sync += waits.eq(0)

    def _write(self, m, port, room):
        m.submodules.writer = writer = RingWriter(self.size)
        bits = len(writer.place) + 1
        m.submodules.tails = tails = Memory(shape=bits, depth=max(2, self.connections), init=[])
        m.submodules.heads = heads = Memory(shape=bits, depth=max(2, self.connections), init=[])
        write_tail, write_head = tails.write_port(), heads.write_port()
        old_tail, head = tails.read_port(domain="comb"), heads.read_port(domain="comb")
        beat = self.i.payload
        ring = Signal.like(self.connection)
        tail = Signal(bits)
        octets = Signal(3)
        ends = Signal()  # the packet has ended
        closes = Signal()  # it has no octets
        fits = Signal()
        moves = Signal()
        m.d.comb += [
            write_head.en.eq(self.begin_send | self.release),
            write_head.addr.eq(self.connection),
            write_head.data.eq(self.value),
            old_tail.addr.eq(ring),
            head.addr.eq(ring),
            octets.eq(Mux(beat.last, beat.octets, 4)),
            fits.eq((tail - head.data)[:bits] <= self.size - 4),
            writer.place.eq(old_tail.data),
            writer.data.eq(beat.data),
            writer.mask.eq(Mux(beat.last, (1 << beat.octets) - 1, 0b1111)),
            writer.valid.eq(moves),
            writer.last.eq(beat.last),
            port.addr.eq(Cat(writer.address, ring)),
            port.data.eq(writer.word),
            port.en.eq(writer.write),
            self.queued_of.eq(ring),
        ]
        done = Signal()
        m.d.comb += [
            write_tail.en.eq(self.begin_send | done),
            write_tail.addr.eq(Mux(self.begin_send, self.connection, ring)),
            write_tail.data.eq(Mux(self.begin_send, self.value, tail)),
        ]
        m.d.sync += [self.stored.eq(moves), *(self.beat[name].eq(beat[name]) for name in ("data", "octets", "last"))]
        sends = self.sends.bit_select(ring, 1)
        used = Signal(bits)
        has_room = Signal(self.connections)  # as last seen; the peer's acknowledgments only add to it
        m.d.comb += [used.eq(old_tail.data - head.data), self.room.eq(has_room | ~self.sends)]
        with m.FSM():
            with m.State("Wait"):
                m.d.sync += [
                    has_room.bit_select(ring, 1).eq(used <= self.size - ROOM),
                    ring.eq(Mux(ring == self.connections - 1, 0, ring + 1)),
                ]
                with m.If(self.i.valid):
                    m.d.comb += self.begins.eq(1)
                    m.d.sync += ring.eq(beat.connection)
                    m.next = "Begin"
            with m.State("Begin"):
                m.d.comb += writer.start.eq(1)
                m.d.sync += [tail.eq(old_tail.data), self.count.eq(0)]
                m.next = "Write"
            with m.State("Write"):
                m.d.sync += [ends.eq(0), closes.eq(0)]
                with m.If(~sends):
                    m.next = "Discard"
                with m.Elif(fits):
                    m.d.comb += [moves.eq(self.i.valid & room), self.i.ready.eq(room)]
                    with m.If(moves):
                        m.d.sync += [tail.eq(tail + octets), self.count.eq(self.count + octets), ends.eq(beat.last)]
                        m.d.sync += closes.eq(octets == 0)
                        with m.If(beat.last):
                            m.next = "Flush"
                with m.Elif((self.count >= self.size // 2) & room):
                    m.d.comb += [writer.valid.eq(1), writer.mask.eq(0), writer.last.eq(1)]
                    m.next = "Flush"
            with m.State("Flush"):
                m.d.comb += self.flushes.eq(1)
                m.d.sync += has_room.bit_select(ring, 1).eq(0)
                m.next = "Report"
            with m.State("Report"):
                m.d.comb += self.queued.eq(sends & ((self.count != 0) | closes))
                m.d.comb += self.spoilt.eq(~self.queued)
                with m.If(~self.queued | self.noted):
                    m.d.comb += done.eq(self.queued & ~self.begin_send)
                    m.next = "Begin"
                    with m.If(ends):
                        m.next = "Wait"
            with m.State("Discard"):
                m.d.comb += [self.i.ready.eq(1), self.spoilt.eq(1)]
                with m.If(self.i.valid & beat.last):
                    m.next = "Wait"
