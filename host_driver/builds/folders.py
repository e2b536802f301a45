"""Folders for files that are built or measured."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["built"]


def built(kind: str) -> Path:
    """Return the folder for one kind of files, such as ``sim``.

    It is inside ``$OPEN_RNIC_BUILD`` if this is set, else inside ``build`` of a checkout, else in
    ``open-rnic`` below ``$XDG_STATE_HOME`` or ``~/.local/state``: unlike the cache, results are not made again.
    """
    chosen = os.environ.get("OPEN_RNIC_BUILD")
    if chosen:
        return Path(chosen).absolute() / kind
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / "build" / kind
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "open-rnic" / kind
