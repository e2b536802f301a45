"""The memory of a device whose RDMA engine uses the application's buffers in place."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from open_rnic.host_driver.rdma.engine.memory import SPACE, Buffer, EngineMemory

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets


class MappedMemory(EngineMemory):
    """Buffers that are used in place: nothing is copied.

    Octets that are written to an address without a buffer are discarded, and reads of it return zeros.
    """

    @property
    def room(self) -> int:
        """See EngineMemory: several have to fit."""
        return self.space // 2

    def share(self, view: Buffer, *, writable: bool) -> int:
        """See EngineMemory."""
        return self.map(view)

    def store(self) -> None:
        """See EngineMemory."""

    async def load(self, address: int, octets: int) -> None:
        """See EngineMemory."""

    async def load_shared(self) -> None:
        """See EngineMemory."""

    def read(self, address: int, octets: int) -> bytes:
        """Return octets; zeros where there is no buffer."""
        pieces = []
        end = address + octets
        while address < end:
            start, stop, view = self._at(address)
            stop = min(stop, end)
            pieces.append(bytes(stop - address) if view is None else bytes(view[address - start : stop - start]))
            address = stop
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def words(self, address: int, most: int, word: int) -> bytes:
        """Return whole words of ``word`` octets, from the one at ``address`` to the last one of its buffer.

        They have at most ``most`` octets. Where there is no buffer, this is one word of zeros.
        """
        _, stop, view = self._at(address)
        octets = word if view is None else min(most, stop - address)
        return self.read(address, -(-octets // word) * word)

    def write(self, address: int, octets: Octets) -> None:
        """Write octets; those where there is no buffer are discarded."""
        source = memoryview(octets)
        at = 0
        while at < len(source):
            start, stop, view = self._at(address + at)
            to = min(stop - address, len(source))
            if view is not None:
                view[address + at - start : address + to - start] = source[at:to]
            at = to

    def _at(self, address: int) -> tuple[int, int, Buffer | None]:
        """Return the buffer at an address, its first address, and the address behind it, or that of the next one."""
        starts = self.places.starts
        before = bisect_right(starts, address)
        if before:
            start = starts[before - 1]
            view = self._views[start]
            if address < start + len(view):
                return start, start + len(view), view
        return address, starts[before] if before < len(starts) else 2 * SPACE, None
