"""Connections: the startup exchange over a TCP socket, and the octets between that socket and a device.

    ULP ── send_ulpdu, receive_ulpdu ── Device ── MPA stream ── socket ── the peer

All octets of the socket go through the device, those of the startup frames in stream mode. Four tasks serve a
connection: two carry the MPA stream between socket and device, one fetches ULPDUs, one fetches events. Each
waits until what it has is taken (up to 16 ULPDUs may wait for the ULP), so a slow ULP slows the peer, and a
slow peer the ULP.

What ends a connection out of order is one ``MpaConnectionError``; its text is one line that says what
happened and where. A stream offset in it counts from where MPA began in that direction, in the startup
exchange from where the TCP connection began.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from errno import EMFILE
from struct import pack
from typing import Any, Protocol, Self

from open_rnic.host_driver.device import Device, DeviceError, Event
from open_rnic.host_driver.machine import ProtocolError
from open_rnic.host_driver.mpa.fpdu import mulpdu
from open_rnic.host_driver.mpa.negotiation import (
    Config,
    Established,
    Failed,
    Input,
    Negotiated,
    Negotiation,
    Reason,
    Rejected,
    Requested,
    Send,
    State,
)
from open_rnic.host_driver.mpa.negotiation import Event as Outcome
from open_rnic.host_driver.mpa.startup import StartupFrame
from open_rnic.rtl.registers import BY_NAME, Cause, EventKind, Model, Role, Rtr, Verdict

CHUNK_OCTETS = 65536  # at most so many are taken from the socket at once
ULPDUS_WAITING = 16  # so many are fetched ahead of the ULP
EVENTS_WAITING = 64  # so many wait for the ULP before the device's own FIFO fills
POLL = 0.01  # seconds between two looks at a device's counters, at the end of a connection
STILL_POLLS = 25  # a device that has moved nothing in so many looks has nothing more to give
FIRST_OCTETS = 1024  # of what is received are kept: a startup frame, and a Terminate behind it
BACKLOG = 4096  # TCP connections that may wait in the kernel; it takes its own limit, net.core.somaxconn, if lower
LINGER = 1.0  # seconds that the receiver of a Terminate, or of a rejecting Reply, may take to close

Address = tuple[Any, ...]  # as the socket module has it: host, port, and for IPv6 two more


class MpaConnectionError(ConnectionError):
    """A connection could not be made, or ended out of order.

    ``reason`` has the MPA error code (RFC 5044 §8, RFC 6581 §8). ``failed`` is the negotiation's last event if it
    failed in the startup exchange, ``event`` the device's if that found the error. ``terminate_code``: the peer is
    told by a Terminate of layer 2, type 0 and this code, right behind the exchange (RFC 6581 §8). ``without_crc``: the
    first ULPDU, when it was refused because its CRC field was left 0; no octets otherwise.
    """

    def __init__(
        self, what: str, reason: Reason, *, failed: Failed | None = None, event: Event | None = None
    ) -> None:
        super().__init__(what)
        self.reason = reason
        self.failed = failed
        self.event = event
        self.without_crc = b""
        self.terminate_code = reason.code if failed and failed.terminate else None
        self.may_retry_unenhanced = failed is not None and failed.may_retry_unenhanced


class RejectedError(MpaConnectionError):
    """The responder said no: ``frame`` is its Reply (R=1), ``theirs`` the peer's frame, for a responder the Request."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.what, Reason.CONNECTION_LOST)
        self.frame = rejected.frame
        self.theirs = rejected.theirs
        self.may_retry_unenhanced = rejected.may_retry_unenhanced


class Direction(Enum):
    """Of octets, as the end sees it that reports them."""

    TX = "sent"
    RX = "received"


