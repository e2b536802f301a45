"""Memory: buffers, scatter/gather lists, and the octets that a peer may access by an STag.

An STag is valid on the streams of one protection domain, or on one stream alone (RFC 5041 §8.2). Domains that share a
``StagTable``, as those of one RNIC do, distinguish an STag of another stream or domain from one that does not exist.
"""

from __future__ import annotations

import secrets
import struct
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import astuple, dataclass
from enum import IntFlag
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from open_rnic.host_driver.ddp import TO_END
from open_rnic.host_driver.rdma.engine import CopiedMemory, Placed

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from open_rnic.host_driver.ddp import Octets
    from open_rnic.host_driver.device import Device

MAX_STAG = 2**32 - 1
_ROWS = tuple(1 << n for n in range(4, 11))  # rows of devices' tables of regions; an STag's row is its remainder


class Access(IntFlag):
    """The access rights of a region; values as in verbs."""

    LOCAL_WRITE = 1  # as the sink of this end's own RDMA Reads, and for the Sends that it receives
    REMOTE_WRITE = 2  # by the peer's RDMA Writes
    REMOTE_READ = 4  # by the peer's RDMA Reads


class Scattered:
    """Several buffers as one, in the order of a scatter/gather list; the counterpart of a memoryview."""

    __slots__ = ("_octets", "_parts", "readonly")

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self._parts = parts
        self._octets = sum(map(len, parts))
        self.readonly = any(part.readonly for part in parts)

    def __len__(self) -> int:
        return self._octets

    def __getitem__(self, octets: slice) -> memoryview:
        """Return these octets: in place if they lie in one buffer, otherwise as a copy."""
        views = self.views(octets)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def __setitem__(self, octets: slice, payload: Octets) -> None:
        at, source = 0, memoryview(payload)
        for view in self.views(octets):
            view[:] = source[at : at + len(view)]
            at += len(view)

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def views(self, octets: slice) -> list[memoryview]:
        """Return these octets in place, as a view of each buffer."""
        start, end, _ = octets.indices(self._octets)
        views = []
        for part in self._parts:
            if view := part[max(start, 0) : max(end, 0)]:
                views.append(view)
            start, end = start - len(part), end - len(part)
        return views

    def release(self) -> None:
        """Release the buffers."""
        for part in self._parts:
            part.release()


class DeviceBuffer(Scattered, Placed):
    """Memory of a device whose RDMA engine has memory of its own, for connections of that device.

    It is registered and posted as any other buffer, alone and not in a list, and never copied. Raises ValueError if the
    device has no memory of its own, or not so many octets that are free. What they hold at first is not defined.
    """

    __slots__ = ("address", "memory")

    def __init__(self, device: Device, octets: int) -> None:
        super().__init__(())
        memory = device.memory
        if not isinstance(memory, CopiedMemory):
            raise ValueError(f"the {device.name} device has no memory of its own")
        self.memory = memory
        self._octets = octets
        self.address = self.memory.allocate(self)

    def part(self, octets: slice) -> DeviceBuffer:
        """Return a part of the octets, as another buffer that must not be freed."""
        start, end, _ = octets.indices(self._octets)
        part = DeviceBuffer.__new__(DeviceBuffer)
        part._parts, part.readonly, part.memory = (), False, self.memory
        part._octets, part.address = max(end - start, 0), self.address + start
        return part

    def write(self, octets: Octets) -> None:
        """Write octets, from the first one on, before all that is posted later; raises ValueError for too many."""
        if len(octets) > self._octets:
            raise ValueError(f"{len(octets)} octets do not fit into {self._octets} octets of the device's memory")
        self.memory.write(self.address, octets)

    async def read(self) -> bytes:
        """Read all octets."""
        return await self.memory.fetch(self.address, self._octets)

    def free(self) -> None:
        """Give the memory back, which nothing uses any more."""
        self.memory.free(self.address)

    def __getitem__(self, octets: slice) -> memoryview:
        """Raise TypeError: the octets are not in the program's memory."""
        raise TypeError("octets of a device's memory are read and written by its methods read and write")

    def __setitem__(self, octets: slice, payload: Octets) -> None:
        """Raise TypeError."""
        self[octets]

    def __bytes__(self) -> bytes:
        return bytes(self[:])


