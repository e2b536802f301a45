"""What a case is, and what it is given to do its work with."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from open_rnic.host_driver import observer, rdma
from open_rnic.host_driver.device import Device
from open_rnic.host_driver.devices.simulated import SimulatedDevice
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.mpa.startup import HEADER_OCTETS, NO_NEGOTIATION, FrameKind, StartupFrame
from open_rnic.host_driver.observer import Direction, Frame, Octets
from open_rnic.host_driver.rdma.connection import OpenDevice
from open_rnic.host_driver.tools.interop.guest import Guest, Output, cpu_seconds
from open_rnic.host_driver.tools.interop.initramfs import ADDRESS, HOST
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.host_driver.tools.interop.relay import Treatment, relay
from open_rnic.rtl.registers import Role, Rtr


class Mismatch(Exception):  # noqa: N818 -- not of this program's
    """The case did not go as it must: one line that says what came instead."""


@dataclass(frozen=True)
class Finding:
    """What both ends did. ``departs`` is where siw, or a program on it, departs from a standard."""

    siw: str
    ours: str
    departs: str = ""


NUDGE, NUDGES = 1.0, 5  # seconds, and how often
NUDGE_STAG = 0x4E554447  # nobody's: tells these RDMA Writes from an RTR, in a capture, too
_ORDINARY = Expected()
# With this MULPDU, messages of whole words need no PAD. The network between the two cuts where it likes, and siw loses
# what has come of PAD and CRC when the rest comes later (the case crc-split-to-guest).
MULPDU = 32762


@dataclass(frozen=True)
class Case:
    """One row of the matrix. ``act`` raises Mismatch, or any error of the driver's, when the case fails."""

    name: str  # of the capture's file, too
    tried: str
    standard: str
    act: Callable[[Setting], Awaitable[Finding]]
    expected: Expected = _ORDINARY
    variant: str = "siw"
    kills: bool = False  # the guest, or leaves it unfit for other cases
    timeout: float = 300.0


@dataclass
class Transfer:
    """Octets that the ULP moved, and what that took: seconds of time, and of each stage's processors."""

    octets: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Octets a second."""
        return self.octets / self.seconds if self.seconds else 0.0

    @property
    def slowest(self) -> str:
        """The stage that was busy longest, and for which share of the time; round trips, if under a half."""
        if not self.seconds:
            return ""
        name, busy = max(self.stages.items(), key=lambda item: item[1])
        share = min(busy / self.seconds, 1)
        return f"{name} {share:.0%}" if share >= 0.5 else f"round trips (busiest: {name} {share:.0%})"


class Seen:
    """What one connection of ours has sent and received."""

    def __init__(self) -> None:
        self.sent: StartupFrame | None = None
        self.received: StartupFrame | None = None
        self.fpdus = 0  # sent
        self.pieces: list[tuple[int, int]] = []  # offset and octets of what came at once
        self.last = 0.0  # when the last of them was, time.monotonic()
        self.nudges = 0  # see ``nudge``
        self.heard = False  # an FPDU of the peer's, or a part of one
        self.octets_out = 0  # of FPDUs
        self._octets = 0
        self._head, self._header, self._due = b"", HEADER_OCTETS, 0  # where in a frame the received octets end

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
            case Octets(Direction.RX, octets):
                self.pieces.append((self._octets, len(octets)))
                self._octets += len(octets)
                self.heard = self.received is not None and self._octets > len(self.received.encode())
                self._follow(octets)

    @property
    def octets_in(self) -> int:
        """Octets that have come, the startup frame's too."""
        return self._octets

    @property
    def whole(self) -> bool:
        """What has come ends behind a startup frame or an FPDU, and not inside one; for streams without markers."""
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
            if len(self._head) == self._header:  # its last two octets are a length, in startup frames and FPDUs
                length = int.from_bytes(self._head[-2:], "big")
                self._due = length if self._header == HEADER_OCTETS else length + -(2 + length) % 4 + 4
                self._head, self._header = b"", 2


