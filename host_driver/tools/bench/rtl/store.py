"""A store of results, each under a hash of everything that it was made from."""

from __future__ import annotations

import hashlib
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

from open_rnic.host_driver.builds.folders import built

__all__ = ["Store", "folder", "key"]

_FORMAT = 1  # of the stored data


def folder() -> Path:
    """Return the folder of results: next to the simulations, in ``build/bench`` of a checkout."""
    return built("bench")


def key(*parts: object) -> str:
    """Return a hash of objects whose ``repr`` describes them completely."""
    return hashlib.sha256(repr((_FORMAT, *parts)).encode()).hexdigest()[:32]


class Store:
    """A folder of results. Several processes may use it at once; an unreadable result counts as missing."""

    def __init__(self, place: Path):
        self._place = place

    def get(self, name: str) -> Any:
        """Return the result of this key, or None."""
        with suppress(OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError):
            return pickle.loads((self._place / name[:2] / name).read_bytes())
        return None

    def put(self, name: str, result: Any) -> None:
        """Store a result atomically."""
        path = self._place / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(pickle.dumps(result))
        fresh.replace(path)
