"""Ports of components: their names in Verilog, and those of a part that the component around it has, too."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Module, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

from open_rnic.rtl.lib.buses import Bus

__all__ = ["expose", "named_ports", "ports_of"]


def ports_of(component) -> dict[tuple[str | int, ...], Any]:
    """Return the ports of a component by their paths, such as ``("CONFIG", "role")``."""
    return {path: value for path, _member, value in component.signature.flatten(component)}


def named_ports(component) -> dict[str, tuple[Value, PortDirection]]:
    """Return the ports of a component by their names, as ``amaranth.back`` takes them.

    The parts of a path are joined by ``__``, such as ``CONFIG__role``; those of a :class:`.Bus` by ``_``. Ports without
    bits, such as the number of the only connection, are left out.
    """
    found = {}
    members = component.signature.members
    for path, member, value in component.signature.flatten(component):
        top = members[path[0]]
        joint = "_" if top.is_signature and isinstance(top.signature, Bus) else "__"
        if not len(Value.cast(value)):
            continue
        direction = PortDirection.Input if member.flow == wiring.In else PortDirection.Output
        found[joint.join(map(str, path))] = Value.cast(value), direction
    return found


def expose(m: Module, part: Any, around: Any, names: Iterable[str]) -> None:
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
