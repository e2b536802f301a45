"""TCP in a device, as a :class:`.Tcp`: the host's part of it, which is what happens once for each connection."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import NamedTuple, Protocol, Self

from open_rnic.host_driver.errors import MpaConnectionError, how
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.mpa.negotiation import Reason as Why
from open_rnic.host_driver.sockets import no_answer, place
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.connection import Peer
from open_rnic.host_driver.tcp.endpoint import initial_numbers
from open_rnic.host_driver.tcp.ports import free_port
from open_rnic.host_driver.tcp.stack import numeric
from open_rnic.host_driver.transport import CHUNK_OCTETS, Address
from open_rnic.rtl.tcp.words import Command, Reason, State

__all__ = ["EngineConnection", "EngineStatus", "EngineTcp", "Row", "TcpDevice"]

_MSS = 1460
_ROOM = 1 << 18  # received octets of a connection that wait for the application
_BACKLOG = 16  # connections of a listener in LISTEN
_PATIENCE = 60  # seconds that a connection without a user waits for the peer's FIN in FIN-WAIT-2
_HALF_OPEN = TcpConfig.half_open / 1000
_OPENING = 0, State.LISTEN, State.SYN_SENT, State.SYN_RECEIVED
_WRITABLE = State.ESTABLISHED | State.CLOSE_WAIT
_ERRORS = {
    Reason.RESET: errno.ECONNRESET,
    Reason.REFUSED: errno.ECONNREFUSED,
    Reason.TIMED_OUT: errno.ETIMEDOUT,
    Reason.ABORTED: errno.ECONNABORTED,
}


class EngineStatus(NamedTuple):
    """The status of a connection of an engine: a State, or with CLOSED a Reason; the peer's address; the ports.

    ``commands`` is the number of commands that the engine had carried out then, modulo 2**16.
    """

    status: int
    peer: IPv4Address
    local_port: int
    peer_port: int
    commands: int


class TcpDevice(Protocol):
    """A TCP engine.

    ``statuses`` has the status of each connection. ``gate`` is looked at when one has changed. ``deliver`` is called
    with received octets and their connection, without octets at the end.
    """

    statuses: list[EngineStatus]
    gate: Gate
    deliver: Callable[[int, bytes], None]

    def command(self, command: Command, connection: int, ports: int = 0, peer: int = 0, iss: int = 0) -> int:
        """Give a command to the engine, and return its number, from 1 on, modulo 2**16."""

    async def send_packet(self, connection: int, octets: bytes) -> None:
        """Send a packet, or without octets the end; waits while there is no room."""

    def accept(self, connection: int, wanted: bool) -> None:
        """Let received octets of a connection come, or stop them soon."""


@dataclass
class Row:
    """The host's part of a connection of the engine."""

    number: int
    used: bool = False
    peer: Peer | None = None  # as it was opened
    command: int = 0  # the number of the command that opened it
    syn_at: float = 0.0  # when it was seen in SYN-RECEIVED first
    received: bytearray = field(default_factory=bytearray)
    finished: bool = False  # the peer has closed its half
    accepts: bool = False
    released: bool = False  # there is no user any more


