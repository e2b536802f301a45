"""Rotates a beat by whole lanes, or by octets.

Beats of more than :data:`.AT_ONCE` lanes are rotated in several cycles, in each of them by :data:`TURNED` bits of the
distance: so the area of a rotator grows with n log n, and its delay not at all.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value

from open_rnic.rtl.lib.copies import choose

__all__ = ["TURNED", "rotate_lanes", "rotate_part", "steps_of"]

TURNED = 2  # bits of the distance by which a cycle rotates a wider beat


def rotate_lanes(
    m: Module, value: Value, by: Value | Sequence[Sequence[Value]], *, lane: int = 32, at: int = 0
) -> Value:
    """``value`` rotated: lane ``n`` moves to lane ``n + (by << at)``, modulo the number of lanes, a power of 2.

    Of each bit of ``by`` there may be :func:`.copies`, each for a part of the beat.
    """
    # One signal per step: in a nested expression, every use would become a rotator of its own.
    for bit, step in zip(by, [lane << i for i in range(at, (len(value) // lane).bit_length() - 1)], strict=False):
        before = value
        value = Signal(len(value), name=f"turned_{step}")
        selects = [bit] if isinstance(bit, Value) else bit
        m.d.comb += value.eq(choose(selects, Cat(before[-step:], before[:-step]), before))
    return value


def rotate_part(m: Module, value: Value, by: Value, at: int, *, lane: int = 32) -> Value:
    """``value`` rotated by the part of the distance ``by`` whose TURNED bits begin at bit ``at``: one of its steps."""
    return rotate_lanes(m, value, by[at:at + TURNED], lane=lane, at=at)


def steps_of(bits: int) -> range:
    """The steps in which a distance of so many bits is rotated: the first of the TURNED bits of each."""
    return range(0, bits, TURNED)
