"""The demonstration: two endpoints, each with a device of its own, move data both ways over one TCP connection.

The connection is a real one: on loopback, or over a frame pipe (``demo_network``). Each endpoint sends its data as
Sends (``host_driver.ddp``), both at the same time, and hashes what it sends and what it receives.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import random
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from open_rnic.host_driver import ddp
from open_rnic.host_driver.connection import (
    Address,
    Connection,
    MpaConnectionError,
    initiate,
    listen,
)
from open_rnic.host_driver.device import Device
from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL
from open_rnic.host_driver.mpa.negotiation import Config, Negotiated
from open_rnic.host_driver.mpa.rtr import read_response, rtr_ulpdu
from open_rnic.host_driver.observer import Observer, tee
from open_rnic.host_driver.tools.demo_network import Kind, Network
from open_rnic.host_driver.tools.ladder import Ladder
from open_rnic.host_driver.tools.named import NamedFile
from open_rnic.host_driver.tools.pcap import Capture
from open_rnic.rtl.registers import Model, Role, Rtr

MESSAGE_OCTETS = 1 << 18  # of a Send; a file takes as many Sends as it needs
_COUNTERS = ("TX_FPDUS", "TX_MARKERS", "TX_STALLS", "RX_FPDUS", "RX_MARKERS", "RX_CRC_ERRORS", "RX_STALLS")
_WIDE_COUNTERS = ("TX_OCTETS", "RX_OCTETS", "CYCLES")


@dataclass(frozen=True)
class Options:
    """The options of the demonstration."""

    size: int  # octets to generate, each way
    file: Path | None = None  # both ends send this file instead
    port: int = 0  # 0: the system chooses
    markers: bool = True
    crc: bool = True
    model: Model = Model.PEER_TO_PEER
    rtr: Rtr = Rtr.WRITE  # in the peer-to-peer model
    mulpdu: int | None = None  # octets; None: as the connection's EMSS allows
    pcap: Path | None = None
    connections: int = 1  # at once
    network: Network = field(default_factory=Network)

    def config(self, role: Role) -> Config:
        """The configuration of one end's negotiation."""
        return Config(role, model=self.model, rtr=(self.rtr,), crc=self.crc, markers=self.markers)


@dataclass
class Endpoint:
    """The octets that one end has sent and received, their hashes, and its counters."""

    role: Role
    address: Address = ()
    due: int = 0  # octets of data to send
    sent: int = 0
    received: int = 0
    sha256_sent: str = ""
    sha256_received: str = ""
    mulpdu: int = 0
    counters: dict[str, int] = field(default_factory=dict)  # by register; for the whole connection, except CYCLES
    negotiated: Negotiated | None = None


