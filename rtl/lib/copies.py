"""Equal registers, each of which reaches a part of a wide beat.

A signal that chooses among the octets of a beat takes the longer, the more of them it has to reach. Above
:data:`AT_ONCE` lanes, each part of that many lanes therefore has a register of its own.
"""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike

__all__ = ["AT_ONCE", "choose", "copies", "later", "parts_of"]

AT_ONCE = 4  # lanes of the widest beat that is handled as a whole, and rotated in one cycle

_KINDS = [(inverted, init) for inverted in (False, True) for init in (0, 1)]


def parts_of(lanes: int) -> int:
    """The number of parts of a beat."""
    return max(1, lanes // AT_ONCE)


def copies(m: Module, value: ValueLike, count: int, name: str) -> list[Value]:
    """Registers of the bit ``value``, at most ``count`` and at most 4.

    Synthesis would merge registers that are equal. These differ in what they are reset to, and some are inverted; so
    nothing may depend on them in the first cycle after reset, except on the first one, which is 0 then.
    """
    found: list[Value] = []
    for n, (inverted, init) in enumerate(_KINDS[:count]):
        register = Signal(name=f"{name}_{n}", init=init)
        m.d.sync += register.eq(~Value.cast(value) if inverted else value)
        found.append(~register if inverted else register)
    return found


def later(m: Module, value: Any, lanes: int, *, name: str = "later", reset_less: bool = False) -> Any:
    """``value`` one cycle later, above :data:`AT_ONCE` lanes; otherwise itself."""
    if lanes <= AT_ONCE:
        return value
    register = Signal.like(value, name=name, reset_less=reset_less)
    m.d.sync += register.eq(value)
    return register


def choose(selects: Sequence[Value], if_set: ValueLike, if_clear: ValueLike) -> Value:
    """``if_set`` or ``if_clear``, of which each part is chosen by one of ``selects``."""
    one, other = Value.cast(if_set), Value.cast(if_clear)
    part = -(-len(one) // len(selects))
    return Cat(Mux(select, one[part * n:part * (n + 1)], other[part * n:part * (n + 1)])
               for n, select in enumerate(selects))  # fmt: skip
