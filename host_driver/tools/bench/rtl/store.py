"""Results that are kept: each under a hash of all that it was made from."""

from __future__ import annotations

import hashlib
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

from open_rnic.host_driver.folders import built

__all__ = ["Store", "folder", "key"]

_FORMAT = 1  # of what is kept


def folder() -> Path:
    """Where results lie: beside the simulations, in ``build/bench`` of a checkout."""
    return built("bench")


def key(*parts: object) -> str:
    """A hash of what has a ``repr`` that says all of it."""
    return hashlib.sha256(repr((_FORMAT, *parts)).encode()).hexdigest()[:32]


class Store:
    """A folder of results. Several processes may use it at once; what cannot be read counts as not there."""

    def __init__(self, place: Path):
        self._place = place

    def get(self, name: str) -> Any:
        """The result of this key, or None."""
        with suppress(OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError):
            return pickle.loads((self._place / name[:2] / name).read_bytes())
        return None

    def put(self, name: str, result: Any) -> None:
        """Keep a result, which is there whole or not at all."""
        path = self._place / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(pickle.dumps(result))
        fresh.replace(path)
