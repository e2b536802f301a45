"""Ports of a part that are ports of the component around it, too."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring

__all__ = ["expose", "ports_of"]


def ports_of(component) -> dict[tuple[str | int, ...], Any]:
    """Return the ports of a component by their paths, such as ``("CONFIG", "role")``."""
    return {path: value for path, _member, value in component.signature.flatten(component)}


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
