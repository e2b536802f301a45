"""A queue of rows that are written field by field."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count_up_down

__all__ = ["RowQueue"]


class RowQueue(wiring.Component):
    """A queue in memory whose writer writes one field of a row at a time, and then adds the row.

    A row can be taken in the cycle after it was added. Nothing checks for overflow: the writer knows the depth.

    Parameters
    ----------
    layout : a struct of fields of at most 32 bits
    depth : rows, a power of 2

    Members
    -------
    NAME : In, 1 bit for each field
        Writes the low bits of ``word`` to this field of the row that is added next.
    word : In, 32 bits
    add : In, 1 bit
        Adds the row, whose last field may be written in the same cycle.
    o : Out, stream of ``layout``
    first, next : Out
        The place of the row at ``o``, and of the row that is added next: rows take the places in turn.

    """

    def __init__(self, layout: type[data.Struct], depth: int):
        self.depth = depth
        self.fields = {name: field.width for name, field in layout.as_shape()}
        super().__init__({
            **{name: In(1) for name in self.fields}, "word": In(32), "add": In(1), "o": Out(stream.Signature(layout)),
            "first": Out(range(depth)), "next": Out(range(depth)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        head = Signal(range(2 * self.depth))
        tail = Signal.like(head)
        for name, width in self.fields.items():
            m.submodules[name] = memory = Memory(shape=width, depth=self.depth, init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(tail), write.data.eq(self.word), write.en.eq(getattr(self, name)),
                read.addr.eq(head), self.o.payload[name].eq(read.data),
            ]  # fmt: skip
        m.d.comb += [self.o.valid.eq(head != tail), self.first.eq(head), self.next.eq(tail)]
        count_up_down(m, tail, self.add)
        count_up_down(m, head, self.o.valid & self.o.ready)
        return m
