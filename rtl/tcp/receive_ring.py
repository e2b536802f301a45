"""Holds received octets until the user takes them, those behind a hole included."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import packet
from open_rnic.rtl.tcp.ring import RingReader, RingWriter

__all__ = ["ReceiveRings"]

PIECE = 1024  # octets that leave a ring as one packet, at most


class ReceiveRings(wiring.Component):
    """A ring of ``size`` octets, a power of 2, for each connection.

    Members
    -------
    place, first, take, deliver, finish, begin_receive : In, 1 bit
        A write of ``value`` to one of these ports, for ``connection``: the number of the payload's octet 0; the first
        of its octets that is written to the ring; the number behind the last one, after which the payload passes, or
        is discarded if it is 0; the end of the octets that the user may take; that no octets will follow these; the
        number of the first octet.
    value : In, 32 bits
    connection : In
    ready : Out, 1 bit
        A write is accepted.
    has_payload : In, 1 bit
        The segment that the program works on has a payload.
    i : In, stream of :class:`.Packet`
        The payload.
    o : Out, stream of :class:`.Packet` with ``connection``
        Octets in order, in pieces of up to 1,024 octets. A packet of no octets is the end.
    accept : In, 1 bit for each connection
        Begin a piece only of these connections.
    taken : Out, 1 bit
        A piece of ``count`` octets of ``taken_of`` has been transferred. Stays until ``noted``.
    count : Out, 16 bits
    taken_of : Out
    noted : In, 1 bit
    """

    def __init__(self, connections: int, size: int):
        self.connections = connections
        self.size = size
        index = range(max(2, connections))
        super().__init__({
            **{name: In(1) for name in ("place", "first", "take", "deliver", "finish", "begin_receive")},
            "value": In(32), "connection": In(index), "ready": Out(1), "has_payload": In(1),
            "i": In(packet(1)),
            "o": Out(packet(1, connection=index)), "accept": In(connections),
            "taken": Out(1), "count": Out(16), "taken_of": Out(index), "noted": In(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=32, depth=self.connections * self.size // 4, init=[])
        self.at_rest = Signal()  # no payload is on its way to the ring
        self.delivering = Signal()  # a write of ``deliver`` waits for that
        self.finishing = Signal()  # as does one of ``finish``
        self._write(m, memory.write_port(granularity=8))
        self._read(m, memory.read_port())
        return m

    def _write(self, m, port):
        m.submodules.writer = writer = RingWriter(self.size)
        first = Signal(12, name="first_offset")
        end = Signal(12, name="end_offset")
        word = Signal(10, name="payload_word")  # number of the current word of the payload
        ring = Signal.like(self.connection)
        copies = Signal()
        beat = self.i.payload
        waits = self.delivering | self.finishing
        m.d.comb += [
            self.at_rest.eq(~copies & writer.ready),
            # What is delivered may still be on its way to the ring: the program goes on, and its write waits instead.
            self.ready.eq(~waits & (self.at_rest | self.deliver | self.finish)),
            writer.place.eq(self.value),
            writer.start.eq(self.place & self.ready),
            writer.data.eq(beat.data),
            writer.last.eq(beat.last),
            writer.valid.eq(copies & self.i.valid),
            self.i.ready.eq(copies),
            port.addr.eq(Cat(writer.address, ring)),
            port.data.eq(writer.word),
            port.en.eq(writer.write),
        ]
        for i in range(4):
            m.d.comb += writer.mask[i].eq(
                ((word > first[2:]) | ((word == first[2:]) & (first[:2] <= i)))
                & ((word < end[2:]) | ((word == end[2:]) & (end[:2] > i)))
            )
        with m.If(self.first & self.ready):
            m.d.sync += first.eq(self.value)
        with m.If(self.take & self.ready & self.has_payload):
            m.d.sync += [end.eq(self.value), copies.eq(1), word.eq(0), ring.eq(self.connection)]
        with m.If(copies & self.i.valid):
            m.d.sync += [word.eq(word + 1), copies.eq(~beat.last)]

    def _read(self, m, port):
        m.submodules.reader = reader = RingReader(self.size)
        bits = len(reader.place) + 1
        m.submodules.heads = heads = Memory(shape=bits, depth=max(2, self.connections), init=[])
        m.submodules.limits = limits = Memory(shape=bits, depth=max(2, self.connections), init=[])
        write_head, write_limit = heads.write_port(), limits.write_port()
        head, limit = heads.read_port(domain="comb"), limits.read_port(domain="comb")
        ring = Signal.like(self.connection, name="ring_read")  # the connection that is looked at, or whose octets leave
        begins = Signal()
        stale = Signal()  # the connection was begun anew while its octets left
        due = Signal(bits)  # the number that is to be delivered
        due_of = Signal.like(self.connection)
        length = Signal(bits)
        available = Signal(bits)
        m.d.comb += [
            begins.eq(self.begin_receive & self.ready),
            write_limit.en.eq((self.delivering & self.at_rest) | begins),
            write_limit.addr.eq(Mux(begins, self.connection, due_of)),
            write_limit.data.eq(Mux(begins, self.value, due)),
            head.addr.eq(ring),
            limit.addr.eq(ring),
            available.eq(limit.data - head.data),
            reader.word.eq(port.data),
            port.en.eq(reader.read),
            port.addr.eq(Cat(reader.address, ring)),
            reader.place.eq(head.data),
            reader.length.eq(length),
            self.o.payload.data.eq(reader.o.payload.data),
            self.o.payload.octets.eq(reader.o.payload.octets),
            self.o.payload.last.eq(reader.o.payload.last),
            self.o.payload.connection.eq(ring),
            self.o.valid.eq(reader.o.valid),
            reader.o.ready.eq(self.o.ready),
            self.count.eq(length),
            self.taken_of.eq(ring),
        ]
        done = Signal()
        ends = Signal(self.connections)  # no octets will follow those that wait
        with m.If(self.at_rest):
            m.d.sync += [self.delivering.eq(0), self.finishing.eq(0)]
            with m.If(self.finishing):
                m.d.sync += ends.bit_select(due_of, 1).eq(1)
        with m.If((self.deliver | self.finish) & self.ready):
            m.d.sync += due_of.eq(self.connection)
        with m.If(self.deliver & self.ready):
            m.d.sync += [self.delivering.eq(1), due.eq(self.value)]
        with m.If(self.finish & self.ready):
            m.d.sync += self.finishing.eq(1)
        with m.If(begins):
            m.d.sync += ends.bit_select(self.connection, 1).eq(0)
        m.d.comb += [
            write_head.en.eq(begins | done),
            write_head.addr.eq(Mux(begins, self.connection, ring)),
            write_head.data.eq(Mux(begins, self.value, head.data + length)),
        ]
        with m.If(begins & (self.connection == ring)):
            m.d.sync += stale.eq(1)
        with m.FSM():
            with m.State("Look"):
                m.d.sync += [length.eq(Mux(available > PIECE, PIECE, available)), stale.eq(begins)]
                with m.If(~self.accept.bit_select(ring, 1) | begins):
                    m.d.sync += ring.eq(Mux(ring == self.connections - 1, 0, ring + 1))
                with m.Elif(available != 0):
                    m.next = "Start"
                with m.Elif(ends.bit_select(ring, 1)):
                    m.d.sync += ends.bit_select(ring, 1).eq(0)
                    m.next = "End"
                with m.Else():
                    m.d.sync += ring.eq(Mux(ring == self.connections - 1, 0, ring + 1))
            with m.State("Start"):
                m.d.comb += reader.start.eq(1)
                m.next = "Leave"
            with m.State("Leave"):
                with m.If(self.o.valid & self.o.ready & self.o.payload.last):
                    m.next = "Tell"
            with m.State("End"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.last.eq(1), self.o.payload.octets.eq(0)]
                with m.If(self.o.ready):
                    m.next = "Look"
            with m.State("Tell"):
                m.d.comb += self.taken.eq(~stale)
                with m.If(stale):
                    m.next = "Look"
                with m.Elif(self.noted):
                    m.d.comb += done.eq(~begins)
                    m.next = "Look"