class Observer(Protocol):
    """What sees all that a connection does, in order. Its methods must not wait."""

    def opened(self, local: Address, peer: Address) -> None:
        """The TCP connection exists."""

    def frame(self, direction: Direction, frame: StartupFrame) -> None:
        """A startup frame goes out, or has come in whole."""

    def negotiated(self, negotiated: Negotiated) -> None:
        """The startup exchange succeeded; the device is about to be told."""

    def stream(self, direction: Direction, octets: bytes) -> None:
        """Octets of the TCP stream: one startup frame or FPDU when sent, cut anywhere when received."""

    def event(self, event: Event) -> None:
        """The device reported this."""

    def closed(self) -> None:
        """The socket is closed."""


class Silent:
    """The observer that does nothing; a base for others."""

    def opened(self, local: Address, peer: Address) -> None:
        """See Observer."""

    def frame(self, direction: Direction, frame: StartupFrame) -> None:
        """See Observer."""

    def negotiated(self, negotiated: Negotiated) -> None:
        """See Observer."""

    def stream(self, direction: Direction, octets: bytes) -> None:
        """See Observer."""

    def event(self, event: Event) -> None:
        """See Observer."""

    def closed(self) -> None:
        """See Observer."""


SILENT = Silent()


def terminate_ulpdu(code: int) -> bytes:
    """The Terminate of MPA errors: layer 2, type 0, and no headers of what went wrong (RFC 5040 §4.8)."""
    return pack(">BBIIIII", 0x41, 0x47, 0, 2, 1, 0, 0x2000_0000 | code << 16)  # on QN 2, MSN 1, MO 0


