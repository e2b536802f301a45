"""The interface between frames and the things that carry them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Port"]


class Port(Protocol):
    """A place at which Ethernet frames leave and arrive, from the destination address to the payload, without FCS."""

    receive: Callable[[bytes], None]
    """Called for each frame that arrives; the user of the port sets it."""

    def send(self, frame: bytes) -> None:
        """Send a frame. Never blocks; a frame that cannot be sent now is discarded and counted."""
