"""The garbage collector, around work that makes a great many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["not_collected"]


@contextmanager
def not_collected() -> Iterator[None]:
    """Stop automatic collection in this block.

    Where most objects are needed until the end of the block, the collector would look at them again and again. They
    stay in the youngest generation, so that ``gc.collect(0)`` at the end of the block looks at them, and at few others.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
