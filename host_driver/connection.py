"""Connections: the startup exchange over TCP, and the octets between TCP and a device.

    ULP ── send_ulpdu, receive_ulpdu ── Device ── MPA stream ── Transport ── the peer

A device with TCP of its own (``AttachedTransport``) passes the MPA stream itself; the host then only counts.

All octets of the TCP stream pass through the device, those of the startup frames in stream mode. Four tasks serve a
connection: two carry the MPA stream between transport and device, one fetches ULPDUs, and one fetches events. Each
waits until its octets, ULPDU or event is taken (up to 16 ULPDUs may wait for the ULP), so a slow ULP slows the peer,
and a slow peer the ULP. Two state machines decide: ``mpa.negotiation`` in the startup exchange, and
``mpa.connection_states`` behind it.

A connection that ends out of order ends with one ``MpaConnectionError``. Its text is one line that names what happened
and where. A stream offset in it counts from the start of MPA in that direction, and in the startup exchange from the
start of the TCP connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from struct import pack
from typing import Any, Self

from open_rnic.host_driver.device import AttachedDevice, Device, DeviceError, Event
from open_rnic.host_driver.errors import MpaConnectionError, RejectedError, device_failed, how, observer_failed
from open_rnic.host_driver.lib.state_machine import ProtocolError
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.mpa.connection_states import (
    ENGINE_COUNTS,
    Action,
    Drain,
    End,
    HalfClose,
    Life,
    Release,
    WriteTerminate,
)
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
from open_rnic.host_driver.mpa.rtr import is_terminate
from open_rnic.host_driver.observer import (
    Agreed,
    Closed,
    Counted,
    Direction,
    Frame,
    Observer,
    Octets,
    Opened,
    Reported,
    silent,
)
from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.transport import Address, AttachedTransport, Tcp, TcpListener, Transport
from open_rnic.rtl.rdma.registers import BY_NAME as RDMA_REGISTERS
from open_rnic.rtl.registers import BY_NAME, Cause, DirectionState, EventKind, Role, Verdict

__all__ = [
    "LINGER",
    "Address",
    "Arrival",
    "Connection",
    "Listener",
    "MpaConnectionError",
    "RejectedError",
    "Request",
    "initiate",
    "listen",
    "terminate_ulpdu",
]

ULPDUS_WAITING = 16  # ULPDUs that are fetched ahead of the ULP
EVENTS_WAITING = 64  # events that wait for the ULP before the device's own FIFO fills
FIRST_OCTETS = 1024  # received octets that are kept: a startup frame, and a Terminate behind it
POLL = 0.002  # seconds between two looks at counts that no event announces
ENGINE_POLL = 0.02  # seconds between two looks at the counts of an RDMA engine, if nothing waits for them
LINGER = 1.0  # seconds that the receiver of a Terminate, or of a rejecting Reply, may take to close


def terminate_ulpdu(code: int) -> bytes:
    """Return the Terminate for an MPA error: layer 2, type 0, without copies of headers (RFC 5040 §4.8)."""
    return pack(">BBIIIII", 0x41, 0x47, 0, 2, 1, 0, 0x2000_0000 | code << 16)  # on QN 2, MSN 1, MO 0


class Connection:
    """An established connection, made by ``initiate`` or ``Request.accept``; an asynchronous context manager.

    ``device`` stays the caller's and can be used again after ``close``. ``error`` is the error that ended the
    connection out of order. ``heard`` are octets that were already received from ``transport``.
    """

    def __init__(
        self, transport: Transport, device: Device, config: Config, observer: Observer, heard: bytes = b""
    ) -> None:
        self.device = device
        self.local = transport.local
        self.peer = transport.peer
        self.error: MpaConnectionError | None = None
        self._transport = transport
        self._configure(config)
        self._heard = heard
        self._observe = observer
        self._loop = asyncio.get_running_loop()
        self._negotiation = Negotiation(config)
        self._life = Life(LINGER)
        self._gate = Gate()  # for conditions on the two machines
        self._tasks: set[asyncio.Task[None]] = set()
        self._interruptible: dict[asyncio.Task[Any], bool] = {}
        self._ulpdus: asyncio.Queue[bytes | None] = asyncio.Queue(ULPDUS_WAITING)  # None: there are no more
        self._events: asyncio.Queue[Event] = asyncio.Queue(EVENTS_WAITING)
        self._first = b""  # the first received octets
        self._enabled = False  # the device is in MPA mode, or its stream octets lead there
        self._prepare: Prepare | None = None  # for ``initiate`` and ``Request.accept``
        self._startup_packets = 0  # in which TCP has taken the startup frame, if the data path counts its packets

    # For the ULP

    @property
    def negotiated(self) -> Negotiated:
        """The agreement of the two ends; raises RuntimeError before the connection is established."""
        return self._life.negotiated

    @property
    def mulpdu(self) -> int:
        """MULPDU: the longest ULPDU, in octets, whose FPDU fits in one TCP segment now (RFC 5044 §4.5)."""
        return mulpdu(self._transport.emss, markers=self.negotiated.markers_tx)

    async def ready(self) -> None:
        """Wait until ULPDUs can leave: at a responder until the RTR or the first FPDU has been received."""
        await self._until(lambda: self._life.opened)

    async def send_ulpdu(self, octets: bytes) -> None:
        """Send one ULPDU; waits while the device has no room. Raises MpaConnectionError."""
        await self.send_ulpdus((octets,))

    async def send_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """Send several ULPDUs, the segments of a message for instance: cheaper than one at a time."""
        with self.interrupted():
            self._life.wrote(len(ulpdus))
            try:
                await self.device.write_ulpdus(ulpdus)
            except BaseException:
                self._life.wrote(-len(ulpdus))
                raise
            self._gate.look()

    async def receive_ulpdu(self) -> bytes | None:
        """Return the next ULPDU, or None if the peer has closed in order.

        Raises MpaConnectionError if the connection ended out of order, after every good ULPDU.
        """
        octets = await self._ulpdus.get()
        if octets is None:
            self._ulpdus.put_nowait(None)  # for the next call
            if self.error:
                raise self.error
        return octets

    async def next_event(self) -> Event:
        """Return the device's next event; waits for it."""
        return await self._events.get()

    async def flush(self) -> None:
        """Wait until every ULPDU has left."""
        await self._count_engine()
        await self._until(lambda: self._life.all_left)

    async def delivered(self, taken: Callable[[], int], enough: Callable[[], bool]) -> None:
        """Wait until the ULP has taken every ULPDU received by now.

        ``taken`` returns the number of ULPDUs that it has taken, ``enough`` whether it takes no more for now. The ULP
        calls ``progressed`` when one of them changes.
        """
        with self.interrupted():
            fpdus = await self.device.get("RX_FPDUS")
            while await self._count_engine() and not (enough() or self._life.delivered(fpdus, taken())):
                await asyncio.sleep(POLL)
            await self._gate.until(lambda: enough() or self._life.delivered(fpdus, taken()))

    def discards(self) -> None:
        """Note that an RDMA engine discards all ULPDUs from now on."""
        self._life.engine_discards = True
        self._gate.look()

    def progressed(self) -> None:
        """Let ``delivered`` check its conditions again."""
        self._gate.look()

    async def finish(self) -> None:
        """Wait until every ULPDU has left, then close this end's half of the TCP connection."""
        await self.flush()
        self._carry_out(self._life.finish())

    async def terminate(self, cause: int | bytes) -> None:
        """End with a Terminate: after an error it is the only ULPDU that still leaves.

        ``cause`` is an MPA error code, or the whole ULPDU of another layer's Terminate. ``close`` resets if the
        Terminate cannot leave: because this end's half is closed already, because a responder must not send yet, or
        because there is no room for it within a second. Without a Terminate, only a reset shows the peer that the
        connection did not end in order (RFC 5040 §6.2.1).
        """
        ulpdu = terminate_ulpdu(cause) if isinstance(cause, int) else cause
        self._carry_out(self._life.terminate(ulpdu, self._loop.time()))
        try:
            async with asyncio.timeout_at(self._life.deadline):
                await self._gate.until(lambda: not self._life.terminating)
        except TimeoutError:
            self._carry_out(self._life.tick(max(self._loop.time(), self._life.deadline or 0.0)))

    async def linger(self) -> None:
        """Let the peer close first, for up to a second: a close with unread octets could destroy a Terminate."""
        if self._life.unreported:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                with contextlib.suppress(MpaConnectionError):
                    while await self.receive_ulpdu() is not None:
                        pass
                await self._gate.until(lambda: self._life.peer_closed)

    async def abort(self, what: str) -> None:
        """End because of an error at this end: with Terminate 2/0/5 (RFC 6581 §9.3), and close.

        A responder's Terminate waits for the first FPDU, for a second at most; without an FPDU this is a reset. Every
        task that waits for this connection fails with ``what``.
        """
        self._fail(MpaConnectionError(what, Reason.LOCAL))
        await self.terminate(Reason.LOCAL.code)
        await self.linger()
        await self.close()

    async def close(self, *, reset: bool = False) -> None:
        """End every task and the TCP connection. Idempotent; the device stays open.

        ``reset`` asks for a reset, so that the peer cannot take this for an end in order. A Terminate that could not
        leave always causes one.
        """
        self._fail(MpaConnectionError("the connection was closed at this end", Reason.CONNECTION_LOST))
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks and isinstance(self._transport, AttachedTransport):
            with contextlib.suppress(DeviceError):
                await self._count(self._transport)
        if not self._ulpdus.full():
            self._ulpdus.put_nowait(None)
        for action in self._life.close():
            if isinstance(action, Release):
                self._transport.close(reset=reset or action.reset)
                self._observe(Closed())

    async def cleared(self) -> None:
        """After ``close``, wait until both ends have closed, and a device with TCP has reset the data path."""
        if isinstance(self._transport, AttachedTransport):
            await self._transport.cleared()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # The startup exchange

    def _configure(self, config: Config) -> None:
        self.config = config
        if config.keep_alive is not None:
            self._transport.keep_alive(config.keep_alive)

    async def _start(self) -> Requested | None:
        """Reset the device and exchange frames until MPA is on, or until the ULP must decide."""
        self._observe(Opened(self.local, self.peer))
        transport = self._transport
        if isinstance(transport, AttachedTransport):
            if not isinstance(self.device, AttachedDevice):
                raise DeviceError("a connection whose TCP is in a device uses the data path of that device")
            await transport.attach(self.device)
        await self.device.set_fields("CONTROL", reset=1)
        await self.device.set("RX_STREAM_OCTETS", 0)
        await self.device.set("TX_STREAM_OCTETS", 0)
        self._spawn(self._watch_events)
        if isinstance(transport, AttachedTransport):
            await transport.begin()
            self._spawn(partial(self._count_packets, transport))
            self._spawn(partial(self._await_end, transport))
        else:
            self._spawn(self._carry_octets_out)
            self._spawn(self._carry_octets_in)
        requested = await self._act(self._negotiation.start(self._loop.time()))
        while self._negotiation.wanted:
            requested = await self._act(await self._startup_octets())
        return requested

    async def _startup_octets(self) -> list[Outcome]:
        """Let the device pass exactly the octets of the peer's frame."""
        negotiation, life = self._negotiation, self._life
        await self.device.set("RX_STREAM_OCTETS", life.startup_received + negotiation.wanted)
        try:
            with self.interrupted():
                async with asyncio.timeout_at(negotiation.deadline):
                    ulpdu = await self.device.read_ulpdu()
        except TimeoutError:
            return negotiation.tick(max(self._loop.time(), negotiation.deadline or 0.0))
        if ulpdu.verdict is not Verdict.STREAM or len(ulpdu.octets) > negotiation.wanted:
            what = f"{len(ulpdu.octets)} octets with verdict {ulpdu.verdict.name}"
            raise DeviceError(f"it passed {what} where up to {negotiation.wanted} stream octets are due")
        life.startup_received += len(ulpdu.octets)
        outcome = negotiation.receive(ulpdu.octets)
        if negotiation.received:
            self._observe(Frame(Direction.RX, negotiation.received))
        return outcome

    async def _act(self, outcome: list[Outcome]) -> Requested | None:
        self._gate.look()
        for event in outcome:
            match event:
                case Send(frame, octets):
                    self._life.startup_sent = len(octets)
                    self._gate.look()
                    await self.device.set("TX_STREAM_OCTETS", len(octets))
                    self._observe(Frame(Direction.TX, frame))
                    with self.interrupted():
                        await self.device.write_ulpdu(octets)
                case Requested():
                    return event
                case Established(negotiated):
                    try:
                        self._observe(Agreed(negotiated))
                    except Exception as error:
                        await self._act(self._negotiation.abort(str(observer_failed(error))))
                    await self._enable(negotiated, self._prepare)
                case Rejected():
                    await self._until(lambda: self._life.startup_left)
                    if self._negotiation.config.role is Role.RESPONDER:
                        # The initiator closes (RFC 5044 §7.1.4). Some peers, such as Linux' siw, see a FIN right behind
                        # the Reply before the Reply, and then their ULP never learns of the private data.
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(LINGER):
                                await self._gate.until(lambda: self._life.peer_closed)
                    raise RejectedError(event)
                case Failed():
                    await self._give_up(event)
        return None

    async def _enable(self, negotiated: Negotiated, prepare: Prepare | None = None) -> None:
        actions = self._life.enable(negotiated)
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
        if prepare:
            await prepare(self)
        if isinstance(self._transport, AttachedTransport):  # packets from here on are FPDUs
            await self._until(lambda: self._life.startup_left)
        self._spawn(self._fetch_ulpdus)
        await self.device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        self._enabled = True
        self._carry_out(actions)

    async def _give_up(self, failed: Failed) -> None:
        if failed.terminate:
            await self._enable(failed.terminate)
            await self.terminate(failed.reason.code)
            await self.linger()
        raise MpaConnectionError(failed.what, failed.reason, failed=failed)

    async def _run(self, part: Coroutine[Any, Any, Requested | None]) -> Requested | None:
        """Run a part of the exchange, and release everything if it fails."""
        try:
            return await part
        except DeviceError as error:
            await self.close()
            raise device_failed(error) from error
        except BaseException:
            await self.close()
            raise

    # The tasks

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.add(asyncio.create_task(self._guard(work)))

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:  # of a device that failed, or of an observer
            failure = device_failed(error) if isinstance(error, DeviceError) else observer_failed(error)
            failure.__cause__ = error
            self._fail(failure)
            await self._ulpdus.put(None)

    async def _carry_octets_out(self) -> None:
        while True:
            for octets in await self.device.read_fpdus():
                self._observe(Octets(Direction.TX, octets))
                try:
                    await self._transport.send(octets)
                except OSError as error:
                    return self._lost(self._broken(error))
                self._carry_out(self._life.sent(octets))

    async def _carry_octets_in(self) -> None:
        reason = "the peer closed"
        try:
            while octets := self._heard or await self._transport.receive():
                self._heard = b""
                self._first += octets[: max(0, FIRST_OCTETS - self._life.octets_received)]
                self._life.octets_received += len(octets)
                self._observe(Octets(Direction.RX, octets))
                await self.device.write_mpa(octets)
        except OSError as error:
            reason = self._broken(error)
            if self._negotiation.state.final:
                self._lost(reason)
        await self._closed_by_peer(reason)

    async def _count_packets(self, transport: AttachedTransport) -> None:
        """Follow the packets of a data path that gives them to its own TCP, and the ULPDUs of its RDMA engine."""
        period = None if self.device.memory is None else ENGINE_POLL
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._gate.until(lambda: self._life.packets_due)
            await self._count_engine()
            self._carry_out(await self._count(transport))
            await asyncio.sleep(POLL)

    async def _count(self, transport: AttachedTransport) -> list[Action]:
        if not self._life.startup_left and not await self._startup_leaves(transport):
            return []
        get = self.device.get
        before, packets, made, after = await asyncio.gather(  # begin in this order, and pass in few requests
            get("TX_STALLS"), transport.packets(), get("TX_FPDUS"), get("TX_STALLS")
        )
        left = packets - self._startup_packets
        at_rest = left == made and before == after
        if (more := left - self._life.fpdus_left) > 0:
            self._observe(Counted(Direction.TX, more))
        return self._life.left(left, at_rest=at_rest)

    async def _startup_leaves(self, transport: AttachedTransport) -> bool:
        """Return whether TCP has taken the startup frame, and learn in how many packets.

        There are several if the host did not write the frame fast enough. MPA must not be enabled yet.
        """
        # A data path may look at TX_STREAM_OCTETS as late as with the first packet. Once it has no stream octets
        # left, TCP has taken the last packet.
        if not await transport.packets() or _TX.get(await self.device.get("STATE")) == DirectionState.STREAM:
            return False
        self._startup_packets = await transport.packets()
        self._life.startup_leaves()
        return True

    async def _await_end(self, transport: AttachedTransport) -> None:
        """Follow the end of a stream that the data path takes from its own TCP."""
        reason = "the peer closed"
        try:
            await transport.finished()
            self._life.octets_received = await transport.octets()
        except OSError as error:
            self._life.octets_received = await transport.octets()
            reason = self._broken(error)
            if self._negotiation.state.final:
                self._lost(reason)
        await self._closed_by_peer(reason)

    async def _closed_by_peer(self, reason: str) -> None:
        self._carry_out(self._life.closed_by_peer())
        # The negotiation takes all octets that it wants first
        await self._gate.until(lambda: self._life.startup_is_in or not self._negotiation.wanted)
        if not self._negotiation.state.final:
            self._lost(reason)

    async def _fetch_ulpdus(self) -> None:
        while ulpdus := await self.device.read_ulpdus():
            if isinstance(self._transport, AttachedTransport):
                self._observe(Counted(Direction.RX, len(ulpdus)))
            for each in ulpdus:
                await self._ulpdus.put(each)
                self._carry_out(self._life.fetched())

    async def _watch_events(self) -> None:
        while True:
            event = await self.device.next_event()
            self._observe(Reported(event))
            if event.kind is EventKind.ERROR:
                error = MpaConnectionError(str(event), _REASONS[event.cause.code], event=event)
                error.without_crc = self._without_crc(event)
                self._fail(error)
            self._carry_out(self._life.reported(event))
            await self._events.put(event)

    def _without_crc(self, event: Event) -> bytes:
        """Return the first ULPDU if its CRC field is 0, otherwise no octets: some peers send a first Terminate so.

        A device with TCP of its own does not show the CRC field.
        """
        if event.cause is not Cause.CRC or event.offset or self.negotiated.markers_rx:
            return b""
        if isinstance(self.device, AttachedDevice):
            return self.device.rejected if is_terminate(self.device.rejected[:2]) else b""
        end = 2 + event.value
        fpdu = self._first[self._life.startup_received :][: end + -end % 4 + 4]
        return fpdu[2:end] if len(fpdu) == end + -end % 4 + 4 and not any(fpdu[-4:]) else b""

    async def _drain(self) -> None:
        """Deliver every good ULPDU to the ULP, then end the receive direction."""
        await self._gate.until(lambda: self._enabled)  # the peer may have closed before
        await self.device.drained()
        fpdus = await self.device.get("RX_FPDUS")
        while await self._count_engine() and not self._life.delivered(fpdus):
            await asyncio.sleep(POLL)
        await self._gate.until(lambda: self._life.delivered(fpdus))
        good = await self.device.get_wide("RX_OCTETS")
        fence_open = bool(_FENCE.get(await self.device.get("STATE")))
        self._carry_out(self._life.drained(good, fence_open))
        await self._ulpdus.put(None)

    async def _count_engine(self) -> bool:
        """Learn how many ULPDUs the RDMA engine has sent and processed; False if there is no engine."""
        if self.device.memory is None:
            return False
        word = await self.device.get("RDMA_ULPDUS")
        life, received = self._life, _ULPDUS["received"].get(word)
        more = (received - life.engine_received) % ENGINE_COUNTS
        life.counts = ENGINE_COUNTS
        life.engine_sent, life.engine_received = _ULPDUS["sent"].get(word), received
        if more and isinstance(self._transport, AttachedTransport):
            self._observe(Counted(Direction.RX, more))
        return True

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case WriteTerminate(ulpdu):
                    self._spawn(partial(self.device.write_ulpdu, ulpdu))
                case HalfClose():
                    self._transport.shut()
                case Drain():
                    self._spawn(self._drain)
                case End(lost) if lost:
                    self._lost(lost)
        self._gate.look()

    # Errors

    def _broken(self, error: OSError) -> str:
        return f"{how(error)} ({self._life.octets_received} octets received, {self._life.octets_sent} sent)"

    def _lost(self, reason: str) -> None:
        for failed in self._negotiation.connection_lost(reason):
            if isinstance(failed, Failed):
                return self._fail(MpaConnectionError(failed.what, failed.reason, failed=failed))
        return self._fail(MpaConnectionError(reason, Reason.CONNECTION_LOST))

    def _fail(self, error: MpaConnectionError) -> None:
        """Keep the first error, and interrupt every task that waits for this connection."""
        self.error = self.error or error
        for task, interrupted in self._interruptible.items():
            if not interrupted:
                self._interruptible[task] = True
                task.cancel()

    async def _until(self, holds: Callable[[], bool]) -> None:
        with self.interrupted():
            await self._gate.until(holds)

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Interrupt the body and raise the connection's error as soon as there is one, like ``asyncio.timeout``."""
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
            raise self.error or device_failed(error) from error
        finally:
            del self._interruptible[task]


