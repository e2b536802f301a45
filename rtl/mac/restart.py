"""Resets a part of the design that has a clock of its own, and this side of the queues to it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["FarReset"]


class FarReset(wiring.Component):
    """Holds the domain ``there`` in reset, and confirms it.

    Members
    -------
    hold : In, 1 bit
        Must stay 1 until ``held`` is 1.
    held : Out, 1 bit
        The other side is in reset, and all of its registers have been reset. Never 1 without a clock there.
    reset : Out, 1 bit; in the domain ``there``
        Set after power-up.
    """

    hold: In(1, init=1)
    held: Out(1)
    reset: Out(1, init=1)

    def elaborate(self, platform):
        m = Module()
        done = Signal()
        m.submodules.to_there = FFSynchronizer(self.hold, self.reset, o_domain="there", init=1)
        m.submodules.to_here = FFSynchronizer(done, self.held)
        m.d.there += done.eq(self.reset)
        return m
