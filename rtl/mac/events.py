"""Counts of events in another clock domain."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["EventCrossing"]


class EventCrossing(wiring.Component):
    """Carries events from the domain ``there`` to ``sync``, without a loss and without a handshake.

    A counter of 2 bits in Gray code crosses, of which one bit changes with each event. Its steps are seen in each cycle
    of ``sync``, so that at most 3 events of a kind may happen in the time of such a cycle. A reset does not change it.

    Members
    -------
    events : In, 1 bit for each kind; in the domain ``there``
    steps : Out, 2 bits for each kind
        The number of events that have become known in this cycle.
    """

    def __init__(self, kinds: int):
        self.kinds = kinds
        super().__init__({"events": In(kinds), "steps": Out(2).array(kinds)})

    def elaborate(self, platform):
        m = Module()
        for kind in range(self.kinds):
            count = Signal(2, name=f"count_{kind}", reset_less=True)
            seen = Signal(2, name=f"seen_{kind}")
            before = Signal(2, name=f"before_{kind}", reset_less=True)
            m.submodules[f"kind_{kind}"] = FFSynchronizer(count, seen)
            with m.If(self.events[kind]):
                m.d.there += count.eq(Cat(~count[1], count[0]))
            m.d.sync += before.eq(seen)
            m.d.comb += self.steps[kind].eq(_number(seen) - _number(before))
        return m


def _number(gray):
    """The number of steps from 00 to a Gray code of 2 bits: 00, 01, 11, 10."""
    return Cat(gray.xor(), gray[1])
