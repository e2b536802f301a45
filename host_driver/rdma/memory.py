"""Registered memory: which octets of which buffer a peer may reach by which STag.

An STag is valid on the streams of one protection domain, or on one stream alone (RFC 5041 §8.2). All
domains of this process share one table of STags, as those of an RNIC do: so that an STag of another
stream or domain is told from one that does not exist.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from enum import IntFlag
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_STAG = 2**32 - 1
TO_END = 2**64  # a TO and a length together stay below it (RFC 5041 §7.1)


class Access(IntFlag):
    """What a region may be used for; values as in verbs."""

    LOCAL_WRITE = 1  # as the sink of this end's own RDMA Reads
    REMOTE_WRITE = 2  # by the peer's RDMA Writes
    REMOTE_READ = 4  # by the peer's RDMA Reads


class Region:
    """A registered buffer, made by ``ProtectionDomain.register``; as a context manager it is deregistered at the end.

    ``to`` is the TO of its first octet. ``stream`` is the one stream that it is for, None: all of the domain.
    """

    __slots__ = ("access", "domain", "octets", "stag", "stream", "to", "view")

    def __init__(
        self, domain: ProtectionDomain, stag: int, view: memoryview, access: Access, to: int, stream: object
    ) -> None:
        self.domain = domain
        self.stag = stag
        self.view = view
        self.octets = len(view)
        self.access = access
        self.to = to
        self.stream = stream

    @property
    def valid(self) -> bool:
        """Until it is deregistered, at this end or by a peer's Send with Invalidate."""
        return _TABLE.get(self.stag) is self

    def deregister(self) -> None:
        """Revoke the STag: from here on nothing of the peer's reaches the buffer (RFC 5040 §8.1.1). Idempotent."""
        if self.valid:
            del _TABLE[self.stag]
            self.domain._forget(self)
            self.view.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.deregister()

    def __len__(self) -> int:
        return self.octets

    def __repr__(self) -> str:
        rights = self.access.name or "no access"
        return f"<Region of {self.octets} octets, STag {self.stag:#010x}, TO {self.to:#x}, {rights}>"


class ProtectionDomain:
    """Regions, and the streams that may use them. Iterates over its valid regions."""

    def __init__(self) -> None:
        self._regions: dict[object, set[Region]] = {}  # by the stream that they are for

    def register(self, buffer: Buffer, access: Access, *, to: int = 0, stream: object = None) -> Region:
        """Make a buffer known under a fresh STag that cannot be guessed; its octets have TOs from ``to`` on.

        The buffer is used in place and cannot change its size while it is registered. Raises ValueError for one that
        cannot be used so, and for a range of TOs that does not stay below 2^64.
        """
        view = octets_of(buffer)
        if access & (Access.LOCAL_WRITE | Access.REMOTE_WRITE) and view.readonly:
            raise ValueError("a read-only buffer cannot have a right to write")
        if to < 0 or to + len(view) >= TO_END:
            raise ValueError(f"a buffer of {len(view)} octets from TO {to:#x} on does not stay below TO 2^64")
        while True:
            stag = secrets.randbelow(MAX_STAG) + 1  # some hardware treats STag 0 as special
            if stag not in _TABLE:
                break
        region = _TABLE[stag] = Region(self, stag, view, access, to, stream)
        self._regions.setdefault(stream, set()).add(region)
        return region

    def release(self, stream: object) -> None:
        """Deregister all that is for this stream alone."""
        for region in tuple(self._regions.get(stream, ())):
            region.deregister()

    def _forget(self, region: Region) -> None:
        regions = self._regions[region.stream]
        regions.discard(region)
        if not regions:
            del self._regions[region.stream]

    def __iter__(self) -> Iterator[Region]:
        return chain.from_iterable([tuple(each) for each in self._regions.values()])

    def __len__(self) -> int:
        return sum(map(len, self._regions.values()))


def octets_of(buffer: Buffer) -> memoryview:
    """The buffer's octets, in place; raises ValueError when they do not lie in one piece."""
    view = memoryview(buffer)
    if not view.contiguous:
        raise ValueError("a buffer must lie in one piece")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def find(stag: int) -> Region | None:
    """The region that this STag stands for now, in whatever domain."""
    return _TABLE.get(stag)


_TABLE: dict[int, Region] = {}
