"""Making connections, as rdma_cm does: ``listen`` and ``connect``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from open_rnic.host_driver import connection as mpa
from open_rnic.host_driver.connection import Address, Arrival, MpaConnectionError
from open_rnic.host_driver.device import Device, DeviceError
from open_rnic.host_driver.lib.state_machine import ProtocolError
from open_rnic.host_driver.mpa.negotiation import Config, Input, Reason
from open_rnic.host_driver.mpa.startup_frames import StartupFrame
from open_rnic.host_driver.observer import Observer, silent
from open_rnic.host_driver.rdma.connection import (
    Connection,
    OpenDevice,
    Options,
    Watch,
    discard_stream,
    open_stream,
    prepare_stream,
)
from open_rnic.host_driver.rdma.memory import ProtectionDomain, StagTable
from open_rnic.host_driver.rdma.work import QueueFullError
from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.transport import Tcp
from open_rnic.rtl.rdma.registers import BY_NAME
from open_rnic.rtl.registers import Model, Role

if TYPE_CHECKING:
    from open_rnic.host_driver.rdma.memory import Gather, Region
    from open_rnic.host_driver.rdma.work import ReceiveRequest

_PAUSE = 0.1  # seconds before a listener retries a call that the system refused
PENDING = 64  # connections with a device that wait for the ULP
HEARING = 4096  # connections without a device: no whole Request has arrived, or no device is free


async def software() -> Device:
    """Return a software device, the default data path."""
    from open_rnic.host_driver.devices.software import SoftwareDevice

    return SoftwareDevice()


async def connect(
    host: str,
    port: int,
    config: Config | None = None,
    *,
    device: OpenDevice = software,
    options: Options | None = None,
    domain: ProtectionDomain | None = None,
    observer: Observer = silent,
    fallback: bool = False,
    retrying: Callable[[MpaConnectionError], None] = lambda error: None,
    local_addr: Address | None = None,
    tcp: Tcp = KERNEL,
    receives: Sequence[ReceiveRequest | Gather] = (),
) -> Connection:
    """Connect, and return when the connection is established.

    ``device`` opens the data path, which the connection owns. ``domain`` is the protection domain; by default the
    connection has its own. For ``fallback``, ``retrying``, ``local_addr`` and ``tcp`` see
    ``host_driver.connection.initiate``, for ``receives`` see ``ConnectionRequest.accept``. Raises RejectedError if the
    responder rejects the connection, MpaConnectionError for every other failure of the connection, DeviceError,
    ValueError for a responder's ``config``, and the errors of ``Connection.post_receives``.
    """
    config = config or Config(Role.INITIATOR)
    config.check_role(Role.INITIATOR)
    options = options or Options()
    watch, path = Watch(observer), await device()
    try:
        stream = await open_stream(ProtectionDomain() if domain is None else domain, options, path, receives)
        try:
            lower = await mpa.initiate(
                host,
                port,
                path,
                await _within(config, path),
                watch,
                fallback=fallback,
                retrying=retrying,
                local_addr=local_addr,
                tcp=tcp,
                prepare=partial(prepare_stream, stream, options),
            )
        except BaseException:
            await discard_stream(stream, options)
            raise
    except BaseException:
        await path.close()
        raise
    return Connection(lower, watch, stream, options)


class ConnectionRequest:
    """A connection request of a peer. It must be accepted, rejected or closed, once.

    After the answer, ``accept`` and ``reject`` raise ProtocolError, and ``close`` does nothing: the connection goes on.
    """

    def __init__(self, request: mpa.Request, path: Device, watch: Watch, listener: Listener) -> None:
        self.peer: Address = request.peer
        self.frame: StartupFrame = request.frame
        self.private_data = request.frame.private_data
        self.model: Model = request.model
        enhanced = request.frame.enhanced
        self.ird = enhanced.ird if enhanced else None  # the peer's, from its Request; None without enhanced data
        self.ord = enhanced.ord if enhanced else None
        self.options: Options = listener.options  # of the listener
        self.stags: StagTable = listener.stags
        self.device = path
        self._request = request
        self._path = path
        self._watch = watch
        self._listener = listener

    async def accept(
        self,
        private_data: bytes | Callable[[Callable[..., Region]], bytes] = b"",
        *,
        config: Config | None = None,
        options: Options | None = None,
        domain: ProtectionDomain | None = None,
        receives: Sequence[ReceiveRequest | Gather] = (),
    ) -> Connection:
        """Accept; returns when the connection is established, in the peer-to-peer model after the RTR.

        ``private_data`` may be a function that returns the octets, and takes one that registers buffers for this
        connection, as ``Connection.register`` does: so the Reply can have the place of memory of the device.

        ``receives`` are buffers that are posted before any message of the peer can arrive: a peer may send as soon as
        it has the Reply. A ``ReceiveRequest`` completes through ``Options.receive_cq``, any other buffer through
        ``Connection.receive``. Arguments that are not given default to the listener's; for ``config`` see
        ``host_driver.connection.Request.accept``. Raises ValueError for too much private data, MpaConnectionError if
        the peer has gone or, after a rejection, if the device has no room for the connection, RejectedError if
        ``config`` rejects the Request, DeviceError, RdmaError if the connection ends before it is established, and the
        errors of ``Connection.post_receives``. These and ValueError leave the request unanswered; after any other
        error, and if this is cancelled, everything is released.
        """
        listener = self._listener
        options = options or listener.options
        domain = listener.domain if domain is None else domain
        domain = ProtectionDomain(listener.stags) if domain is None else domain
        try:
            self._request.check(Input.ACCEPT)
        except MpaConnectionError:  # the peer has gone
            await self.close()
            raise
        try:
            stream = await open_stream(domain, options, self._path, receives)
        except MpaConnectionError:
            await self.reject()
            raise
        except (ValueError, QueueFullError):  # these leave the request unanswered
            raise
        except BaseException:
            await self._release()
            raise
        try:
            if callable(private_data):
                private_data = private_data(partial(domain.register, stream=stream))
            if config is not None:
                config = await _within(config, self._path)
            prepare = partial(prepare_stream, stream, options)
            lower = await self._request.accept(private_data, config, prepare=prepare)
        except BaseException as error:
            await discard_stream(stream, options)
            if not isinstance(error, ValueError | ProtocolError):
                await self._release()
            raise
        connection = Connection(lower, self._watch, stream, options)
        try:
            await connection._established((config or listener.config).timeout)
        except asyncio.CancelledError:
            await connection.abort()
            raise
        return connection

    async def reject(self, private_data: bytes = b"", *, config: Config | None = None) -> None:
        """Reject; raises ValueError for too much private data, and MpaConnectionError if the peer has gone."""
        try:
            await self._request.reject(private_data, config=config)
        except (ValueError, ProtocolError):  # the request is still unanswered, or was answered before
            raise
        except BaseException:
            await self._path.close()
            raise
        await self._path.close()

    async def close(self) -> None:
        """Close without an answer."""
        if not self._request.answered:
            await self._request.close()
            await self._path.close()

    async def _release(self) -> None:
        """Release everything after a failure, which a failure of the device must not hide."""
        await self._request.close()
        with contextlib.suppress(DeviceError):
            await self._path.close()


class Listener:
    """A port at which connection requests arrive, made by ``listen``.

    It is an asynchronous context manager, and iterates over the requests. Each connection has a device, or
    a part of one.
    ``failed`` is called with the peer's address and the error if a connection fails before its Request is complete, or
    with the listener's own address and the error if the system has no more sockets.

    A silent or slow peer does not delay the others. A connection gets a device when its Request is complete; until then
    it needs a socket and the memory for one startup frame. At most ``HEARING`` connections have no device: if one more
    arrives, or if the system has no more file descriptors, the oldest of them is closed. At most ``PENDING``
    connections have a device and wait for ``request``. Accepted connections belong to the ULP, and do not count.
    """

    def __init__(
        self,
        lower: mpa.Listener,
        config: Config,
        device: OpenDevice,
        options: Options,
        domain: ProtectionDomain | None,
        observer: Callable[[], Observer],
        failed: Callable[[Address, Exception], None],
    ) -> None:
        self.address: Address = lower.address
        self.config = config
        self.options = options
        self.domain = domain
        self.stags = StagTable()  # for the domains of single connections
        self._lower = lower
        self._device = device
        self._observer = observer
        self._failed = failed
        self._slots = asyncio.Semaphore(PENDING)
        self._requests: asyncio.Queue[ConnectionRequest | None] = asyncio.Queue()  # bounded by the slots
        self._hearing: dict[asyncio.Task[None], Arrival] = {}  # the connections without a device, the oldest first
        self._tasks = {asyncio.create_task(self._take())}

    async def request(self) -> ConnectionRequest:
        """Wait for the next connection request; raises MpaConnectionError if the listener has been closed."""
        request = await self._requests.get()
        if request is None:
            self._requests.put_nowait(None)
            raise MpaConnectionError("the listener has been closed", Reason.LOCAL)
        self._slots.release()
        return request

    async def close(self) -> None:
        """Stop listening, and close the requests that nobody has taken. Idempotent; connections stay open."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for arrival in self._hearing.values():
            arrival.close()
        self._hearing.clear()
        await self._lower.close()
        while not self._requests.empty():
            if request := self._requests.get_nowait():
                await request.close()
        self._requests.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[ConnectionRequest]:
        while True:
            yield await self.request()

    async def _take(self) -> None:
        reported = False
        while True:
            try:
                arrival = await self._lower.arrival()
            except MpaConnectionError as error:
                if self._hearing:
                    await self._drop_oldest(str(error))
                    continue
                if not reported:  # once, until a connection is accepted again
                    self._failed(self.address, error)
                reported = True
                await asyncio.sleep(_PAUSE)  # a file descriptor may become free
                continue
            reported = False
            if len(self._hearing) >= HEARING:
                await self._drop_oldest(f"{HEARING} newer connections wait")
            task = asyncio.create_task(self._hear(arrival))
            self._hearing[task] = arrival
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # many arrivals must not starve the other tasks

    async def _drop_oldest(self, why: str) -> None:
        """Close the connection that has been without a device for the longest time."""
        task = next(iter(self._hearing))
        arrival = self._hearing.pop(task)
        task.cancel()
        await asyncio.wait((task,))
        arrival.close()
        self._failed(arrival.peer, MpaConnectionError(f"closed before its MPA Request was taken: {why}", Reason.LOCAL))

    async def _hear(self, arrival: Arrival) -> None:
        try:
            await arrival.hear(self.config)
            await self._slots.acquire()
        except BaseException as error:
            arrival.close()
            if not isinstance(error, MpaConnectionError):
                raise
            self._failed(arrival.peer, error)
            return
        finally:
            if task := asyncio.current_task():
                self._hearing.pop(task, None)
        await self._read(arrival)

    async def _read(self, arrival: Arrival) -> None:
        path, watch = None, Watch(self._observer())
        try:
            path = await self._device()
            request = await arrival.request(path, await _within(self.config, path), watch)
        except BaseException as error:
            arrival.close()
            if path:
                with contextlib.suppress(DeviceError):
                    await path.close()
            self._slots.release()
            if not isinstance(error, MpaConnectionError | DeviceError):
                raise
            self._failed(arrival.peer, error)
            return
        self._requests.put_nowait(ConnectionRequest(request, path, watch, self))


