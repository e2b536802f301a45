"""Folders for files that are built or measured."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["built"]


def built(kind: str) -> Path:
    """Return the folder for one kind of files, such as ``sim``.

    It is inside ``$OPEN_RNIC_BUILD`` if this is set, else inside ``build`` of a checkout, else in the user's cache.
    """
    chosen = os.environ.get("OPEN_RNIC_BUILD")
    if chosen:
        return Path(chosen).absolute() / kind
    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file():
        return checkout / "build" / kind
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "open-rnic" / kind
