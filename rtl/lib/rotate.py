"""Rotates a beat by whole lanes, or by octets.

Beats of more than :data:`AT_ONCE` lanes are rotated in several cycles, in each of them by :data:`TURNED` bits of the
distance: so the area of a rotator grows with n log n, and its delay not at all.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

__all__ = ["AT_ONCE", "TURNED", "rotate_lanes", "rotate_part", "steps_of"]

AT_ONCE = 4  # lanes of the widest beat that is rotated in one cycle
TURNED = 2  # bits of the distance by which a cycle rotates a wider beat


def rotate_lanes(m: Module, value: Value, by: Value, *, lane: int = 32) -> Value:
    """``value`` rotated: lane ``n`` moves to lane ``n + by``, modulo the number of lanes, which is a power of 2."""
    # One signal per step: in a nested expression, every use would become a rotator of its own.
    for i in range((len(value) // lane).bit_length() - 1):
        before = value
        value = Signal(len(value), name=f"turned_{lane << i}")
        step = lane << i
        m.d.comb += value.eq(Mux(by[i], Cat(before[-step:], before[:-step]), before))
    return value


def steps_of(bits: int) -> range:
    """The steps in which a distance of so many bits is rotated: the first of the TURNED bits of each."""
    return range(0, bits, TURNED)


def rotate_part(m: Module, value: Value, by: Value, at: int, *, lane: int = 32) -> Value:
    """``value`` rotated by the part of the distance ``by`` whose TURNED bits begin at bit ``at``."""
    return rotate_lanes(m, value, by & ((1 << TURNED) - 1) << at, lane=lane)
