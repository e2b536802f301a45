"""The error that ends a run before its cases can be judged."""

from __future__ import annotations


class InteropError(Exception):
    """The run is impossible; the message is one line with the missing or failed part, and its log if there is one."""
