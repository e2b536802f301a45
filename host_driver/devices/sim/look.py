"""A look at a component that nobody elaborates: at its ports, for a simulation that has been built from another one."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


def look(make: Callable[[], Any], at: Callable[[Any], _T]) -> _T:
    """What ``at`` finds at the component that ``make`` makes; Amaranth does not warn that it was not used.

    The component is gone afterwards, and the result must not refer to it.
    """
    from amaranth.hdl import UnusedElaboratable

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)
        found = at(make())
        gc.collect()  # Amaranth warns when a component goes, and some refer to themselves
        return found
