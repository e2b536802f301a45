"""The Sends that have been received."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count_up_down
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
    """

    def __init__(self, depth: int):
        self.depth = depth
        super().__init__({
            "i": In(Completed), "enters": In(1), "complete": In(1), "o": Out(stream.Signature(Completed)),
        })  # fmt: skip

    def elaborate(self, platform):
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
