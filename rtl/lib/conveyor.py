"""Steps in which nothing stalls, from a register to a queue."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.stream import EarlyStage, Fifo

__all__ = ["Conveyor"]

DEPTH = 16  # beats in the queue: with a few steps, the next beat has arrived before the queue is empty


class Conveyor(wiring.Component):
    """Begins a beat only once it has a place in a queue, so that the steps between never stall.

    A ``ready`` that reaches all octets of a wide beat in each step is too late in the cycle. Here, only the first
    register stalls, and knows so a cycle ahead. The steps are outside of the block::

        i ▸ register ▸ begun ▸ steps ▸ given ▸ queue ▸ o

    Latency: 2 cycles, and one for each step. Throughput: one beat per cycle; a beat whose field ``twice`` is 1 begins
    twice. No combinational path leads from ``o`` to ``i``.

    Parameters
    ----------
    shape, given : shapes of the payload at ``i`` and ``begun``, and at ``given`` and ``o``
    twice : name of a 1-bit field of ``shape``
    steps : the most cycles from ``begun`` to ``given``

    Members
    -------
    i : In, stream of ``shape``
    begun : Out, stream of ``shape``
        ``ready`` is not looked at: it must be 1 as long as ``given.ready`` is, which is always.
    again : Out, 1 bit
        The beat at ``begun`` begins for the second time.
    given : In, stream of ``given``
        A beat for each one at ``begun``.
    o : Out, stream of ``given``

    """

    def __init__(self, shape, given, *, twice: str, steps: int):
        super().__init__({
            "i": In(stream.Signature(shape)),
            "begun": Out(stream.Signature(shape)),
            "again": Out(1),
            "given": In(stream.Signature(given)),
            "o": Out(stream.Signature(given)),
        })
        self.twice = twice
        self.steps = steps

    def elaborate(self, platform):
        m = Module()
        m.submodules.first = first = EarlyStage(self.i.payload.shape(), twice=self.twice)
        # ``room`` comes a cycle late, so there are places for the beats in the steps, and for 2 more.
        m.submodules.queue = queue = Fifo(self.o.payload.shape(), DEPTH, spare=self.steps + 2)
        room = Signal()
        m.d.sync += room.eq(queue.spare)
        wiring.connect(m, wiring.flipped(self.i), first.i)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [
            first.soon.eq(queue.spare),
            first.o.ready.eq(room),
            self.begun.valid.eq(first.o.valid & room),
            self.begun.payload.eq(first.o.payload),
            self.again.eq(first.again),
            queue.i.valid.eq(self.given.valid),
            queue.i.payload.eq(self.given.payload),
            self.given.ready.eq(1),
        ]
        return m
