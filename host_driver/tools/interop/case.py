"""The description of a case, and the functions with which it connects, runs programs and checks results."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from open_rnic.host_driver import observer, rdma
from open_rnic.host_driver.device import Device
from open_rnic.host_driver.devices.simulated import SimulatedDevice
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.mpa.startup_frames import HEADER_OCTETS, NO_NEGOTIATION, FrameKind, StartupFrame
from open_rnic.host_driver.observer import Counted, Direction, Frame, Octets
from open_rnic.host_driver.rdma import rsocket
from open_rnic.host_driver.rdma.connection import OpenDevice
from open_rnic.host_driver.tools.interop.initramfs import ADDRESS, HOST
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.host_driver.tools.interop.qemu import Guest, Output, cpu_seconds
from open_rnic.host_driver.tools.interop.relay import Treatment, relay
from open_rnic.rtl.registers import Role, Rtr


class Mismatch(Exception):  # noqa: N818 -- the fault is the peer's, not this program's
    """A case failed; the message is one line with the actual result."""


@dataclass(frozen=True)
class Finding:
    """The behaviour of both ends. ``departs`` states how siw, or a program on it, departs from a standard."""

    siw: str
    ours: str
    departs: str = ""


NUDGE, NUDGES = 1.0, 5  # seconds of silence before a nudge, and the largest number of nudges
NUDGE_STAG = 0x4E554447  # belongs to no region; distinguishes a nudge from an RTR, also in a capture
_ORDINARY = Expected()
# With this MULPDU, messages of whole words need no PAD. siw reports a bad CRC if PAD and CRC do not arrive together, or
# the CRC not in one piece (see the case crc-split-to-guest, and initramfs.WINDOW).
MULPDU = 32762


@dataclass(frozen=True)
class Case:
    """A case of the matrix. ``act`` runs it; if the case fails, ``act`` raises Mismatch or an error of the driver.

    ``description`` and ``standard`` are cells of the table: what the case tests, and what the standard requires.
    """

    name: str  # also the name of the capture file
    description: str
    standard: str
    act: Callable[[Setting], Awaitable[Finding]]
    expected: Expected = _ORDINARY
    variant: str = "siw"
    relayed: bool = False  # whether a relay between sockets of this machine's kernel is part of the case
    octets: bool = False  # whether our end must see the stream's octets, which an attached device does not show
    offloads: bool = True  # whether an RDMA engine has room for its RDMA Reads
    long: bool = False  # whether the case takes so long that it runs only on request
    samples: bool = False  # whether our end must have a sample writer
    sdram: bool = False  # whether our end must be a board with SDRAM as its memory
    kills: bool = False  # whether the case kills the guest, or leaves it unusable for other cases
    timeout: float = 300.0
    connections: int = 1  # that our end has at a time
    # With a board, which has some ten KiB of memory, fewer RDMA Reads, and shows no FPDU with a wrong CRC, another case
    # takes its place, or none if no message is small enough.
    smaller: Case | None = None
    large: bool = False

    @property
    def kind(self) -> Callable[..., Awaitable[Finding]]:
        """The function behind ``act``, which also fixes our role; cases of one kind differ in its arguments only."""
        return self.act.func if isinstance(self.act, partial) else self.act


@dataclass
class Transfer:
    """Octets that the ULP transferred, the elapsed seconds, and the processor seconds of each stage."""

    octets: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Octets per second."""
        return self.octets / self.seconds if self.seconds else 0.0

    @property
    def slowest(self) -> str:
        """The busiest stage and its share of the time; "round trips" if no stage was busy for half of the time."""
        if not self.seconds:
            return ""
        name, busy = max(self.stages.items(), key=lambda item: item[1])
        share = min(busy / self.seconds, 1)
        return f"{name} {share:.0%}" if share >= 0.5 else f"round trips (busiest: {name} {share:.0%})"


