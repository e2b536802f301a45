"""Who is next: of those that wait, each in turn."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

__all__ = ["Turns", "following", "number"]


class Turns(Component):
    """Chooses one of ``size`` that wait.

    Of ``every`` choices the last is by turn: the first behind the one that had its turn last, round and round. The
    others are for the first of all. So one that waits without a pause is chosen after fewer than ``every * size``
    others.

    Members
    -------
    waits : In(size), who waits; any may begin and cease in any cycle
    chosen : Out(size), in the same cycle: one of those that wait, or none if none does
    take : In(1), the one that is chosen is taken
    """

    def __init__(self, size: int, every: int = 1):
        self.size, self.every = size, every
        super().__init__({"waits": In(size), "chosen": Out(size), "take": In(1)})

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self.every), init=self.every - 1)  # choices before the next by turn
        behind = Signal(self.size, init=-1)  # those behind the one that had its turn last
        later = Signal(self.size)
        pool = Signal(self.size)
        m.d.comb += [
            later.eq(self.waits & behind),
            pool.eq(Mux(later.any() & (left == 0), later, self.waits)),
            self.chosen.eq(pool & (~pool + 1)[: self.size]),
        ]
        with m.If(self.take):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 0):
                m.d.sync += [left.eq(self.every - 1), behind.eq(~(self.chosen | (self.chosen - 1)[: self.size]))]
        return m


def following(at, size: int):
    """The number behind ``at`` of ``size``, round and round."""
    return Mux(at == size - 1, 0, at + 1)


def number(chosen, size: int):
    """The position of the only bit of ``chosen`` that is set; 0 if none is."""
    bits = range(max(1, (size - 1).bit_length()))
    return sum((chosen & sum(1 << at for at in range(size) if at >> bit & 1)).any() << bit for bit in bits)