class Connection:
    """An established connection, made by ``initiate`` or ``Request.accept``; an asynchronous context manager.

    ``device`` stays the caller's; it may be used again after ``close``. ``error`` is what ended the
    connection out of order.
    """

    def __init__(
        self, sock: socket.socket, device: Device, config: Config, observer: Observer, heard: bytes = b""
    ) -> None:
        self.device = device
        self.config = config
        self.local: Address = sock.getsockname()
        self.peer: Address = sock.getpeername()
        self.error: MpaConnectionError | None = None
        self._socket = sock
        self._heard = heard  # octets that were taken from the socket before
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._negotiation = Negotiation(config)
        self._negotiated: Negotiated | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._interruptible: dict[asyncio.Task[Any], bool] = {}
        self._ulpdus: asyncio.Queue[bytes | None] = asyncio.Queue(ULPDUS_WAITING)  # None: there are no more
        self._events: asyncio.Queue[Event] = asyncio.Queue(EVENTS_WAITING)
        self._enabled = asyncio.Event()
        self._open = asyncio.Event()
        self._terminated = asyncio.Event()
        self._peer_closed = asyncio.Event()
        self._finishing = False
        self._half_closed = False  # this end's half
        self._untold = False  # there was a Terminate to send, and it has not left
        # Octets of the TCP stream, and how many of them were startup frames
        self._received = self._received_before_mpa = 0
        self._first = b""  # the octets received first
        self._sent = self._sent_before_mpa = 0
        # ULPDUs that crossed the device's interface, and FPDUs of the device's own
        self._fetched = self._consumed = 0
        self._written = self._generated = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # RFC 5044 §5.1: FPDUs leave at once

    # For the ULP

    @property
    def negotiated(self) -> Negotiated:
        """What the two ends agreed on."""
        if self._negotiated is None:
            raise RuntimeError("nothing is negotiated before the connection is established")
        return self._negotiated

    @property
    def mulpdu(self) -> int:
        """MULPDU: the longest ULPDU, in octets, whose FPDU fits in one TCP segment now (RFC 5044 §4.5)."""
        emss = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        return mulpdu(emss, markers=self.negotiated.markers_tx)

    async def ready(self) -> None:
        """Wait until ULPDUs may leave, for a responder until the RTR or the first FPDU has come."""
        with self.interrupted():
            await self._open.wait()

    async def send_ulpdu(self, octets: bytes) -> None:
        """Send one ULPDU; waits while the device has no room. Raises MpaConnectionError."""
        await self.send_ulpdus((octets,))

    async def send_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """Send these, the segments of a message for instance: cheaper than one by one."""
        with self.interrupted():
            self._written += len(ulpdus)
            try:
                await self.device.write_ulpdus(ulpdus)
            except BaseException:
                self._written -= len(ulpdus)  # they may have been taken all the same: _all_left knows
                raise

    async def receive_ulpdu(self) -> bytes | None:
        """The next ULPDU; None when the peer has closed in order.

        Raises MpaConnectionError when the connection ended otherwise, after every good ULPDU.
        """
        octets = await self._ulpdus.get()
        if octets is None:
            self._ulpdus.put_nowait(None)  # for who asks again
            if self.error:
                raise self.error
        return octets

    async def next_event(self) -> Event:
        """The device's next event; waits for it."""
        return await self._events.get()

    async def flush(self) -> None:
        """Wait until every ULPDU has left."""
        with self.interrupted():
            if self.negotiated.model is Model.PEER_TO_PEER:
                await self._open.wait()  # to a Read RTR an answer is still due
            await _until(self._all_left)

    async def delivered(self, taken: Callable[[], int], enough: Callable[[], bool]) -> None:
        """Wait until the ULP has had every ULPDU that has come by now.

        ``taken`` says how many it has had, ``enough`` that it takes no more for now.
        """

        async def holds() -> bool:
            return enough() or (taken() + self._consumed - fpdus) % 2**32 < 2**31

        with self.interrupted():
            fpdus = await self.device.get("RX_FPDUS")
            await _until(holds)

    async def finish(self) -> None:
        """Wait until every ULPDU has left, then close this end's half of the TCP connection."""
        await self.flush()
        self._shut()

    async def terminate(self, cause: int | bytes) -> None:
        """End with a Terminate: after an error it is the one ULPDU that still leaves.

        ``cause`` is an MPA error code, or the whole ULPDU of another layer's Terminate. When it cannot leave, because
        this end's half is closed already, a responder must not send yet or no way is free within a second, ``close``
        resets: that is all that is left to tell the peer that this is no end in order (RFC 5040 §6.2.1).
        """
        self._untold = True
        if self._half_closed:
            return
        with contextlib.suppress(DeviceError, TimeoutError):
            async with asyncio.timeout(LINGER):
                if not await self._may_terminate():
                    return
                await self.device.write_ulpdu(terminate_ulpdu(cause) if isinstance(cause, int) else cause)
                await self._terminated.wait()
                await _until(self._octets_left)
                self._untold = False
                self._shut()

    async def _may_terminate(self) -> bool:
        """Whether a Terminate may leave; waits until that is known.

        Without enhanced frames a responder must have received a valid FPDU (RFC 5044 §7.1.2 rule 4). With them it need
        not: it sends a Terminate before it resets (RFC 6581 §9.3).
        """
        if self.negotiated.enhanced or self.negotiated.role is Role.INITIATOR:
            return True

        async def validated() -> bool:
            return await self.device.get("RX_FPDUS") > 0

        async def known() -> bool:
            return await validated() or self._finishing

        await _until(known)
        return await validated()

    async def linger(self) -> None:
        """Let the peer close first, within a second: to close with octets unread would destroy a Terminate."""
        if self._untold:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                with contextlib.suppress(MpaConnectionError):
                    while await self.receive_ulpdu() is not None:
                        pass
                await self._peer_closed.wait()

    async def _let_peer_close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self._peer_closed.wait()

    async def abort(self, what: str) -> None:
        """End because of an error at this end: with Terminate 2/0/5 (RFC 6581 §9.3), and close.

        A responder's Terminate waits for the first FPDU, a second at most; without one this is a reset. Whoever waits
        for something here fails with ``what``.
        """
        self._fail(MpaConnectionError(what, Reason.LOCAL))
        await self.terminate(Reason.LOCAL.code)
        await self.linger()
        await self.close()

    async def close(self, *, reset: bool = False) -> None:
        """End every task and the socket. Idempotent; the device stays open.

        ``reset``: so that the peer cannot take it for an end in order, as always when a Terminate could not leave.
        """
        self._fail(MpaConnectionError("the connection was closed at this end", Reason.CONNECTION_LOST))
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._ulpdus.full():
            self._ulpdus.put_nowait(None)
        if self._socket.fileno() >= 0:
            if reset or self._untold:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            self._socket.close()
            self._observer.closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # The startup exchange

    async def _start(self) -> Requested | None:
        """Reset the device and exchange frames until MPA is on, or until the ULP must decide."""
        self._observer.opened(self.local, self.peer)
        await self.device.set_fields("CONTROL", reset=1)
        await self.device.set("RX_STREAM_OCTETS", 0)
        await self.device.set("TX_STREAM_OCTETS", 0)
        for work in (self._carry_out, self._carry_in, self._watch_events):
            self._spawn(work)
        requested = await self._act(self._negotiation.start(self._loop.time()))
        while self._negotiation.wanted:
            requested = await self._act(await self._startup_octets())
        return requested

    async def _startup_octets(self) -> list[Outcome]:
        """Let the device pass as many octets as are the peer's frame, and no more."""
        negotiation = self._negotiation
        await self.device.set("RX_STREAM_OCTETS", self._received_before_mpa + negotiation.wanted)
        try:
            with self.interrupted():
                async with asyncio.timeout_at(negotiation.deadline):
                    ulpdu = await self.device.read_ulpdu()
        except TimeoutError:
            return negotiation.tick(max(self._loop.time(), negotiation.deadline or 0.0))
        if ulpdu.verdict is not Verdict.STREAM or len(ulpdu.octets) > negotiation.wanted:
            what = f"{len(ulpdu.octets)} octets with verdict {ulpdu.verdict.name}"
            raise DeviceError(f"it passed {what} where up to {negotiation.wanted} stream octets are due")
        self._received_before_mpa += len(ulpdu.octets)
        outcome = negotiation.receive(ulpdu.octets)
        if negotiation.received:
            self._observer.frame(Direction.RX, negotiation.received)
        return outcome

    async def _act(self, outcome: list[Outcome]) -> Requested | None:
        for event in outcome:
            match event:
                case Send(frame, octets):
                    self._sent_before_mpa = len(octets)
                    await self.device.set("TX_STREAM_OCTETS", len(octets))
                    self._observer.frame(Direction.TX, frame)
                    with self.interrupted():
                        await self.device.write_ulpdu(octets)
                case Requested():
                    return event
                case Established(negotiated):
                    try:
                        self._observer.negotiated(negotiated)
                    except Exception as error:
                        await self._act(self._negotiation.abort(str(_observer_failed(error))))
                    await self._enable(negotiated)
                case Rejected():
                    with self.interrupted():
                        await _until(self._octets_left)
                    if self._negotiation.config.role is Role.RESPONDER:
                        # The initiator closes (RFC 5044 §7.1.4). A FIN right behind the Reply would be the first thing
                        # that some see, Linux' siw for one, and then their ULP never learns of the private data.
                        await self._let_peer_close()
                    raise RejectedError(event)
                case Failed():
                    await self._give_up(event)
        return None

    async def _enable(self, negotiated: Negotiated) -> None:
        self._negotiated = negotiated
        await self.device.set_fields(
            "CONFIG",
            role=negotiated.role,
            model=negotiated.model,
            rtr_send=negotiated.rtr_send,
            rtr_accept=sum(kind.bit for kind in negotiated.rtr_accept),
            permissive=self._negotiation.config.permissive,
            markers_tx=negotiated.markers_tx,
            markers_rx=negotiated.markers_rx,
            crc_tx=negotiated.crc,
            crc_rx=negotiated.crc,
        )
        self._spawn(self._fetch_ulpdus)
        await self.device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        self._enabled.set()

    async def _give_up(self, failed: Failed) -> None:
        if failed.terminate:
            await self._enable(failed.terminate)
            await self.terminate(failed.reason.code)
            await self.linger()
        raise MpaConnectionError(failed.what, failed.reason, failed=failed)

    async def _run(self, part: Coroutine[Any, Any, Requested | None]) -> Requested | None:
        """Run a part of the exchange; when it does not succeed, nothing is left behind."""
        try:
            return await part
        except DeviceError as error:
            await self.close()
            raise _device_failed(error) from error
        except BaseException:
            await self.close()
            raise

    # The tasks

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.add(asyncio.create_task(self._guard(work)))

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:  # a device that failed, or an observer
            failure = _device_failed(error) if isinstance(error, DeviceError) else _observer_failed(error)
            failure.__cause__ = error
            self._fail(failure)
            await self._ulpdus.put(None)

    async def _carry_out(self) -> None:
        while True:
            for octets in await self.device.read_fpdus():
                self._observer.stream(Direction.TX, octets)
                try:
                    await self._loop.sock_sendall(self._socket, octets)
                except OSError as error:
                    return self._lost(self._broken(error))
                self._sent += len(octets)

    async def _carry_in(self) -> None:
        how = "the peer closed"
        try:
            while octets := self._heard or await self._loop.sock_recv(self._socket, CHUNK_OCTETS):
                self._heard = b""
                self._first += octets[: max(0, FIRST_OCTETS - self._received)]
                self._received += len(octets)
                self._observer.stream(Direction.RX, octets)
                await self.device.write_mpa(octets)
        except OSError as error:
            how = self._broken(error)
            if self._negotiation.state.final:
                self._lost(how)
        self._peer_closed.set()
        await _until(self._startup_is_in)
        if self._negotiation.state.final:
            await self._finish_receiving()
        else:
            self._lost(how)

    async def _fetch_ulpdus(self) -> None:
        while ulpdus := await self.device.read_ulpdus():
            for each in ulpdus:
                await self._ulpdus.put(each)
                self._fetched += 1

    async def _watch_events(self) -> None:
        while True:
            event = await self.device.next_event()
            self._observer.event(event)
            match event.kind:
                case EventKind.FENCE_OPEN:
                    self._open.set()
                case EventKind.TERMINATE_SENT:
                    self._terminated.set()
                case EventKind.RTR_SENT:
                    self._generated += 1
                case EventKind.RTR_RECEIVED:
                    self._consumed += 1
                    self._generated += event.detail == Rtr.READ  # the Read Response, which may leave later
                case EventKind.RESPONSE_RECEIVED:
                    self._consumed += 1
                case EventKind.ERROR:
                    error = MpaConnectionError(str(event), _REASONS[event.cause.code], event=event)
                    error.without_crc = self._without_crc(event)
                    self._fail(error)
                    self._spawn(self._finish_receiving)
            await self._events.put(event)

    def _without_crc(self, event: Event) -> bytes:
        """The first ULPDU if its CRC was left out: there are peers whose first Terminates have none."""
        if event.cause is not Cause.CRC or event.offset or self.negotiated.markers_rx:
            return b""
        end = 2 + event.value
        fpdu = self._first[self._received_before_mpa :][: end + -end % 4 + 4]
        return fpdu[2:end] if len(fpdu) == end + -end % 4 + 4 and not any(fpdu[-4:]) else b""

    # The end

    async def _finish_receiving(self) -> None:
        """Let the ULP have every good ULPDU, then tell it that there are no more."""
        if self._finishing:
            return
        self._finishing = True
        await self._enabled.wait()
        good = await self._settle()
        after = self._received - self._received_before_mpa - good
        if after:
            self._lost(f"the peer closed inside an FPDU, {after} octets after stream offset {good}")
        elif self._unopened and not _FENCE.get(await self.device.get("STATE")):
            first = "RTR" if self.negotiated.model is Model.PEER_TO_PEER else "first FPDU"
            self._lost(f"the peer closed before its {first}")
        await self._ulpdus.put(None)

    @property
    def _unopened(self) -> bool:
        """A shut fence is an error: in the client-server model an end with nothing to send may do without."""
        return self.negotiated.model is Model.PEER_TO_PEER or self._written > 0

    async def _settle(self) -> int:
        """Wait until the device has nothing more to give; how many octets of the MPA stream it found good.

        With an incomplete FPDU or an error in the stream, that is when nothing moves any more.
        """
        before, still = (-1, -1), 0
        while True:
            good = await self.device.get_wide("RX_OCTETS")
            fpdus = await self.device.get("RX_FPDUS")
            taken = self._fetched + self._consumed
            whole = good == self._received - self._received_before_mpa
            still = still + 1 if (good, taken) == before and not self._ulpdus.full() else 0
            if ((taken - fpdus) % 2**32 == 0 and (whole or self.error)) or still == STILL_POLLS:
                return good
            before = good, taken
            await asyncio.sleep(POLL)

    async def _startup_is_in(self) -> bool:
        """The negotiation has had all that it wants of what has come."""
        return self._received_before_mpa >= self._received or not self._negotiation.wanted

    async def _octets_left(self) -> bool:
        return self._sent >= self._sent_before_mpa + await self.device.get_wide("TX_OCTETS")

    async def _all_left(self) -> bool:
        fpdus = await self.device.get("TX_FPDUS")
        more = (fpdus - self._written - self._generated) % 2**32  # than were handed over; huge while some are missing
        return more < 2**31 and await self._octets_left()

    def _shut(self) -> None:
        self._half_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _broken(self, error: OSError) -> str:
        return f"{_how(error)} ({self._received} octets received, {self._sent} sent)"

    def _lost(self, how: str) -> None:
        for failed in self._negotiation.connection_lost(how):
            if isinstance(failed, Failed):
                return self._fail(MpaConnectionError(failed.what, failed.reason, failed=failed))
        return self._fail(MpaConnectionError(how, Reason.CONNECTION_LOST))

    def _fail(self, error: MpaConnectionError) -> None:
        """Keep the first error, and end all waiting that is now in vain."""
        self.error = self.error or error
        for task, interrupted in self._interruptible.items():
            if not interrupted:
                self._interruptible[task] = True
                task.cancel()

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """In its body waiting ends with ``error`` as soon as there is one, by the means of ``asyncio.timeout``."""
        if self.error:
            raise self.error
        task = asyncio.current_task()
        assert task
        self._interruptible[task] = False
        try:
            yield
        except asyncio.CancelledError:
            if self._interruptible[task] and not task.uncancel() and self.error:
                raise self.error from None
            raise
        except DeviceError as error:
            raise self.error or _device_failed(error) from error
        finally:
            del self._interruptible[task]


