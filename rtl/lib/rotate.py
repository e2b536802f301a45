"""Rotates a beat by whole lanes, or by octets."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

__all__ = ["rotate_lanes"]


def rotate_lanes(m: Module, value: Value, by: Value, *, lane: int = 32) -> Value:
    """``value`` rotated: lane ``n`` moves to lane ``n + by``, modulo the number of lanes, which is a power of 2."""
    # One signal per step: in a nested expression, every use would become a rotator of its own.
    for i in range((len(value) // lane).bit_length() - 1):
        before = value
        value = Signal(len(value), name=f"turned_{lane << i}")
        step = lane << i
        m.d.comb += value.eq(Mux(by[i], Cat(before[-step:], before[:-step]), before))
    return value