class Seen:
    """An observer that records what our end of one connection sends and receives."""

    def __init__(self) -> None:
        self.sent: StartupFrame | None = None
        self.received: StartupFrame | None = None
        self.fpdus = 0  # number sent
        self.counted = False  # a device with TCP of its own reports numbers, a while after FPDUs have left or arrived
        self.pieces: list[tuple[int, int]] = []  # offset and size of each piece received
        self.last = 0.0  # time.monotonic() of the last transmission
        self.nudges = 0  # number sent by ``nudge``
        self.heard = False  # whether at least a part of an FPDU has arrived
        self.octets_out = 0  # sent in FPDUs
        self._octets = 0
        self._head, self._header, self._due = b"", HEADER_OCTETS, 0  # state of the frame that is being received

    def __call__(self, seen: observer.Seen) -> None:
        """See ``host_driver.observer``."""
        match seen:
            case Frame(Direction.TX, frame):
                self.sent = frame
            case Frame(Direction.RX, frame):
                self.received = frame
            case Octets(Direction.TX, octets):
                if octets[:16] not in (kind.value for kind in FrameKind):
                    self.fpdus += 1
                    self.octets_out += len(octets)
                self.last = time.monotonic()
            case Counted(Direction.TX, fpdus):
                self.fpdus += fpdus
                self.counted = True
                self.last = time.monotonic()
            case Counted(Direction.RX, _):
                self.heard = True
            case Octets(Direction.RX, octets):
                self.pieces.append((self._octets, len(octets)))
                self._octets += len(octets)
                self.heard = self.received is not None and self._octets > len(self.received.encode())
                self._follow(octets)

    @property
    def octets_in(self) -> int:
        """The number of octets received, including the startup frame."""
        return self._octets

    @property
    def whole(self) -> bool:
        """Whether the received octets end at the end of a startup frame or FPDU; for streams without markers."""
        return not self._head and not self._due

    def _follow(self, octets: bytes) -> None:
        while octets:
            if self._due:
                taken = min(self._due, len(octets))
                self._due -= taken
                octets = octets[taken:]
                continue
            missing = self._header - len(self._head)
            self._head, octets = self._head + octets[:missing], octets[missing:]
            if len(self._head) == self._header:  # the header of a startup frame or FPDU ends with a 16-bit length
                length = int.from_bytes(self._head[-2:], "big")
                self._due = length if self._header == HEADER_OCTETS else length + -(2 + length) % 4 + 4
                self._head, self._header = b"", 2


async def nudge(connection: rdma.Connection, seen: Seen) -> None:
    """Send up to NUDGES empty RDMA Writes, which have no effect, until siw has sent an FPDU.

    This begins when the ULP does: a peer that has received only an RTR has no reason to send.

    siw sends its Reply before it starts to receive FPDUs. It processes FPDUs that arrive in between only when more
    octets arrive. ``judge.overlooked`` checks the capture to make sure that this end did not cause the silence.
    """
    began = time.monotonic()
    while seen.nudges < NUDGES:
        await asyncio.sleep(NUDGE / 10)
        if seen.heard or connection.error:
            return
        if seen.fpdus and time.monotonic() - max(began, seen.last) >= NUDGE * (20 if seen.counted else 1):
            with contextlib.suppress(rdma.RdmaError):
                await connection.write(b"", NUDGE_STAG)
                seen.nudges += 1