class Request:
    """A connection request that waits for the ULP: ``frame`` and ``model`` are what the initiator asks for."""

    def __init__(self, connection: Connection, requested: Requested) -> None:
        self.frame = requested.frame
        self.model = requested.model
        self.peer = connection.peer
        self._connection = connection

    async def accept(self, private_data: bytes = b"", config: Config | None = None) -> Connection:
        """Answer with a Reply and turn MPA on; with another ``config`` if the Request makes the ULP want one.

        Raises ValueError for too much private data, and ProtocolError when it has been answered.
        """
        connection = self._connection
        self._check(Input.ACCEPT)
        await connection._run(connection._act(connection._negotiation.accept(private_data, config)))
        return connection

    async def reject(
        self,
        private_data: bytes = b"",
        what: str = "the ULP rejected the connection",
        config: Config | None = None,
    ) -> None:
        """Answer with a rejecting Reply and close; ``min_ord`` of a ``config`` tells the initiator what it takes.

        Raises ValueError for too much private data, and ProtocolError when it has been answered.
        """
        connection = self._connection
        self._check(Input.REJECT)
        with contextlib.suppress(RejectedError):
            await connection._run(connection._act(connection._negotiation.reject(private_data, what, config)))

    @property
    def answered(self) -> bool:
        """It has been accepted or rejected."""
        return self._connection._negotiation.state in (State.ESTABLISHED, State.REJECTED)

    async def close(self) -> None:
        """Close without an answer; does nothing when there has been one."""
        if not self.answered:
            await self._connection.close()

    def _check(self, given: Input) -> None:
        if self.answered:
            raise ProtocolError(self._connection._negotiation.state, given)
        if self._connection.error:
            raise self._connection.error


