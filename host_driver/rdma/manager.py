"""Making connections, as rdma_cm does: ``listen`` and ``connect``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Self

from open_rnic.host_driver import connection as mpa
from open_rnic.host_driver.connection import Address, Arrival, MpaConnectionError
from open_rnic.host_driver.device import Device, DeviceError
from open_rnic.host_driver.machine import ProtocolError
from open_rnic.host_driver.mpa.negotiation import Config, Reason
from open_rnic.host_driver.mpa.startup import StartupFrame
from open_rnic.host_driver.observer import Observer, silent
from open_rnic.host_driver.rdma.connection import (
    Connection,
    OpenDevice,
    Options,
    Watch,
    discard_stream,
    open_stream,
)
from open_rnic.host_driver.rdma.memory import ProtectionDomain, StagTable
from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.transport import Tcp
from open_rnic.rtl.registers import Model, Role

if TYPE_CHECKING:
    from open_rnic.host_driver.rdma.memory import Gather
    from open_rnic.host_driver.rdma.work import ReceiveRequest

_PAUSE = 0.1  # seconds before a listener tries again what the system refused
PENDING = 64  # connections with a device that wait for the ULP
HEARING = 4096  # connections without one, of which no whole Request has come, or no device is free


async def software() -> Device:
    """A software device, the data path that is used when no other is asked for."""
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
    connection has one of its own. ``fallback``, ``retrying``, ``local_addr``, ``tcp``: see
    ``host_driver.connection.initiate``. ``receives``: see ``ConnectionRequest.accept``. Raises RejectedError if the
    responder's ULP rejects, MpaConnectionError for all other failures on the way, DeviceError, ValueError for a
    responder's ``config``, and the errors of ``post_receives``.
    """
    config = config or Config(Role.INITIATOR)
    config.check_role(Role.INITIATOR)
    options = options or Options()
    stream = open_stream(ProtectionDomain() if domain is None else domain, options, receives)
    try:
        watch, path = Watch(observer), await device()
        try:
            lower = await mpa.initiate(
                host, port, path, config, watch, fallback=fallback, retrying=retrying, local_addr=local_addr, tcp=tcp
            )
        except BaseException:
            await path.close()
            raise
    except BaseException:
        discard_stream(stream, options)
        raise
    return Connection(lower, watch, stream, options)


class ConnectionRequest:
    """A connection that a peer asks for. It must be accepted, rejected or closed, once.

    To accept or reject what has been answered raises ProtocolError, and to close it does nothing: its connection goes
    on.
    """

    def __init__(self, request: mpa.Request, path: Device, watch: Watch, listener: Listener) -> None:
        self.peer: Address = request.peer
        self.frame: StartupFrame = request.frame
        self.private_data = request.frame.private_data
        self.model: Model = request.model
        enhanced = request.frame.enhanced
        self.ird = enhanced.ird if enhanced else None  # the peer's, as its Request says; None: it does not say
        self.ord = enhanced.ord if enhanced else None
        self._request = request
        self._path = path
        self._watch = watch
        self._listener = listener

    async def accept(
        self,
        private_data: bytes = b"",
        *,
        config: Config | None = None,
        options: Options | None = None,
        domain: ProtectionDomain | None = None,
        receives: Sequence[ReceiveRequest | Gather] = (),
    ) -> Connection:
        """Accept; returns when the connection is established, in the peer-to-peer model after the RTR.

        ``receives`` are buffers that are posted before anything of the peer's can arrive: a peer may send as soon as it
        has the Reply. Requests complete through ``Options.receive_cq``; ``Connection.receive`` gives what other buffers
        bring. What is not given is the listener's. Raises ValueError for too much private data, MpaConnectionError when
        the peer has gone, RdmaError when it does not do its part, and what ``Connection.post_receives`` raises.
        """
        listener = self._listener
        options = options or listener.options
        domain = listener.domain if domain is None else domain
        stream = open_stream(ProtectionDomain(listener.stags) if domain is None else domain, options, receives)
        try:
            lower = await self._request.accept(private_data, config)
        except BaseException as error:
            discard_stream(stream, options)
            if not isinstance(error, ValueError | ProtocolError):  # of these, nothing has been done
                await self._path.close()
            raise
        connection = Connection(lower, self._watch, stream, options)
        try:
            await connection._established((config or listener.config).timeout)
        except asyncio.CancelledError:
            await connection.abort()
            raise
        return connection

    async def reject(self, private_data: bytes = b"", *, config: Config | None = None) -> None:
        """Reject; raises ValueError for too much private data, and MpaConnectionError when the peer has gone."""
        try:
            await self._request.reject(private_data, config=config)
        except (ValueError, ProtocolError):  # nothing has been done
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


class Listener:
    """A port at which connection requests arrive, made by ``listen``.

    It is an asynchronous context manager, and iterates over the requests. Each connection has a device of its own.
    ``failed`` is called with the peer's address and what became of a connection that never was a request, or with the
    listener's own address when the system has no more sockets.

    A peer that says nothing, or is slow to, holds up no other. A connection gets a device when a whole Request has
    come; until then it costs a socket and one startup frame. At most ``HEARING`` connections are without a device: one
    more, or a system without file descriptors, closes that of them which came first. At most ``PENDING`` have one and
    wait for ``request``. Those that have been accepted are the ULP's, and not counted.
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
        self.stags = StagTable()  # of the domains that its connections have for themselves
        self._lower = lower
        self._device = device
        self._observer = observer
        self._failed = failed
        self._slots = asyncio.Semaphore(PENDING)
        self._requests: asyncio.Queue[ConnectionRequest | None] = asyncio.Queue()  # as many as have a slot
        self._hearing: dict[asyncio.Task[None], Arrival] = {}  # those without a device, the oldest first
        self._tasks = {asyncio.create_task(self._take())}

    async def request(self) -> ConnectionRequest:
        """The next connection request; waits for it. Raises MpaConnectionError when the listener has been closed."""
        request = await self._requests.get()
        if request is None:
            self._requests.put_nowait(None)
            raise MpaConnectionError("the listener has been closed", Reason.LOCAL)
        self._slots.release()
        return request

    async def close(self) -> None:
        """Listen no more, and close the requests that nobody has taken. Idempotent; connections stay."""
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
        told = False
        while True:
            try:
                arrival = await self._lower.arrival()
            except MpaConnectionError as error:
                if self._hearing:
                    await self._drop_oldest(str(error))
                    continue
                if not told:  # once, until one is taken
                    self._failed(self.address, error)
                told = True
                await asyncio.sleep(_PAUSE)  # somebody may close a file
                continue
            told = False
            if len(self._hearing) >= HEARING:
                await self._drop_oldest(f"{HEARING} newer connections wait")
            task = asyncio.create_task(self._hear(arrival))
            self._hearing[task] = arrival
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # however many come, those that are here have their turn

    async def _drop_oldest(self, why: str) -> None:
        """Give up the connection that has been without a device for the longest time."""
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
            request = await arrival.request(path, self.config, watch)
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

    ``device`` and ``observer`` are called for each connection whose Request has come whole. Without a ``domain`` each
    connection has one of its own. Raises MpaConnectionError when the port cannot be had, and ValueError for an
    initiator's ``config``.
    """
    config = config or Config(Role.RESPONDER)
    config.check_role(Role.RESPONDER)
    lower = await mpa.listen(host, port, tcp=tcp)
    return Listener(lower, config, device, options or Options(), domain, observer, failed)
