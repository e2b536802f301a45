"""Holds received octets until the user takes them, those behind a hole included."""

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.tcp.config import RingMemory
from open_rnic.rtl.tcp.ring import AheadReader, PacketReader, RingWriter
from open_rnic.rtl.tcp.ring_memory import WriteQueue, connect_memory, memory_members

__all__ = ["ReceiveRings", "shown_octets"]


def shown_octets(connections: int, size: int, tag: ShapeLike, lanes: int = 1) -> wiring.Signature:
    """The ports at which :class:`ReceiveRings` shows octets, and at which they leave.

    Members
    -------
    look_at : In
        A connection.
    available : Out, range(``size`` + 1)
        The number of its octets, in order, that wait.
    begins : Out, 1 bit
        It begins anew in this cycle, and ``available`` is that of before: a read is withdrawn.
    ended : Out, 1 bit for each connection
        No octets will follow those that wait.
    changes : Out, 1 bit for each connection
        Pulses behind a change of ``available`` or ``ended`` that no read has made.
    reads : In, stream of ``offset`` (16 bits), ``octets`` (16 bits), ``keeps`` (1 bit) and ``tag``
        Octets of ``look_at`` to read: ``octets`` of those that wait, at least 1, behind the first ``offset`` ones. They
        are taken from the ring, and ``offset`` is 0, unless ``keeps``.
    o : Out, stream of :class:`.Packet` with ``tag``
        The octets, in the order of ``reads``, without a pause between packets, ``lanes`` wide.
    """
    read = data.StructLayout({"offset": 16, "octets": 16, "keeps": 1, "tag": tag})
    return wiring.Signature({
        "look_at": In(connection_shape(connections)), "available": Out(range(size + 1)), "begins": Out(1),
        "ended": Out(connections), "changes": Out(connections),
        "reads": In(stream.Signature(read)), "o": Out(packet(lanes, tag=tag)),
    })  # fmt: skip


