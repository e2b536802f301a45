"""RDMA connections: an RDMAP stream on a negotiated connection, for asyncio.

Two tasks serve a connection besides those of ``host_driver.connection``: one fetches ULPDUs to send from the stream,
the other hands received ULPDUs to it. If DDP is in the device, the first follows its interrupts instead. Each posted
request ends in one ``Completion``, which goes to a completion queue, to a future, or to ``receive``. Every queue is
bounded: ``Options`` limits posted work and posted buffers, and a Send of the peer waits in TCP while no buffer is
posted for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from open_rnic.host_driver import connection as mpa
from open_rnic.host_driver.connection import Address, MpaConnectionError
from open_rnic.host_driver.ddp import UNTAGGED_OCTETS, DdpError, Fault, Opcode, Terminate
from open_rnic.host_driver.device import Device, DeviceError, Event
from open_rnic.host_driver.errors import device_failed
from open_rnic.host_driver.mpa.negotiation import Negotiated, Reason
from open_rnic.host_driver.mpa.rtr import is_terminate_instead_of_rtr
from open_rnic.host_driver.observer import Observer, Reported, Seen
from open_rnic.host_driver.rdma.memory import Access, Growing, Piece, ProtectionDomain, Region
from open_rnic.host_driver.rdma.offload import OffloadStream
from open_rnic.host_driver.rdma.stream import Receive, SoftwareStream, Stream, Work
from open_rnic.host_driver.rdma.work import (
    Completion,
    CompletionQueue,
    Deliver,
    QueueFullError,
    Received,
    ReceiveRequest,
    Status,
    WorkRequest,
    resolve,
)
from open_rnic.host_driver.sockets import place
from open_rnic.rtl.registers import EventKind, Model, Role, Rtr

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from open_rnic.host_driver.rdma.memory import Gather

_log = logging.getLogger(__name__)

BATCH = 65536  # octets: a batch of ULPDUs is handed over if it has at least this many

_HINT = 5.0  # seconds that a Send waits for a buffer, and an RDMA Read behind it, before a warning
_PATIENCE = 100  # looks at memory without a pause
_LOOK = 0.0005  # seconds between later looks

OpenDevice = Callable[[], Awaitable[Device]]


class By(StrEnum):
    """The end that ended a connection."""

    LOCAL = "local"
    PEER = "peer"


class RdmaError(ConnectionError):
    """The connection is over. Posted work that has not completed fails with this error, and so does all later work."""


class TerminatedError(RdmaError):
    """A Terminate ended the connection; ``by`` is the end that sent it."""

    def __init__(self, terminate: Terminate, by: By, what: str = "") -> None:
        who = "the peer ended the connection" if by is By.PEER else "this end ended the connection"
        super().__init__(f"{who}, {terminate}" + (f": {what}" if what else ""))
        self.terminate = terminate
        self.by = by
        self.what = what

    @property
    def fault(self) -> Fault | None:
        """The fault that ``layer``, ``type`` and ``code`` stand for; None if no RFC defines it."""
        return self.terminate.fault

    @property
    def layer(self) -> int:
        """0 RDMAP, 1 DDP, 2 MPA (RFC 5040 §4.8)."""
        return self.terminate.layer

    @property
    def type(self) -> int:
        """The error type; its meaning depends on the layer."""
        return self.terminate.type

    @property
    def code(self) -> int:
        """The error code; its meaning depends on the layer and the type."""
        return self.terminate.code


class ClosedError(RdmaError):
    """The connection, or the peer's half of it, was closed in order."""

    def __init__(self, by: By) -> None:
        super().__init__(f"the connection was closed by {'this end' if by is By.LOCAL else 'the peer'}")
        self.by = by


class LostError(RdmaError):
    """The connection ended without a Terminate and out of order; ``reason`` has the MPA error code."""

    def __init__(self, what: str, reason: Reason) -> None:
        super().__init__(what)
        self.reason = reason


