"""The protocol of perftest with ``-R``: ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat and ib_read_lat.

A test has two connections to the same port. On the first, the control connection, the ends exchange values, each as a
Send: first the client's, then as many octets from the server. The second connection carries the test::

    client                                      server
    control: version, page, cache line, MTU    ◂─▸
    control: a place (empty)                   ◂─▸
    data connection                             ─▸
    control: places                            ◂─▸
    data: RDMA Writes, RDMA Reads or Sends      ─▸
    control: the client's results              ◂─▸

A place is the STag and TO of an end's memory; in ib_send_bw, of a counter: the receiver writes the number of Sends that
have arrived there, and the sender never sends more than the receiver has buffers. In ib_write_lat, the ends take turns,
the server first: each waits until the last octet of its memory has the number of the next RDMA Write.

The size and number of messages are not exchanged: both ends must have the same. Versions before 5.70 are refused, as
perftest does.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar

from open_rnic.host_driver.connection import MpaConnectionError
from open_rnic.host_driver.rdma.connection import Connection, Options
from open_rnic.host_driver.rdma.manager import Listener
from open_rnic.host_driver.rdma.memory import Access, Place, Region
from open_rnic.host_driver.rdma.work import CompletionQueue, ReceiveRequest, WorkRequest
from open_rnic.rtl.registers import Model, Role

PORT = 18515
VERSION, OLDEST = b"6.06", 5.70
MEBIBYTE = 1 << 20
MAX_SIZE = 1 << 30  # octets of a message
MAX_DEPTH = 1 << 13  # of a queue
PAUSE = 1.0  # seconds between the control connection and its first message, as in perftest
RETRIES, RETRY = 10, 0.2  # attempts to make the data connection, and the seconds before each
PATIENCE = 30.0  # seconds in which an end without anything to do must hear of the other one
SAME = "do both ends have the same test, -s and -n?"

_T = TypeVar("_T")
_VERSION_OCTETS = 16
_PAGE, _MAX_PAGE = 4096, 1 << 24  # octets: messages up to half a page go to different places in a page
_CACHE_LINE = 64  # octets between these places
_MTU = b"3\0"  # 1024 octets, as in verbs; it has no meaning for iWARP
_COUNTER = struct.Struct("<I")  # in the order of the host that perftest runs on


class Program(StrEnum):
    """A test, which is a program of perftest."""

    WRITE_BW = "ib_write_bw"
    READ_BW = "ib_read_bw"
    SEND_BW = "ib_send_bw"
    WRITE_LAT = "ib_write_lat"
    READ_LAT = "ib_read_lat"

    @property
    def latency(self) -> bool:
        """Whether the time of single messages is measured, and not the rate of many."""
        return self in (Program.WRITE_LAT, Program.READ_LAT)

    @property
    def access(self) -> Access:
        """The rights of the peer in this end's memory."""
        return Access.REMOTE_READ if self in (Program.READ_BW, Program.READ_LAT) else Access.REMOTE_WRITE


class PerftestError(Exception):
    """The peer violated the protocol, or ended too early."""


@dataclass(frozen=True)
class Settings:
    """The parameters of a test; ``of`` has perftest's defaults."""

    program: Program
    size: int  # octets of a message
    iterations: int  # messages
    depth: int = 128  # messages that the client posts at a time
    buffers: int = 512  # that the receiver of Sends posts at a time

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_SIZE:
            raise ValueError(f"a message has 1 to {MAX_SIZE} octets, not {self.size}")
        if self.iterations < 1:
            raise ValueError(f"at least 1 message is sent, not {self.iterations}")
        for name in ("depth", "buffers"):
            if not 1 <= getattr(self, name) <= MAX_DEPTH:
                raise ValueError(f"{name} must be 1 to {MAX_DEPTH}, not {getattr(self, name)}")

    @classmethod
    def of(
        cls,
        program: Program,
        size: int | None = None,
        iterations: int | None = None,
        depth: int = 128,
        buffers: int = 512,
    ) -> Self:
        """Return settings in which the default of ``size`` and ``iterations`` depends on the test."""
        size = size if size is not None else 2 if program.latency else 65536
        iterations = iterations if iterations is not None else 5000 if program is Program.WRITE_BW else 1000
        return cls(program, size, iterations, depth, buffers)

    @property
    def window(self) -> int:
        """The buffers that perftest posts: an even number, and not more than needed."""
        buffers = min(self.buffers, self.iterations)
        return buffers + buffers % 2


class Bandwidth(NamedTuple):
    """The results of a test of bandwidth, as in perftest's table. Rates are the means over the test."""

    size: int  # octets of a message
    iterations: int
    rate: float  # MiB/s
    messages: float  # millions in a second

    def __str__(self) -> str:
        return f"{self.iterations} messages of {self.size} octets: {self.rate:.2f} MiB/s, {self.messages:.6f} Mpps"