@dataclass
class Result:
    """The result of the transfer."""

    initiator: Endpoint
    responder: Endpoint
    seconds: float  # from the first ULPDU sent to the last received

    @property
    def verified(self) -> bool:
        """Whether every octet has arrived, each way."""
        return not self.differences()

    def differences(self) -> list[str]:
        """The differences between sent and received data, a line for each direction that has one."""
        return [
            f"the {receiver.role.name.lower()} received {receiver.received} octets with SHA-256 "
            f"{receiver.sha256_received}, sent were {sender.sent} with {sender.sha256_sent}"
            for sender, receiver in self.directions()
            if (sender.sent, sender.sha256_sent) != (receiver.received, receiver.sha256_received)
        ] + [
            f"the {sender.role.name.lower()} had {sender.due} octets to send, but sent {sender.sent}"
            for sender, _ in self.directions()
            if sender.sent != sender.due
        ]

    def directions(self) -> list[tuple[Endpoint, Endpoint]]:
        """The sender and the receiver of each direction."""
        return [(self.initiator, self.responder), (self.responder, self.initiator)]

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain data; counters have the names of their registers."""
        return {
            "verified": self.verified,
            "octets": self.initiator.sent,
            "seconds": round(self.seconds, 6),
            **{end.role.name.lower(): _endpoint_json(end) for end in (self.initiator, self.responder)},
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """The rows of the closing table: a name, initiator to responder, and back."""
        pairs = self.directions()

        def row(name: str, value: Callable[[Endpoint, Endpoint], object]) -> tuple[str, str, str]:
            one, other = (value(sender, receiver) for sender, receiver in pairs)
            return name, str(one), str(other)

        return [
            row("octets of data", lambda tx, rx: f"{rx.received:,} of {tx.sent:,}"),
            row("MULPDU", lambda tx, rx: f"{tx.mulpdu:,}"),
            row("FPDUs, sent / good", lambda tx, rx: _both(tx, "TX_FPDUS", rx, "RX_FPDUS")),
            row("their octets, sent / good", lambda tx, rx: _both(tx, "TX_OCTETS", rx, "RX_OCTETS")),
            row("markers, sent / removed", lambda tx, rx: _both(tx, "TX_MARKERS", rx, "RX_MARKERS")),
            row("cycles, sender / receiver", lambda tx, rx: _both(tx, "CYCLES", rx, "CYCLES")),
            row("octets per cycle, sent", lambda tx, rx: _per_cycle(tx)),
            row("stalls, sender / receiver", lambda tx, rx: _both(tx, "TX_STALLS", rx, "RX_STALLS")),
            row("CRC errors", lambda tx, rx: f"{rx.counters['RX_CRC_ERRORS']:,}"),
            row("SHA-256 sent", lambda tx, rx: _folded(tx.sha256_sent)),
            row("SHA-256 received", lambda tx, rx: _folded(rx.sha256_received)),
        ]


def _both(sender: Endpoint, one: str, receiver: Endpoint, other: str) -> str:
    return f"{sender.counters[one]:,} / {receiver.counters[other]:,}"


def _per_cycle(end: Endpoint) -> str:
    cycles = end.counters["CYCLES"]
    return f"{end.counters['TX_OCTETS'] / cycles:.2f}" if cycles else "no cycles"


def _folded(digest: str) -> str:
    return f"{digest[:32]}\n{digest[32:]}"


def _endpoint_json(end: Endpoint) -> dict[str, Any]:
    cycles = end.counters["CYCLES"]
    agreed = {}
    if end.negotiated:
        agreed = asdict(end.negotiated) | {
            "role": end.role.name.lower(),
            "model": end.negotiated.model.name.lower().replace("_", "-"),
            "rtr_send": end.negotiated.rtr_send.name.lower(),
            "rtr_accept": sorted(kind.name.lower() for kind in end.negotiated.rtr_accept),
            "private_data": end.negotiated.private_data.hex(),
        }
    return {
        "address": list(end.address[:2]),
        "octets_sent": end.sent,
        "octets_received": end.received,
        "sha256_sent": end.sha256_sent,
        "sha256_received": end.sha256_received,
        "mulpdu": end.mulpdu,
        **{name.lower(): value for name, value in end.counters.items()},
        "octets_per_cycle": round(end.counters["TX_OCTETS"] / cycles, 4) if cycles else None,
        "negotiated": agreed,
    }


class Progress(Protocol):
    """A display of the arriving data."""

    def began(self, role: Role, octets: int) -> None:
        """Start the display of an end at which ``octets`` octets will arrive."""

    def moved(self, role: Role, octets: int) -> None:
        """Add ``octets`` received octets."""


async def run(
    options: Options,
    open_device: Callable[[], Awaitable[Device]],
    ladder: Ladder,
    progress: Progress | None = None,
) -> list[Result]:
    """Run the demonstration; returns the result of each connection. ``open_device`` is called for each endpoint.

    ``ladder`` shows the first connection, and ``progress`` all of them together. Raises ValueError if ``file`` is not a
    regular file, OSError (MpaConnectionError is one), DeviceError and DdpError.
    """
    sources = all_sources(options)
    if options.file and options.pcap and options.pcap.exists() and options.pcap.samefile(options.file):
        raise ValueError(f"{options.pcap} cannot be the capture: it is the file to send")
    async with AsyncExitStack() as stack:
        capture = None
        if options.pcap and options.network.kind is Kind.KERNEL:
            capture = Capture(stack.enter_context(io.BufferedWriter(NamedFile(options.pcap, "wb", str(options.pcap)))))
        network = await stack.enter_async_context(options.network.open())
        host = network.host
        listener = await stack.enter_async_context(await listen(host, options.port, tcp=network.responder))

        async def opened() -> Device:
            return await stack.enter_async_context(await open_device())

        async def connected(n: int) -> tuple[Connection, Connection]:
            async with asyncio.TaskGroup() as group:
                opening = [group.create_task(opened()) for _ in Role]
            ours, theirs = (each.result() for each in opening)
            observers: dict[Role, list[Observer]] = {role: [] if n else [ladder.end(role)] for role in Role}
            if capture:
                for role in Role:
                    observers[role].append(capture.end(role))
            ends = {role: (options.config(role), tee(*observers[role])) for role in Role}
            port = listener.address[1]
            async with asyncio.TaskGroup() as group:
                accepting = group.create_task(listener.accept(theirs, *ends[Role.RESPONDER]))
                initiating = group.create_task(initiate(host, port, ours, *ends[Role.INITIATOR], tcp=network.initiator))
            one = await stack.enter_async_context(initiating.result())
            return one, await stack.enter_async_context(accepting.result())

        pairs = [await connected(n) for n in range(options.connections)]
        async with asyncio.TaskGroup() as group:
            moving = [group.create_task(_transfer(options, pair, data, progress))
                      for pair, data in zip(pairs, sources, strict=True)]  # fmt: skip
        return [each.result() for each in moving]


async def _transfer(
    options: Options,
    connections: tuple[Connection, Connection],
    sources: dict[Role, Source],
    progress: Progress | None,
) -> Result:
    ends = Endpoint(Role.INITIATOR), Endpoint(Role.RESPONDER)
    started = time.monotonic()
    cycles = [await connection.device.get_wide("CYCLES") for connection in connections]
    async with asyncio.TaskGroup() as group:
        for end, connection in zip(ends, connections, strict=True):
            end.address, end.negotiated = connection.local, connection.negotiated
            end.mulpdu = options.mulpdu or connection.mulpdu
            end.due = sources[end.role].octets
            if progress:
                progress.began(end.role, sources[Role(1 - end.role)].octets)
            fit = _Capturable(connection.negotiated) if options.pcap and end.negotiated.markers_tx else None
            group.create_task(_send(end, connection, sources[end.role], fit))
            group.create_task(_receive(end, connection, progress))
    seconds = time.monotonic() - started
    for end, connection, before in zip(ends, connections, cycles, strict=True):
        await count(end, connection.device, before)
    return Result(*ends, seconds)


async def count(end: Endpoint, device: Device, cycles: int) -> None:
    """Read the counters of a device; ``cycles`` is the count of clock cycles at the beginning."""
    end.counters = {name: await device.get(name) for name in _COUNTERS}
    end.counters |= {name: await device.get_wide(name) for name in _WIDE_COUNTERS}
    end.counters["CYCLES"] -= cycles


async def _send(end: Endpoint, connection: Connection, source: Source, fit: _Capturable | None) -> None:
    digest = hashlib.sha256()
    # A Send as RTR was the first message of its queue
    msn = 2 if connection.negotiated.rtr_send is Rtr.SEND else 1
    for message in source.messages():
        digest.update(message)
        end.sent += len(message)
        for ulpdu in _segments(message, msn, end.mulpdu, fit):
            await connection.send_ulpdu(ulpdu)
        msn = ddp.next_msn(msn)
    end.sha256_sent = digest.hexdigest()
    await connection.finish()


async def _receive(end: Endpoint, connection: Connection, progress: Progress | None) -> None:
    digest = hashlib.sha256()
    sends = SendReceiver(2 if Rtr.SEND in connection.negotiated.rtr_accept else 1)
    try:
        while (ulpdu := await connection.receive_ulpdu()) is not None:
            payload = sends.take(ulpdu)
            digest.update(payload)
            end.received += len(payload)
            if progress:
                progress.moved(end.role, len(payload))
    except MpaConnectionError as error:
        if error.event:  # the ULP reports MPA's errors to the peer (RFC 5044 §8)
            await connection.terminate(error.reason.code)
        raise
    sends.finish()
    end.sha256_received = digest.hexdigest()


def _segments(message: bytes, msn: int, mulpdu: int, fit: _Capturable | None) -> Iterator[bytes]:
    """Cut a Send into ULPDUs of at most ``mulpdu`` octets, each as long as ``fit`` allows."""
    mo, last = 0, False
    while not last:
        length = min(mulpdu, ddp.UNTAGGED_OCTETS + len(message) - mo)
        payload = message[mo : mo + (fit(length) if fit else length) - ddp.UNTAGGED_OCTETS]
        last = mo + len(payload) == len(message)
        yield ddp.Untagged(ddp.Opcode.SEND, ddp.SEND_QN, msn, mo, last, payload).encode()
        mo += len(payload)


class SendReceiver:
    """Takes the segments of Sends, which must come in order, starting with message ``msn``."""

    def __init__(self, msn: int) -> None:
        self.msn = msn
        self.mo = 0

    def take(self, ulpdu: bytes) -> bytes:
        """Return the segment's payload; raises DdpError if it is not the next segment."""
        segment = ddp.decode(ulpdu)
        if (
            not isinstance(segment, ddp.Untagged)
            or segment.opcode is not ddp.Opcode.SEND
            or segment.qn != ddp.SEND_QN
        ):
            raise ddp.DdpError(f"{segment} instead of a Send")
        if (segment.msn, segment.mo) != (self.msn, self.mo):
            raise ddp.DdpError(f"{segment} instead of MSN {self.msn}, MO {self.mo}")
        self.mo += len(segment.payload)
        if segment.last:
            self.msn, self.mo = ddp.next_msn(self.msn), 0
        return bytes(segment.payload)

    def finish(self) -> None:
        """Raise DdpError if the stream ended inside a message."""
        if self.mo:
            raise ddp.DdpError(f"the stream ended after {self.mo} octets of the Send with MSN {self.msn}")