@dataclass(frozen=True)
class Options:
    """The settings of a connection that are not negotiated.

    ``receiver_waits`` selects the treatment of a Send for which no buffer is posted (RFC 5041 §7.1 allows both). If it
    is True, the Send and everything behind it wait in TCP until a buffer is posted. If it is False, the connection ends
    with Terminate 1/2/2.
    """

    send_depth: int = 128  # maximum number of posted Sends, RDMA Writes and RDMA Reads
    receive_depth: int = 128  # maximum number of posted buffers
    receiver_waits: bool = True
    mulpdu: int | None = None  # octets: an upper limit of the MULPDU, besides the EMSS; it is not rounded
    send_cq: CompletionQueue | None = None  # for the requests of ``post``; connections may share a queue
    receive_cq: CompletionQueue | None = None
    linger: float = 2.0  # maximum duration of ``close`` in seconds

    def __post_init__(self) -> None:
        for name in ("send_depth", "receive_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        if self.mulpdu is not None and self.mulpdu < 128:
            raise ValueError(f"mulpdu is at least 128 octets (RFC 5044 §4.5), not {self.mulpdu}")


class Connection:
    """An established connection, made by ``connect`` or ``ConnectionRequest.accept``.

    It is an asynchronous context manager, which closes the connection at its end. Sends, RDMA Writes and RDMA Reads
    leave and complete in the order in which they are posted. Requests given to ``post`` complete through the completion
    queue, all others through a future. ``post`` and the ``post_`` methods return at once, and raise QueueFullError if
    there is no room; ``send``, ``write`` and ``read`` wait for room and for the completion. All of them raise
    ValueError for work that can never be carried out, and an RdmaError if the connection is over.

    Local memory is a buffer, a ``Region``, a slice of a region, or a list of these: a scatter/gather list.
    """

    def __init__(self, lower: mpa.Connection, watch: Watch, stream: Stream, options: Options) -> None:
        negotiated = lower.negotiated
        self.options = options
        self.domain = stream.domain
        self.error: RdmaError | None = None
        self.rtr = negotiated.rtr_send  # the kind of RTR that this end sends
        self._lower = lower
        self._stream = stream
        self._wake = asyncio.Event()  # there may be something to send
        self._posted = asyncio.Event()  # a buffer has been posted
        self._taken = 0  # number of received ULPDUs that the stream has accepted
        self._hint: asyncio.TimerHandle | None = None  # of ``_warn``
        self._warned = False
        self._blocked = False  # the next ULPDU belongs to a Send for which no buffer is posted
        self._opened = asyncio.Event()  # the fence is open, or the connection is over
        self._settled = asyncio.Event()  # all posted work has completed
        self._silent = asyncio.Event()  # nothing more will arrive from the peer
        self._rtr_known = asyncio.Event()  # the RTR has been received, so the MSN of the peer's first message is known
        self._polls = False  # ``_poll`` runs, or has run
        self._half_closed = False
        self._closing = False
        self._finished = False  # everything has been sent, and this end's half is closed
        self._arrived: asyncio.Queue[Received | None] = asyncio.Queue()  # for ``receive``; None marks the end
        self._receiving = 0  # number of waiting calls of ``receive``
        self._room: deque[asyncio.Future[None]] = deque()
        self._end_task: asyncio.Task[None] | None = None
        if negotiated.rtr_send is not Rtr.NONE:
            self._stream.progress.rtr_sent(negotiated.rtr_send)
        if negotiated.role is Role.INITIATOR or negotiated.model is Model.CLIENT_SERVER:
            self._rtr_known.set()
        watch.attach(self._event)
        if isinstance(stream, OffloadStream):
            stream.follow = partial(self._ending, self._follow)
        transmit = partial(self._transmit, stream) if isinstance(stream, SoftwareStream) else self._serve
        self._tasks = [asyncio.create_task(self._ending(work)) for work in (transmit, self._receive)]

    def __repr__(self) -> str:
        state = f"ended: {self.error}" if self.error else "the peer has closed" if self.over else "established"
        return f"<Connection from {place(self.local)} to {place(self.peer)}, {state}>"

    # Properties

    @property
    def negotiated(self) -> Negotiated:
        """The result of the negotiation: IRD, ORD, the peer's private data and more."""
        return self._lower.negotiated

    @property
    def longest(self) -> int:
        """The most octets of a message; a device's memory may have room for few."""
        return self._stream.longest

    @property
    def local(self) -> Address:
        """The address of this end."""
        return self._lower.local

    @property
    def peer(self) -> Address:
        """The peer's address."""
        return self._lower.peer

    @property
    def device(self) -> Device:
        """The data path; it is closed with the connection."""
        return self._lower.device

    @property
    def over(self) -> bool:
        """Whether nothing more arrives: the peer has closed its half, or the connection has ended."""
        return self._silent.is_set()

    @property
    def mulpdu(self) -> int:
        """The current MULPDU in octets: from the socket's EMSS (RFC 5044 §4.5), or the limit in ``Options``."""
        return _mulpdu(self._lower, self.options)

    # Memory

    def register(self, buffer: Buffer | Sequence[Buffer], access: Access, *, to: int = 0) -> Region:
        """Register a buffer for this connection alone; see ``ProtectionDomain.register``.

        The region is deregistered when the connection ends, if not before.
        """
        if self.error:
            raise self.error
        return self.domain.register(buffer, access, to=to, stream=self._stream)

    def device_address(self, region: Region) -> int:
        """Return the address at which logic in the device finds a region; raises ValueError if there is none."""
        if not isinstance(self._stream, OffloadStream):
            raise ValueError("DDP of this connection is in software: its regions have no address in the device")
        return self._stream.address(region)

    # Operations

    def post(self, *requests: WorkRequest) -> None:
        """Post requests that complete through ``Options.send_cq``. Posts all of them or, if it raises an error, none.

        Raises ValueError when there is no such queue.
        """
        cq = _needed(self.options.send_cq, "send_cq")
        self._check_depth(len(requests))
        works: list[Work] = []
        with _all_or_none(self._stream, works):
            for each in requests:
                works.append(self._prepare(each, cq.deliver if each.signaled else cq.deliver_failure))
            cq.reserve(len(works))
        for work in works:
            self._stream.post(work)
        self._suspect()
        self._wake.set()

    def post_receives(self, *requests: ReceiveRequest) -> None:
        """Post buffers that complete through ``Options.receive_cq``. Posts all or, if it raises an error, none.

        Raises ValueError when there is no such queue.
        """
        self._check_receiving()
        _post_receives(self._stream, self.options, requests)
        self._posted.set()

    def post_receive(self, buffer: Gather) -> asyncio.Future[Received]:
        """Post a buffer for one Send of the peer; buffers are filled in the order of posting."""
        self._check_receiving()
        future: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        self._lend(buffer, partial(self._resolve_receive, future))
        return future

    async def receive(self, room: int = 65536) -> Received:
        """Receive one Send of at most ``room`` octets; allocates memory only for octets that arrive.

        No Send is lost if this is cancelled: the next call returns it. A Send that has begun to arrive by then keeps
        the limit with which it began. A Send that exceeds the limit ends the connection with Terminate 1/2/5.
        """
        receive = None
        self._receiving += 1
        try:
            if self._arrived.qsize() + self._stream.lent < self._receiving:
                self._check_receiving()
                receive = self._lend(Growing(room))
            received = await self._arrived.get()
        finally:
            self._receiving -= 1
            if receive and self._arrived.qsize() + self._stream.lent > self._receiving:
                self._stream.withdraw(receive)
        if received is None:
            self._arrived.put_nowait(None)  # for later calls
            raise self.error or ClosedError(By.PEER)
        return received

    def post_send(
        self, message: Gather, *, solicited: bool = False, invalidate: int | None = None, fence: bool = False
    ) -> asyncio.Future[Completion]:
        """Post a Send. ``solicited`` requests an event at the peer, ``invalidate`` revokes an STag of the peer.

        With ``fence`` the Send leaves after all earlier RDMA Reads have completed.
        """
        return self._post(WorkRequest.send(message, solicited=solicited, invalidate=invalidate, fence=fence))

    async def send(
        self, message: Gather, *, solicited: bool = False, invalidate: int | None = None, fence: bool = False
    ) -> Completion:
        """Send; returns when the message has been handed over, maybe before the peer has it (RFC 5040 §5.5 rule 9)."""
        await self._have_room()
        return await self.post_send(message, solicited=solicited, invalidate=invalidate, fence=fence)

    def post_write(
        self, message: Gather, stag: int, to: int = 0, *, fence: bool = False
    ) -> asyncio.Future[Completion]:
        """Post an RDMA Write to the peer's memory."""
        return self._post(WorkRequest.write(message, stag, to, fence=fence))

    async def write(self, message: Gather, stag: int, to: int = 0, *, fence: bool = False) -> Completion:
        """Write to the peer's memory. The peer learns of the data only from a Send behind it (RFC 5040 §5.1)."""
        await self._have_room()
        return await self.post_write(message, stag, to, fence=fence)

    def post_read(
        self,
        sink: Gather,
        octets: int | None = None,
        stag: int = 0,
        to: int = 0,
        *,
        offset: int = 0,
        fence: bool = False,
    ) -> asyncio.Future[Completion]:
        """Post an RDMA Read of ``octets`` octets of the peer's memory into ``sink``, from its octet ``offset`` on.

        ``octets`` and ``offset`` may be given only for a ``Region``; if ``octets`` is None, the Read fills all of
        ``sink``. Regions need the right LOCAL_WRITE; other buffers can be written by this Read alone. If as many Reads
        are outstanding as the ORD allows, a further Read waits, and so does all work posted behind it.
        """
        if octets is not None or offset:
            if not isinstance(sink, Region):
                raise ValueError("octets and offset are for a Region: a list has the octets of its entries")
            sink = Piece(sink.stag, sink.to + offset, sink.octets - offset if octets is None else octets)
        return self._post(WorkRequest.read(sink, stag, to, fence=fence))

    async def read(self, octets: int, stag: int, to: int = 0) -> bytearray:
        """Read ``octets`` octets of the peer's memory."""
        await self._have_room()
        buffer = bytearray(octets)
        await self.post_read(buffer, stag=stag, to=to)
        return buffer

    # The end

    async def shutdown(self) -> None:
        """Wait until all posted work has completed, then close this end's half; Sends can still be received.

        Afterwards only buffers can be posted, and the peer's RDMA Reads are not answered any more.
        """
        self._closing = True
        if isinstance(self._stream, OffloadStream) and not self._polls and not self.error:
            self._polls = True
            self._tasks.append(asyncio.create_task(self._ending(self._poll)))
        await self._settle()
        if not self._finished:
            try:
                await self._lower.flush()
                await self._lower.delivered(lambda: self._taken, lambda: self._blocked or self._silent.is_set())
                await self._settle()  # requests that arrived before the close are answered before it (RFC 5040 §5.2.1)
                self._stream.control(shut=True)
                await self._lower.finish()
            except MpaConnectionError as error:
                self._fail(error)
                assert self.error
                raise self.error from error
            self._finished = True

    async def _settle(self) -> None:
        """Wait until all posted work has completed and all requests of the peer have been answered."""
        try:
            await self._sync()
        except MpaConnectionError as error:
            self._fail(error)
        while not self._stream.idle and not self.error:
            self._settled.clear()
            await self._settled.wait()
        if self.error:
            raise self.error

    async def terminate(self, fault: Fault = Fault.RDMAP_CATASTROPHIC, what: str = "the ULP ended it") -> None:
        """End at once with a Terminate, and release everything."""
        self._stream.abort(fault, what)
        self._look()
        await self._over()

    async def close(self) -> None:
        """End in order: complete posted work, close, wait for the peer to close, and release everything.

        This takes at most ``Options.linger`` seconds. If not everything has been sent by then, the connection is reset,
        so that the peer cannot take this for an end in order, and ``error`` is a LostError. To wait without a limit,
        call ``shutdown`` first. Sends that arrive meanwhile and have no buffer are dropped. Idempotent, and never
        raises; ``error`` is the error that ended the connection.
        """
        self._closing = True
        self._stream.control(drops=True)
        self._posted.set()
        if self.error is None:
            with contextlib.suppress(RdmaError, TimeoutError):
                async with asyncio.timeout(self.options.linger):
                    await self.shutdown()
                    await self._silent.wait()
            if self._finished:
                self._end(ClosedError(By.LOCAL))
            else:
                what = f"not all that was posted had left within {self.options.linger:g} s of the close: it was reset"
                self._end(LostError(what, Reason.TIMED_OUT))
        await self._over()

    async def abort(self) -> None:
        """Drop everything at once, without a Terminate."""
        self._end(ClosedError(By.LOCAL))
        await self._over()

    async def cleared(self) -> None:
        """After the end, wait until the device has its own again, for at most ``Options.linger`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.linger):
                await self._lower.cleared()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Look at memory until this holds: an RDMA Write of the peer makes no event.

        Raises an RdmaError if the connection is over before.
        """
        looks = 0
        while not holds():
            if self.over and not holds():
                raise self.error or ClosedError(By.PEER)
            looks += 1
            try:
                await self._stream.look()
            except DeviceError:  # the connection's own error follows
                looks = _PATIENCE
            await asyncio.sleep(0 if looks < _PATIENCE else _LOOK)

    async def disconnected(self) -> RdmaError | None:
        """Wait until the peer has closed, then return None; if the connection ends, return the error."""
        await self._silent.wait()
        return self.error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await (self.close() if error is None else self.abort())

    async def _over(self) -> None:
        assert self._end_task
        await asyncio.shield(self._end_task)

    # Posting

    def _check_receiving(self) -> None:
        if self.error:
            raise self.error
        if self._half_closed:
            raise ClosedError(By.PEER)

    def _lend(self, buffer: Gather, deliver: Deliver | None = None) -> Receive:
        """Post a buffer; without ``deliver``, its Send is for ``receive``."""
        (receive,) = _prepare_receives(self._stream, self.options, [(ReceiveRequest(buffer), deliver)])
        self._stream.post_receive(receive)
        self._posted.set()
        return receive

    def _resolve_receive(self, future: asyncio.Future[Received], received: Completion) -> None:
        if future.cancelled() and isinstance(received, Received) and not received.error:  # the Send goes to ``receive``
            self._arrived.put_nowait(received)
        else:
            resolve(future, received)

    def _check_depth(self, count: int) -> None:
        if self.error:
            raise self.error
        if self._closing:
            raise ClosedError(By.LOCAL)
        posted, depth = self._stream.posted, self.options.send_depth
        if posted + count > depth:
            raise QueueFullError(
                f"{posted} operations are posted already, {count} more are over the {depth} of Options.send_depth"
            )

    def _prepare(self, request: WorkRequest, deliver: Deliver) -> Work:
        if request.opcode is Opcode.RDMA_READ_REQUEST and self._half_closed:
            raise ClosedError(By.PEER)
        return self._stream.prepare(request, deliver)

    def _post(self, request: WorkRequest) -> asyncio.Future[Completion]:
        self._check_depth(1)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._stream.post(self._prepare(request, partial(resolve, future)))
        self._suspect()
        self._wake.set()
        return future

    async def _have_room(self) -> None:
        while self._stream.posted >= self.options.send_depth and not self.error:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._room:
                    self._room.remove(waiter)
                else:  # this task does not use the room: offer it to another one
                    self._give_room()
                raise

    def _give_room(self) -> None:
        while self._room:
            if not (waiter := self._room.popleft()).done():
                waiter.set_result(None)
                return

    # The tasks, and the reactions to errors and events

    async def _established(self, timeout: float) -> None:
        """Wait until both directions can be used: at a peer-to-peer responder until the RTR has been received."""
        if self.negotiated.role is Role.RESPONDER and self.negotiated.model is Model.PEER_TO_PEER:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._opened.wait()
            if not self._opened.is_set():
                self._end(LostError(f"no RTR within {timeout:g} s", Reason.TIMED_OUT))
        if self.error:
            await self._over()
            raise self.error

    def _event(self, event: Event) -> None:
        match event.kind:
            case EventKind.FENCE_OPEN:
                self._opened.set()
            case EventKind.RTR_RECEIVED:
                self.rtr = Rtr(event.detail)
                self._stream.progress.rtr_received(self.rtr, event.value)
                self._rtr_known.set()
            case EventKind.RESPONSE_RECEIVED:
                self._stream.progress.rtr_answered()
                self._wake.set()

    async def _ending(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run one of the tasks; an error that it does not expect ends the connection, instead of leaving it silent."""
        try:
            await work()
        except Exception as error:
            failed = TerminatedError(Terminate.of(Fault.RDMAP_CATASTROPHIC), By.LOCAL, repr(error))
            failed.__cause__ = error
            self._end(failed, failed.terminate.encode())

    async def _transmit(self, stream: SoftwareStream) -> None:
        try:
            while not stream.ended:
                self._wake.clear()
                sent = await self._send(stream)
                self._look()
                if not sent:
                    await self._wake.wait()
        except MpaConnectionError as error:
            self._fail(error)

    async def _send(self, stream: SoftwareStream) -> bool:
        """Hand over the next ULPDUs, and drop them before others are made; False if there are none."""
        if ulpdus := stream.next_ulpdus(BATCH):
            await self._lower.send_ulpdus(ulpdus)
            stream.handed_over()
        return bool(ulpdus)

    async def _serve(self) -> None:
        """Follow a stream whose DDP is in the device."""
        stream, lower = self._stream, self._lower
        try:
            while not stream.ended:
                await self._sync()
                with lower.interrupted():
                    await lower.device.interrupt()
        except MpaConnectionError as error:
            with contextlib.suppress(MpaConnectionError):
                await self._sync()
            if self._blocked or (stream.posted and not error.event):
                self._fail(error)  # otherwise ``_receive`` does, behind all that has arrived

    async def _poll(self) -> None:
        """Learn what the device announces by no interrupt, while ``shutdown`` waits for it."""
        with contextlib.suppress(MpaConnectionError):
            while not (self._finished or self.error):
                await self._sync()
                await asyncio.sleep(mpa.POLL)

    async def _follow(self) -> None:
        """Do for the stream what an interrupt does; the tasks meet the errors of a device, too."""
        with contextlib.suppress(MpaConnectionError):
            await self._sync()

    async def _sync(self, *, end: bool = False) -> None:
        stream, lower = self._stream, self._lower
        if not isinstance(stream, OffloadStream):
            return
        try:
            await stream.sync(end=end)
        except DeviceError as error:
            raise lower.error or device_failed(error) from error
        self._block(stream.blocked)
        if stream.discards:
            lower.discards()
        lower.progressed()
        self._look()

    async def _receive(self) -> None:
        stream, lower = self._stream, self._lower
        try:
            while (ulpdu := await lower.receive_ulpdu()) is not None and not stream.ended:
                await self._sync()
                if not is_terminate_instead_of_rtr(ulpdu):
                    await self._rtr_known.wait()
                while not stream.receive(ulpdu):
                    self._posted.clear()
                    self._block(True)
                    lower.progressed()
                    with lower.interrupted():
                        await self._posted.wait()
                    self._block(False)
                self._taken += 1
                lower.progressed()
                self._look()
                if stream.ready:
                    self._wake.set()
            await self._sync(end=True)
        except MpaConnectionError as error:
            with contextlib.suppress(MpaConnectionError):
                await self._sync(end=True)
            return self._fail(error)
        if not stream.ended:
            self._peer_closed()
        return None

    def _block(self, blocked: bool) -> None:
        """Note whether a Send waits for a buffer."""
        self._blocked = blocked
        self._suspect()

    def _suspect(self) -> None:
        """Warn, once, if a Send waits for a buffer, and an RDMA Read behind it, and that lasts."""
        waits = self._blocked and self._stream.reads and not (self._warned or self.error)
        if waits and not self._hint:
            self._hint = asyncio.get_running_loop().call_later(_HINT, self._warn)
        elif not waits and self._hint:
            self._hint.cancel()
            self._hint = None

    def _warn(self) -> None:
        self._warned = True
        _log.warning(
            "%r: for %g s, a Send of the peer has waited for a buffer, and the response to an RDMA Read behind it: "
            "call receive or post_receive before the Read, or let such a Send end the connection, with "
            "Options(receiver_waits=False)", self, _HINT,
        )  # fmt: skip

    def _look(self) -> None:
        """Deliver the completions of the stream, and act on its state."""
        stream = self._stream
        self._deliver()
        if stream.terminate:
            error = TerminatedError(stream.terminate, By.LOCAL, stream.what)
            self._end(error, stream.terminate.encode())
        elif stream.terminated:
            self._end(TerminatedError(stream.terminated, By.PEER))
        elif stream.idle:
            self._settled.set()

    def _deliver(self) -> None:
        while self._stream.completed:
            self._complete(self._stream.completed.popleft())

    def _complete(
        self, item: Work | Receive, error: RdmaError | None = None, refused: Status | None = None
    ) -> None:
        """Deliver the completion of a request; ``refused`` is its status if the peer's Terminate names it."""
        wr_id = item.request.wr_id
        if isinstance(item, Work):
            item.context(Completion(item.request.opcode, item.octets, wr_id, error, self, refused=refused))
            self._give_room()
            return
        received = Received(item.opcode, item.octets, wr_id, error, self, item.buffer, item.invalidated)
        if item.context:
            item.context(received)
        elif not error:
            self._arrived.put_nowait(received)

    def _peer_closed(self) -> None:
        if missing := self._stream.unfinished:
            self._end(LostError(f"the peer closed inside a message: {missing} is missing", Reason.CONNECTION_LOST))
            return
        if self._stream.reads:  # no responses can arrive any more
            self._end(ClosedError(By.PEER))
            return
        self._half_closed = True
        for receive in self._stream.flush_receives():
            self._complete(receive, ClosedError(By.PEER))
        self._arrived.put_nowait(None)
        self._silent.set()
        self._lower.progressed()

    def _fail(self, error: MpaConnectionError) -> None:
        """End the connection for an error of MPA: the ULP of MPA reports it to the peer (RFC 5044 §8)."""
        if error.event:
            terminate, what = Terminate(2, 0, error.reason.code), str(error)
            if is_terminate_instead_of_rtr(error.without_crc):
                with contextlib.suppress(DdpError):  # a truncated one is not described
                    theirs = Terminate.decode(error.without_crc[UNTAGGED_OCTETS:])
                    what += f"; it is a Terminate without a CRC, which says {theirs}"
            self._end(TerminatedError(terminate, By.LOCAL, what), error.reason.code)
        else:
            self._end(LostError(str(error), error.reason))

    def _end(self, error: RdmaError, terminate: int | bytes | None = None) -> None:
        """Send the Terminate if given, fail all posted work, and release everything. Only the first call counts."""
        if self.error:
            return
        self.error = error
        self._suspect()
        self._stream.stop()
        self._arrived.put_nowait(None)
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)
        for event in (self._opened, self._settled, self._silent):
            event.set()
        self._lower.progressed()
        self._end_task = asyncio.create_task(self._release(error, terminate))

    async def _release(self, error: RdmaError, terminate: int | bytes | None) -> None:
        lower, stream = self._lower, self._stream
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The ULP's memory is released behind the ULPDU that is being sent: no other octets may leave under a good CRC
        terminated = isinstance(error, TerminatedError)
        in_order = (terminated or self._finished) and await stream.silence()
        if not in_order:
            await lower.close(reset=True)
            await self._close_device()
        theirs = error.terminate if isinstance(error, TerminatedError) and error.by is By.PEER else None
        named = stream.named(theirs) if theirs else None
        dropped = stream.flush()
        self._deliver()
        for item in dropped:
            self._complete(item, error, _refusal(theirs) if theirs and item is named else None)
        stream.detach()
        if in_order:
            if terminate is not None:
                await lower.terminate(terminate)
            if terminated:
                await lower.linger()
            await lower.close()
            await self._close_device()
        await stream.released()

    async def _close_device(self) -> None:
        with contextlib.suppress(DeviceError):
            await self._lower.device.close()


def _refusal(terminate: Terminate) -> Status:
    """The status of the request that the peer's Terminate names.

    RFC 5040 §4.8 has an error type for protection, RFC 5041 §7.2 one for tagged buffers.
    """
    is_access = (terminate.layer, terminate.type) in ((0, 1), (1, 1))
    return Status.REMOTE_ACCESS_ERROR if is_access else Status.REMOTE_OPERATION_ERROR


async def open_stream(
    domain: ProtectionDomain, options: Options, device: Device, receives: Sequence[ReceiveRequest | Gather] = ()
) -> Stream:
    """Return a stream that has no connection yet, with buffers posted as by ``ibv_post_recv`` before ``rdma_accept``.

    DDP is in the device if it has an RDMA engine in which there is room for the domain's regions. Raises ValueError and
    QueueFullError as ``Connection.post_receives`` does, DeviceError, and MpaConnectionError if DDP cannot be in the
    device, but must be.
    """
    stream: Stream = SoftwareStream(domain, waits=options.receiver_waits)
    if device.memory is not None:
        try:
            stream = await OffloadStream.open(domain, device, waits=options.receiver_waits)
        except ValueError as error:
            if device.needs_engine:
                what = f"the connection does not fit into the device: {error}"
                raise MpaConnectionError(what, Reason.LOCAL) from None
    try:
        _post_receives(stream, options, receives)
    except BaseException:
        stream.detach()
        raise
    return stream


async def prepare_stream(stream: Stream, options: Options, lower: mpa.Connection) -> None:
    """Give the stream the results of the negotiation; the data path is still in stream mode."""
    negotiated = lower.negotiated
    await stream.begin(negotiated.ird, negotiated.ord, lambda: _mulpdu(lower, options))


def _mulpdu(lower: mpa.Connection, options: Options) -> int:
    return min(lower.mulpdu, options.mulpdu or 65536)


async def discard_stream(stream: Stream, options: Options) -> None:
    """Release a stream that never had a connection; its buffers make no completions."""
    if options.receive_cq is not None:
        options.receive_cq.free += stream.receives - stream.lent
    stream.stop()
    stream.flush()
    stream.detach()
    await stream.released()


@contextlib.contextmanager
def _all_or_none(stream: Stream, prepared: Sequence[Work | Receive]) -> Iterator[None]:
    """Discard what was prepared if the body raises an error."""
    try:
        yield
    except BaseException:
        for each in prepared:
            stream.discard(each)
        raise


def _post_receives(stream: Stream, options: Options, receives: Sequence[ReceiveRequest | Gather]) -> None:
    """Post buffers: requests complete through the completion queue, others through ``Connection.receive``."""
    posts: list[tuple[ReceiveRequest, Deliver | None]] = []
    places = 0
    for each in receives:
        if isinstance(each, ReceiveRequest):
            posts.append((each, _needed(options.receive_cq, "receive_cq").deliver))
            places += 1
        else:
            posts.append((ReceiveRequest(each), None))
    prepared = _prepare_receives(stream, options, posts)
    with _all_or_none(stream, prepared):
        if places:
            _needed(options.receive_cq, "receive_cq").reserve(places)
    for receive in prepared:
        stream.post_receive(receive)


def _prepare_receives(
    stream: Stream, options: Options, posts: Sequence[tuple[ReceiveRequest, Deliver | None]]
) -> list[Receive]:
    posted, count, depth = stream.receives, len(posts), options.receive_depth
    if posted + count > depth:
        raise QueueFullError(
            f"{posted} buffers are posted already, {count} more are over the {depth} of Options.receive_depth"
        )
    prepared: list[Receive] = []
    with _all_or_none(stream, prepared):
        for request, deliver in posts:
            prepared.append(stream.prepare_receive(request, deliver))
    return prepared


def _needed(cq: CompletionQueue | None, option: str) -> CompletionQueue:
    if cq is None:
        raise ValueError(f"requests complete through a completion queue, and Options.{option} is None")
    return cq


class Watch:
    """An observer that forwards everything to another, and device events to the connection as soon as it exists."""

    def __init__(self, other: Observer) -> None:
        self._other = other
        self._early: list[Event] = []
        self._take: Callable[[Event], None] = self._early.append

    def attach(self, take: Callable[[Event], None]) -> None:
        """Forward all events to ``take``, first those seen so far."""
        self._take = take
        for event in self._early:
            take(event)
        self._early.clear()

    def __call__(self, seen: Seen) -> None:
        """See ``host_driver.observer``."""
        self._other(seen)
        if isinstance(seen, Reported):
            self._take(seen.event)