class Latency(NamedTuple):
    """The results of a test of latency, in microseconds: from one end to the other, of an RDMA Read there and back."""

    size: int  # octets of a message
    iterations: int
    least: float
    most: float
    typical: float  # the median
    mean: float

    def __str__(self) -> str:
        times = f"{self.typical:.2f} µs (median), {self.least:.2f} to {self.most:.2f}, mean {self.mean:.2f}"
        return f"{self.iterations} messages of {self.size} octets: {times}"


Results = Bandwidth | Latency


async def server(listener: Listener, settings: Settings) -> Results | None:
    """Serve one client; returns the client's results, or those of this end if the client does not report its own.

    In ib_read_lat there are none.

    Raises PerftestError if the client violates the protocol, and RdmaError or MpaConnectionError if a connection ends
    in the middle.
    """
    async with await (await listener.request()).accept() as connection:
        control = _Control(connection, leads=False)
        await control.introduce()
        await control.meet()
        options = _options(listener.options, settings)
        async with await (await listener.request()).accept(options=options) as data:
            await control.meet()
            run = _Run(settings, control, data)
            results = await run.serve()
            await run.left()
    return results


async def client(
    connect: Callable[[Options], Awaitable[Connection]], settings: Settings, options: Options | None = None
) -> Results:
    """Run a test with a server, and return its results; ``connect`` makes a connection to it, and is called twice.

    Raises what ``server`` does.
    """
    options = options or Options()
    async with await connect(options) as connection:
        # Linux siw may overlook a message that arrives right behind its Reply until another one arrives.
        await asyncio.sleep(PAUSE)
        control = _Control(connection, leads=True)
        await control.introduce()
        await control.meet()
        async with await _patient(connect, _options(options, settings)) as data:
            await control.meet()
            return await _Run(settings, control, data).run()


async def _patient(connect: Callable[[Options], Awaitable[Connection]], options: Options) -> Connection:
    """Make the data connection, for which perftest's server begins to listen after its answer."""
    for _ in range(RETRIES - 1):
        await asyncio.sleep(RETRY)
        with contextlib.suppress(MpaConnectionError):
            return await connect(options)
    await asyncio.sleep(RETRY)
    return await connect(options)


def _options(options: Options, settings: Settings) -> Options:
    depth, buffers = settings.depth, settings.window
    sends, receives = CompletionQueue(depth), CompletionQueue(buffers)
    return replace(options, send_depth=depth, receive_depth=buffers, send_cq=sends, receive_cq=receives)


async def _soon(heard: Awaitable[_T]) -> _T:
    """Wait for the peer, which has nothing to do but to answer; otherwise it waits for this end, too."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await heard
    except TimeoutError:
        raise PerftestError(f"nothing came from the peer for {PATIENCE:g} s: {SAME}") from None


class _Properties(NamedTuple):
    """An STag and a TO, in the message with which perftest exchanges the properties of queue pairs."""

    stag: int = 0
    to: int = 0

    def encode(self) -> bytes:
        return _PLACE.pack(0, 1, 0, 0, self.stag, self.to, b"", 0, 0)

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        _, _, _, _, stag, to, *_ = _PLACE.unpack(octets)
        return cls(stag, to)


# LID, outstanding RDMA Reads, QP number, PSN, STag, TO, GID, SRQ number, index of the GID
_PLACE = struct.Struct(">iiiiI4xQ16sIi")
_NOWHERE = _Properties()


class _Control:
    """The control connection; ``leads`` is whether this end is the client."""

    def __init__(self, connection: Connection, *, leads: bool) -> None:
        self._connection = connection
        self._leads = leads
        self.page, self.line = _PAGE, _CACHE_LINE

    async def exchange(self, octets: bytes) -> bytes:
        """Send these octets, and return as many of the peer's."""
        if self._leads:
            await self._connection.send(octets)
        received = bytes(await self._connection.receive(_PLACE.size))
        if len(received) != len(octets):
            raise PerftestError(f"the peer sent {len(received)} octets where {len(octets)} are due")
        if not self._leads:
            await self._connection.send(octets)
        return received

    async def meet(self, own: _Properties = _NOWHERE) -> _Properties:
        """Exchange places."""
        return _Properties.decode(await self.exchange(own.encode()))

    async def introduce(self) -> None:
        """Exchange the properties of the ends; the larger page and the larger cache line are used by both."""
        text = (await self.exchange(VERSION.ljust(_VERSION_OCTETS, b"\0"))).split(b"\0")[0]
        try:
            version = float(text)
        except ValueError:
            version = 0.0
        if not version >= OLDEST:  # nor "nan"
            named = repr(text.decode(errors="backslashreplace"))
            raise PerftestError(f"the peer has version {named}, not {OLDEST:.2f} or later")
        page, line = [
            max(own, int.from_bytes(await self.exchange(own.to_bytes(4, "big")), "big"))
            for own in (self.page, self.line)
        ]
        if not line <= page <= _MAX_PAGE:
            raise PerftestError(f"the peer has pages of {page} octets and cache lines of {line}")
        self.page, self.line = page, line
        await self.exchange(_MTU)

    async def results(self, own: Bandwidth | None) -> Bandwidth:
        """Exchange results: size, iterations, peak, mean, message rate."""
        size, iterations, rate, messages = own or (0, 0, 0.0, 0.0)
        formats = (">Q", size), (">Q", iterations), (">d", rate), (">d", rate), (">d", messages)
        theirs = [struct.unpack(form, await self.exchange(struct.pack(form, value)))[0] for form, value in formats]
        return Bandwidth(theirs[0], theirs[1], theirs[3], theirs[4])


