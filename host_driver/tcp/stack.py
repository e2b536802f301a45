"""TCP over Ethernet frames, for asyncio: an endpoint, its IPv4 host, and the port that carries their frames."""

from __future__ import annotations

import asyncio
import errno
import os
from ipaddress import AddressValueError, IPv4Address
from typing import Self

from open_rnic.host_driver.errors import MpaConnectionError, how
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.mpa.negotiation import Reason
from open_rnic.host_driver.net.frames import Ipv4
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Port
from open_rnic.host_driver.sockets import no_answer, place
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.connection import Connection, End
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.segment import PROTOCOL, Segment, SegmentError
from open_rnic.host_driver.tcp.states import State
from open_rnic.host_driver.transport import CHUNK_OCTETS, Address

__all__ = ["UserConnection", "UserListener", "UserTcp"]

_ERRORS = {
    End.RESET: errno.ECONNRESET,
    End.REFUSED: errno.ECONNREFUSED,
    End.TIMED_OUT: errno.ETIMEDOUT,
    End.ABORTED: errno.ECONNABORTED,
}


class UserTcp:
    """The twin's TCP as a :class:`.Tcp`: an asynchronous context manager.

    ``port`` carries the frames of ``host``. Everything happens in the event loop of the task that enters the context.
    """

    def __init__(
        self, port: Port, host: Host, config: TcpConfig | None = None, endpoint: Endpoint | None = None
    ) -> None:
        self.host = host
        self.endpoint = endpoint or Endpoint(host.address.ip, config)
        self.gate = Gate()  # for conditions on connections
        self.malformed = 0  # segments with a wrong checksum or header
        self.unsent = 0  # segments that the host could not send
        self._port = port
        self._timer: asyncio.TimerHandle | None = None
        host.handlers[PROTOCOL] = self._receive_packet

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._port.receive = self._receive_frame
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in [*self.endpoint.connections.values()]:
            self.endpoint.abort(connection)
        self.flush()
        if self._timer:
            self._timer.cancel()

    async def connect(self, host: str, port: int, timeout: float, local_addr: Address | None) -> UserConnection:
        """See Tcp. ``host`` is a numeric IPv4 address, since no resolver knows the hosts of this network."""
        address = numeric(host)
        ours, local_port = local_addr[:2] if local_addr else (str(self.host.address.ip), 0)
        if numeric(ours) != self.host.address.ip:
            raise MpaConnectionError(f"{ours} is not the address of this end, {self.host.address.ip}", Reason.LOCAL)
        reason = f"cannot connect to {place((host, port))}: "
        try:
            self.host.next_hop(address)
            connection = self.endpoint.open(address, port, self.now, local_port)
        except OSError as error:
            raise MpaConnectionError(f"{reason}{error}", Reason.CONNECTION_LOST) from error
        self.flush()
        opening = (State.SYN_SENT, State.SYN_RECEIVED)
        try:
            async with asyncio.timeout(timeout):
                await self.gate.until(lambda: connection.state not in opening)
        except TimeoutError:
            self.endpoint.abort(connection)
            self.flush()
            raise MpaConnectionError(reason + no_answer(timeout), Reason.CONNECTION_LOST) from None
        except BaseException:
            self.endpoint.abort(connection)
            self.flush()
            raise
        if connection.end:
            raise MpaConnectionError(reason + how(lost(connection)), Reason.CONNECTION_LOST)
        return UserConnection(self, connection)

    async def listen(self, host: str, port: int) -> UserListener:
        """See Tcp."""
        if numeric(host) not in (self.host.address.ip, IPv4Address(0)):
            raise MpaConnectionError(f"{host} is not the address of this end, {self.host.address.ip}", Reason.LOCAL)
        try:
            return UserListener(self, self.endpoint.listen(port))
        except OSError as error:
            raise MpaConnectionError(f"cannot listen at {place((host, port))}: {error}", Reason.LOCAL) from error

    async def claim(self) -> None:
        """Ask whether another host uses the address (RFC 5227); takes 4 to 7 seconds. See :attr:`.Host.conflict`."""
        self.host.probe(self._loop.time())
        self.flush()
        await self.gate.until(lambda: not self.host.probing)

    @property
    def now(self) -> int:
        """The time of the endpoint, in milliseconds."""
        return int(self._loop.time() * 1000)

    def flush(self) -> None:
        """Send what the endpoint and the host have to send, let tasks look at their conditions, and set the timer."""
        endpoint, host = self.endpoint, self.host
        while endpoint.segments:
            destination, segment = endpoint.segments.popleft()
            try:
                host.send(PROTOCOL, destination, segment.encode(endpoint.address, destination), self._loop.time())
            except OSError:  # the host has lost its address; to TCP this is a network that loses segments
                self.unsent += 1
        while host.frames:
            self._port.send(host.frames.popleft())
        endpoint.changed.clear()
        self.gate.look()
        self._set_timer()

    def _set_timer(self) -> None:
        deadlines = [] if self.host.deadline is None else [self.host.deadline]
        if self.endpoint.deadline is not None:
            deadlines.append(self.endpoint.deadline / 1000 + 0.0005)
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(min(deadlines), self._tick) if deadlines else None

    def _tick(self) -> None:
        self.host.tick(self._loop.time())
        self.endpoint.tick(self.now)
        self.flush()

    def _receive_frame(self, frame: bytes) -> None:
        self.host.receive(frame, self._loop.time())
        self.flush()

    def _receive_packet(self, packet: Ipv4, now: float) -> None:
        if packet.destination != self.endpoint.address:  # a broadcast (RFC 1122 §4.2.3.10)
            return
        try:
            segment = Segment.decode(packet.payload, packet.source, packet.destination)
        except SegmentError:
            self.malformed += 1
            return
        self.endpoint.receive(packet.source, segment, int(now * 1000))