async def nudge(connection: rdma.Connection, seen: Seen) -> None:
    """Send a few empty RDMA Writes, which change nothing, until siw has answered something.

    It sends its Reply before it looks for FPDUs; those that come in between it notices only when more comes. That this
    end is not to blame, because nothing of it was under way, the capture must show: see ``judge.overlooked``.
    """
    while seen.nudges < NUDGES:
        await asyncio.sleep(NUDGE / 10)
        if seen.heard or connection.error:
            return
        if seen.fpdus and time.monotonic() - seen.last >= NUDGE:
            with contextlib.suppress(rdma.RdmaError):
                await connection.write(b"", NUDGE_STAG)
                seen.nudges += 1


class Setting:
    """A case's guest, device and network; an asynchronous context manager that leaves nothing running."""

    address = ADDRESS  # the guest's
    host = HOST  # ours, as the guest sees it

    def __init__(self, guest: Guest, device: OpenDevice) -> None:
        self.guest = guest
        self.seen: list[Seen] = []
        self.ports = {guest.service}  # of the guest's traffic that is this case's
        self.transfer = Transfer()
        self.commands: list[tuple[str, bytearray]] = []  # run in the guest, and what each has printed
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
        """Begin to run a command in the guest."""
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
        """A data path for one connection; what it uses is measured."""
        return await self._device()

    async def connect(
        self, config: Config | None = None, *, port: int | None = None, mulpdu: int = MULPDU
    ) -> rdma.Connection:
        """Connect to the guest's server, or to ``port`` of this machine. ``mulpdu``: see ``rdma.Options``."""
        seen = self.observer()
        connection = await rdma.connect(
            "127.0.0.1",
            port or self.guest.port,
            config or Config(Role.INITIATOR),
            device=self.device,
            observer=seen,
            options=rdma.Options(mulpdu=mulpdu),
        )
        self._tasks.append(asyncio.create_task(nudge(connection, seen)))
        return connection

    async def listen(self, config: Config | None = None, *, mulpdu: int = MULPDU) -> rdma.Listener:
        """Listen where the guest finds it; the listener is closed with the case. ``mulpdu``: see ``rdma.Options``."""
        listener = await rdma.listen(
            "127.0.0.1",
            0,
            config or Config(Role.RESPONDER),
            device=self.device,
            observer=self.observer,
            options=rdma.Options(mulpdu=mulpdu),
        )
        self._stack.push_async_callback(listener.close)
        self.ports.add(listener.address[1])
        return listener

    async def relay(self, port: int, forth: Treatment | None = None, back: Treatment | None = None) -> int:
        """Put a relay before a port of this machine; the relay's port."""
        relayed = await self._stack.enter_async_context(relay(port, forth, back, seed=len(self.seen)))
        self.ports.add(relayed)
        return relayed

    def observer(self) -> Seen:
        """An observer for one more connection."""
        seen = Seen()
        self.seen.append(seen)
        return seen

    @property
    def first(self) -> Seen:
        """What the first connection has seen."""
        return self.seen[0]

    @property
    def fpdus(self) -> int:
        """How many FPDUs our end has sent."""
        return sum(seen.fpdus for seen in self.seen)

    @property
    def nudges(self) -> int:
        """How often siw was nudged."""
        return sum(seen.nudges for seen in self.seen)

    @property
    def reply(self) -> str:
        """What siw put into its startup frame."""
        return tell(self.first.received) if self.first.received else "no startup frame"

    @property
    def ours(self) -> str:
        """What our end put into its startup frame."""
        return tell(self.first.sent) if self.first.sent else "no startup frame"

    @contextlib.contextmanager
    def measured(self, octets: int, *connections: rdma.Connection) -> Iterator[None]:
        """In its body so many octets are moved over these connections."""
        simulations = [each.device for each in connections if isinstance(each.device, SimulatedDevice)]

        def used() -> dict[str, float]:
            stages = {"host driver": time.process_time(), "guest": self.guest.cpu_seconds}
            if simulations:  # they run side by side, so the busiest counts
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
    """Raise Mismatch unless something holds; ``what`` says what came instead."""
    if not holds:
        raise Mismatch(what)


def tell(frame: StartupFrame) -> str:
    """A startup frame in a few words."""
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
