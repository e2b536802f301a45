"""Where what is built and measured is kept."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["built"]


def built(what: str) -> Path:
    """The folder of one kind of it.

    It is in ``$OPEN_RNIC_BUILD``, if that is set, else in ``build`` of a checkout, else in the user's cache.
    """
    chosen = os.environ.get("OPEN_RNIC_BUILD")
    if chosen:
        return Path(chosen).absolute() / what
    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file():
        return checkout / "build" / what
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "open-rnic" / what