class Arrival:
    """A TCP connection that has come, before its Request."""

    def __init__(self, sock: socket.socket, peer: Address) -> None:
        self.peer = peer
        self._socket = sock
        self._heard = b""

    async def hear(self, config: Config) -> None:
        """Wait until the peer has sent a whole Request, or something else: ``request`` need not wait for the peer then.

        Until then a connection costs a socket, and the octets of one startup frame at most. Raises MpaConnectionError
        when the peer closes before, or ``config.timeout`` seconds have passed.
        """
        loop, negotiation = asyncio.get_running_loop(), Negotiation(config)
        outcome = negotiation.start(loop.time())
        try:
            async with asyncio.timeout_at(negotiation.deadline):
                while not outcome:
                    octets = await loop.sock_recv(self._socket, negotiation.wanted)
                    self._heard += octets
                    outcome = negotiation.receive(octets) if octets else negotiation.connection_lost("the peer closed")
                    if octets and outcome:
                        return
        except TimeoutError:
            outcome = negotiation.tick(max(loop.time(), negotiation.deadline or 0.0))
        except OSError as error:
            outcome = negotiation.connection_lost(_how(error))
        for failed in outcome:
            if isinstance(failed, Failed):
                raise MpaConnectionError(failed.what, failed.reason, failed=failed)

    async def request(self, device: Device, config: Config, observer: Observer = SILENT) -> Request:
        """Wait for the Request; raises RejectedError and MpaConnectionError as ``Listener.request`` does.

        Raises ValueError for an initiator's ``config``.
        """
        config.check_role(Role.RESPONDER)
        connection = _connection(self._socket, device, config, observer, self._heard)
        requested = await connection._run(connection._start())
        assert requested
        return Request(connection, requested)

    def close(self) -> None:
        """Close it unheard."""
        self._socket.close()