class Request:
    """A connection request that waits for the ULP: the initiator's ``frame``, and the ``model`` it asks for."""

    def __init__(self, connection: Connection, requested: Requested) -> None:
        self.frame = requested.frame
        self.model = requested.model
        self.peer = connection.peer
        self._connection = connection

    async def accept(
        self, private_data: bytes = b"", config: Config | None = None, *, prepare: Prepare | None = None
    ) -> Connection:
        """Answer with a Reply and turn MPA on. A ``config`` chosen by the Request replaces the listener's.

        Keep-alives that the listener's has begun go on, at the times of ``config`` if it has some. ``prepare`` is
        called before MPA is on: no ULPDU has passed by then. Raises ValueError for too much private data and for a
        ``config`` that the Request does not allow, RejectedError if ``config`` rejects the Request, and ProtocolError
        if the request has been answered.
        """
        connection = self._connection
        self.check(Input.ACCEPT)
        outcome = connection._negotiation.accept(private_data, config)
        if config is not None:
            connection._configure(config)
        connection._prepare = prepare
        await connection._run(connection._act(outcome))
        return connection

    async def reject(
        self,
        private_data: bytes = b"",
        what: str = "the ULP rejected the connection",
        config: Config | None = None,
    ) -> None:
        """Answer with a rejecting Reply and close; ``min_ord`` of ``config`` shows the initiator which ORD is needed.

        Raises ValueError for too much private data, and ProtocolError if the request has been answered.
        """
        connection = self._connection
        self.check(Input.REJECT)
        with contextlib.suppress(RejectedError):
            await connection._run(connection._act(connection._negotiation.reject(private_data, what, config)))

    @property
    def answered(self) -> bool:
        """Whether the request has been accepted or rejected."""
        return self._connection._negotiation.state in (State.ESTABLISHED, State.REJECTED)

    async def close(self) -> None:
        """Close without an answer; does nothing if the request has been answered."""
        if not self.answered:
            await self._connection.close()

    def check(self, given: Input) -> None:
        """Raise the error that makes an answer of this kind impossible, if there is one."""
        if self.answered:
            raise ProtocolError(self._connection._negotiation.state, given)
        if self._connection.error:
            raise self._connection.error