class EngineTcp:
    """The TCP of a device as a :class:`.Tcp`: an asynchronous context manager.

    Listeners share the free connections of the engine, of which each has up to 16 in LISTEN: each takes one arrival.
    Arrivals for which there is none are answered with a reset. If there are no others, connections in TIME-WAIT give
    their places up, then the oldest in SYN-RECEIVED. So forged SYNs keep nobody out for longer than some seconds once
    they stop. Not SYN cookies: they lose the options of the SYN, and the RTL keeps no secret. The price is that SYNs
    forged without a pause, many in a second, leave a peer little chance.
    """

    def __init__(self, device: TcpDevice, address: IPv4Address) -> None:
        self.address = address
        self.device = device
        self.rows = [Row(number) for number in range(len(device.statuses))]
        self._iss = initial_numbers(secrets.token_bytes(16))
        self._listeners: dict[int, EngineListener] = {}
        self._seen: list[EngineStatus] = []
        self._tasks: set[asyncio.Task[None]] = set()
        device.deliver = self._deliver

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._watcher = self._loop.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = {self._watcher, *self._tasks}
        for task in tasks:
            task.cancel()
        for row in self.rows:
            self.device.command(Command.ABORT, row.number)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def connect(self, host: str, port: int, timeout: float, local_addr: Address | None) -> EngineConnection:
        """See Tcp. ``host`` is a numeric IPv4 address."""
        peer = numeric(host)
        reason = f"cannot connect to {place((host, port))}: "
        row = await self._free()
        if row is None:
            raise MpaConnectionError(f"all {len(self.rows)} connections of the device are in use", Why.LOCAL)
        used = {*self._peers()}
        local_port = local_addr[1] if local_addr else 0
        local_port = local_port or free_port(lambda candidate: Peer(peer, port, candidate) not in used)
        if local_port in self._listeners or Peer(peer, port, local_port) in used:
            row.used = False
            raise MpaConnectionError(f"{reason}port {local_port} of {self.address} is in use", Why.LOCAL)
        self._open(row, Command.OPEN, Peer(peer, port, local_port))
        try:
            async with asyncio.timeout(timeout):
                await self.device.gate.until(lambda: self.status(row) not in _OPENING)
        except BaseException as problem:
            self._release(row)
            if isinstance(problem, TimeoutError):
                raise MpaConnectionError(reason + no_answer(timeout), Why.CONNECTION_LOST) from None
            raise
        if self.ended(row):
            row.used = False
            raise MpaConnectionError(reason + how(self.lost(row)), Why.CONNECTION_LOST)
        return self.connection(row)

    def connection(self, row: Row) -> EngineConnection:
        """Return the connection of a row that has been opened."""
        return EngineConnection(self, row)

    async def listen(self, host: str, port: int) -> EngineListener:
        """See Tcp."""
        if numeric(host) not in (self.address, IPv4Address(0)):
            raise MpaConnectionError(f"{host} is not the address of this end, {self.address}", Why.LOCAL)
        port = port or free_port(lambda candidate: candidate not in self._listeners)
        if port in self._listeners:
            raise MpaConnectionError(f"cannot listen at {place((host, port))}: the port is in use", Why.LOCAL)
        listener = self._listeners[port] = EngineListener(self, port)
        self.serve()
        rows = listener.rows
        await self.device.gate.until(lambda: not listener.asks and all(self.status(row) for row in rows))
        return listener

    def status(self, row: Row) -> int:
        """The row's status, as the device last reported it; 0 if that was before the row was opened."""
        status = self.device.statuses[row.number]
        return status.status if (status.commands - row.command) & 0x8000 == 0 else 0

    def ended(self, row: Row) -> bool:
        """Whether the connection has ended."""
        return self.status(row) >= Reason.CLOSED

    def lost(self, row: Row) -> OSError:
        """The error for a connection that has ended."""
        number = _ERRORS.get(Reason(self.status(row)), errno.ENOTCONN)
        return OSError(number, os.strerror(number))

    def later(self, work: Coroutine[object, object, None]) -> None:
        """Do something beside all else."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def serve(self) -> None:
        """Let the listeners have the free connections in LISTEN."""
        while self._listeners:
            listener = min(self._listeners.values(), key=lambda each: len(each.rows))
            if len(listener.rows) >= _BACKLOG:
                return
            row = self._unused() or self._waiting()
            if row is None:
                break
            self._begin(listener, row)
        for listener in self._listeners.values():
            if not listener.asks and self._needs(listener):
                listener.asks = True
                self.later(self._ask(listener))

    def unlisten(self, port: int) -> None:
        """Listen no more."""
        for row in self._listeners.pop(port).rows:
            self._release(row)

    # Inside

    def _unused(self) -> Row | None:
        """Take a connection that nobody uses."""
        for row in self.rows:
            if row.used and row.released and self.ended(row):
                row.used = False
        return next((self._taken(row) for row in self.rows if not row.used), None)

    async def _free(self) -> Row | None:
        return self._unused() or self._waiting() or await self._shared() or await self._half_open()

    def _waiting(self) -> Row | None:
        """Take a connection in TIME-WAIT."""
        waiting = (row for row in self.rows if row.released and self.status(row) == State.TIME_WAIT)
        return next(map(self._taken, waiting), None)

    async def _shared(self) -> Row | None:
        """Take one of several connections of a listener, unless a SYN has come for each of them meanwhile."""
        for listener in [*self._listeners.values()]:
            for row in listener.rows[::-1]:
                is_spare = len(listener.rows) > 1 and row in listener.rows and self._listens(row)
                if is_spare and (taken := await self._unlisten(listener, row)):
                    return taken
        return None

    async def _unlisten(self, listener: EngineListener, row: Row, states: int = 0) -> Row | None:
        """Take a connection of a listener if it is in LISTEN still, or in one of ``states``."""
        listener.rows.remove(row)
        row.command = self.device.command(Command.UNLISTEN, row.number, peer=states)
        try:
            await self.device.gate.until(lambda: self.status(row) != 0)
        except BaseException:
            self._give_back(listener, row)
            raise
        if self.ended(row):
            return self._taken(row)
        self._give_back(listener, row)
        return None

    async def _half_open(self, wanted: Callable[[], bool] = lambda: True) -> Row | None:
        """Take the listeners' connection that has been in SYN-RECEIVED longest, but for a second at least.

        SYNs of peers that do not answer must not keep others out for the minute in which the SYN is repeated.
        """
        while wanted():
            now = self._loop.time()
            half_open = [
                (row.syn_at or now, row.number, listener, row)
                for listener in self._listeners.values()
                for row in listener.rows
                if self.status(row) == State.SYN_RECEIVED
            ]
            if not half_open:
                break
            since, _, listener, row = min(half_open)
            if now < since + _HALF_OPEN:
                await asyncio.sleep(since + _HALF_OPEN - now)
            elif taken := await self._unlisten(listener, row, State.SYN_RECEIVED):
                return taken
        return None

    def _listens(self, row: Row) -> bool:
        """Whether a listener's connection is in LISTEN, or on its way there."""
        return self.status(row) in (0, State.LISTEN)

    def _needs(self, listener: EngineListener) -> bool:
        """Whether a listener that lasts has no connection in LISTEN."""
        return self._listeners.get(listener.address[1]) is listener and not any(map(self._listens, listener.rows))

    def _give_back(self, listener: EngineListener, row: Row) -> None:
        """Let the listener have its connection again: a SYN was faster, or nobody wants it any more."""
        if self._listeners.get(listener.address[1]) is listener:
            listener.rows.append(row)
            self._seen.clear()  # it may have been opened already
            self.device.gate.look()
        else:
            self._release(row)

    async def _ask(self, listener: EngineListener) -> None:
        """Let a listener that has no connection in LISTEN have one of another's, or one that waits for its peer."""
        row = await self._shared() or await self._half_open(lambda: self._needs(listener))
        listener.asks = False
        if row is not None and self._needs(listener):
            self._begin(listener, row)
        elif row is not None:
            row.used = False
        self.device.gate.look()

    def _begin(self, listener: EngineListener, row: Row) -> None:
        listener.rows.append(row)
        self._open(row, Command.LISTEN_AT, Peer(IPv4Address(0), 0, listener.address[1]))

    def _taken(self, row: Row) -> Row:
        fresh = self.rows[row.number] = Row(row.number, used=True)
        return fresh

    def _release(self, row: Row) -> None:
        self.device.command(Command.ABORT, row.number)
        row.used = False

    def _peers(self) -> Iterator[Peer | None]:
        """The peers of connections that have not ended, each with the ports of its connection."""
        for row in self.rows:
            status = self.device.statuses[row.number]
            if row.used and not self.ended(row):
                yield Peer(status.peer, status.peer_port, status.local_port) if self.status(row) else row.peer

    def _open(self, row: Row, command: Command, peer: Peer) -> None:
        iss = self._iss(self.address, peer, int(self._loop.time() * 1000))
        ports = peer.local_port << 16 | peer.port
        row.command = self.device.command(command, row.number, ports, int(peer.address), iss)
        row.peer = peer
        self._accept(row)

    async def _watch(self) -> None:
        """Follow the statuses of connections."""
        while True:
            await self.device.gate.until(lambda: self._seen != self.device.statuses)
            self._seen = [*self.device.statuses]
            for listener in self._listeners.values():
                for row in [*listener.rows]:
                    if self.status(row) == State.SYN_RECEIVED:
                        row.syn_at = row.syn_at or self._loop.time()
                    if self.status(row) not in _OPENING:
                        listener.rows.remove(row)
                        if self.ended(row):
                            row.used = False
                        else:
                            listener.waiting.append(row)
            self.serve()
            self.device.gate.look()

    def _deliver(self, number: int, octets: bytes) -> None:
        row = self.rows[number]
        if self.status(row) in _OPENING:  # these are from the last connection in this place
            return
        if octets:
            if not row.released:
                row.received += octets
        else:
            row.finished = True
        self._accept(row)

    def _accept(self, row: Row) -> None:
        accepts = row.used and (row.released or len(row.received) < _ROOM)
        if accepts != row.accepts:
            row.accepts = accepts
            self.device.accept(row.number, accepts)


