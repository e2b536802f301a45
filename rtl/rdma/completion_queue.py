"""The Sends that have been received."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Cells, Clear, connection_shape, only_many
from open_rnic.rtl.rdma.layouts import Completed

__all__ = ["CompletionQueue"]


class CompletionQueue(wiring.Component):
    """A queue whose entries become visible some time after they have entered, in their order.

    Nothing checks for overflow: there is an entry for each buffer that can be posted.

    Members
    -------
    i : In, :class:`.Completed`
    enters : In, 1 bit
    complete : In, 1 bit
        The oldest entry that is not visible becomes visible.
    o : Out, stream of :class:`.Completed`

    Only with many connections, which have a queue each, in block RAM:

    enters_of, completes_of : In
        The connections of the entries.
    shown : In
        The connection of ``o``. It has not changed in the last 2 cycles if an entry is taken.
    taken : Out, :class:`.Completed`
        The entry of this connection that was taken last, if ``last`` was 1 in the last cycle.
    last : In, 1 bit
    any : Out, 1 bit for each connection
        An entry is visible.
    clear : In, :class:`.Clear`
    """

    def __init__(self, depth: int, connections: int = 1):
        self.depth = depth
        self.connections = connections
        number = connection_shape(connections)
        many = {
            "enters_of": In(number), "completes_of": In(number), "shown": In(number),
            "taken": Out(Completed), "last": In(1),
            "any": Out(connections), "clear": In(Clear(connections)),
        }  # fmt: skip
        super().__init__({
            "i": In(Completed), "enters": In(1), "complete": In(1), "o": Out(stream.Signature(Completed)),
            **only_many(connections, many),
        })  # fmt: skip

    def elaborate(self, platform):
        if self.connections > 1:
            return self._many()
        m = Module()
        m.submodules.memory = memory = Memory(shape=Completed, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        head, visible, tail = (Signal(range(2 * self.depth), name=name) for name in ("head", "visible", "tail"))
        m.d.comb += [
            write.addr.eq(tail), write.data.eq(self.i), write.en.eq(self.enters),
            read.addr.eq(head), self.o.payload.eq(read.data), self.o.valid.eq(head != visible),
        ]  # fmt: skip
        count_up_down(m, tail, self.enters)
        count_up_down(m, visible, self.complete)
        count_up_down(m, head, self.o.valid & self.o.ready)
        return m

    def _many(self):
        m = Module()
        # There is a place for twice as many entries, so that the one that was taken last stays.
        shape = range(2 * self.depth)
        head, visible, tail = (Signal(shape, name=name) for name in ("head", "visible", "tail"))
        heads = Cells(m, head, self.connections, self.shown, self.clear)
        visibles = Cells(m, visible, self.connections, self.completes_of, self.clear)
        tails = Cells(m, tail, self.connections, self.enters_of, self.clear)
        m.submodules.memory = memory = Memory(shape=Completed, depth=2 * self.depth * self.connections, init=[])
        write, read = memory.write_port(), late_read(m, memory)  # of an entry that has been visible for a cycle
        m.d.comb += [
            write.addr.eq(Cat(tail, self.enters_of)), write.data.eq(self.i), write.en.eq(self.enters),
            read.addr.eq(Cat((head - self.last)[:len(head)], self.shown)),
            self.o.payload.eq(read.data), self.taken.eq(read.data),
            self.o.valid.eq(self.any.bit_select(self.shown, 1)),
        ]  # fmt: skip
        takes = Signal()
        ends = Signal()  # no other entry is visible
        m.d.comb += [
            takes.eq(self.o.valid & self.o.ready),
            ends.eq(takes & ((head + 1)[:len(head)] == visibles.read(m, self.shown))),
        ]
        tails.count(m, self.enters)
        visibles.count(m, self.complete)
        heads.count(m, takes)
        cleared = (ends << self.shown) | (self.clear.now << self.clear.connection)
        completes = Signal()  # a cycle later: an entry may become visible when it enters, and is then read
        completed_of = Signal.like(self.completes_of)
        m.d.sync += [
            completes.eq(self.complete), completed_of.eq(self.completes_of),
            self.any.eq((self.any & ~cleared) | (completes << completed_of)),
        ]  # fmt: skip
        return m