class ReceiveRings(wiring.Component):
    """A ring of ``size`` octets, a power of 2, for each connection.

    With ``memory``, the rings lie behind a memory port. Octets wait for the user when they can be read there. A payload
    waits while words wait to be written, and so does a connection that begins anew.

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
    shown : Out, :func:`shown_octets`
    taken : Out, 1 bit
        ``count`` octets of ``taken_of`` have been taken, and have left. Stays until ``noted``.
    count : Out
    taken_of : Out
    noted : In, 1 bit
    memory, memory_failed
        With ``memory``: :func:`.memory_members`.
    """

    def __init__(self, connections: int, size: int, tag: ShapeLike = 0, memory: RingMemory | None = None):
        self.connections = connections
        self.size = size
        self.tag = tag
        self.outside = memory
        index = connection_shape(connections)
        super().__init__({
            **{name: In(1) for name in ("place", "first", "take", "deliver", "finish", "begin_receive")},
            "value": In(32), "connection": In(index), "ready": Out(1), "has_payload": In(1),
            "i": In(packet(1)),
            "shown": Out(shown_octets(connections, size, tag)),
            "taken": Out(1), "count": Out(range(size + 1)), "taken_of": Out(index), "noted": In(1),
            **memory_members(memory),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        self.at_rest = Signal()  # no payload is on its way to the ring
        self.delivering = Signal()  # a write of ``deliver`` waits for that
        self.finishing = Signal()  # as does one of ``finish``
        self.begins = Signal()  # a connection begins anew
        write = data.StructLayout({
            "connection": self.connection.shape(), "due": self.size.bit_length(), "delivers": 1, "finishes": 1,
        })  # fmt: skip
        self.given = Signal(write)  # the write that waits
        self.gives = Signal()  # its payload has been given to the memory
        self.settled = Signal(write)
        self.settles = Signal()  # the payload of ``settled`` can be read
        noted = data.StructLayout({"connection": self.connection.shape(), "octets": 16, "era": 1, "keeps": 1})
        tag = data.StructLayout({"noted": noted, "given": self.tag})
        if self.outside is None:
            m.submodules.memory = memory = Memory(shape=32, depth=self.connections * self.size // 4, init=[])
            m.submodules.reader = reader = PacketReader(self.size, tag)
            port = late_read(m, memory)  # of octets that have been delivered, which stay until they are taken
            m.d.comb += [
                reader.word.eq(port.data),
                port.en.eq(reader.read),
                port.addr.eq(Cat(reader.address, reader.tag.noted.connection)),
                self.settled.eq(self.given),
                self.settles.eq(self.gives),
            ]
            self._write(m, memory.write_port(granularity=8), room=Const(1), begins_now=Const(1))
        else:
            words, start = self.connections * self.size // 4, self.outside.receive
            m.submodules.queue = queue = WriteQueue(words, start, self.outside.writes)
            m.submodules.reader = reader = AheadReader(self.size, tag, ahead=self.outside.ahead)
            connect_memory(m, self, queue, reader, reader.read.payload.tag.noted.connection)
            stale = Signal()  # a connection has begun anew, whose octets from before may be on their way
            m.d.comb += [
                queue.notes.eq(self.gives),
                queue.note.eq(self.given),
                self.settled.eq(queue.settled),
                self.settles.eq(queue.settles),
            ]
            m.d.sync += stale.eq((stale & ~reader.idle) | self.begins)
            self._write(m, queue, room=queue.room, begins_now=queue.empty & (reader.idle | ~stale))
        self._read(m, reader)
        return m

    def _write(self, m, port, room, begins_now):
        m.submodules.writer = writer = RingWriter(self.size)
        first = Signal(12, name="first_offset")
        end = Signal(12, name="end_offset")
        word = Signal(10, name="payload_word")  # number of the current word of the payload
        ring = Signal.like(self.connection)
        copies = Signal()
        moves = Signal()
        beat = self.i.payload
        waits = self.delivering | self.finishing
        m.d.comb += [
            self.at_rest.eq(~copies & writer.ready),
            # What is delivered may still be on its way to the ring: the program goes on, and its write waits instead.
            self.ready.eq(~waits & (self.at_rest | self.deliver | self.finish) & (begins_now | ~self.begin_receive)),
            writer.place.eq(self.value),
            writer.start.eq(self.place & self.ready),
            writer.data.eq(beat.data),
            writer.last.eq(beat.last),
            moves.eq(copies & self.i.valid & room),
            writer.valid.eq(moves),
            self.i.ready.eq(copies & room),
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
        with m.If(moves):
            m.d.sync += [word.eq(word + 1), copies.eq(~beat.last)]

        due = Signal(self.size.bit_length())  # the number that is to be delivered
        due_of = Signal.like(self.connection)
        m.d.comb += [
            self.begins.eq(self.begin_receive & self.ready),
            self.gives.eq(waits & self.at_rest & room),
            self.given.connection.eq(due_of),
            self.given.due.eq(due),
            self.given.delivers.eq(self.delivering),
            self.given.finishes.eq(self.finishing),
        ]
        with m.If(self.gives):
            m.d.sync += [self.delivering.eq(0), self.finishing.eq(0)]
        with m.If((self.deliver | self.finish) & self.ready):
            m.d.sync += due_of.eq(self.connection)
        with m.If(self.deliver & self.ready):
            m.d.sync += [self.delivering.eq(1), due.eq(self.value)]
        with m.If(self.finish & self.ready):
            m.d.sync += self.finishing.eq(1)

    def _read(self, m, reader):
        shown = self.shown
        bits = len(reader.i.payload.place) + 1
        rows = max(2, self.connections)
        m.submodules.heads = heads = Memory(shape=bits, depth=rows, init=[])
        m.submodules.limits = limits = Memory(shape=bits, depth=rows, init=[])
        write_head, write_limit = heads.write_port(), limits.write_port()
        head, limit = heads.read_port(domain="comb"), limits.read_port(domain="comb")
        begins, settled = self.begins, self.settled
        m.d.comb += [
            shown.begins.eq(begins & (self.connection == shown.look_at)),
            write_limit.en.eq((self.settles & settled.delivers) | begins),
            write_limit.addr.eq(Mux(begins, self.connection, settled.connection)),
            write_limit.data.eq(Mux(begins, self.value, settled.due)),
            head.addr.eq(shown.look_at),
            limit.addr.eq(shown.look_at),
            shown.available.eq(limit.data - head.data),
        ]
        m.d.sync += shown.changes.eq(self.settles << settled.connection)
        with m.If(self.settles & settled.finishes):
            m.d.sync += shown.ended.bit_select(settled.connection, 1).eq(1)

        # What is read is no longer there for the next read, but belongs to the ring until it has left.
        asked, place = shown.reads.payload, reader.i.payload
        eras = Signal(self.connections)  # a connection that begins anew has another one
        takes = Signal()
        m.d.comb += [
            reader.i.valid.eq(shown.reads.valid & ~begins),
            shown.reads.ready.eq(reader.i.ready & ~begins),
            place.place.eq(head.data + asked.offset),
            place.length.eq(asked.octets),
            place.tag.given.eq(asked.tag),
            place.tag.noted.connection.eq(shown.look_at),
            place.tag.noted.octets.eq(asked.octets),
            place.tag.noted.era.eq(eras.bit_select(shown.look_at, 1)),
            place.tag.noted.keeps.eq(asked.keeps),
            takes.eq(shown.reads.valid & shown.reads.ready & ~asked.keeps),
            write_head.en.eq(begins | takes),
            write_head.addr.eq(Mux(begins, self.connection, shown.look_at)),
            write_head.data.eq(Mux(begins, self.value, head.data + asked.octets)),
            *(shown.o.payload[name].eq(reader.o.payload[name]) for name in ("data", "octets", "last")),
            shown.o.payload.tag.eq(reader.o.payload.tag.given),
            shown.o.valid.eq(reader.o.valid),
            reader.o.ready.eq(shown.o.ready),
        ]
        with m.If(begins):
            m.d.sync += [shown.ended.bit_select(self.connection, 1).eq(0)]
            m.d.sync += eras.bit_select(self.connection, 1).eq(~eras.bit_select(self.connection, 1))
        self._note(m, reader.o, begins, eras)

    def _note(self, m, o, begins, eras):
        """Add up the octets that have left, until the program knows of them."""
        m.submodules.counts = counts = Memory(shape=len(self.count), depth=max(2, self.connections), init=[])
        write, before, oldest = counts.write_port(), counts.read_port(domain="comb"), counts.read_port(domain="comb")
        waiting = Signal(self.connections)  # connections with octets of which the program does not know
        turn = Signal.like(self.connection)
        left, is_fresh = o.payload.tag.noted, Signal()
        read_of = left.connection
        adds = Signal()  # to octets of which the program does not know
        leaves = Signal()
        m.d.comb += [
            is_fresh.eq((eras.bit_select(read_of, 1) == left.era) & ~(begins & (self.connection == read_of))),
            leaves.eq(o.valid & o.ready & o.payload.last & ~left.keeps & is_fresh),
            before.addr.eq(read_of),
            oldest.addr.eq(turn),
            write.addr.eq(read_of),
            adds.eq(waiting.bit_select(read_of, 1) & ~(self.noted & (turn == read_of))),
            write.data.eq(Mux(adds, before.data, 0) + left.octets),
            write.en.eq(leaves),
            self.taken.eq(waiting.bit_select(turn, 1)),
            self.taken_of.eq(turn),
            self.count.eq(oldest.data),
        ]
        with m.If(~self.taken | self.noted):
            m.d.sync += turn.eq(following(turn, self.connections))
        with m.If(self.noted):
            m.d.sync += waiting.bit_select(turn, 1).eq(0)
        with m.If(leaves):
            m.d.sync += waiting.bit_select(read_of, 1).eq(1)
        with m.If(begins):
            m.d.sync += waiting.bit_select(self.connection, 1).eq(0)
