"""What connections need of TCP, and of the operating system's sockets in general."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from struct import pack
from typing import Any, Protocol, Self, TypeVar

from open_rnic.host_driver.errors import MpaConnectionError, how
from open_rnic.host_driver.mpa.negotiation import Reason

CHUNK_OCTETS = 65536  # at most this many octets are taken from a socket at once

Address = tuple[Any, ...]  # as in the socket module: host, port, and for IPv6 two more
_Result = TypeVar("_Result")


class Transport(Protocol):
    """A TCP connection: all that ``Connection`` needs of TCP, whether the kernel or hardware provides it.

    ``send`` and ``receive`` raise OSError if the connection is lost. One task at a time may be in each of them.
    """

    @property
    def local(self) -> Address:
        """The address of this end."""

    @property
    def peer(self) -> Address:
        """The peer's address."""

    @property
    def emss(self) -> int:
        """The effective maximum segment size now, in octets (RFC 5044 §4.5)."""

    async def send(self, octets: bytes) -> None:
        """Send all octets, if possible in one segment of their own; waits while there is no room."""

    async def receive(self) -> bytes:
        """Return the next octets; waits for them. Returns none at the end, if the peer has closed its half."""

    def shut(self) -> None:
        """Close this end's half, behind everything sent."""

    def close(self, *, reset: bool) -> None:
        """Release the connection, with a reset if asked for."""


class TcpSocket:
    """The kernel's TCP as a ``Transport``. ``heard`` are octets that were already taken from the socket.

    Raises OSError if the connection is lost already.
    """

    def __init__(self, sock: socket.socket, heard: bytes = b"") -> None:
        self.local: Address = sock.getsockname()
        self.peer: Address = sock.getpeername()
        self._socket = sock
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # RFC 5044 §5.1: FPDUs leave at once

    @property
    def emss(self) -> int:
        """See Transport."""
        return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)

    async def send(self, octets: bytes) -> None:
        """See Transport."""
        await self._loop.sock_sendall(self._socket, octets)

    async def receive(self) -> bytes:
        """See Transport."""
        heard, self._heard = self._heard, b""
        return heard or await self._loop.sock_recv(self._socket, CHUNK_OCTETS)

    def shut(self) -> None:
        """See Transport."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool) -> None:
        """See Transport."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self._socket.close()


class ListeningSocket:
    """A socket at which connections arrive; an asynchronous context manager."""

    def __init__(self, sock: socket.socket) -> None:
        self.address: Address = sock.getsockname()
        self._socket = sock

    async def close(self) -> None:
        """Listen no more. Idempotent; accepted connections stay."""
        self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect(host: str, port: int, timeout: float, local_addr: Address | None) -> socket.socket:
    """Connect by TCP; raises MpaConnectionError, and takes at most ``timeout`` seconds for each address of the host."""
    loop = asyncio.get_running_loop()
    reason = "no address"
    ours = {family: address for family, _, _, _, address in await resolve(*local_addr[:2])} if local_addr else None
    origin = f" from {place(local_addr)}" if local_addr else ""
    for family, kind, protocol, _, address in await resolve(host, port):
        if ours is not None and family not in ours:
            reason = f"cannot connect to {place(address)}{origin}: one address is IPv4, the other IPv6"
            continue
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            if ours:
                sock.bind(ours[family])
            async with asyncio.timeout(timeout):
                await loop.sock_connect(sock, address)
        except OSError as error:  # TimeoutError is one
            sock.close()
            reason = f"cannot connect to {place(address)}{origin}: {how(error) or no_answer(timeout)}"
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise MpaConnectionError(reason, Reason.CONNECTION_LOST)


async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    """The addresses of a host, as getaddrinfo returns them; raises MpaConnectionError."""
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise MpaConnectionError(f"a port is 0 to 65535, not {port}", Reason.LOCAL)
    try:
        with contextlib.suppress(socket.gaierror):  # a numeric address needs no thread to wait in
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError for a string that can be no name at all
        reason = how(error) if isinstance(error, OSError) else "that is no host name"
        raise MpaConnectionError(f"cannot find {host!r} port {port}: {reason}", Reason.LOCAL) from error
    return list(found)


async def when_ready(sock: socket.socket, action: Callable[[], _Result], *, writing: bool = False) -> _Result:
    """Carry out the action as soon as the socket does not block it, for calls that asyncio has no method for."""
    while True:
        try:
            return action()
        except BlockingIOError:
            await ready(sock, writing=writing)


async def ready(sock: socket.socket, *, writing: bool = False) -> None:
    """Wait until the socket can be read, or written."""
    loop = asyncio.get_running_loop()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    is_ready = asyncio.Event()
    add(sock, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        remove(sock)


def place(address: Address) -> str:
    """An address for a person."""
    return f"{address[0]} port {address[1]}"


def no_answer(timeout: float) -> str:
    """The reason of a TimeoutError."""
    return f"no answer within {timeout:g} s"
