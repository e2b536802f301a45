"""Elaborates Amaranth components."""

from __future__ import annotations

import gc
from typing import Any

__all__ = ["to_rtlil"]


def to_rtlil(component: Any, **options: Any) -> str:
    """Return a component as RTLIL without source locations; ``options`` as in ``amaranth.back.rtlil.convert``.

    The garbage collector waits meanwhile: it would look again and again at millions of objects that are needed until
    the end, which takes a third of the time.
    """
    from amaranth.back import rtlil

    collects = gc.isenabled()
    gc.disable()
    try:
        return str(rtlil.convert(component, **({"name": "top", "emit_src": False} | options)))
    finally:
        if collects:
            gc.enable()