class Arrival:
    """An incoming TCP connection, before its Request."""

    def __init__(self, transport: Transport) -> None:
        self.peer = transport.peer
        self._transport = transport
        self._heard = b""

    async def hear(self, config: Config) -> None:
        """Wait until the peer has sent a whole Request or a malformed one; ``request`` then does not wait for the peer.

        Returns at once if TCP is in the device: only the data path has the octets. Until then a connection needs a
        transport, and memory for at most one startup frame. Raises MpaConnectionError if the peer closes first, or
        after ``config.timeout`` seconds.
        """
        if isinstance(self._transport, AttachedTransport):
            return
        loop, negotiation = asyncio.get_running_loop(), Negotiation(config)
        outcome = negotiation.start(loop.time())
        try:
            async with asyncio.timeout_at(negotiation.deadline):
                while not outcome:
                    octets = await self._transport.receive(negotiation.wanted)
                    self._heard += octets
                    outcome = negotiation.receive(octets) if octets else negotiation.connection_lost("the peer closed")
                    if octets and outcome:
                        return
        except TimeoutError:
            outcome = negotiation.tick(max(loop.time(), negotiation.deadline or 0.0))
        except OSError as error:
            outcome = negotiation.connection_lost(how(error))
        for failed in outcome:
            if isinstance(failed, Failed):
                raise MpaConnectionError(failed.what, failed.reason, failed=failed)

    async def request(self, device: Device, config: Config, observer: Observer = silent) -> Request:
        """Wait for the Request; raises the same errors as ``Listener.request``."""
        config.check_role(Role.RESPONDER)
        connection = Connection(self._transport, device, config, observer, self._heard)
        requested = await connection._run(connection._start())
        assert requested
        return Request(connection, requested)

    def close(self) -> None:
        """Close the connection without an answer."""
        self._transport.close(reset=False)