class UserConnection:
    """A connection of :class:`UserTcp` as a :class:`.Transport`."""

    def __init__(self, tcp: UserTcp, connection: Connection) -> None:
        self.local: Address = (str(tcp.host.address.ip), connection.peer.local_port)
        self.peer: Address = (str(connection.peer.address), connection.peer.port)
        self.connection = connection
        self._tcp = tcp

    @property
    def emss(self) -> int:
        """See Transport."""
        return self.connection.sender.mss

    async def send(self, octets: bytes) -> None:
        """See Transport."""
        tcp, connection, sender = self._tcp, self.connection, self.connection.sender
        while octets:
            wanted = min(len(octets), tcp.endpoint.config.send_ring // 2)
            await tcp.gate.until(lambda wanted=wanted: connection.end is not None or sender.room >= wanted)  # type: ignore[misc]
            if connection.end:
                raise lost(connection)
            octets = octets[tcp.endpoint.send(connection, octets, tcp.now) :]
            tcp.flush()

    async def receive(self, most: int = CHUNK_OCTETS) -> bytes:
        """See Transport."""
        tcp, connection = self._tcp, self.connection
        await tcp.gate.until(
            lambda: bool(connection.receiver.available or connection.finished or connection.end is not None)
        )
        octets = tcp.endpoint.take(connection, most, tcp.now)
        tcp.flush()
        if not octets and not connection.finished:
            raise lost(connection)
        return octets

    def keep_alive(self, times: KeepAlive) -> None:
        """See Transport."""
        self._tcp.endpoint.keep_alive(self.connection, times, self._tcp.now)
        self._tcp.flush()

    def shut(self) -> None:
        """See Transport."""
        if not self.connection.end:
            self._tcp.endpoint.close(self.connection, self._tcp.now)
            self._tcp.flush()

    def close(self, *, reset: bool) -> None:
        """See Transport."""
        if self.connection.end:
            return
        if reset:
            self._tcp.endpoint.abort(self.connection)
        else:
            self._tcp.endpoint.release(self.connection, self._tcp.now)
        self._tcp.flush()


class UserListener:
    """A port of :class:`UserTcp`."""

    def __init__(self, tcp: UserTcp, port: int) -> None:
        self.address: Address = (str(tcp.host.address.ip), port)
        self._tcp = tcp
        self._port = port
        self._open = True

    async def accept(self) -> UserConnection:
        """See TcpListener."""
        waiting = self._tcp.endpoint.accepted[self._port]
        await self._tcp.gate.until(lambda: bool(waiting))
        return UserConnection(self._tcp, waiting.popleft())

    async def close(self) -> None:
        """See TcpListener."""
        if self._open:
            self._open = False
            self._tcp.endpoint.unlisten(self._port)
            self._tcp.flush()


def numeric(host: str) -> IPv4Address:
    """Parse an address; raises MpaConnectionError."""
    try:
        return IPv4Address(host)
    except AddressValueError:
        raise MpaConnectionError(f"{host!r} is not a numeric IPv4 address", Reason.LOCAL) from None


def lost(connection: Connection) -> OSError:
    """The error for a connection that has ended."""
    number = _ERRORS.get(connection.end or End.RESET, errno.ENOTCONN)
    return OSError(number, os.strerror(number))
