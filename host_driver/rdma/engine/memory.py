"""The memory that the RDMA engine of a device works on: a space of 32-bit addresses, with buffers at some of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets

SPACE = 1 << 32  # octets
ALIGNMENT = 64  # octets: no two buffers share a word of the widest data path


class Buffer(Protocol):
    """The octets of a buffer, such as a memoryview of it; they need not be consecutive in the host's memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, octets: slice, /) -> memoryview: ...

    def __setitem__(self, octets: slice, payload: Octets, /) -> None: ...


class MemoryAccess(Protocol):
    """Access to the memory of a device."""

    def write_memory(self, address: int, octets: Octets) -> None:
        """Write octets, in order with all accesses to registers; does not wait."""

    async def read_memory(self, address: int, octets: int) -> bytes:
        """Read octets, in order with all accesses to registers that were begun before."""


class Placed:
    """A buffer that lies in a device's memory itself, at ``address``."""

    __slots__ = ()
    address: int


class Places:
    """The ranges of addresses that are in use, of ``space`` octets."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.starts: list[int] = []  # in ascending order
        self._ends: dict[int, int] = {}  # by the start
        self._next = ALIGNMENT

    def reserve(self, octets: int) -> int:
        """Return the first address of a free range, which was not in use recently; raises ValueError without one."""
        octets = max(octets, 1)
        first = self._next
        address = self._free(first, octets, self.space)
        if address is None:
            address = self._free(ALIGNMENT, octets, first)
        if address is None:
            raise ValueError(f"the device has no {octets} consecutive octets of memory left for a buffer")
        self._next = _aligned(address + octets)
        insort(self.starts, address)
        self._ends[address] = address + octets
        return address

    def release(self, address: int) -> None:
        """Free the range that begins here."""
        del self.starts[bisect_right(self.starts, address) - 1], self._ends[address]

    def _free(self, address: int, octets: int, limit: int) -> int | None:
        """Return the first range of addresses from ``address`` on, below ``limit``, of which none is in use."""
        while address + octets <= limit:
            before = bisect_right(self.starts, address)
            if before and (end := self._ends[self.starts[before - 1]]) > address:
                address = _aligned(end)
            elif before < len(self.starts) and (start := self.starts[before]) < address + octets:
                address = _aligned(self._ends[start])
            else:
                return address
        return None


class EngineMemory(ABC):
    """A memory with buffers of the application in it, each at the address that ``map`` has given to it.

    ``retire`` takes a buffer away while a device may still use its addresses: they are given to no other buffer before
    ``unmap``. ``room`` is the longest buffer of unknown use, such as one for a Send of any length.
    """

    def __init__(self, space: int = SPACE, places: Places | None = None) -> None:
        self.places = places or Places(space)
        self._views: dict[int, Buffer] = {}  # by their address

    def __len__(self) -> int:
        return len(self._views)

    @property
    def space(self) -> int:
        """The octets of the memory."""
        return self.places.space

    def beside(self, access: MemoryAccess) -> EngineMemory:
        """Return the memory of another data path of the device, behind ``access``: this one, if they share it."""
        return self

    @property
    @abstractmethod
    def room(self) -> int:
        """The most octets that a buffer should have whose use is not known."""

    def map(self, view: Buffer, *, fill: bool = True) -> int:
        """Return the address of the buffer's first octet; with ``fill``, the memory has the buffer's octets.

        Raises ValueError if no range of addresses is free.
        """
        address = self.places.reserve(len(view))
        self._views[address] = view
        return address

    def unmap(self, address: int) -> None:
        """Forget the buffer that ``map`` has given this address, and free its place. Idempotent."""
        if self._views.pop(address, None) is not None:
            self.places.release(address)

    def retire(self, address: int, *, kept: bool = False) -> bool:
        """Forget the buffer at this address, but keep its place until ``unmap``; returns False if there is none.

        A memory that uses the buffer in place then has zeros there or, if ``kept``, the octets that the buffer has now.
        """
        view = self._views.get(address)
        if view is None or isinstance(view, _Retired):
            return False
        self._views[address] = _Retired(len(view), bytes(view[:]) if kept else None)
        return True

    @abstractmethod
    def share(self, view: Buffer, *, writable: bool) -> int:
        """Map a buffer that peers access, and that they may write if it is ``writable``; raises ValueError."""

    @abstractmethod
    def store(self) -> None:
        """Let the memory have all octets that the application has changed in shared buffers."""

    @abstractmethod
    async def load(self, address: int, octets: int) -> None:
        """Let the application have the first ``octets`` octets of the buffer at this address."""

    @abstractmethod
    async def load_shared(self) -> None:
        """Let the application have all octets that peers have written into shared buffers."""


class _Retired:
    """The place of a buffer that is gone."""

    def __init__(self, octets: int, kept: bytes | None) -> None:
        self._octets = octets
        self._kept = kept

    def __len__(self) -> int:
        return self._octets

    def __getitem__(self, octets: slice) -> memoryview:
        start, end, _ = octets.indices(self._octets)
        return memoryview(bytes(end - start) if self._kept is None else self._kept[start:end])

    def __setitem__(self, octets: slice, payload: Octets) -> None:
        pass


def _aligned(address: int) -> int:
    return -(-address // ALIGNMENT) * ALIGNMENT
