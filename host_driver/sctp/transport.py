"""DDP stream sessions (:mod:`.session`) over the kernel's SCTP, or over any socket that keeps messages whole.

    ULP ── send, receive ── SctpConnection ── Link ── socket ── the peer

A ``KernelLink`` is a one-to-one SCTP socket (RFC 6458 §4) with one stream each way, the DDP Adaptation Indication
(RFC 5043 §11.1), and the PPID of each message beside it. A ``MessageLink`` needs only whole messages in order, as of
``socket.socketpair(AF_UNIX, SOCK_SEQPACKET)``, and puts the PPID, 4 octets in network byte order, before each.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
from abc import ABC, abstractmethod
from collections import deque
from typing import Self

from open_rnic.host_driver.errors import MpaConnectionError, how
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.mpa.negotiation import Config, Established, Failed, Negotiated, Reason
from open_rnic.host_driver.sctp.session import (
    ADAPTATION,
    MIN_SEGMENT,
    Ended,
    Event,
    Received,
    Session,
    SessionRejected,
    SessionRequested,
    State,
    Transmit,
)
from open_rnic.host_driver.sockets import ListeningSocket, no_answer, place, when_ready
from open_rnic.rtl.registers import Role

__all__ = [
    "LINGER", "SEGMENTS_WAITING", "KernelLink", "Link", "MessageLink", "SctpConnection", "SctpListener",
    "SctpRejectedError", "SctpRequest", "ancillary_data", "initiate", "listen", "open_session", "payload_protocol",
    "request", "sctp_socket",
]  # fmt: skip

SEGMENTS_WAITING = 16  # maximum number of received segments that wait for the ULP
LINGER = 1.0  # seconds that a Terminate waits for the delivery of the Accept, and then for the peer's close
_MESSAGE_OCTETS = 1 << 16

# Constants that the socket module lacks: RFC 6458, in Linux's <linux/sctp.h>
_SCTP = 132  # IPPROTO_SCTP
_INITMSG, _NODELAY, _ADAPTATION_LAYER, _EVENTS, _STATUS = 2, 3, 7, 11, 14  # options
_SNDRCV = 1  # ancillary data
_SNDRCVINFO = struct.Struct("=HHHxxIIIIIi")  # stream, SSN, flags, PPID in network byte order, ..., association
_UNORDERED = 1
_SUBSCRIBED = bytes([1, 1, 0, 0, 0, 0, 0, 1, 0, 1])  # data I/O, association, adaptation, sender dry
_STATUS_OCTETS, _FRAGMENTATION_POINT = 176, 20
_NOTIFICATION = 0x8000  # flag of a received notification
_ADAPTATION_INDICATION, _SENDER_DRY = 0x8007, 0x8009  # types of notifications
_Outcome = SessionRequested | Established | SessionRejected


class SctpRejectedError(MpaConnectionError):
    """The passive side rejected the session with this chunk, ``control``."""

    def __init__(self, rejected: SessionRejected) -> None:
        super().__init__(rejected.what, Reason.CONNECTION_LOST)
        self.control = rejected.control
        self.may_retry_unenhanced = rejected.may_retry_unenhanced


class Link(ABC):
    """Transfers whole messages, each with a PPID. Its methods raise OSError; each may be used by one task at a time."""

    max_segment: int  # octets

    async def ready(self) -> None:  # noqa: B027 -- most links are ready at once
        """Wait until the peer has indicated DDP over SCTP (RFC 5043 §11.1)."""

    @abstractmethod
    async def send(self, ppid: int, octets: bytes) -> bool:
        """Send a message; waits while there is no room. Returns True if no later message can overtake it."""

    @abstractmethod
    async def receive(self) -> tuple[int, bytes] | bool:
        """Return the next message, True if the peer is known to have received all messages, or False at the end."""

    @abstractmethod
    def close(self) -> None:
        """Close the socket. Idempotent."""


class MessageLink(Link):
    """A link over a socket that keeps messages whole and in order."""

    def __init__(self, sock: socket.socket, max_segment: int = 8192) -> None:
        self.max_segment = max_segment
        self._socket = sock
        sock.setblocking(False)

    async def send(self, ppid: int, octets: bytes) -> bool:
        """See Link."""
        message = struct.pack(">I", ppid) + octets
        await when_ready(self._socket, lambda: self._socket.send(message), writing=True)
        return True

    async def receive(self) -> tuple[int, bytes] | bool:
        """See Link."""
        octets = await when_ready(self._socket, lambda: self._socket.recv(_MESSAGE_OCTETS))
        return (int.from_bytes(octets[:4], "big"), octets[4:]) if octets else False

    def close(self) -> None:
        """See Link."""
        self._socket.close()


class KernelLink(Link):
    """A link over an association of the kernel's SCTP, made with ``sctp_socket``."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._adapted = False
        # The DDP-SSN takes 2 of the octets that fit without fragmentation (RFC 5043 §9)
        status = sock.getsockopt(_SCTP, _STATUS, _STATUS_OCTETS)
        self.max_segment = max(struct.unpack_from("=I", status, _FRAGMENTATION_POINT)[0] - 2, MIN_SEGMENT)

    async def send(self, ppid: int, octets: bytes) -> bool:
        """See Link."""
        ancillary = [(_SCTP, _SNDRCV, ancillary_data(ppid))]
        await when_ready(self._socket, lambda: self._socket.sendmsg([octets], ancillary), writing=True)
        return False

    async def ready(self) -> None:
        """See Link; raises ConnectionError if the peer uses another protocol."""
        while not self._adapted:
            octets, _, flags = await self._receive()
            if not octets or not flags & _NOTIFICATION:
                raise ConnectionError("the peer shows no DDP Adaptation Indication")
            kind, indication = struct.unpack_from("=H6xI", octets)
            self._adapted = (kind, indication) == (_ADAPTATION_INDICATION, ADAPTATION)

    async def receive(self) -> tuple[int, bytes] | bool:
        """See Link."""
        whole = b""
        while True:
            octets, ancillary, flags = await self._receive()
            if not octets:
                return False
            if flags & _NOTIFICATION:
                if struct.unpack_from("=H", octets) == (_SENDER_DRY,):
                    return True
                continue
            whole += octets
            if len(whole) > _MESSAGE_OCTETS:
                raise ConnectionError(f"the peer sends a message of more than {_MESSAGE_OCTETS} octets")
            if flags & socket.MSG_EOR:
                return payload_protocol(ancillary), whole

    async def _receive(self) -> tuple[bytes, list[tuple[int, int, bytes]], int]:
        space = socket.CMSG_SPACE(_SNDRCVINFO.size)
        return (await when_ready(self._socket, lambda: self._socket.recvmsg(_MESSAGE_OCTETS, space)))[:3]

    def close(self) -> None:
        """See Link."""
        self._socket.close()


