"""A ring of octets that are addressed by sequence number."""

from __future__ import annotations

__all__ = ["Ring"]


class Ring:
    """A memory of ``size`` octets, in which the octet with sequence number ``n`` lies at ``n % size``.

    The memory grows up to ``size`` as octets are written, so that an idle connection takes little.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._octets = bytearray()

    def write(self, number: int, octets: bytes) -> None:
        """Write octets from ``number`` on; at most ``size``."""
        place = number % self.size
        first = octets[: self.size - place]
        missing = (self.size if len(first) < len(octets) else place + len(first)) - len(self._octets)
        if missing > 0:
            self._octets += bytes(missing)
        self._octets[place : place + len(first)] = first
        self._octets[: len(octets) - len(first)] = octets[len(first) :]

    def read(self, number: int, count: int) -> bytes:
        """Return ``count`` octets from ``number`` on, which have been written."""
        place = number % self.size
        first = bytes(self._octets[place : place + min(count, self.size - place)])
        return first + bytes(self._octets[: count - len(first)])