class Listener:
    """A port at which connection requests arrive, made by ``listen``; an asynchronous context manager."""

    def __init__(self, sock: socket.socket) -> None:
        self.address: Address = sock.getsockname()
        self._socket = sock

    async def arrival(self) -> Arrival:
        """Wait for a TCP connection. While its Request is awaited, others can be taken.

        Raises MpaConnectionError when the system has no file descriptor for it; it waits then, and can be taken later.
        """
        try:
            while True:
                await _readable(self._socket)  # or accept fails without descriptors even when nobody has come
                with contextlib.suppress(ConnectionAbortedError):  # that one has gone again
                    return Arrival(*await asyncio.get_running_loop().sock_accept(self._socket))
        except OSError as error:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            how = _how(error) + (f", {limit} is this process's limit (ulimit -n)" if error.errno == EMFILE else "")
            what = f"cannot take a connection at {_place(self.address)}: {how}"
            raise MpaConnectionError(what, Reason.LOCAL) from error

    async def request(self, device: Device, config: Config, observer: Observer = SILENT) -> Request:
        """Wait for a TCP connection and for the Request that comes over it.

        Raises RejectedError when the configuration itself rejects it, MpaConnectionError when no good Request comes,
        and at once ValueError for an initiator's ``config``. One peer is heard after the other: to hear many at a time
        is what ``host_driver.rdma.listen`` does.
        """
        config.check_role(Role.RESPONDER)
        return await (await self.arrival()).request(device, config, observer)

    async def accept(self, device: Device, config: Config, observer: Observer = SILENT) -> Connection:
        """Accept the next connection request, whatever it is."""
        return await (await self.request(device, config, observer)).accept()

    async def close(self) -> None:
        """Listen no more. Idempotent; connections stay."""
        self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def listen(host: str = "127.0.0.1", port: int = 0) -> Listener:
    """Listen for connections; port 0 lets the system choose. Raises MpaConnectionError when it cannot be had."""
    family, _, _, _, address = (await _resolve(host, port))[0]
    try:
        sock = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise MpaConnectionError(f"cannot listen at {_place(address)}: {_how(error)}", Reason.LOCAL) from error
    sock.setblocking(False)
    return Listener(sock)


