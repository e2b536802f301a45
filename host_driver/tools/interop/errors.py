"""How the run fails before there is anything to judge."""

from __future__ import annotations


class InteropError(Exception):
    """The run cannot be done here; one line that says what is missing or what failed, and where to look."""
