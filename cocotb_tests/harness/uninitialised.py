"""Memories that start with random contents, so that a test sees whether a design uses words that nobody has written.

Nor may it use bits that are written as they are read (:mod:`.collisions`).
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import wiring
from amaranth.lib.memory import Memory

from open_rnic.cocotb_tests.collisions import colliding, elaborated_within

__all__ = ["dirty"]


@contextlib.contextmanager
def _random_contents(seed: int) -> Iterator[None]:
    """Let memories that are made without contents have random ones."""
    rng = random.Random(seed)
    clean = Memory.__init__

    def dirty(self: Memory, data: Any = None, **options: Any) -> None:
        if "init" in options and not list(options["init"]):
            shape, depth = options["shape"], options["depth"]
            width = Shape.cast(shape).width
            words = [rng.getrandbits(width) if width else 0 for _ in range(depth)]
            options["init"] = [shape.from_bits(word) for word in words] if isinstance(shape, ShapeCastable) else words
        clean(self, data, **options)

    with patch.object(Memory, "__init__", dirty):
        yield


def dirty(make: Callable[..., wiring.Component], seed: int) -> wiring.Component:
    """Return the component, which ``make`` makes; its memories are made dirty when it is elaborated."""
    contents = partial(_random_contents, seed)
    with contents():
        component = colliding(make)
    return elaborated_within(contents, component)