class EngineConnection:
    """A connection of :class:`EngineTcp` as a :class:`.Transport`."""

    emss = _MSS

    def __init__(self, tcp: EngineTcp, row: Row) -> None:
        status = tcp.device.statuses[row.number]
        self.local: Address = (str(tcp.address), status.local_port)
        self.peer: Address = (str(status.peer), status.peer_port)
        self._tcp = tcp
        self._row = row

    async def send(self, octets: bytes) -> None:
        """See Transport."""
        for at in range(0, len(octets), _MSS):
            if not self._tcp.status(self._row) & _WRITABLE:
                raise self._tcp.lost(self._row)
            await self._tcp.device.send_packet(self._row.number, octets[at : at + _MSS])

    async def receive(self, most: int = CHUNK_OCTETS) -> bytes:
        """See Transport."""
        tcp, row = self._tcp, self._row
        await tcp.device.gate.until(lambda: bool(row.received or row.finished or tcp.ended(row)))
        octets = bytes(row.received[:most])
        del row.received[:most]
        tcp._accept(row)
        if not octets and not row.finished:
            raise tcp.lost(row)
        return octets

    def keep_alive(self, times: KeepAlive) -> None:
        """See Transport."""
        command = self._tcp.device.command
        command(Command.KEEP_ALIVE, self._row.number, times.probes, times.idle * 1000, times.interval * 1000)

    def shut(self) -> None:
        """See Transport."""
        self._tcp.later(self._tcp.device.send_packet(self._row.number, b""))

    def close(self, *, reset: bool) -> None:
        """See Transport."""
        tcp, row = self._tcp, self._row
        row.released = True
        if reset or row.received:
            tcp.device.command(Command.ABORT, row.number)
        elif tcp.ended(row) or tcp.status(row) == State.TIME_WAIT:
            tcp.serve()  # both ends have closed, so no change of the status will call for this
        else:
            self.shut()
            row.received.clear()
            tcp._accept(row)
            tcp.later(self._give_up())

    async def _give_up(self) -> None:
        """Abort a connection whose peer has acknowledged everything, and does not close.

        Before that, only the peer's silence ends it (RFC 9293 §3.10.4, §3.8.3).
        """
        tcp, row = self._tcp, self._row
        await tcp.device.gate.until(lambda: not self._lasts() or tcp.status(row) == State.FIN_WAIT_2)
        try:
            async with asyncio.timeout(_PATIENCE):
                await tcp.device.gate.until(lambda: not self._lasts())
        except TimeoutError:
            if tcp.status(row) == State.FIN_WAIT_2:
                tcp.device.command(Command.ABORT, row.number)

    def _is_ours(self) -> bool:
        """Whether no other connection has the place of this one."""
        return self._tcp.rows[self._row.number] is self._row

    def _lasts(self) -> bool:
        """Whether both ends have not closed yet."""
        tcp, row = self._tcp, self._row
        return self._is_ours() and not tcp.ended(row) and tcp.status(row) != State.TIME_WAIT


class EngineListener:
    """A port of :class:`EngineTcp`."""

    def __init__(self, tcp: EngineTcp, port: int) -> None:
        self.address: Address = (str(tcp.address), port)
        self.rows: list[Row] = []  # the connections in LISTEN
        self.waiting: deque[Row] = deque()
        self.asks = False  # it has none in LISTEN, and asks for one
        self._tcp = tcp
        self._port = port
        self._open = True

    async def accept(self) -> EngineConnection:
        """See TcpListener."""
        await self._tcp.device.gate.until(lambda: bool(self.waiting))
        return self._tcp.connection(self.waiting.popleft())

    async def close(self) -> None:
        """See TcpListener."""
        if self._open:
            self._open = False
            self._tcp.unlisten(self._port)
            for row in self.waiting:
                self._tcp.device.command(Command.ABORT, row.number)
                row.released = True