class Setting:
    """The guest, the device and the network of a case; an asynchronous context manager that ends what it starts."""

    address = ADDRESS  # of the guest
    host = HOST  # of this machine, as seen by the guest

    def __init__(self, guest: Guest, device: OpenDevice) -> None:
        self.guest = guest
        self.seen: list[Seen] = []
        self.ports = {guest.service}  # ports of this case's connections
        self.transfer = Transfer()
        self.commands: list[tuple[str, bytearray]] = []  # commands run in the guest, and their output
        self._device = device
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def run(self, command: str, timeout: float = 240.0) -> asyncio.Task[Output]:
        """Start a command in the guest."""
        self.commands.append((command, bytearray()))
        task = asyncio.create_task(self.guest.run(command, timeout, self.commands[-1][1]))
        self._tasks.append(task)
        return task

    async def serve(self, command: str) -> asyncio.Task[Output]:
        """Run a server in the guest, and wait until it listens at its service port."""
        task = self.run(command)
        ready = asyncio.create_task(self.guest.listening(self.guest.service))
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            raise Mismatch(f"the guest's {command.split()[0]} ended: {' '.join(task.result().lines)}")
        await ready
        return task

    async def device(self) -> Device:
        """Open a device for one connection."""
        return await self._device()

    async def connect(
        self,
        config: Config | None = None,
        *,
        port: int | None = None,
        mulpdu: int = MULPDU,
        options: rdma.Options | None = None,
        nudged: bool = True,
    ) -> rdma.Connection:
        """Connect to the guest's server, or to ``port`` of this machine. ``mulpdu``: see ``rdma.Options``.

        Unless ``nudged`` is set, or ``nudge`` is called later, FPDUs that siw has overlooked are not noticed.
        """
        seen = self.observer()
        connection = await rdma.connect(
            self.guest.host,
            port or self.guest.port,
            config or Config(Role.INITIATOR),
            device=self.device,
            observer=seen,
            options=replace(options or rdma.Options(), mulpdu=mulpdu),
            tcp=self.guest.tcp,
        )
        if nudged:
            self.nudge(connection, seen)
        return connection

    def nudge(self, connection: rdma.Connection, seen: Seen) -> None:
        """Nudge siw from now on if it is silent; see ``nudge``."""
        self._tasks.append(asyncio.create_task(nudge(connection, seen)))

    async def rsocket(self, settings: rsocket.Settings | None = None) -> rsocket.Rsocket:
        """Connect to the guest's server, which is an rsocket."""
        seen = self.observer()
        connected = await rsocket.connect(
            self.guest.host,
            self.guest.port,
            settings=settings,
            device=self.device,
            observer=seen,
            options=rdma.Options(mulpdu=MULPDU),
            tcp=self.guest.tcp,
        )
        self.nudge(connected.connection, seen)
        return connected

    async def listen(self, config: Config | None = None, *, mulpdu: int = MULPDU) -> rdma.Listener:
        """Listen at an address that the guest can reach, until the case ends. ``mulpdu``: see ``rdma.Options``."""
        listener = await rdma.listen(
            self.guest.host_here,
            0,
            config or Config(Role.RESPONDER),
            device=self.device,
            observer=self.observer,
            options=rdma.Options(mulpdu=mulpdu),
            tcp=self.guest.tcp,
        )
        self._stack.push_async_callback(listener.close)
        self.ports.add(listener.address[1])
        return listener

    async def request(self, listener: rdma.Listener, program: asyncio.Task[Output]) -> rdma.ConnectionRequest:
        """Wait for the connection request of a program in the guest; raises Mismatch if it ends without one."""
        asked = asyncio.create_task(listener.request())
        self._tasks.append(asked)
        await asyncio.wait((asked, program), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise Mismatch(f"the guest's program ended without a connection: {' '.join(program.result().lines)}")
        return await asked

    async def relay(self, port: int, forth: Treatment | None = None, back: Treatment | None = None) -> int:
        """Start a relay to a port of this machine, and return the relay's port."""
        relayed = await self._stack.enter_async_context(relay(port, forth, back, seed=len(self.seen)))
        self.ports.add(relayed)
        return relayed

    def observer(self) -> Seen:
        """Return an observer for one more connection."""
        seen = Seen()
        self.seen.append(seen)
        return seen

    @property
    def first(self) -> Seen:
        """The observer of the first connection."""
        return self.seen[0]

    @property
    def fpdus(self) -> int:
        """The number of FPDUs that our end has sent."""
        return sum(seen.fpdus for seen in self.seen)

    @property
    def nudges(self) -> int:
        """The number of nudges sent to siw."""
        return sum(seen.nudges for seen in self.seen)

    @property
    def reply(self) -> str:
        """A short description of siw's first startup frame."""
        return describe(self.first.received) if self.first.received else "no startup frame"

    @property
    def ours(self) -> str:
        """A short description of our first startup frame."""
        return describe(self.first.sent) if self.first.sent else "no startup frame"

    @contextlib.contextmanager
    def measured(self, octets: int, *connections: rdma.Connection) -> Iterator[None]:
        """Measure the body, which transfers this number of octets over these connections."""
        simulations = [each.device for each in connections if isinstance(each.device, SimulatedDevice)]

        def used() -> dict[str, float]:
            stages = {"host driver": time.process_time(), "guest": self.guest.cpu_seconds}
            if simulations:  # the simulations run in parallel, so the busiest one limits the rate
                stages["RTL in simulation"] = max(cpu_seconds(each.process) for each in simulations)
            return stages

        before, began = used(), time.perf_counter()
        yield
        seconds, after = time.perf_counter() - began, used()
        self.transfer.octets += octets
        self.transfer.seconds += seconds
        for name, busy in after.items():
            self.transfer.stages[name] = self.transfer.stages.get(name, 0.0) + busy - before[name]


def check(holds: bool, what: str) -> None:
    """Raise Mismatch with the message ``what`` unless ``holds``."""
    if not holds:
        raise Mismatch(what)


def describe(frame: StartupFrame) -> str:
    """Return a short description of a startup frame."""
    name = "Request" if frame.kind is FrameKind.REQUEST else "Reply"
    parts = [f"{name} Rev {frame.rev}"]
    flags = {"M": frame.markers, "C": frame.crc, "R": frame.rejected, "S": frame.enhanced is not None}
    parts.append(" ".join(f"{flag}={value:d}" for flag, value in flags.items() if value or flag == "C"))
    if data := frame.enhanced:
        rtr = "".join(f" {kind.name.capitalize()} RTR" for kind in sorted(data.rtr, key=Rtr))
        parts.append(f"A={data.peer_to_peer:d}{rtr}")
        parts.append(f"IRD {_depth(data.ird)} ORD {_depth(data.ord)}")
    if frame.private_data:
        parts.append(f"{len(frame.private_data)} octets of private data")
    return ", ".join(parts)


def _depth(value: int) -> str:
    return "0x3FFF" if value == NO_NEGOTIATION else str(value)
