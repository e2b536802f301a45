"""Ports of a part that are ports of the component around it, too."""

from collections.abc import Iterable

from amaranth.hdl import Module
from amaranth.lib import wiring

__all__ = ["expose"]


def expose(m: Module, part, around, names: Iterable[str]) -> None:
    """Connect these ports of ``part`` with those of the component ``around`` it, which have the same names.

    Names that the part does not have are left out.
    """
    members = part.signature.members
    for name in names:
        if name not in members:
            continue
        member = members[name]
        inside, outside = getattr(part, name), getattr(around, name)
        if member.is_signature:
            wiring.connect(m, inside, wiring.flipped(outside))
        elif member.flow is wiring.Out:
            m.d.comb += outside.eq(inside)
        else:
            m.d.comb += inside.eq(outside)