class Growing:
    """A buffer for a Send of limited length, which allocates memory only for the octets that arrive."""

    __slots__ = ("_octets", "_room")
    readonly = False

    def __init__(self, room: int) -> None:
        self._room = room
        self._octets = bytearray()

    def __len__(self) -> int:
        return self._room

    def __getitem__(self, octets: slice) -> memoryview:
        return memoryview(self._octets)[octets]

    def __setitem__(self, octets: slice, payload: Octets) -> None:
        self._octets[octets] = payload

    def limit(self, room: int) -> None:
        """Reduce the limit to ``room``."""
        self._room = min(self._room, room)

    def release(self) -> None:
        """Do nothing: no buffer of others is held."""


View = memoryview | Scattered | Growing
_PLACE = "QII"
PLACE_OCTETS = struct.calcsize(">" + _PLACE)
_NO_RIGHT = Access(0)
_ALL_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
_ALONE = "memory of a device is posted alone, not in a list"
_TRIES = 64  # random STags for each row, before none is thought to be free


class Piece(NamedTuple):
    """An entry of a scatter/gather list: octets of registered memory, made by slicing a ``Region``.

    In verbs' terms: lkey, addr and length.
    """

    stag: int
    to: int
    octets: int


@dataclass(frozen=True, slots=True)
class Place:
    """Registered memory of the other end, as messages carry it: TO (64), STag (32) and length (32).

    Its octets have TOs that do not wrap (RFC 5041 §7.1): if they would, there is no such place, but a ValueError.
    """

    to: int
    stag: int
    octets: int

    def __post_init__(self) -> None:
        if self.to < 0 or self.to + self.octets >= TO_END:
            raise ValueError(f"{self.octets} octets from TO {self.to:#x} on wrap")

    @classmethod
    def of(cls, region: Region) -> Self:
        """Return the place of memory of this end, for the other end."""
        return cls(region.to, region.stag, region.octets)

    @classmethod
    def decode(cls, octets: Octets, order: str = ">") -> Self:
        """Return the place in these octets, in network order by default; raises ValueError if there is none."""
        if len(octets) != PLACE_OCTETS:
            raise ValueError(f"a place has {PLACE_OCTETS} octets, not {len(octets)}")
        return cls(*struct.unpack(order + _PLACE, octets))

    def encode(self, order: str = ">") -> bytes:
        """Return the octets of a message."""
        return struct.pack(order + _PLACE, *astuple(self))


