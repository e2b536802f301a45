"""Ephemeral ports: those that an endpoint chooses itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import chain

__all__ = ["EPHEMERAL", "PortInUseError", "free_port"]

EPHEMERAL = range(49152, 65536)  # RFC 6335 §6


class PortInUseError(OSError):
    """No connection or listener can have this port."""


def free_port(free: Callable[[int], bool]) -> int:
    """Return a random ephemeral port that is free (RFC 6056 §3.3.1). Raises PortInUseError if none is."""
    first = secrets.randbelow(len(EPHEMERAL))
    for port in chain(EPHEMERAL[first:], EPHEMERAL[:first]):
        if free(port):
            return port
    raise PortInUseError(f"all ports from {EPHEMERAL.start} on are in use")
