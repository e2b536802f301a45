"""Counters of many bits, and of few."""

from amaranth.hdl import Cat, Mux, Signal

__all__ = ["count", "count_up_down"]


def count(m, low, high, step):
    """Add ``step`` to the counter whose halves are ``low`` and ``high``, in every cycle.

    The high half takes the carry of the low half a cycle later, so no carry chain is longer than a half.
    """
    carry = Signal(name=f"{low.name}_carry")
    m.d.sync += [Cat(low, carry).eq(low + step), high.eq(high + carry)]


def count_up_down(m, value, up, down=0):
    """Add 1 to the counter ``value`` in a cycle in which ``up`` is 1, and subtract 1 in one in which ``down`` is 1.

    The counter has few bits: it has no carry chain, which is larger than a few look-up tables.
    """
    with m.If(up ^ down):
        m.d.sync += value.eq(value ^ Cat(Mux(down, ~value[:n], value[:n]).all() for n in range(len(value))))