def ancillary_data(ppid: int) -> bytes:
    """The ancillary data of an unordered message on stream 0 (RFC 5043 §10): struct sctp_sndrcvinfo."""
    return _SNDRCVINFO.pack(0, 0, _UNORDERED, socket.htonl(ppid), 0, 0, 0, 0, 0)


def payload_protocol(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The PPID in the ancillary data of a message; -1 if there is none."""
    for level, kind, octets in ancillary:
        if (level, kind) == (_SCTP, _SNDRCV) and len(octets) >= _SNDRCVINFO.size:
            return socket.ntohl(_SNDRCVINFO.unpack_from(octets)[3])
    return -1


def sctp_socket(family: int = socket.AF_INET) -> socket.socket:
    """Return a one-to-one SCTP socket, set up for DDP; raises MpaConnectionError if the system has no SCTP."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM, _SCTP)
    except OSError as error:
        what = f"this system has no SCTP: {how(error)}"
        raise MpaConnectionError(what, Reason.LOCAL) from error
    try:
        sock.setblocking(False)
        sock.setsockopt(_SCTP, _INITMSG, struct.pack("=HHHH", 1, 1, 0, 0))  # as many streams out as in (RFC 5043 §8)
        sock.setsockopt(_SCTP, _ADAPTATION_LAYER, struct.pack("=I", ADAPTATION))
        sock.setsockopt(_SCTP, _EVENTS, _SUBSCRIBED)
        sock.setsockopt(_SCTP, _NODELAY, 1)
    except OSError as error:
        sock.close()
        raise MpaConnectionError(f"SCTP cannot be set up: {how(error)}", Reason.LOCAL) from error
    return sock


class SctpConnection:
    """A DDP stream session, made by ``initiate`` or ``SctpRequest.accept``; an asynchronous context manager.

    ``error`` is the error that ended it out of order.
    """

    def __init__(self, link: Link, config: Config) -> None:
        self.error: MpaConnectionError | None = None
        self._link = link
        self._session = Session(config, link.max_segment)
        self._negotiated: Negotiated | None = None
        self._sending = asyncio.Lock()
        self._outcome: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._segments: deque[bytes] = deque()
        self._no_more = False
        self._reported = False  # an error has been reported to the peer
        self._gate = Gate()  # for conditions on the attributes above
        self._reader: asyncio.Task[None] | None = None

    # For the ULP

    @property
    def negotiated(self) -> Negotiated:
        """The result of the negotiation."""
        if self._negotiated is None:
            raise RuntimeError("nothing is negotiated before the session is established")
        return self._negotiated

    @property
    def max_segment(self) -> int:
        """The longest DDP segment, in octets."""
        return self._session.max_segment

    async def send(self, segment: bytes) -> None:
        """Send a DDP segment; waits for room. Raises MpaConnectionError, and ValueError if the segment is too long."""
        self._check()
        await self._carry_out(self._session.send(segment))

    async def receive(self) -> bytes | None:
        """Return the next DDP segment, or None if the peer has terminated in order. Raises MpaConnectionError."""
        await self._gate.until(lambda: self._segments or self._no_more)
        if self._segments:
            segment = self._segments.popleft()
            self._gate.look()
            return segment
        self._check()
        return None

    async def terminate(self) -> None:
        """End the send direction. Segments are received until the peer terminates, too."""
        self._check()
        await self._carry_out(self._session.terminate())

    async def abort(self, what: str) -> None:
        """End the session with Terminate 2/0/5, for an error at this end (RFC 6581 §9.3), and close."""
        if not self._session.state.final:
            await self._carry_out(self._session.abort(what))
        await self.close()

    async def close(self) -> None:
        """End the task and the socket. Idempotent.

        If a Terminate waits for the delivery of the Accept, this waits for it, for a second at most. If an error has
        been reported to the peer, it waits for the peer to close first, again for a second at most: SCTP turns a close
        with unread messages into an ABORT, which would destroy the report.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self._gate.until(lambda: self._session.state is not State.ENDING)
        if self._reader:
            if self._reported:
                await asyncio.wait((self._reader,), timeout=LINGER)
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        self._fail(MpaConnectionError("the session was closed at this end", Reason.CONNECTION_LOST))
        self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # The exchange

    async def _start(self) -> _Outcome:
        try:
            async with asyncio.timeout(self._session.config.timeout):
                await self._link.ready()
            await self._carry_out(self._session.start(asyncio.get_running_loop().time()))
            self._reader = asyncio.create_task(self._read())
            try:
                async with asyncio.timeout_at(self._session.deadline):
                    return await asyncio.shield(self._outcome)
            except TimeoutError:
                await self._carry_out(self._session.tick(math.inf))
            return await self._outcome
        except MpaConnectionError:
            await self.close()
            raise
        except OSError as error:  # TimeoutError is an OSError
            await self.close()
            what = how(error) or f"no DDP Adaptation Indication within {self._session.config.timeout:g} s"
            raise MpaConnectionError(what, Reason.CONNECTION_LOST) from error
        except BaseException:
            await self.close()
            raise

    async def _read(self) -> None:
        try:
            while (message := await self._link.receive()) is not False:
                if isinstance(message, bool):
                    await self._carry_out(self._session.delivered())
                else:
                    await self._carry_out(self._session.receive(*message))
            await self._carry_out(self._session.closed("the peer closed the association"))
        except OSError as error:
            await self._carry_out(self._session.closed(how(error)))

    async def _carry_out(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Transmit(ppid, octets):
                    await self._transmit(ppid, octets)
                case Received(segment):
                    await self._gate.until(lambda: len(self._segments) < SEGMENTS_WAITING or self.error)
                    self._segments.append(segment)
                case Ended():
                    self._no_more = True
                case Failed():
                    self._reported = isinstance(events[0], Transmit)
                    self._fail(MpaConnectionError(event.what, event.reason, failed=event))
                case _:
                    if isinstance(event, Established):
                        self._negotiated = event.negotiated
                    if not self._outcome.done():
                        self._outcome.set_result(event)
            self._gate.look()
        self._gate.look()

    async def _transmit(self, ppid: int, octets: bytes) -> None:
        try:
            async with self._sending:
                in_order = await self._link.send(ppid, octets)
        except OSError as error:
            await self._carry_out(self._session.closed(how(error)))
        else:
            if in_order:
                await self._carry_out(self._session.delivered())

    def _fail(self, error: MpaConnectionError) -> None:
        self.error = self.error or error
        if not self._outcome.done():
            self._outcome.set_exception(self.error)
            self._outcome.exception()  # mark the exception as retrieved, even if no task waits
        self._no_more = True
        self._gate.look()

    def _check(self) -> None:
        if self.error:
            raise self.error


class SctpRequest:
    """A session request that waits for the ULP: the active side's ``control`` chunk, and its ``model``."""

    def __init__(self, connection: SctpConnection, requested: SessionRequested) -> None:
        self.control = requested.control
        self.model = requested.model
        self._connection = connection

    async def accept(self, private_data: bytes = b"", config: Config | None = None) -> SctpConnection:
        """Accept the session; raises ValueError for too much private data."""
        connection = self._connection
        connection._check()
        await connection._carry_out(connection._session.accept(private_data, config))
        connection._check()
        return connection

    async def reject(self, private_data: bytes = b"", config: Config | None = None) -> None:
        """Reject the session and close; raises ValueError for too much private data."""
        connection = self._connection
        connection._check()
        await connection._carry_out(connection._session.reject(private_data, config=config))
        await connection.close()

    async def abort(self, what: str) -> None:
        """Answer with a Terminate, for instance if too many requests wait (RFC 5043 §6.4), and close."""
        await self._connection.abort(what)


class SctpListener(ListeningSocket):
    """A port at which associations arrive, made by ``listen``; an asynchronous context manager.

    Requests are taken as the ULP asks for them; the system keeps at most ``backlog`` more (RFC 5043 §6.4).
    """

    async def request(self, config: Config) -> SctpRequest:
        """Wait for an association and its Initiate.

        Raises MpaConnectionError if no good Initiate comes, and at once ValueError for an initiator's ``config``.
        """
        config.check_role(Role.RESPONDER)
        sock, _ = await when_ready(self._socket, self._socket.accept)
        return await request(_kernel_link(sock), config)


async def listen(host: str = "127.0.0.1", port: int = 0, backlog: int = 128) -> SctpListener:
    """Listen for associations at a numeric address; raises MpaConnectionError if the address is not available."""
    sock = sctp_socket(_family(host))
    try:
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise MpaConnectionError(f"cannot listen at {place((host, port))}: {how(error)}", Reason.LOCAL) from error
    return SctpListener(sock)


async def initiate(host: str, port: int, config: Config, *, fallback: bool = False) -> SctpConnection:
    """Associate with a numeric address and open a session; ``fallback`` is that of ``connection.initiate``.

    Raises SctpRejectedError if the passive side rejects, MpaConnectionError for every other failure, and ValueError for
    a responder's ``config``.
    """
    config.check_role(Role.INITIATOR)
    sock = sctp_socket(_family(host))
    try:
        async with asyncio.timeout(config.timeout):
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
        link = _kernel_link(sock)
    except OSError as error:  # TimeoutError is an OSError
        sock.close()
        reason = how(error) or no_answer(config.timeout)
        what = f"cannot connect to {place((host, port))}: {reason}"
        raise MpaConnectionError(what, Reason.CONNECTION_LOST) from error
    try:
        return await open_session(link, config)
    except MpaConnectionError as error:
        if not (fallback and error.may_retry_unenhanced):
            raise
        return await initiate(host, port, config.unenhanced())


async def open_session(link: Link, config: Config) -> SctpConnection:
    """Open a session over a link as its active side; see ``initiate``."""
    config.check_role(Role.INITIATOR)
    connection = SctpConnection(link, config)
    outcome = await connection._start()
    if isinstance(outcome, SessionRejected):
        await connection.close()
        raise SctpRejectedError(outcome)
    return connection


async def request(link: Link, config: Config) -> SctpRequest:
    """Wait for an Initiate over a link; see ``SctpListener.request``."""
    config.check_role(Role.RESPONDER)
    connection = SctpConnection(link, config)
    outcome = await connection._start()
    if isinstance(outcome, SessionRejected):  # rejected by the configuration alone
        await connection.close()
        raise SctpRejectedError(outcome)
    assert isinstance(outcome, SessionRequested)
    return SctpRequest(connection, outcome)


def _kernel_link(sock: socket.socket) -> KernelLink:
    sock.setblocking(False)
    try:
        return KernelLink(sock)
    except OSError as error:  # lost already
        sock.close()
        what = f"the association was lost at once: {how(error)}"
        raise MpaConnectionError(what, Reason.CONNECTION_LOST) from error


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
