"""The memory of a device through its registers (``rtl.rdma.memory_window``)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets

__all__ = ["MemoryWindow"]

_WORD, _ALL = 4, 0xF  # octets of a word of memory, and the mask of all of them


class MemoryWindow(ABC):
    """Access to memory (:class:`.MemoryAccess`) by the registers ``MEMORY_…`` of a device."""

    @abstractmethod
    def push(self, register: str, *words: int) -> None:
        """See Device."""

    @abstractmethod
    def _read(self, register: str) -> Awaitable[int]:
        """Begin to read a register, in order with all other accesses; raises DeviceError."""

    def write_memory(self, address: int, octets: Octets) -> None:
        """Write octets to the memory of the RDMA engine, in order with all accesses to registers; does not wait."""
        start, end = address & -_WORD, address + len(octets)
        whole = bytes(address - start) + bytes(octets) + bytes(-end % _WORD)
        self.push("MEMORY_ADDRESS", start)
        mask = _ALL
        for at in range(start, end, _WORD):
            wanted = _ALL & (1 << min(end - at, _WORD)) - 1 & -1 << max(address - at, 0)
            if wanted != mask:
                mask = wanted
                self.push("MEMORY_MASK", mask)
            self.push("MEMORY_WRITE", int.from_bytes(whole[at - start : at - start + _WORD], "little"))
        if mask != _ALL:
            self.push("MEMORY_MASK", _ALL)

    async def read_memory(self, address: int, octets: int) -> bytes:
        """Read octets from the memory of the RDMA engine."""
        start, end = address & -_WORD, address + octets
        self.push("MEMORY_ADDRESS", start)
        values = [self._read("MEMORY_READ") for _ in range(start, end, _WORD)]
        words = [word.to_bytes(_WORD, "little") for word in await asyncio.gather(*values)]
        return b"".join(words)[address - start :][:octets]
