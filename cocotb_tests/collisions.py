"""Memories that return bits inverted which are written as they are read, of which :func:`.late_read` makes no use."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from amaranth.hdl import Cat, Const, Fragment, MemoryInstance, Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory

__all__ = ["colliding", "collisions", "elaborated_within"]


@contextmanager
def collisions() -> Iterator[None]:
    """Let memories that are elaborated here be such memories, if they have a :func:`.late_read`."""
    elaborate = Memory.elaborate

    def elaborated(self: Memory, platform: object) -> Any:
        return _inverting(self) if "no_rw_check" in self.attrs else elaborate(self, platform)

    with patch.object(Memory, "elaborate", elaborated):
        yield


def _inverting(memory: Memory) -> Module:
    m = Module()
    m.submodules.words = words = MemoryInstance(data=memory.data, attrs=memory.attrs)
    for port in memory.write_ports:
        words.write_port(domain=port.domain, addr=port.addr, data=port.data, en=port.en)
    for port in memory.read_ports:
        stored = Signal(Shape.cast(memory.shape).width)
        words.read_port(domain="comb", addr=port.addr, data=stored, en=Const(1), transparent_for=())
        m.d.comb += Value.cast(port.data).eq(stored)
        for write in memory.write_ports:
            bits = Cat(each.replicate(len(stored) // len(write.en)) for each in write.en)
            with m.If(write.addr == port.addr):
                m.d.comb += Value.cast(port.data).eq(stored ^ bits)
    return m


def elaborated_within(
    context: Callable[[], AbstractContextManager[None]], component: wiring.Component
) -> wiring.Component:
    """Return the component, which will be elaborated within the context, as all that it contains will."""
    elaborate = component.elaborate

    def elaborated(platform: object) -> Fragment:
        with context():
            return Fragment.get(elaborate(platform), platform)

    component.elaborate = elaborated
    return component


def colliding(make: Callable[..., wiring.Component], *arguments: Any, **options: Any) -> wiring.Component:
    """Return the component that ``make`` makes of the arguments; its memories will be such memories."""
    return elaborated_within(collisions, make(*arguments, **options))
