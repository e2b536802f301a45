"""The sockets of librdmacm (rsockets), as they are over iWARP: streams of octets on RDMA Writes and Sends.

Each end has a buffer, into which the peer writes, and a table, in which the peer shows where its buffer has room. Their
places are in the private data of the startup frames. Octets go as RDMA Writes into the buffer of the receiver, each
followed by a message, a Send of 4 octets::

    sender                                              receiver
    RDMA Write of octets into the receiver's buffer  ─▸
    message: DATA, number of octets                  ─▸
                                                     ◂─  RDMA Write of an entry into the sender's table
                                                     ◂─  message: CREDIT, number up to which DATA may be sent

A message has an operation in its upper 3 bits and a value in the others. An entry is half of a buffer, which has been
read and may be written again. Tables and messages are in the byte order of the end whose table is written or that
reads the message; the private data has that order, and is itself in network order. This end is little-endian.

``Rsocket.map`` and ``Rsocket.write_at`` are riomap and riowrite: an end maps memory at offsets, and its peer writes
there directly, without a message.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from open_rnic.host_driver.connection import Address
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.observer import Observer, silent
from open_rnic.host_driver.rdma.connection import By, ClosedError, Connection, OpenDevice, Options, RdmaError
from open_rnic.host_driver.rdma.manager import ConnectionRequest, software
from open_rnic.host_driver.rdma.manager import connect as connect_rdma
from open_rnic.host_driver.rdma.memory import (
    PLACE_OCTETS,
    Access,
    Place,
    ProtectionDomain,
    Region,
    StagTable,
    octets_of,
)
from open_rnic.host_driver.rdma.work import CompletionQueue, Received, ReceiveRequest, WorkRequest
from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.tcp.attached import AttachedTcp
from open_rnic.host_driver.transport import Tcp
from open_rnic.rtl.registers import Role

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "MAX_BUFFER", "MAX_CREDITS", "MAX_MAPS", "MAX_WRITE", "Rsocket", "RsocketError", "Settings", "accept", "connect",
]  # fmt: skip

MAX_BUFFER = 1 << 30  # octets
MAX_CREDITS = 0x7FFF  # numbers of messages have 16 bits, and are compared modulo 2^16
MAX_MAPS = 128
MAX_WRITE = 1 << 16  # octets of one RDMA Write

_VERSION = 1
_PRIVATE = struct.Struct(f">BBH3xBQII{PLACE_OCTETS}s")
_MESSAGE_OCTETS = 4
_VALUE_BITS = 29
_TARGETS = 2  # entries in a table for the halves of a buffer
_OFFSET = "Q"  # of a map, before its place
_OFFSET_OCTETS = struct.calcsize("<" + _OFFSET)
_MAP_OCTETS = _OFFSET_OCTETS + PLACE_OCTETS
_OURS = "<"
_KEPT = 4  # buffers of the peer for messages other than DATA
_OWN_WORK = 8  # places in the send queue for this end's own messages


class RsocketError(ConnectionError):
    """The peer violated the protocol of rsockets, or does not speak it."""


class _Flag(IntFlag):
    NETWORK_ORDER = 1
    MAPS = 2


class _Operation(IntEnum):
    DATA = 0
    CREDIT = 4
    MAP = 6
    CONTROL = 7


class _Control(IntEnum):
    DISCONNECT = 0
    KEEPALIVE = 1
    SHUTDOWN = 2


@dataclass(frozen=True)
class Settings:
    """The settings of an rsocket; the defaults are those of librdmacm.

    ``credits`` is the number of messages that the peer may send before this end has read the octets of the first.
    """

    buffer: int = 1 << 17  # octets; an even number
    credits: int = 384
    depth: int = 64  # RDMA Writes and Sends that are posted at a time
    maps: int = 0  # that the peer may make

    def __post_init__(self) -> None:
        for name, least, most in (
            ("buffer", 2, MAX_BUFFER),
            ("credits", 16, MAX_CREDITS),
            ("depth", 2, MAX_CREDITS),
            ("maps", 0, MAX_MAPS),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be {least} to {most}, not {getattr(self, name)}")
        if self.buffer % 2:
            raise ValueError(f"buffer must be even, not {self.buffer}")

    def within(self, tcp: Tcp) -> Settings:
        """Return these settings, with which less memory is used if the devices of ``tcp`` have little of their own."""
        memory = tcp.paths[0].memory if isinstance(tcp, AttachedTcp) else None
        if memory is None or memory.space >= 1 << 20:
            return self
        return replace(self, buffer=min(self.buffer, memory.space // 8), credits=min(self.credits, 16))


class _Offer(NamedTuple):
    """The private data of an end. Its table has ``entries`` places, which the maps follow."""

    order: str
    credits: int
    maps: int
    entries: int
    table: Place
    half: Place

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        """Raises RsocketError."""
        if len(octets) < _PRIVATE.size or octets[0] != _VERSION:
            raise RsocketError(f"private data of rsockets, version {_VERSION}, is missing: the peer has {octets!r}")
        _, flags, credit, scaled, to, stag, entries, half = _PRIVATE.unpack_from(octets)
        maps = scaled if scaled <= MAX_MAPS else (scaled & ~MAX_MAPS) << 8
        if not flags & _Flag.MAPS:
            maps = 0
        if credit <= _KEPT or not entries:
            raise RsocketError(f"the peer offers {credit} credits, and a table of {entries} entries")
        order = ">" if flags & _Flag.NETWORK_ORDER else "<"
        try:
            table = Place(to, stag, entries * PLACE_OCTETS + maps * _MAP_OCTETS)
            return cls(order, credit, maps, entries, table, Place.decode(half))
        except ValueError as error:
            raise RsocketError(f"the peer offers wrong memory: {error}") from None


class _End:
    """The memory of this end, which exists before the connection: its place is in the startup frame."""

    def __init__(self, settings: Settings, stags: StagTable | None = None) -> None:
        self.settings = settings
        self.domain = ProtectionDomain(stags)
        self.buffer = bytearray(settings.buffer)
        self.table = bytearray(_TARGETS * PLACE_OCTETS + settings.maps * _MAP_OCTETS)
        self.queue = CompletionQueue(settings.credits + settings.depth + _OWN_WORK)
        self.region = self.domain.register(self.buffer, Access.REMOTE_WRITE)
        self.table_region = self.domain.register(self.table, Access.REMOTE_WRITE)
        buffers = [bytearray(_MESSAGE_OCTETS) for _ in range(settings.credits)]
        self.receives = [ReceiveRequest(buffer, wr_id=buffer) for buffer in buffers]

    @property
    def half(self) -> int:
        return self.settings.buffer // 2

    @property
    def private_data(self) -> bytes:
        table, region, settings = self.table_region, self.region, self.settings
        return _PRIVATE.pack(
            _VERSION, _Flag.MAPS, settings.credits, settings.maps,
            table.to, table.stag, _TARGETS,
            Place(region.to, region.stag, self.half).encode(),
        )  # fmt: skip

    def options(self, options: Options) -> Options:
        depth = self.settings.depth + _OWN_WORK
        return replace(
            options, send_depth=depth, receive_depth=len(self.receives), send_cq=self.queue, receive_cq=self.queue
        )

    def release(self) -> None:
        for region in tuple(self.domain):
            region.deregister()


async def connect(
    host: str,
    port: int,
    config: Config | None = None,
    *,
    settings: Settings | None = None,
    device: OpenDevice = software,
    options: Options | None = None,
    observer: Observer = silent,
    local_addr: Address | None = None,
    tcp: Tcp = KERNEL,
) -> Rsocket:
    """Connect to an rsocket, as rconnect does. For the arguments see ``rdma.connect``.

    Raises RsocketError if the peer is not an rsocket, and what ``rdma.connect`` raises.
    """
    end = _End(settings or Settings())
    try:
        connection = await connect_rdma(
            host,
            port,
            replace(config or Config(Role.INITIATOR), private_data=end.private_data),
            device=device,
            options=end.options(options or Options()),
            domain=end.domain,
            observer=observer,
            local_addr=local_addr,
            tcp=tcp,
            receives=end.receives,
        )
        try:
            return Rsocket(connection, end, _Offer.decode(connection.negotiated.private_data))
        except BaseException:
            await connection.abort()
            raise
    except BaseException:
        end.release()
        raise


async def accept(
    request: ConnectionRequest, *, settings: Settings | None = None, options: Options | None = None
) -> Rsocket:
    """Accept the request of an rsocket, as raccept does.

    Raises RsocketError if the peer is not an rsocket, after a rejection, and what ``ConnectionRequest.accept`` raises.
    """
    try:
        offer = _Offer.decode(request.private_data)
    except RsocketError:
        await request.reject()
        raise
    end = _End(settings or Settings(), request.stags)
    try:
        connection = await request.accept(
            end.private_data, options=end.options(options or request.options), domain=end.domain, receives=end.receives
        )
    except BaseException:
        end.release()
        raise
    return Rsocket(connection, end, offer)


class Rsocket:
    """A connected rsocket, made by ``connect`` or ``accept``: an asynchronous context manager, which closes it.

    ``send`` and ``recv`` may be called at the same time; two calls of the same wait for each other. When a call fails,
    it raises an RdmaError or an RsocketError, and so do all later ones.
    """

    def __init__(self, connection: Connection, end: _End, peer: _Offer) -> None:
        self.connection = connection
        self._end = end
        self._peer = peer
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._sending, self._receiving = asyncio.Lock(), asyncio.Lock()
        self._posted = self._completed = 0  # RDMA Writes and Sends
        # To the peer
        self._sent, self._limit = 0, peer.credits  # numbers of DATA messages, modulo 2^16
        self._target = 0  # the entry of the table that is used up first
        self._writable = True
        self._ended = False  # by this end
        self._set_target(0, peer.half)
        # From the peer
        self._arrived: deque[int] = deque()  # octets of each DATA message
        self._readable = True
        self._place = 0  # in the buffer, of the next octet to be read
        self._open = end.half  # octets that the peer may still write
        self._free = end.half  # octets that have been read, and not been freed for the peer
        self._freed = end.half  # their place
        self._read = 0  # number of messages whose octets have been read, modulo 2^16
        self._credited = 0  # ``_read`` in the latest CREDIT
        self._entry = 1 % peer.entries  # the next entry of the peer's table to be written
        self._maps: dict[int, Region] = {}  # by their index in the peer's table
        self._pump = asyncio.create_task(self._follow())
        self._give_credit()

    # The stream

    async def send(self, octets: Buffer) -> None:
        """Send all octets; returns when they have been handed over. Raises ClosedError after the peer has closed."""
        view = octets_of(octets)
        async with self._sending:
            while view:
                await self._until(self._may_send)
                self._check_writable()
                target = self._targets(self._target)
                piece = view[: min(len(view), target.octets, MAX_WRITE, self.connection.longest)]
                view = view[len(piece) :]
                # before the RDMA Write, as the peer may replace the entry as soon as this end has used it up
                rest = target.octets - len(piece)
                self._set_target(self._target, Place(target.to + len(piece), target.stag, rest))
                if not rest:
                    self._target = (self._target + 1) % _TARGETS
                self._sent = (self._sent + 1) & 0xFFFF
                self._post(
                    WorkRequest.write(piece, target.stag, target.to),
                    self._message(_Operation.DATA, len(piece)),
                )
            await self._handed_over()

    async def recv(self, most: int = 1 << 16) -> bytes:
        """Return at least one octet, and at most this many; none if the peer has closed."""
        if most < 1:
            raise ValueError(f"at least 1 octet is received, not {most}")
        async with self._receiving:
            await self._until(lambda: bool(self._arrived) or (not self._readable and not self._error))
            parts = []
            while most and self._arrived:
                parts.append(self._take(most))
                most -= len(parts[-1])
            self._give_credit()
            return b"".join(parts)

    async def recv_exactly(self, octets: int) -> bytes:
        """Return this many octets; raises ClosedError if the peer closes before."""
        parts = []
        while octets:
            if not (part := await self.recv(octets)):
                raise ClosedError(By.PEER)
            parts.append(part)
            octets -= len(part)
        return b"".join(parts)

    async def shutdown(self) -> None:
        """Close this end's half: the peer then receives nothing more. Idempotent."""
        async with self._sending:
            await self._announce_end(_Control.SHUTDOWN if self._readable else _Control.DISCONNECT)

    async def close(self) -> None:
        """Announce the end, close the connection, and release everything. Idempotent, and never raises."""
        try:
            async with asyncio.timeout(self.connection.options.linger), self._sending:
                await self._announce_end(_Control.DISCONNECT)
        except TimeoutError:  # the peer takes nothing
            await self.connection.abort()
        except (RdmaError, RsocketError):
            pass
        self._readable = False
        self._changed.set()
        await self.connection.close()
        await asyncio.wait((self._pump,))
        self._end.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    # Mapped memory

    async def map(self, buffer: Buffer, offset: int) -> int:
        """Let the peer write to a buffer at this and the following offsets (riomap); returns the number of the map.

        Raises ValueError if the peer has no room for another one.
        """
        free = [index for index in range(self._peer.maps) if index not in self._maps]
        if not free:
            raise ValueError(f"the peer has room for {self._peer.maps} maps, and they are in use")
        index, order, table = free[0], self._peer.order, self._peer.table
        region = self._maps[index] = self._end.domain.register(buffer, Access.REMOTE_WRITE)
        async with self._sending:
            await self._until(self._has_room)
            self._check_writable()
            to = table.to + self._peer.entries * PLACE_OCTETS + index * _MAP_OCTETS
            entry = struct.pack(order + _OFFSET, offset) + Place.of(region).encode(order)
            self._post(WorkRequest.write(entry, table.stag, to), self._message(_Operation.MAP, index))
        return index

    def unmap(self, number: int) -> None:
        """Withdraw a map (riounmap). The peer gets no message: what it writes there from now on ends the connection."""
        self._maps.pop(number).deregister()

    async def write_at(self, octets: Buffer, offset: int) -> None:
        """Write to the peer's mapped memory (riowrite); returns when the octets have been handed over.

        The peer gets no message. Raises ValueError for an offset that the peer has not mapped.
        """
        view = octets_of(octets)
        async with self._sending:
            while view:
                start, target = self._mapped(offset)
                piece = view[: min(len(view), start + target.octets - offset, MAX_WRITE, self.connection.longest)]
                view = view[len(piece) :]
                await self._until(self._has_room)
                self._check_writable()
                self._post(WorkRequest.write(piece, target.stag, target.to + offset - start))
                offset += len(piece)
            await self._handed_over()

    def _mapped(self, offset: int) -> tuple[int, Place]:
        for index in range(self._end.settings.maps):
            at = _TARGETS * PLACE_OCTETS + index * _MAP_OCTETS
            [start] = struct.unpack_from(_OURS + _OFFSET, self._end.table, at)
            target = self._written_place(at + _OFFSET_OCTETS)
            if start <= offset < start + target.octets:
                return start, target
        raise ValueError(f"the peer has not mapped offset {offset}")

    # Sending

    def _targets(self, index: int) -> Place:
        return self._written_place(index * PLACE_OCTETS)

    def _set_target(self, index: int, target: Place) -> None:
        self._end.table[index * PLACE_OCTETS : (index + 1) * PLACE_OCTETS] = target.encode(_OURS)

    def _written_place(self, at: int) -> Place:
        """Return the place that the peer has written into the table; raises RsocketError, which ends the connection."""
        try:
            return Place.decode(self._end.table[at : at + PLACE_OCTETS], _OURS)
        except ValueError as error:
            wrong = RsocketError(f"the peer offers wrong memory: {error}")
            self._violated(wrong)
            raise wrong from None

    def _may_send(self) -> bool:
        """Whether DATA may be sent: the peer has room for its octets and for its message."""
        kept = min(_KEPT, self._peer.credits // 4)
        credit = (self._limit - self._sent) & 0xFFFF
        room = credit > kept and self._targets(self._target).octets > 0
        return (room and self._has_room()) or not self._writable

    def _has_room(self, kept: int = _OWN_WORK) -> bool:
        """Whether the send queue has room for two requests, besides the ones kept for other purposes."""
        return self._posted - self._completed + 2 <= self._end.settings.depth + _OWN_WORK - kept

    def _check_writable(self) -> None:
        if self._error:
            raise self._error
        if not self._writable:
            raise ClosedError(By.LOCAL if self._ended else By.PEER)

    def _message(self, operation: _Operation, value: int) -> WorkRequest:
        return WorkRequest.send(struct.pack(self._peer.order + "I", operation << _VALUE_BITS | value))

    def _post(self, *requests: WorkRequest) -> None:
        self.connection.post(*requests)
        self._posted += len(requests)

    async def _handed_over(self) -> None:
        """Wait until the buffers of all that was posted belong to the caller again."""
        due = self._posted
        await self._until(lambda: self._completed >= due)

    async def _announce_end(self, control: _Control) -> None:
        if self._writable and not self._error:
            self._writable, self._ended = False, True
            self._post(self._message(_Operation.CONTROL, control))
            await self._handed_over()

    # Receiving

    def _take(self, most: int) -> bytes:
        """Take octets of the first message from the buffer."""
        octets = min(most, self._arrived[0])
        first = self._end.buffer[self._place : self._place + octets]
        taken = bytes(first + self._end.buffer[: octets - len(first)])
        self._place = (self._place + octets) % len(self._end.buffer)
        self._free += octets
        self._arrived[0] -= octets
        if not self._arrived[0]:
            self._arrived.popleft()
            self._read = (self._read + 1) & 0xFFFF
        return taken

    def _give_credit(self) -> None:
        """Send a CREDIT when half of the buffer, or half of the messages, have been read."""
        half, settings = self._end.half, self._end.settings
        if self._error or self.connection.over or not (self._readable or self._writable):
            return
        while self._free >= half or (self._read - self._credited) & 0xFFFF >= settings.credits // 2:
            if not self._has_room(kept=0):
                return  # ``_follow`` tries again
            self._credited = self._read
            credit = self._message(_Operation.CREDIT, (self._read + settings.credits) & 0xFFFF)
            try:
                if self._free < half:
                    self._post(credit)
                    return
                region, table = self._end.region, self._peer.table
                entry = Place(region.to + self._freed, region.stag, half).encode(self._peer.order)
                self._post(WorkRequest.write(entry, table.stag, table.to + self._entry * PLACE_OCTETS), credit)
            except RdmaError as error:
                self._fail(error)
                return
            self._free -= half
            self._open += half
            self._freed = (self._freed + half) % settings.buffer
            self._entry = (self._entry + 1) % self._peer.entries

    async def _follow(self) -> None:
        """Take completions, until the last one has come."""
        flushed = 0
        while flushed < len(self._end.receives):
            for each in await self._end.queue.wait():
                if isinstance(each, Received):
                    flushed += self._received(each)
                else:
                    self._completed += 1
                    if each.error:
                        self._fail(each.error)
            self._give_credit()
            self._changed.set()

    def _received(self, received: Received) -> bool:
        """Act on a message; returns whether its buffer is not posted again."""
        if received.error:
            self._fail(received.error)
            return True
        try:
            self._act(bytes(received))
            self.connection.post_receives(ReceiveRequest(received.wr_id, wr_id=received.wr_id))
        except RsocketError as error:
            self._violated(error)
            return True
        except RdmaError:
            return True
        return False

    def _act(self, message: bytes) -> None:
        if len(message) != _MESSAGE_OCTETS:
            raise RsocketError(f"the peer sent a message of {len(message)} octets, not {_MESSAGE_OCTETS}")
        [word] = struct.unpack(self._peer.order + "I", message)
        operation, value = word >> _VALUE_BITS, word & (1 << _VALUE_BITS) - 1
        match operation:
            case _Operation.DATA:
                if not 0 < value <= self._open:
                    raise RsocketError(f"the peer wrote {value} octets where {self._open} had room")
                self._open -= value
                self._arrived.append(value)
            case _Operation.CREDIT:
                limit = value & 0xFFFF
                if (limit - self._sent) & 0xFFFF > self._peer.credits:
                    raise RsocketError(f"the peer gives credit up to {limit}, and this end has sent {self._sent}")
                self._limit = limit
            case _Operation.MAP:
                self._read = (self._read + 1) & 0xFFFF  # the peer counts it as DATA
            case _Operation.CONTROL if value == _Control.DISCONNECT:
                self._readable = self._writable = False
            case _Operation.CONTROL if value == _Control.SHUTDOWN:
                self._readable = False
            case _Operation.CONTROL if value == _Control.KEEPALIVE:
                pass
            case _:
                raise RsocketError(f"the peer sent the unknown message {word:#010x}")

    # Both

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds; raises the error of the connection."""
        while not holds():
            if self._error:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def _violated(self, error: RsocketError) -> None:
        self._fail(error)
        self._aborting = asyncio.create_task(self.connection.abort())

    def _fail(self, error: Exception) -> None:
        if self._readable or self._writable:  # otherwise the stream has ended in order
            self._error = error
        self._readable = self._writable = False
        self._changed.set()