class Listener:
    """A port at which connection requests arrive, made by ``listen``; an asynchronous context manager."""

    def __init__(self, lower: TcpListener) -> None:
        self.address: Address = lower.address
        self._lower = lower

    async def arrival(self) -> Arrival:
        """Wait for a TCP connection. Others can be taken while its Request is awaited.

        Raises MpaConnectionError if the system cannot take the connection now, for example because it has no file
        descriptor. The connection can be taken later.
        """
        return Arrival(await self._lower.accept())

    async def request(self, device: Device, config: Config, observer: Observer = silent) -> Request:
        """Wait for a TCP connection and for the Request that comes over it.

        Raises RejectedError if the configuration itself rejects the Request, MpaConnectionError if no good Request
        arrives, and at once ValueError for an initiator's ``config``. Peers are heard one after the other;
        ``host_driver.rdma.listen`` hears many at a time.
        """
        config.check_role(Role.RESPONDER)
        return await (await self.arrival()).request(device, config, observer)

    async def accept(self, device: Device, config: Config, observer: Observer = silent) -> Connection:
        """Accept the next connection request."""
        return await (await self.request(device, config, observer)).accept()

    async def close(self) -> None:
        """Listen no more. Idempotent; accepted connections stay."""
        await self._lower.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def listen(host: str = "127.0.0.1", port: int = 0, *, tcp: Tcp = KERNEL) -> Listener:
    """Listen for connections; port 0 lets ``tcp`` choose. Raises MpaConnectionError if the port is not available."""
    return Listener(await tcp.listen(host, port))


