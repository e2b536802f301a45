"""Inspection of a component that is not elaborated, for instance of its ports, without a warning from Amaranth."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from open_rnic.host_driver.lib.garbage import not_collected

_T = TypeVar("_T")


def look(make: Callable[[], Any], at: Callable[[Any], _T]) -> _T:
    """Make a component with ``make``, and return the result of ``at`` for it, without Amaranth's warning.

    Amaranth warns about components that are never elaborated. The component is deleted afterwards, so the result must
    not refer to it.
    """
    from amaranth.hdl import UnusedElaboratable

    with warnings.catch_warnings(), not_collected():
        warnings.simplefilter("ignore", UnusedElaboratable)
        found = at(make())
        gc.collect(0)  # Amaranth warns at deletion; all components are in reference cycles
        return found
