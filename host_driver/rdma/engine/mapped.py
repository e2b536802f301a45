"""The memory of a device whose RDMA engine uses the application's buffers in place: a space of 32-bit addresses."""

from __future__ import annotations

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


class MappedMemory:
    """Buffers, each at the address that ``map`` has given to it.

    Octets that are written to an address without a buffer are discarded, and reads of it return zeros. ``retire`` takes
    a buffer away while a device may still use its addresses: they are given to no other buffer before ``unmap``.
    """

    def __init__(self, space: int = SPACE) -> None:
        self.space = space  # octets
        self._next = ALIGNMENT
        self._starts: list[int] = []  # in ascending order
        self._views: dict[int, Buffer] = {}

    def __len__(self) -> int:
        return len(self._views)

    def map(self, view: Buffer) -> int:
        """Return the address of the buffer's first octet; raises ValueError if no range of addresses is free."""
        octets = max(len(view), 1)
        first = self._next
        address = self._free(first, octets, self.space)
        if address is None:
            address = self._free(ALIGNMENT, octets, first)
        if address is None:
            raise ValueError(f"the device has no {octets} consecutive addresses left for a buffer")
        self._next = _aligned(address + octets)
        insort(self._starts, address)
        self._views[address] = view
        return address

    def unmap(self, address: int) -> None:
        """Forget the buffer that ``map`` has given this address, and free its place. Idempotent."""
        if self._views.pop(address, None) is not None:
            del self._starts[bisect_right(self._starts, address) - 1]

    def retire(self, address: int, *, kept: bool = False) -> bool:
        """Forget the buffer at this address, but keep its place; returns False if there is none.

        Reads return zeros or, if ``kept``, the octets that the buffer has now.
        """
        view = self._views.get(address)
        if view is None or isinstance(view, _Retired):
            return False
        self._views[address] = _Retired(len(view), bytes(view[:]) if kept else None)
        return True

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

    def _free(self, address: int, octets: int, limit: int) -> int | None:
        """Return the first range of addresses from ``address`` on, below ``limit``, in which no buffer lies."""
        while address + octets <= limit:
            before = bisect_right(self._starts, address)
            if before and (end := self._end(self._starts[before - 1])) > address:
                address = _aligned(end)
            elif before < len(self._starts) and (start := self._starts[before]) < address + octets:
                address = _aligned(self._end(start))
            else:
                return address
        return None

    def _end(self, start: int) -> int:
        return start + max(len(self._views[start]), 1)

    def _at(self, address: int) -> tuple[int, int, Buffer | None]:
        """Return the buffer at an address, its first address, and the address behind it, or that of the next one."""
        before = bisect_right(self._starts, address)
        if before:
            start = self._starts[before - 1]
            view = self._views[start]
            if address < start + len(view):
                return start, start + len(view), view
        return address, self._starts[before] if before < len(self._starts) else 2 * SPACE, None


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