async def initiate(
    host: str,
    port: int,
    device: Device,
    config: Config,
    observer: Observer = silent,
    *,
    fallback: bool = False,
    retrying: Callable[[MpaConnectionError], None] = lambda error: None,
    local_addr: Address | None = None,
    tcp: Tcp = KERNEL,
    prepare: Prepare | None = None,
) -> Connection:
    """Connect and negotiate as an initiator; returns when MPA is on.

    ``local_addr`` is this end's address and port. Port 0 lets ``tcp`` choose the port, and None both. ``fallback``
    asks for one more attempt without enhanced frames if the responder seems to know RFC 5044 only (RFC 6581 §10);
    ``retrying`` is called before that attempt, with the error of the first. For ``prepare`` see ``Request.accept``.
    Raises RejectedError if the responder rejects, MpaConnectionError for every other failure, and ValueError for a
    responder's ``config``.
    """
    config.check_role(Role.INITIATOR)
    transport = await tcp.connect(host, port, config.timeout, local_addr)
    connection = Connection(transport, device, config, observer)
    connection._prepare = prepare
    try:
        await connection._run(connection._start())
    except MpaConnectionError as error:
        if not (fallback and error.may_retry_unenhanced):
            raise
        retrying(error)
        config = config.unenhanced()
        return await initiate(host, port, device, config, observer, local_addr=local_addr, tcp=tcp, prepare=prepare)
    return connection


Prepare = Callable[[Connection], Awaitable[None]]

_ULPDUS = RDMA_REGISTERS["RDMA_ULPDUS"]
_TX, _FENCE = (BY_NAME["STATE"][name] for name in ("tx", "fence_open"))
_REASONS = {reason.code: reason for reason in Reason}
