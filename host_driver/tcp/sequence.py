"""Sequence numbers modulo 2**32 (RFC 9293 §3.4)."""

from __future__ import annotations

__all__ = ["MODULUS", "on_the_wire", "unwrap"]

MODULUS = 1 << 32


def unwrap(number: int, near: int) -> int:
    """Return the integer congruent to ``number`` modulo 2**32 that is nearest to ``near``.

    Of two integers at the same distance, 2**31, it is the lower. For example, ``unwrap(2, 0xFFFF_FFFE)`` is
    0x1_0000_0002. This is the only place in which sequence numbers wrap.
    """
    return near + ((number - near + MODULUS // 2) % MODULUS) - MODULUS // 2


def on_the_wire(number: int) -> int:
    """Return the 32 bits of an unwrapped sequence number."""
    return number % MODULUS
