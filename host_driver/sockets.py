"""The kernel's TCP, and functions for sockets that SCTP uses, too."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable
from errno import EMFILE
from ipaddress import IPv6Address
from struct import pack
from typing import Any, Self, TypeVar

from open_rnic.host_driver.errors import MpaConnectionError, how
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.mpa.negotiation import Reason
from open_rnic.host_driver.transport import CHUNK_OCTETS, Address

BACKLOG = 4096  # TCP connections that may wait in the kernel; its own limit is net.core.somaxconn
_KEEP_ALIVE = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)

_Result = TypeVar("_Result")


class TcpSocket:
    """A connection of the kernel's TCP as a :class:`.Transport`."""

    def __init__(self, sock: socket.socket, peer: Address) -> None:
        self.local = plain(sock.getsockname())
        self.peer = plain(peer)
        self._socket = sock
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

    async def receive(self, most: int = CHUNK_OCTETS) -> bytes:
        """See Transport."""
        return await self._loop.sock_recv(self._socket, most)

    def keep_alive(self, times: KeepAlive) -> None:
        """See Transport."""
        for option, value in zip(_KEEP_ALIVE, (times.idle, times.interval, times.probes), strict=True):
            self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

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
        self.address = plain(sock.getsockname())
        self._socket = sock

    async def close(self) -> None:
        """Stop listening. Idempotent; accepted connections stay open."""
        self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class KernelListener(ListeningSocket):
    """A port of the kernel's TCP."""

    async def accept(self) -> TcpSocket:
        """See TcpListener. Without a file descriptor for the connection, the connection stays in the kernel."""
        try:
            while True:
                await ready(self._socket)  # without a free descriptor, accept fails even if no connection waits
                with contextlib.suppress(ConnectionAbortedError):  # the peer has closed it already
                    return TcpSocket(*await asyncio.get_running_loop().sock_accept(self._socket))
        except OSError as error:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            why = how(error) + (f", {limit} is this process's limit (ulimit -n)" if error.errno == EMFILE else "")
            what = f"cannot take a connection at {place(self.address)}: {why}"
            raise MpaConnectionError(what, Reason.LOCAL) from error


class KernelTcp:
    """The kernel's TCP as a :class:`.Tcp`."""

    async def connect(self, host: str, port: int, timeout: float, local_addr: Address | None) -> TcpSocket:
        """See Tcp."""
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
                return TcpSocket(sock, address)
            except OSError as error:  # TimeoutError is one
                sock.close()
                reason = f"cannot connect to {place(address)}{origin}: {how(error) or no_answer(timeout)}"
            except BaseException:
                sock.close()
                raise
        raise MpaConnectionError(reason, Reason.CONNECTION_LOST)

    async def listen(self, host: str, port: int) -> KernelListener:
        """See Tcp."""
        family, _, _, _, address = (await resolve(host, port))[0]
        both = address[0] == "::" and socket.has_dualstack_ipv6()  # all addresses of this machine: those of IPv4, too
        try:
            sock = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
        except OSError as error:
            raise MpaConnectionError(f"cannot listen at {place(address)}: {how(error)}", Reason.LOCAL) from error
        sock.setblocking(False)
        return KernelListener(sock)


KERNEL = KernelTcp()


async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    """Return the addresses of a host as getaddrinfo does; raises MpaConnectionError if there are none."""
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise MpaConnectionError(f"a port is 0 to 65535, not {port}", Reason.LOCAL)
    try:
        with contextlib.suppress(socket.gaierror):  # a numeric address is resolved without a thread
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: the string cannot be a host name
        reason = how(error) if isinstance(error, OSError) else "that is no host name"
        raise MpaConnectionError(f"cannot find {host!r} port {port}: {reason}", Reason.LOCAL) from error
    return list(found)


async def when_ready(sock: socket.socket, action: Callable[[], _Result], *, writing: bool = False) -> _Result:
    """Retry the action until the socket does not block it; for calls that asyncio does not provide."""
    while True:
        try:
            return action()
        except BlockingIOError:
            await ready(sock, writing=writing)


async def ready(sock: socket.socket, *, writing: bool = False) -> None:
    """Wait until the socket can be read or, with ``writing``, written."""
    loop = asyncio.get_running_loop()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    is_ready = asyncio.Event()
    add(sock, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        remove(sock)


def plain(address: Address) -> Address:
    """Return the IPv4 address that a socket of both versions maps into IPv6 (RFC 4291 §2.5.5.2); others as they are."""
    if len(address) > 2 and (mapped := IPv6Address(address[0]).ipv4_mapped):
        return str(mapped), address[1]
    return address


def place(address: Address) -> str:
    """Describe an address to a person."""
    address = plain(address)
    return f"{address[0]} port {address[1]}"


def no_answer(timeout: float) -> str:
    """Describe a TimeoutError to a person."""
    return f"no answer within {timeout:g} s"
