"""All TCP connections of an IPv4 address: the demultiplexer, listeners, and TIME-WAIT."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Callable
from ipaddress import IPv4Address
from struct import pack

from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.connection import Connection, Peer
from open_rnic.host_driver.tcp.ports import PortInUseError, free_port
from open_rnic.host_driver.tcp.segment import Flag, Segment
from open_rnic.host_driver.tcp.sequence import MODULUS, on_the_wire
from open_rnic.host_driver.tcp.states import State

__all__ = ["Endpoint", "Peer", "initial_numbers"]


def initial_numbers(secret: bytes) -> Callable[[IPv4Address, Peer, int], int]:
    """Return the function of RFC 6528 §3: the ISS of a connection from an address to a peer, at a time in ms."""

    def number(local: IPv4Address, peer: Peer, now: int) -> int:
        identity = local.packed + peer.address.packed + pack(">HH", peer.port, peer.local_port)
        offset = hashlib.blake2b(identity, key=secret, digest_size=4).digest()
        return (now * 250 + int.from_bytes(offset, "big")) % MODULUS

    return number


class Endpoint:
    """TCP at one address.

    ``segments`` has the segments to send, each with its destination. ``changed`` has the connections that a segment,
    a timer or the user has changed since it was last emptied; ``accepted`` those that a listener has accepted, in
    ESTABLISHED. A segment without a connection is answered with a reset (RFC 9293 §3.10.7.1).
    """

    def __init__(
        self,
        address: IPv4Address,
        config: TcpConfig | None = None,
        *,
        iss: Callable[[IPv4Address, Peer, int], int] | None = None,
    ) -> None:
        self.address = address
        self.config = config or TcpConfig()
        self.connections: dict[Peer, Connection] = {}
        self.segments: deque[tuple[IPv4Address, Segment]] = deque()
        self.changed: deque[Connection] = deque()
        self.accepted: dict[int, deque[Connection]] = {}
        self._backlogs: dict[int, int] = {}
        self._iss = iss or initial_numbers(secrets.token_bytes(16))

    # The user

    def listen(self, port: int, backlog: int = 128) -> int:
        """Accept connections at a port, 0 for any free port; return the port. Raises PortInUseError."""
        port = port or free_port(lambda candidate: candidate not in self._backlogs)
        if port in self._backlogs:
            raise PortInUseError(f"port {port} of {self.address} is in use")
        self._backlogs[port], self.accepted[port] = backlog, deque()
        return port

    def unlisten(self, port: int) -> None:
        """Accept no more connections at a port, and reset those that nobody has taken."""
        del self._backlogs[port]
        for connection in self.accepted.pop(port):
            self.abort(connection)

    def open(self, address: IPv4Address, port: int, now: int, local_port: int = 0) -> Connection:
        """Open a connection; port 0 stands for any free port. Raises PortInUseError."""
        if not local_port:
            local_port = free_port(lambda candidate: Peer(address, port, candidate) not in self.connections)
        peer = Peer(address, port, local_port)
        if peer in self.connections or local_port in self._backlogs:
            raise PortInUseError(f"port {local_port} of {self.address} is in use")
        connection = self._add(peer, now)
        connection.open(now)
        self._collect(connection)
        return connection

    def send(self, connection: Connection, octets: bytes, now: int) -> int:
        """See :meth:`.Connection.send`."""
        taken = connection.send(octets, now)
        self._collect(connection)
        return taken

    def take(self, connection: Connection, most: int, now: int) -> bytes:
        """See :meth:`.Connection.take`."""
        octets = connection.take(most, now)
        self._collect(connection)
        return octets

    def keep_alive(self, connection: Connection, times: KeepAlive, now: int) -> None:
        """See :meth:`.Connection.keep_alive`."""
        connection.keep_alive(times, now)
        self._collect(connection)

    def close(self, connection: Connection, now: int) -> None:
        """See :meth:`.Connection.close`."""
        connection.close(now)
        self._collect(connection)

    def release(self, connection: Connection, now: int) -> None:
        """See :meth:`.Connection.release`."""
        connection.release(now)
        self._collect(connection)

    def abort(self, connection: Connection) -> None:
        """See :meth:`.Connection.abort`."""
        connection.abort()
        self._collect(connection)

    # Segments and time

    def receive(self, source: IPv4Address, segment: Segment, now: int) -> None:
        """Take a segment that has been sent to this address."""
        peer = Peer(source, segment.source, segment.destination)
        connection = self.connections.get(peer)
        if connection and connection.state is State.TIME_WAIT and self._reopens(connection, segment):
            del self.connections[peer]
            connection = None
        if connection:
            connection.receive(segment, now)
        elif peer.local_port in self._backlogs and not segment.flags & (Flag.ACK | Flag.RST):  # RFC 9293 §3.10.7.2
            if not segment.flags & Flag.SYN:
                return
            full = self._waiting(peer.local_port) >= self._backlogs[peer.local_port]
            if full and not self._give_way(peer.local_port, now):
                return  # the peer sends its SYN again
            connection = self._add(peer, now)
            connection.accept(segment, now)
        elif not segment.flags & Flag.RST:
            self._refuse(source, segment)
        if connection:
            self._collect(connection)

    def tick(self, now: int) -> None:
        """Let the timers of all connections expire that are due."""
        for connection in [*self.connections.values()]:
            if connection.deadline is not None and connection.deadline <= now:
                connection.tick(now)
                self._collect(connection)

    @property
    def deadline(self) -> int | None:
        """The time of the next :meth:`tick`."""
        return min((at for each in self.connections.values() if (at := each.deadline) is not None), default=None)

    # Inside

    def _add(self, peer: Peer, now: int) -> Connection:
        iss = self._iss(self.address, peer, now)
        connection = Connection(self.config, peer, iss, secrets.randbits(32), now)
        self.connections[peer] = connection
        return connection

    def _collect(self, connection: Connection) -> None:
        peer = connection.peer
        while connection.segments:
            self.segments.append((peer.address, connection.segments.popleft()))
        queue = self.accepted.get(peer.local_port)
        if connection.state.synchronized and not connection.announced:
            connection.announced = True
            if connection.passive and queue is not None:
                queue.append(connection)
        if connection.state is State.CLOSED and self.connections.get(peer) is connection:
            del self.connections[peer]
        self.changed.append(connection)

    def _waiting(self, port: int) -> int:
        """Connections to a listener that nobody has taken."""
        opening = sum(peer.local_port == port and not each.announced for peer, each in self.connections.items())
        return opening + len(self.accepted[port])

    def _give_way(self, port: int, now: int) -> bool:
        """Forget the oldest connection whose peer has left its SYN+ACK unanswered; return whether there is one.

        SYNs of peers that do not answer must not keep others out for the minute in which the SYN+ACK is repeated.
        """
        for peer, each in self.connections.items():  # the oldest first
            if peer.local_port == port and each.passive and each.state is State.SYN_RECEIVED:
                if now - each.began < self.config.half_open:
                    break
                del self.connections[peer]
                return True
        return False

    def _reopens(self, connection: Connection, segment: Segment) -> bool:
        """Whether a SYN may open a connection anew in TIME-WAIT (RFC 9293 §3.6.1, RFC 6191)."""
        return segment.flags & (Flag.SYN | Flag.ACK | Flag.RST) == Flag.SYN and connection.newer(segment)

    def _refuse(self, source: IPv4Address, segment: Segment) -> None:
        ports = segment.destination, segment.source
        if segment.flags & Flag.ACK:
            reset = Segment(*ports, segment.ack, flags=Flag.RST)
        else:
            reset = Segment(*ports, 0, on_the_wire(segment.seq + segment.length), Flag.RST | Flag.ACK)
        self.segments.append((source, reset))