async def _within(config: Config, device: Device) -> Config:
    """Return the configuration with no larger an IRD than the device's RDMA engine has room for."""
    if device.memory is None:
        return config
    reads = 1 << BY_NAME["RDMA_CAPABILITIES"]["reads"].get(await device.get("RDMA_CAPABILITIES"))
    return replace(config, ird=min(config.ird, reads), max_ird=min(config.max_ird, reads))


async def listen(
    host: str = "127.0.0.1",
    port: int = 0,
    config: Config | None = None,
    *,
    device: OpenDevice = software,
    options: Options | None = None,
    domain: ProtectionDomain | None = None,
    observer: Callable[[], Observer] = lambda: silent,
    failed: Callable[[Address, Exception], None] = lambda peer, error: None,
    tcp: Tcp = KERNEL,
) -> Listener:
    """Listen for connection requests; port 0 lets the system choose.

    ``device`` and ``observer`` are called for each connection whose Request is complete. Without a ``domain``, each
    connection has its own. Raises MpaConnectionError if the port is not available, and ValueError for an initiator's
    ``config``.
    """
    config = config or Config(Role.RESPONDER)
    config.check_role(Role.RESPONDER)
    lower = await mpa.listen(host, port, tcp=tcp)
    return Listener(lower, config, device, options or Options(), domain, observer, failed)