class Region:
    """Registered memory, made by ``ProtectionDomain.register``; as a context manager, it deregisters itself.

    What is posted later finds the region in the device. A peer that learns the STag in another way than by a later Send
    may be faster: ``await region`` waits until the devices of all streams that may use the region know it. It raises
    ValueError if the STag is not valid then: the region has been deregistered, or its stream has ended.

    ``to`` is the TO of the first octet. ``stream`` is the only stream that may use the region, or None for all streams
    of the domain. A slice of a region is a ``Piece``.
    """

    __slots__ = ("access", "domain", "octets", "stag", "stream", "to", "view")

    def __init__(
        self, domain: ProtectionDomain, stag: int, view: memoryview | Scattered, access: Access, to: int, stream: object
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
        """Whether the region has not been deregistered, by this end or by a peer's Send with Invalidate."""
        return self.domain.stags.find(self.stag) is self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._known().__await__()

    async def _known(self) -> Self:
        for table in self.domain._tables_for(self.stream):
            await table.known()
        if not self.valid:
            raise ValueError(f"STag {self.stag:#x} is not valid: it was revoked, or its connection has ended")
        return self

    def deregister(self) -> None:
        """Revoke the STag: from now on, the peer cannot access the buffer (RFC 5040 §8.1.1). Idempotent."""
        if self.valid:
            self.domain._forget(self)
            self.view.release()

    def __getitem__(self, octets: slice) -> Piece:
        start, end, step = octets.indices(self.octets)
        if step != 1:
            raise ValueError("a piece of a region has all octets from its first to its last")
        return Piece(self.stag, self.to + start, max(end - start, 0))

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


if TYPE_CHECKING:
    Local = Buffer | Piece | Region | Growing | DeviceBuffer
    Gather = Local | Sequence[Local]  # a scatter/gather list, or its only entry


class RegionTable(Protocol):
    """The regions that one stream may use, in a device: a table in which each STag has its row."""

    def room(self) -> int:
        """Return the number of regions that can be added."""

    def fits(self, stag: int) -> bool:
        """Return whether the row of this STag is free."""

    def add(self, region: Region) -> None:
        """Let the peer access the region; raises ValueError if the device cannot."""

    def remove(self, region: Region) -> None:
        """Let nobody access the region from now on."""

    async def known(self) -> None:
        """Wait until the device knows all that has been added."""


class StagTable:
    """The STags of one RNIC, shared by all protection domains that are made with it.

    A device chooses the row of its table by the low bits of an STag. A new STag therefore differs from all others in as
    few of them as possible: 16 regions fit into a device with 16 rows, though they are older than the connection to it.
    """

    def __init__(self) -> None:
        self._regions: dict[int, Region] = {}
        self._used: dict[int, Counter[int]] = {rows: Counter() for rows in _ROWS}  # the rows of all STags

    def find(self, stag: int) -> Region | None:
        """Return the region of this STag in any domain, or None."""
        return self._regions.get(stag)

    def __len__(self) -> int:
        return len(self._regions)

    def _fresh(self, tables: Sequence[RegionTable]) -> int:
        """Return a new STag for which all of these tables have a row."""
        for stag in self._random():
            # Some hardware treats STag 0 as special.
            if stag and stag not in self._regions and all(table.fits(stag) for table in tables):
                return stag
        raise ValueError("no row is free in the STag tables of all devices that need the region")

    def _random(self) -> Iterator[int]:
        """Yield random STags, at first those of rows that no other STag has."""
        for rows, used in self._used.items():
            free = [row for row in range(rows) if row not in used]
            for _ in free:
                yield secrets.randbelow((MAX_STAG + 1) // rows) * rows + secrets.choice(free)
        for _ in range(_TRIES * _ROWS[-1]):
            yield secrets.randbelow(MAX_STAG + 1)

    def _add(self, region: Region) -> None:
        self._regions[region.stag] = region
        for rows, used in self._used.items():
            used[region.stag % rows] += 1

    def _remove(self, region: Region) -> None:
        del self._regions[region.stag]
        for rows, used in self._used.items():
            used[region.stag % rows] -= 1
            if not used[region.stag % rows]:
                del used[region.stag % rows]


class ProtectionDomain:
    """Regions that the same streams may use. Iteration yields the valid regions.

    ``stags`` is the table of its STags; by default the domain has a table of its own.
    """

    def __init__(self, stags: StagTable | None = None) -> None:
        self.stags = StagTable() if stags is None else stags
        self._regions: dict[object, set[Region]] = {}  # by the stream that they are for
        self._tables: dict[object, RegionTable] = {}  # of the streams whose DDP is in a device

    def attach(self, stream: object, table: RegionTable) -> None:
        """Keep the regions that ``stream`` may use in ``table``, too, until ``detach``.

        Raises ValueError if those that exist already do not fit.
        """
        for region in self:
            if region.stream in (None, stream):
                if not table.room() or not table.fits(region.stag):
                    raise ValueError(f"the device's STag table has no row for STag {region.stag:#x}")
                table.add(region)
        self._tables[stream] = table

    def detach(self, stream: object) -> None:
        """Forget the table of ``stream``."""
        self._tables.pop(stream, None)

    def _tables_for(self, stream: object) -> list[RegionTable]:
        if stream is None:
            return list(self._tables.values())
        return [self._tables[stream]] if stream in self._tables else []

    def register(
        self,
        buffer: Buffer | Sequence[Buffer] | Scattered,
        access: Access,
        *,
        to: int = 0,
        stream: object = None,
    ) -> Region:
        """Register memory under a new STag that cannot be guessed; the TO of its first octet is ``to``.

        If there are several buffers, each begins at the TO at which the previous one ends. Buffers are used in place,
        and cannot change their size while they are registered. Raises ValueError for a buffer that cannot be used in
        place, for a range of TOs that does not stay below 2^64, and if a device that needs the region has no room.
        Memory of a device can only be registered for a ``stream`` whose DDP is in this device. ``access`` may be the
        number of the rights, as in verbs; what is no number of rights raises ValueError, or TypeError.
        """
        if not (isinstance(access, int) and 0 <= access <= _ALL_RIGHTS):  # Access would take -1 for all rights
            rights = ", ".join(f"{each.name} {each:d}" for each in Access)
            if isinstance(access, int):
                raise ValueError(f"access is a sum of {rights}, not {access:d}")
            raise TypeError(f"access is a sum of {rights}, not {access!r}")
        access = Access(access)
        tables = self._tables_for(stream)
        match buffer:
            case Scattered():
                if isinstance(buffer, DeviceBuffer) and (stream is None or not tables):
                    raise ValueError("memory of a device is registered for a connection with DDP in that device")
                view: memoryview | Scattered = buffer
            case list() | tuple():
                view = _joined([octets_of(each) for each in buffer])
            case _:
                view = octets_of(buffer)  # type: ignore[arg-type]  # no Sequence
        if access & (Access.LOCAL_WRITE | Access.REMOTE_WRITE) and view.readonly:
            raise ValueError("a read-only buffer cannot have a right to write")
        if to < 0 or to + len(view) >= TO_END:
            raise ValueError(f"a buffer of {len(view)} octets from TO {to:#x} on does not stay below TO 2^64")
        if not all(table.room() for table in tables):
            raise ValueError("the device's STag table is full")
        region = Region(self, self.stags._fresh(tables), view, access, to, stream)
        for table in tables:
            try:
                table.add(region)
            except BaseException:
                for each in tables:
                    each.remove(region)
                raise
        self.stags._add(region)
        self._regions.setdefault(stream, set()).add(region)
        return region

    def view(self, memory: Gather, stream: object = None, right: Access = _NO_RIGHT) -> View:
        """Return the octets of a scatter/gather list in place.

        Raises ValueError for a buffer that is not contiguous, for registered memory that ``stream`` may not use or that
        lacks ``right``, and for a piece that exceeds its region.
        """
        if isinstance(memory, Growing | DeviceBuffer):
            return memory
        if isinstance(memory, Region):
            memory = memory[:]
        if isinstance(memory, Piece):
            region, at = self.usable(memory, stream, right)
            if isinstance(region.view, DeviceBuffer):
                return region.view.part(slice(at, at + memory.octets))
        elif not isinstance(memory, list | tuple):
            return octets_of(memory)  # type: ignore[arg-type]  # no Sequence
        return _joined(list(self._views(memory, stream, right)))

    def _views(self, memory: Gather, stream: object, right: Access) -> Iterator[memoryview]:
        if isinstance(memory, Region):
            memory = memory[:]
        if isinstance(memory, Piece):
            region, at = self.usable(memory, stream, right)
            octets = slice(at, at + memory.octets)
            if isinstance(region.view, DeviceBuffer):
                raise ValueError(_ALONE)
            yield from region.view.views(octets) if isinstance(region.view, Scattered) else (region.view[octets],)
        elif isinstance(memory, DeviceBuffer):
            raise ValueError(_ALONE)
        elif isinstance(memory, list | tuple):
            for each in memory:
                yield from self._views(each, stream, right)
        else:
            yield octets_of(memory)  # type: ignore[arg-type]  # no Sequence, and alone if it is Growing

    def usable(self, piece: Piece, stream: object, right: Access) -> tuple[Region, int]:
        """Return the region of a piece, and the piece's offset in it; raises ValueError as ``view`` does."""
        region = self.stags.find(piece.stag)
        if region is None or not self.allows(region, stream):
            raise ValueError(f"STag {piece.stag:#x} is not valid on this stream")
        if right & ~region.access:
            raise ValueError(f"STag {piece.stag:#x} has no right {right.name}")
        at = piece.to - region.to
        if at < 0 or piece.octets < 0 or at + piece.octets > region.octets:
            raise ValueError(f"{piece.octets} octets at offset {at} do not lie in a region of {region.octets}")
        return region, at

    def allows(self, region: Region, stream: object) -> bool:
        """Whether the region belongs to this domain, and is for all of its streams or for this one."""
        return region.domain is self and region.stream in (None, stream)

    def release(self, stream: object) -> None:
        """Deregister all regions that only this stream may use."""
        for region in tuple(self._regions.get(stream, ())):
            region.deregister()

    def _forget(self, region: Region) -> None:
        for table in self._tables_for(region.stream):
            table.remove(region)
        self.stags._remove(region)
        regions = self._regions[region.stream]
        regions.discard(region)
        if not regions:
            del self._regions[region.stream]

    def __iter__(self) -> Iterator[Region]:
        return chain.from_iterable([tuple(each) for each in self._regions.values()])

    def __len__(self) -> int:
        return sum(map(len, self._regions.values()))


def octets_of(buffer: Buffer) -> memoryview:
    """Return the buffer's octets in place; raises ValueError if they are not contiguous."""
    view = memoryview(buffer)
    if not view.contiguous:
        raise ValueError("a buffer must lie in one piece")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _joined(views: Sequence[memoryview]) -> memoryview | Scattered:
    return views[0] if len(views) == 1 else Scattered(views)