async def initiate(
    host: str,
    port: int,
    device: Device,
    config: Config,
    observer: Observer = SILENT,
    *,
    fallback: bool = False,
    retrying: Callable[[MpaConnectionError], None] = lambda error: None,
    local_addr: Address | None = None,
) -> Connection:
    """Connect and negotiate as an initiator; returns when MPA is on.

    ``local_addr`` is this end's address and port, port 0 lets the system choose; None: both are the system's choice.
    ``fallback``: try once more, unenhanced, when the responder seems to know RFC 5044 only (RFC 6581 §10);
    ``retrying`` is called before that, with what became of the first attempt. Raises RejectedError when the responder's
    ULP says no, MpaConnectionError for all else that goes wrong, and ValueError for a responder's ``config``.
    """
    config.check_role(Role.INITIATOR)
    connection = _connection(await _connect(host, port, config.timeout, local_addr), device, config, observer)
    try:
        await connection._run(connection._start())
    except MpaConnectionError as error:
        if not (fallback and error.may_retry_unenhanced):
            raise
        retrying(error)
        plain = replace(config, enhanced=False, model=Model.CLIENT_SERVER)
        return await initiate(host, port, device, plain, observer, local_addr=local_addr)
    return connection


def _connection(
    sock: socket.socket, device: Device, config: Config, observer: Observer, heard: bytes = b""
) -> Connection:
    try:
        return Connection(sock, device, config, observer, heard)
    except OSError as error:  # reset already
        sock.close()
        what = f"the TCP connection was lost at once: {_how(error)}"
        raise MpaConnectionError(what, Reason.CONNECTION_LOST) from error


