"""The ends of the sockets, and of the pseudo-terminal, that a program gives to the process of its simulation."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable

from open_rnic.host_driver.devices.sim.wire import take_frames

__all__ = ["Link", "wait"]

_MOST = 1 << 18  # octets that are read at once


class Link:
    """The end of a socket, or anything else that passes octets; only :func:`wait` blocks."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.ended = False  # the program has closed its end, or has ended
        self.unsent = bytearray()
        self._received = bytearray()
        os.set_blocking(descriptor, False)

    def send(self, octets: bytes = b"") -> None:
        """Send octets; those that are not accepted at once are sent later."""
        self.unsent += octets
        try:
            while self.unsent:
                del self.unsent[: os.write(self.descriptor, self.unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the next `receive` detects it, too
            self.unsent.clear()

    def receive(self) -> bytearray:
        """Return all octets that have come, and have not been taken out of it."""
        try:
            while octets := os.read(self.descriptor, _MOST):
                self._received += octets
                if len(octets) < _MOST:
                    return self._received
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:  # the end of a terminal, too
            self.ended = True
        return self._received

    def messages(self) -> list[tuple[int, int, bytes]]:
        """Return the frames of ``wire`` that have come: kind, note, octets."""
        return list(take_frames(self.receive()))


def wait(links: Iterable[Link], seconds: float | None) -> None:
    """Sleep until there are octets to receive, or until more octets can be sent, for at most ``seconds``."""
    alive = [link for link in links if not link.ended]
    select.select(
        [link.descriptor for link in alive], [link.descriptor for link in alive if link.unsent], [], seconds
    )
