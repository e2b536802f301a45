"""Turning beats by whole lanes, or octets."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

__all__ = ["rotate_lanes"]


def rotate_lanes(m: Module, value: Value, by: Value, *, lane: int = 32) -> Value:
    """``value`` with lane ``n`` moved to lane ``n + by``, round the end; the number of lanes is a power of 2."""
    # A signal for each step: of a nested expression each use would be a rotator of its own.
    for i in range((len(value) // lane).bit_length() - 1):
        before = value
        value = Signal(len(value), name=f"turned_{lane << i}")
        step = lane << i
        m.d.comb += value.eq(Mux(by[i], Cat(before[-step:], before[:-step]), before))
    return value
