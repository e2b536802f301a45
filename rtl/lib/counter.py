"""Counters that are wider than a cycle has time to add."""

from amaranth.hdl import Cat, Signal

__all__ = ["count"]


def count(m, low, high, step):
    """Add ``step`` to the counter whose halves are ``low`` and ``high``, in every cycle.

    The high half takes the carry of the low half a cycle later, so no carry chain is longer than a half.
    """
    carry = Signal(name=f"{low.name}_carry")
    m.d.sync += [Cat(low, carry).eq(low + step), high.eq(high + carry)]