class _Run:
    """A test on an established data connection, whose messages up to half a page go to different places in it."""

    def __init__(self, settings: Settings, control: _Control, data: Connection) -> None:
        self._settings = settings
        self._control = control
        self._data = data
        self._step = -(-settings.size // control.line) * control.line
        self._places = control.page // self._step if settings.size <= control.page // 2 else 1
        self._reach = (self._places - 1) * self._step + settings.size  # octets of the memory that are used
        self._memory = bytearray(max(settings.size, control.page))

    async def serve(self) -> Results | None:
        program = self._settings.program
        if program is Program.SEND_BW:
            region = self._data.register(self._memory, Access.LOCAL_WRITE)
            buffer = ReceiveRequest(region[: self._settings.size])
            self._data.post_receives(*[buffer] * self._settings.window)
            counter = self._data.register(bytearray(_COUNTER.size), program.access)
            results: Results | None = await self._receive(
                buffer, await self._agree(counter, _COUNTER.size)
            )
        else:
            in_turns = program is Program.WRITE_LAT  # in other tests, this end does nothing
            own = self._data.register(self._memory, program.access)
            theirs = await self._agree(own, self._reach if in_turns else 0)
            results = await self._write_in_turns(theirs, first=True) if in_turns else None
        return await self._finish(None) or results

    async def left(self) -> None:
        """Wait until the client, which closes first, has closed the data connection."""
        queue = self._data.options.receive_cq
        if self._settings.program is Program.SEND_BW:
            assert queue is not None
            done = await queue.wait()  # with an error, as the connection ends
            if not all(each.error for each in done):
                raise PerftestError(f"more than {self._settings.iterations} Sends came: {SAME}")
        await self._data.disconnected()

    async def run(self) -> Results:
        settings, program = self._settings, self._settings.program
        match program:
            case Program.WRITE_BW:
                theirs = await self._agree(self._data.register(bytearray(1), program.access), self._reach)
                request = partial(self._write, theirs)
                results: Results = await self._measure(request)
            case Program.READ_BW | Program.READ_LAT:
                sink = self._data.register(self._memory, Access.LOCAL_WRITE)
                theirs = await self._agree(sink, self._reach)
                request = partial(self._read, sink, theirs)
                results = await (self._measure_each(request) if program.latency else self._measure(request))
            case Program.SEND_BW:
                counter = bytearray(_COUNTER.size)
                await self._agree(self._data.register(counter, program.access), 0)
                window = settings.window - 1
                results = await self._measure(
                    lambda number: WorkRequest.send(memoryview(self._memory)[: settings.size]),
                    lambda number: number - _COUNTER.unpack(counter)[0] < window,
                )
            case Program.WRITE_LAT:
                theirs = await self._agree(self._data.register(self._memory, program.access), self._reach)
                results = await self._write_in_turns(theirs, first=False)
        await self._finish(results if isinstance(results, Bandwidth) else None)
        return results

    async def _agree(self, region: Region, used: int) -> Place:
        """Exchange places as often as perftest does: once more in tests that have no exchange of results.

        Returns the place of the peer's octets that are ``used``.
        """
        own = _Properties(region.stag, region.to)
        meetings = 3 if self._settings.program in (Program.WRITE_BW, Program.READ_BW) else 4
        stag, to = [await self._control.meet(own) for _ in range(meetings)][-1]
        try:
            return Place(to, stag, used)
        except ValueError as error:
            raise PerftestError(f"the peer offers wrong memory: {error}") from None

    async def _finish(self, own: Bandwidth | None) -> Bandwidth | None:
        theirs = None
        if self._settings.program in (Program.WRITE_BW, Program.READ_BW):
            await self._control.meet()
            theirs = await self._control.results(own)
        if self._settings.program is Program.SEND_BW:  # both ends have counted all messages
            await _soon(self._control.meet())
        elif self._settings.program is not Program.WRITE_LAT:
            await self._control.meet()
        return theirs

    # Messages

    def _offset(self, number: int) -> int:
        return number % self._places * self._step

    def _write(self, theirs: Place, number: int) -> WorkRequest:
        at = self._offset(number)
        source = memoryview(self._memory)[at : at + self._settings.size]
        return WorkRequest.write(source, theirs.stag, theirs.to + at)

    def _read(self, sink: Region, theirs: Place, number: int) -> WorkRequest:
        at = self._offset(number)
        return WorkRequest.read(sink[at : at + self._settings.size], theirs.stag, theirs.to + at)

    # The tests

    async def _measure(
        self, request: Callable[[int], WorkRequest], allowed: Callable[[int], bool] = lambda number: True
    ) -> Bandwidth:
        """Post all messages, of which ``depth`` may be outstanding and ``allowed`` those that may be posted."""
        settings, queue = self._settings, self._data.options.send_cq
        assert queue is not None
        posted = done = 0
        began = time.perf_counter()
        while done < settings.iterations:
            while posted < min(settings.iterations, done + settings.depth) and allowed(posted):
                self._data.post(request(posted))
                posted += 1
            if posted == done:
                await _soon(self._data.until(partial(allowed, posted)))
                continue
            for each in await queue.wait():
                if each.error:
                    raise each.error
                done += 1
        await self._arrived()
        return self._bandwidth(time.perf_counter() - began)

    async def _arrived(self) -> None:
        """Wait until the peer has all RDMA Writes, if RDMA Reads are possible: their response follows what came before.

        Otherwise, the server may end the connection before the last RDMA Writes have arrived. It counts Sends itself.
        """
        if self._settings.program is Program.WRITE_BW and self._data.negotiated.ord:
            await self._data.post_read(bytearray())

    async def _measure_each(self, request: Callable[[int], WorkRequest]) -> Latency:
        queue = self._data.options.send_cq
        assert queue is not None
        times = []
        for number in range(self._settings.iterations):
            began = time.perf_counter()
            self._data.post(request(number))
            [done] = await queue.wait()
            if done.error:
                raise done.error
            times.append(time.perf_counter() - began)
        return self._latency(times)

    async def _receive(self, buffer: ReceiveRequest, theirs: Place) -> Bandwidth:
        """Receive all Sends, and keep the counter of the client up to date; the time begins with the first Send."""
        settings, queue = self._settings, self._data.options.receive_cq
        assert queue is not None
        often = max(settings.window // 3, 1)
        arrived, began = 0, 0.0
        while arrived < settings.iterations:
            batch = await queue.wait(settings.iterations - arrived)  # ``left`` finds others
            began = began or time.perf_counter()
            for each in batch:
                if each.error:
                    raise each.error
                if each.octets != settings.size:
                    raise PerftestError(f"a Send of {each.octets} octets where {settings.size} are due")
                arrived += 1
                self._data.post_receives(buffer)
                if arrived % often == 0:
                    await self._data.write(_COUNTER.pack(arrived), theirs.stag, theirs.to)
        return self._bandwidth(time.perf_counter() - began)

    async def _write_in_turns(self, theirs: Place, *, first: bool) -> Latency:
        """Take turns; the time between two of this end's RDMA Writes is that of two messages."""
        agreed = self._data.negotiated
        if first and agreed.role is Role.RESPONDER and agreed.model is Model.CLIENT_SERVER:
            raise PerftestError(
                f"in {self._settings.program} the server sends first, which a responder may do only in the "
                "peer-to-peer model (RFC 5044 §7.1.2 rule 4, RFC 6581 §4)"
            )
        count, last = self._settings.iterations, self._settings.size - 1
        source, posted = bytearray(self._settings.size), []
        for number in range(1, count + 1):
            due = number - 1 if first else number
            if due:
                await self._data.until(partial(self._reads, last, due))
            source[last] = number & 0xFF
            posted.append(time.perf_counter())
            await self._data.write(source, theirs.stag, theirs.to)
        if first:
            await self._data.until(partial(self._reads, last, count))
        return self._latency([(later - earlier) / 2 for earlier, later in pairwise(posted)])

    def _reads(self, at: int, number: int) -> bool:
        return self._memory[at] == number & 0xFF

    def _bandwidth(self, seconds: float) -> Bandwidth:
        size, count = self._settings.size, self._settings.iterations
        return Bandwidth(size, count, size * count / MEBIBYTE / seconds, count / 1e6 / seconds)

    def _latency(self, times: list[float]) -> Latency:
        micro = [1e6 * each for each in times] or [0.0]
        return Latency(
            self._settings.size,
            self._settings.iterations,
            min(micro),
            max(micro),
            statistics.median(micro),
            statistics.fmean(micro),
        )