async def _connect(host: str, port: int, timeout: float, local_addr: Address | None) -> socket.socket:
    loop = asyncio.get_running_loop()
    reason = "no address"
    ours = {family: address for family, _, _, _, address in await _resolve(*local_addr[:2])} if local_addr else None
    origin = f" from {_place(local_addr)}" if local_addr else ""
    for family, kind, protocol, _, address in await _resolve(host, port):
        if ours is not None and family not in ours:
            reason = f"cannot connect to {_place(address)}{origin}: one address is IPv4, the other IPv6"
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
            why = _how(error) or f"no answer within {timeout:g} s"
            reason = f"cannot connect to {_place(address)}{origin}: {why}"
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise MpaConnectionError(reason, Reason.CONNECTION_LOST)


async def _resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise MpaConnectionError(f"a port is 0 to 65535, not {port}", Reason.LOCAL)
    try:
        with contextlib.suppress(socket.gaierror):  # an address needs no thread to wait in
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter for what can be no name at all
        how = _how(error) if isinstance(error, OSError) else "that is no host name"
        raise MpaConnectionError(f"cannot find {host!r} port {port}: {how}", Reason.LOCAL) from error
    return list(found)


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sock)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    pause = 0.0
    while not await holds():
        await asyncio.sleep(pause)
        pause = min(2 * pause + 0.001, POLL)


def _device_failed(error: DeviceError) -> MpaConnectionError:
    return MpaConnectionError(f"the device failed: {error}", Reason.LOCAL)


def _observer_failed(error: Exception) -> MpaConnectionError:
    return MpaConnectionError(f"the connection's observer failed: {_how(error) or repr(error)}", Reason.LOCAL)


def _place(address: Address) -> str:
    return f"{address[0]} port {address[1]}"


def _how(error: Exception) -> str:
    match error:
        case socket.gaierror():
            return str(error.strerror)
        case OSError(errno=int(number)):
            return os.strerror(number)  # asyncio and socket put the address behind it, which we say ourselves
        case _:
            return str(error)


_FENCE = BY_NAME["STATE"]["fence_open"]
_REASONS = {reason.code: reason for reason in Reason}