class _Capturable:
    """Shortens ULPDUs so that no FPDU ends where a marker is due.

    Wireshark 4.0 counts that marker, which is the next FPDU's (RFC 5044 §4.3), with the FPDU before it, and then
    looks for its CRC in the wrong place.
    """

    def __init__(self, negotiated: Negotiated) -> None:
        self._offset = 0  # in the marked stream
        if negotiated.rtr_send is not Rtr.NONE:
            self._offset = self._end(len(rtr_ulpdu(negotiated.rtr_send)))
        elif Rtr.READ in negotiated.rtr_accept:
            self._offset = self._end(len(read_response(rtr_ulpdu(Rtr.READ))))

    def __call__(self, length: int) -> int:
        """Return the length of a ULPDU, at most ``length``."""
        if self._end(length) % MARKER_INTERVAL == 0 and length >= ddp.UNTAGGED_OCTETS + 4:
            length -= 4
        self._offset = self._end(length)
        return length

    def _end(self, length: int) -> int:
        octets = 6 + length + -(2 + length) % 4  # without markers
        before = -self._offset % MARKER_INTERVAL
        markers = max(0, -(-(octets - before) // (MARKER_INTERVAL - 4)))
        return self._offset + octets + 4 * markers


def all_sources(options: Options) -> list[dict[Role, Source]]:
    """Return the data of both ends of each connection."""
    return [{role: Source(options, role, number) for role in Role} for number in range(options.connections)]


class Source:
    """The data that one end of connection ``number`` sends."""

    def __init__(self, options: Options, role: Role, number: int = 0) -> None:
        self._file = options.file
        self._seed = len(Role) * number + role
        self.octets = options.size
        if self._file is not None:
            with self._file.open("rb"):  # raises OSError now rather than later
                status = self._file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{self._file} is not a regular file")
            self.octets = status.st_size

    def messages(self) -> Iterator[bytes]:
        """Yield the data in pieces; an empty one if there is no data."""
        if not self.octets:
            yield b""
        elif self._file is None:
            generator = random.Random(self._seed)
            for at in range(0, self.octets, MESSAGE_OCTETS):
                yield generator.randbytes(min(MESSAGE_OCTETS, self.octets - at))
        else:
            with self._file.open("rb") as opened:
                while piece := opened.read(MESSAGE_OCTETS):
                    yield piece
