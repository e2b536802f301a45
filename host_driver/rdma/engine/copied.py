"""The memory of a device that has memory of its own: buffers of the application have copies there.

    application ── buffer ─▸ map, share, store ─▸ copy ◂▸ RDMA engine ◂▸ peer
                          ◂─ load, load_shared ─

Buffers that lie in the memory itself (``Placed``) are never copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from open_rnic.host_driver.rdma.engine.memory import Buffer, EngineMemory, MemoryAccess, Placed, Places

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets


@dataclass(slots=True)
class _Shared:
    """A buffer that peers access: ``copy`` has the octets that both sides had when they last agreed."""

    view: Buffer
    copy: bytearray
    writable: bool


class CopiedMemory(EngineMemory):
    """Memory of a device behind ``access``: of one data path, or with ``places`` of all that have these.

    An octet of a shared buffer is copied from the side that has changed it since the two last agreed. If both have
    changed it, either may be lost.
    """

    def __init__(self, access: MemoryAccess, octets: int, places: Places | None = None) -> None:
        super().__init__(octets, places)
        self._common = places
        self._access = access
        self._shared: dict[int, _Shared] = {}

    def beside(self, access: MemoryAccess) -> CopiedMemory:
        """See EngineMemory: the buffers of each data path are its own, also in a memory that all have."""
        return CopiedMemory(access, self.space, self._common)

    @property
    def room(self) -> int:
        """See EngineMemory."""
        return self.space // 4

    def allocate(self, placed: Buffer) -> int:
        """Return the address of memory for a buffer that is ``Placed`` there; raises ValueError if there is none."""
        return super().map(placed)

    def free(self, address: int) -> None:
        """Give back what ``allocate`` has returned."""
        super().unmap(address)

    def write(self, address: int, octets: Octets) -> None:
        """Write octets, before all that is posted later."""
        self._access.write_memory(address, octets)

    async def fetch(self, address: int, octets: int) -> bytes:
        """Read octets."""
        return await self._access.read_memory(address, octets)

    def map(self, view: Buffer, *, fill: bool = True) -> int:
        """See EngineMemory."""
        if isinstance(view, Placed):
            return view.address
        address = super().map(view)
        if fill and len(view):
            self.write(address, bytes(view[:]))
        return address

    def unmap(self, address: int) -> None:
        """See EngineMemory."""
        if not isinstance(self._views.get(address), Placed):
            self._shared.pop(address, None)
            super().unmap(address)

    def retire(self, address: int, *, kept: bool = False) -> bool:
        """See EngineMemory."""
        if isinstance(self._views.get(address), Placed):
            return False
        self._shared.pop(address, None)
        return super().retire(address)

    def share(self, view: Buffer, *, writable: bool) -> int:
        """See EngineMemory."""
        address = self.map(view)
        if not isinstance(view, Placed):
            self._shared[address] = _Shared(view, bytearray(view[:]), writable)
        return address

    def store(self) -> None:
        """See EngineMemory."""
        for address, shared in self._shared.items():
            now = bytes(shared.view[:])
            for start, end in _changes(shared.copy, now):
                self.write(address + start, now[start:end])
            shared.copy[:] = now

    async def load(self, address: int, octets: int) -> None:
        """See EngineMemory."""
        view = self._views.get(address)
        if octets and view is not None and not isinstance(view, Placed):
            view[0:octets] = await self.fetch(address, octets)

    async def load_shared(self) -> None:
        """See EngineMemory."""
        for address, shared in tuple(self._shared.items()):
            if not shared.writable:
                continue
            found = await self.fetch(address, len(shared.copy))
            if self._shared.get(address) is not shared:  # it was deregistered meanwhile
                continue
            for start, end in _changes(shared.copy, found):
                shared.view[start:end] = found[start:end]
                shared.copy[start:end] = found[start:end]


def _changes(before: bytes | bytearray, now: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ranges of octets that differ."""
    if before == now:
        return
    start = None
    for at, (old, new) in enumerate(zip(before, now, strict=True)):
        if old != new and start is None:
            start = at
        elif old == new and start is not None:
            yield start, at
            start = None
    if start is not None:
        yield start, len(now)
