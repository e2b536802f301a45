"""A queue of rows that are written field by field."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Cells, Clear, connection_shape, only_many

__all__ = ["RowQueue", "is_read"]


def is_read(m, address, some):
    """Whether the row at ``address`` was there in the last cycle, so that block RAM gives it in this one."""
    before = Signal.like(address)
    was_there = Signal()
    m.d.sync += [before.eq(address), was_there.eq(some)]
    return was_there & (before == address)


class RowQueue(wiring.Component):
    """A queue in memory whose writer writes one field of a row at a time, and then adds the row.

    A row can be taken in the cycle after it was added. Nothing checks for overflow: the writer knows the depth.

    Parameters
    ----------
    layout : a struct of fields of at most 32 bits
    depth : rows, a power of 2

    Members
    -------
    fields : In, 1 bit for each field
        Writes the low bits of ``word`` to this field of the row that is added next.
    word : In, 32 bits
    add : In, 1 bit
        Adds the row, whose last field may be written in the same cycle.
    o : Out, stream of ``layout``
    first, next : Out
        The place of the row at ``o``, and of the row that is added next: rows take the places in turn.

    Only with many connections, which have a queue each, in block RAM; a row can then be taken 2 cycles after it was
    added, and 2 cycles after a change of ``shown``:

    connection : In
        The connection of the row that is added next.
    shown : In
        The connection of ``o``.
    settled : Out, 1 bit
        ``o.valid`` is not 0 for the time that block RAM takes.
    any : Out, 1 bit for each connection
        The queue is not empty.
    clear : In, :class:`.Clear`

    """

    def __init__(self, layout: type[data.Struct], depth: int, connections: int = 1):
        self.depth = depth
        self.connections = connections
        number = connection_shape(connections)
        many = {
            "connection": In(number), "shown": In(number), "settled": Out(1), "any": Out(connections),
            "clear": In(Clear(connections)),
        }  # fmt: skip
        self.widths = {name: field.width for name, field in layout.as_shape()}
        super().__init__({
            "fields": In(data.StructLayout(dict.fromkeys(self.widths, 1))), "word": In(32), "add": In(1),
            "o": Out(stream.Signature(layout)),
            "first": Out(range(depth)), "next": Out(range(depth)), **only_many(connections, many),
        })  # fmt: skip

    def elaborate(self, platform):
        if self.connections > 1:
            return self._many()
        m = Module()
        head = Signal(range(2 * self.depth))
        tail = Signal.like(head)
        for name, width in self.widths.items():
            m.submodules[name] = memory = Memory(shape=width, depth=self.depth, init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(tail), write.data.eq(self.word), write.en.eq(self.fields[name]),
                read.addr.eq(head), self.o.payload[name].eq(read.data),
            ]  # fmt: skip
        m.d.comb += [self.o.valid.eq(head != tail), self.first.eq(head), self.next.eq(tail)]
        count_up_down(m, tail, self.add)
        count_up_down(m, head, self.o.valid & self.o.ready)
        return m

    def _many(self):
        m = Module()
        head = Signal(range(2 * self.depth))
        tail = Signal.like(head)
        heads = Cells(m, head, self.connections, self.shown, self.clear)
        tails = Cells(m, tail, self.connections, self.connection, self.clear)
        place = Signal(range(self.depth * self.connections))
        last = Signal.like(tail)  # the end of the queue
        some = Signal()
        known = Signal()
        m.d.comb += [
            self.first.eq(head),
            self.next.eq(tail),
            place.eq(Cat(self.first, self.shown)),
            last.eq(tails.read(m, self.shown)),
            some.eq(head != last),
            known.eq(is_read(m, place, some)),
            self.o.valid.eq(some & known),
            self.settled.eq(~some | known),
        ]
        for name, width in self.widths.items():
            m.submodules[name] = memory = Memory(shape=width, depth=self.depth * self.connections, init=[])
            write, read = memory.write_port(), late_read(m, memory)  # of a row that is ``known``
            m.d.comb += [
                write.addr.eq(Cat(self.next, self.connection)), write.data.eq(self.word),
                write.en.eq(self.fields[name]),
                read.addr.eq(place), self.o.payload[name].eq(read.data),
            ]  # fmt: skip
        takes = Signal()
        ends = Signal()  # the last row is taken
        m.d.comb += [takes.eq(self.o.valid & self.o.ready), ends.eq(takes & ((head + 1)[:len(head)] == last))]
        tails.count(m, self.add)
        heads.count(m, takes)
        cleared = (ends << self.shown) | (self.clear.now << self.clear.connection)
        m.d.sync += self.any.eq((self.any & ~cleared) | (self.add << self.connection))
        return m
