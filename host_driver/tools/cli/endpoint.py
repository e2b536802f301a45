"""Shared by ``rnic listen``, ``rnic connect`` and ``rnic rping``: options, and reports of events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.mpa.startup_frames import NO_NEGOTIATION, FrameKind
from open_rnic.host_driver.tools.cli import output
from open_rnic.host_driver.tools.cli.common import (
    DeviceOption,
    LanesOption,
    UsageError,
    line_of,
    number,
    open_device,
    whole_number,
)
from open_rnic.host_driver.tools.cli.demo import ModelName, RtrName
from open_rnic.rtl.registers import Model, Role, Rtr

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from open_rnic.host_driver.connection import Address
    from open_rnic.host_driver.device import Device
    from open_rnic.host_driver.mpa.negotiation import Config, Reason
    from open_rnic.host_driver.mpa.startup_frames import StartupFrame
    from open_rnic.host_driver.rdma import Connection, ConnectionRequest, Listener, MpaConnectionError, Received
    from open_rnic.host_driver.rdma.connection import OpenDevice
    from open_rnic.host_driver.transport import Tcp

SEND_OCTETS = 1 << 16  # octets of a file in one Send
EVERYWHERE = "0.0.0.0"
ROOM = 1 << 20  # octets of the longest Send that the peer may send
MAX_IRD = 128  # as in ``host_driver.mpa.negotiation.Config``


class DialectName(StrEnum):
    """The document that defines the format of the enhanced data; as in ``mpa.startup_frames.Dialect``."""

    RFC6581 = "rfc6581"
    DRAFT_02 = "draft-02"


class OffloadName(StrEnum):
    """The work that the device does besides MPA."""

    RDMA = "rdma"
    NONE = "none"


OFFLOADS = {OffloadName.RDMA: True, OffloadName.NONE: False, None: None}  # as ``devices.open_device`` takes it


def port_number(text: str | int) -> int:
    """Parse the text of an option, for ``typer.Option(parser=port_number)``."""
    port = whole_number(text)
    if not 0 <= port <= 65535:
        raise typer.BadParameter(f"a port must be 0 to 65535, not {port}")
    return port


def peer_port(text: str | int) -> int:
    """Parse the number of a port to connect to, which cannot be 0."""
    port = port_number(text)
    if port == 0:
        raise typer.BadParameter("port 0 cannot be connected to")
    return port


def peer_of(host: str, port: int | None) -> tuple[str, int]:
    """Return the host and the port of HOST PORT, HOST:PORT or [ADDRESS]:PORT; raises UsageError without a port."""
    if port is None:
        host, colon, number = host.rpartition(":")
        if not colon or (":" in host and not host.endswith("]")):
            raise UsageError(f"the responder's port is missing: {host + colon + number} PORT")
        port = peer_port(number)
    elif host.count(":") == 1 or "]:" in host:
        raise UsageError(f"the responder's port is given twice: {host} {port}")
    return host.removeprefix("[").removesuffix("]"), port


def keep_alive_times(text: str | KeepAlive) -> KeepAlive:
    """Parse SECONDS, and perhaps the seconds between two probes, and their number."""
    if isinstance(text, KeepAlive):
        return text
    numbers = [whole_number(each) for each in text.split(",")]
    if len(numbers) > 3:
        raise typer.BadParameter(f"{text!r} is not SECONDS, or SECONDS,SECONDS, or SECONDS,SECONDS,PROBES")
    try:
        return KeepAlive(*numbers)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="The responder's name or address, or HOST:PORT.")]
PortArgument = Annotated[
    int | None, typer.Argument(metavar="PORT", parser=peer_port, help="Its TCP port, if that is not behind HOST.")
]
PortOption = Annotated[
    int, typer.Option("--port", metavar="N", parser=port_number, help="The TCP port; 0 lets the system choose.")
]
ModelOption = Annotated[
    ModelName | None,
    typer.Option("--model", help="The connection model; by default peer-to-peer, or client-server with --rev 1."),
]
OnlyModelOption = Annotated[
    ModelName | None, typer.Option("--model", help="Reject Requests for the other connection model.")
]
RtrOption = Annotated[
    list[RtrName] | None,
    typer.Option(
        "--rtr", help="An RTR that this end supports; repeat it for more, in order of preference. The default is all."
    ),
]
IrdOption = Annotated[
    int,
    number(
        "--ird",
        help="The number of RDMA Reads that the peer may have outstanding; raised to the peer's ORD, up to --max-ird.",
    ),
]
OrdOption = Annotated[
    int, number("--ord", help="The number of RDMA Reads that this end may have outstanding; lowered to the peer's IRD.")
]
MaxIrdOption = Annotated[
    int,
    number(
        "--max-ird",
        help="The largest IRD. A responder offers no more; an initiator sends Terminate 2/0/6 if the Reply requires "
        "more.",
    ),
]
FixedIrdOption = Annotated[
    bool,
    typer.Option(
        "--no-negotiate-ird", help="Send 0x3FFF as the IRD: it is not negotiated, and --ird is used unchanged."
    ),
]
FixedOrdOption = Annotated[
    bool,
    typer.Option(
        "--no-negotiate-ord", help="Send 0x3FFF as the ORD: it is not negotiated, and --ord is used unchanged."
    ),
]
RequireCrcOption = Annotated[bool, typer.Option("--require-crc", help="Require CRCs; this is the default.")]
NoCrcOption = Annotated[bool, typer.Option("--no-crc", help="Use CRCs only if the peer requires them.")]
MarkersOption = Annotated[bool, typer.Option("--markers", help="Request markers in the stream that the peer sends.")]
RevOption = Annotated[int, number("--rev", help="The revision of the startup frames: 2 for RFC 6581, 1 for RFC 5044.")]
DialectOption = Annotated[
    DialectName,
    typer.Option(
        "--dialect",
        help="The format of the enhanced data. Frames do not identify it, so both ends must use the same.",
    ),
]
PrivateOption = Annotated[
    str, typer.Option("--private-data", metavar="TEXT|@FILE", help="The private data of the startup frame.")
]
ServiceOption = Annotated[int, typer.Option("-p", "--port", metavar="N", parser=port_number, help="The TCP port.")]
ListenOption = Annotated[str, typer.Option("--bind", metavar="ADDRESS", help="The address to listen at; default: any.")]
BindOption = Annotated[
    str | None, typer.Option("--bind", metavar="ADDRESS", help="This end's address; by default the system chooses.")
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", help="The time limit for the peer's startup frame, and again for its RTR."
    ),
]
KeepAliveOption = Annotated[
    KeepAlive | None,
    typer.Option(
        "--keep-alive",
        metavar="S[,S[,N]]",
        parser=keep_alive_times,
        help="End the connection if the peer, silent for S seconds, does not answer N probes S seconds apart; by "
        "default 9 and 75. Without this option, an idle connection lasts for ever.",
    ),
]
SendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--send",
        metavar="TEXT|@FILE",
        help="A message to send; repeat it for more. A file is sent in messages of 64 KiB.",
    ),
]
EchoOption = Annotated[
    bool,
    typer.Option("--echo", help="Send back each message until the peer closes. If both ends echo, neither closes."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write each event as a JSON object on a line of its own.")]


OffloadOption = Annotated[
    OffloadName | None,
    typer.Option(
        "--offload",
        help="Where DDP and RDMAP are: in the RDMA engine of the device (rdma), or in the program (none). By default "
        "in the engine, if the device has one.",
    ),
]
TransportOption = Annotated[
    str,
    typer.Option(
        "--transport",
        metavar="TCP",
        help="The TCP below: kernel, or this project's over Ethernet: tap:NAME,ADDRESS/PREFIX[,GATEWAY] or "
        "qemu:PATH,ADDRESS/PREFIX[,GATEWAY]; with tap-rtl and qemu-rtl, TCP in simulated RTL, and with --device "
        "simulated MPA in the same simulation, 1 lane wide; with --device udp:sim:BOARD, the other end of the "
        "board's cable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """The options of all commands that make connections; the attributes below them are fixed for ``rnic rping``."""

    rtr: RtrOption = None
    require_crc: RequireCrcOption = False
    no_crc: NoCrcOption = False
    markers: MarkersOption = False
    device: DeviceOption = "software"
    lanes: LanesOption = 4
    offload: OffloadOption = None
    transport: TransportOption = "kernel"
    keep_alive: KeepAliveOption = None

    ird = 1
    ord = 1
    max_ird = MAX_IRD
    fixed_ird = False
    fixed_ord = False
    rev = 2
    dialect = DialectName.RFC6581
    private_data = ""
    timeout = 10.0

    def configuration(self, role: Role, model: ModelName | None, *, min_ord: int = 0, fallback: bool = False) -> Config:
        """Return the configuration; raises UsageError for invalid values, and for options that would have no effect."""
        from open_rnic.host_driver.mpa.negotiation import Config
        from open_rnic.host_driver.mpa.startup_frames import Dialect

        if self.rev not in (1, 2):
            raise UsageError(f"--rev must be 1 or 2, not {self.rev}")
        if self.rev == 1 and model is ModelName.PEER_TO_PEER:
            raise UsageError("--model peer-to-peer needs --rev 2: RFC 6581 §9.2 defines it")
        if self.rev == 1:
            for option, given in {
                "--rtr": self.rtr,
                "--min-ord": min_ord,
                "--no-negotiate-ird": self.fixed_ird,
                "--no-negotiate-ord": self.fixed_ord,
                "--fallback": fallback,
                f"--dialect {self.dialect.value}": self.dialect is not DialectName.RFC6581,
            }.items():
                if given:
                    raise UsageError(f"{option} has no effect with --rev 1, which has no enhanced data")
        if self.rtr and model is ModelName.CLIENT_SERVER:
            raise UsageError("--rtr has no effect with --model client-server, which has no RTR")
        if self.require_crc and self.no_crc:
            raise UsageError("--require-crc and --no-crc exclude each other")
        if model is None:
            model = ModelName.PEER_TO_PEER if self.rev == 2 else ModelName.CLIENT_SERVER
        chosen: dict[str, Any] = {"rtr": tuple(Rtr[kind.name] for kind in dict.fromkeys(self.rtr))} if self.rtr else {}
        try:
            return Config(
                role,
                model=Model[model.name],
                ird=self.ird,
                ord=self.ord,
                max_ird=self.max_ird,
                min_ord=min_ord,
                negotiate_ird=not self.fixed_ird,
                negotiate_ord=not self.fixed_ord,
                crc=not self.no_crc,
                markers=self.markers,
                enhanced=self.rev == 2,
                dialect=Dialect(self.dialect.value),
                private_data=text_or_file(self.private_data, "--private-data"),
                timeout=self.timeout,
                keep_alive=self.keep_alive,
                **chosen,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None

    def end(self, host: str, port: int, model: ModelName | None, *, serves: bool) -> End:
        """Return the end of a client, or of a server; raises UsageError for options that would have no effect."""
        if serves and model:
            raise UsageError(f"--model {model.value} is for a client: a server follows the Request")
        if port == 0 and not serves:
            raise UsageError("port 0 cannot be connected to")
        config = self.configuration(Role.RESPONDER if serves else Role.INITIATOR, model)
        return End(host, port, config, self.network())

    @property
    def has_address(self) -> bool:
        """Whether the endpoint has an address of its own, not those of this machine."""
        from open_rnic.host_driver.devices import names

        return self.transport != "kernel" or isinstance(names.parse(self.device), names.Rnic)

    def network(self) -> AbstractAsyncContextManager[tuple[Tcp, OpenDevice]]:
        """Return the TCP endpoint, which is not open yet, with the function that opens each connection's device.

        Raises UsageError at once for an unknown device or transport, or if they have not the engine that ``--offload``
        needs.
        """
        from open_rnic.host_driver.devices import check_lanes, names
        from open_rnic.host_driver.tools.tcp_choice import TcpChoice

        offload = OFFLOADS[self.offload]
        try:
            check_lanes(self.lanes)
            name = names.parse(self.device)
            choice = TcpChoice.parse(self.transport, name, offload=offload is not False)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if offload and not name.offloads:
            raise UsageError(f"--offload rdma needs an RDMA engine, and --device {self.device} has none")
        return choice.open_with(partial(open_device, self.device, self.lanes, offload=offload))


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(ConnectionOptions):
    """The options that ``rnic listen`` and ``rnic connect`` share."""

    ird: IrdOption = 16
    ord: OrdOption = 16
    max_ird: MaxIrdOption = MAX_IRD
    fixed_ird: FixedIrdOption = False
    fixed_ord: FixedOrdOption = False
    rev: RevOption = 2
    dialect: DialectOption = DialectName.RFC6581
    private_data: PrivateOption = ""
    timeout: TimeoutOption = 10.0
    send: SendOption = None
    echo: EchoOption = False
    as_json: JsonOption = False

    def talk(self) -> Talk:
        """Return the messages of ``--send``, and ``--echo``; raises UsageError for a file that cannot be read."""
        messages = []
        for text in self.send or ():
            octets = text_or_file(text, "--send")
            size = SEND_OCTETS if text.startswith("@") else len(octets)
            messages += [octets[at : at + size] for at in range(0, len(octets), size or 1)] or [b""]
        return Talk(messages, self.echo)


def text_or_file(text: str, option: str) -> bytes:
    """Return the octets of ``TEXT`` or of ``@FILE``; raises UsageError for a file that cannot be read."""
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"{option} {text}: {error.strerror}") from None


@dataclass(frozen=True)
class Talk:
    """The messages that an end sends, each as a Send; if ``echo`` is set, it also sends back each received message."""

    messages: list[bytes]
    echo: bool


async def prepare(device: OpenDevice, check: Callable[[Device], object] = lambda device: None) -> None:
    """Open, check and close a device once: building a simulation takes time, and must not happen while a peer waits."""
    opened = await device()
    try:
        check(opened)
    finally:
        await opened.close()


class Status(IntEnum):
    """The exit status for the end of a connection; 2 is a command that cannot be carried out as given."""

    CLOSED = 0
    FAILED = 1
    REJECTED = 3
    TERMINATED = 4


class Report:
    """Reports each event in a line: as text, or as JSON with the event's name in ``event``.

    ``failed``, ``rejected`` and ``terminated`` are lines on standard error, and with JSON also events. Each JSON line
    about a connection has ``peer``; a line of text names the peer only if there may be several connections.
    """

    def __init__(self, as_json: bool, *, several: bool = False, peer: Address | None = None) -> None:
        self._json = as_json
        self._several = several
        self._peer = peer
        self._stage = "startup"

    def of(self, peer: Address) -> Report:
        """Return a report for the connection with this peer."""
        return Report(self._json, several=self._several, peer=peer)

    def _event(self, event: str, line: str, *, wrong: bool = False, **fields: object) -> None:
        line = f"[{place(self._peer)}] {line}" if self._peer and self._several else line
        if self._json:
            peer = {"peer": list(self._peer[:2])} if self._peer else {}
            print(json.dumps({"event": event} | peer | fields), flush=True)
        if wrong:
            print("rnic:", line, file=sys.stderr, flush=True)
        elif not self._json:
            print(line, flush=True)

    @contextlib.contextmanager
    def failing(self, stage: str) -> Iterator[None]:
        """Report an error in the body, and exit; ``stage`` is the stage of an error outside of the startup exchange."""
        from open_rnic.host_driver.device import DeviceError
        from open_rnic.host_driver.rdma import MpaConnectionError

        try:
            yield
        except (MpaConnectionError, DeviceError) as error:
            self._stage = "device" if isinstance(error, DeviceError) else stage
            raise typer.Exit(self.over(error)) from None

    def listening(self, address: Address) -> None:
        """Report that the port is open."""
        self._event("listening", f"listening at {place(address)}", address=address[0], port=address[1])

    def request(self, request: ConnectionRequest) -> None:
        """Report a connection request."""
        enhanced = request.frame.enhanced
        rtr = [kind.name.lower() for kind in sorted(enhanced.rtr)] if enhanced else []
        parts = [model_name(request.model), f"Rev {request.frame.rev}"]
        if rtr:
            parts.append("RTR " + " or ".join(kind.capitalize() for kind in rtr))
        if enhanced:
            parts.append(f"IRD {_depth(request.ird)}, ORD {_depth(request.ord)}")
        self._event(
            "request",
            f"request from {place(request.peer)}: {', '.join(parts)}{_private(request.private_data)}",
            model=model_name(request.model),
            enhanced=enhanced is not None,
            rev=request.frame.rev,
            peer_rtr=rtr,
            peer_ird=request.ird,
            peer_ord=request.ord,
            peer_crc=request.frame.crc,
            peer_markers=request.frame.markers,
            private_data=request.private_data.hex(),
        )
        self._stage = "rtr"

    def established(self, connection: Connection) -> None:
        """Report a connection; ``peer_ird`` and ``peer_ord`` are those of the peer's frame."""
        agreed = connection.negotiated
        self._stage = "established"
        rtr = connection.rtr.name.lower() if connection.rtr is not Rtr.NONE else None
        parts = ["enhanced" if agreed.enhanced else "unenhanced", model_name(agreed.model)]
        if rtr:
            parts.append(f"RTR {rtr.capitalize()}")
        parts.append(f"IRD {agreed.ird}, ORD {agreed.ord}")
        if agreed.enhanced:
            parts.append(f"the peer's {_depth(agreed.peer_ird)} and {_depth(agreed.peer_ord)}")
        parts.append("CRC" if agreed.crc else "no CRC")
        markers = {(1, 1): "both ways", (1, 0): "sent", (0, 1): "received"}.get((agreed.markers_tx, agreed.markers_rx))
        parts.append(f"markers {markers}" if markers else "no markers")
        parts.append(f"MULPDU {connection.mulpdu}")
        self._event(
            "established",
            f"established with {place(connection.peer)}: {', '.join(parts)}{_private(agreed.private_data)}",
            local=list(connection.local[:2]),
            model=model_name(agreed.model),
            enhanced=agreed.enhanced,
            rev=agreed.rev,
            rtr=rtr,
            ird=agreed.ird,
            ord=agreed.ord,
            peer_ird=agreed.peer_ird,
            peer_ord=agreed.peer_ord,
            ird_negotiated=agreed.ird_negotiated,
            ord_negotiated=agreed.ord_negotiated,
            crc=agreed.crc,
            markers_tx=agreed.markers_tx,
            markers_rx=agreed.markers_rx,
            private_data=agreed.private_data.hex(),
            mulpdu=connection.mulpdu,
        )

    def retrying(self, error: MpaConnectionError) -> None:
        """Report that the first attempt failed, and that a second one without enhanced frames follows."""
        self._event(
            "fallback",
            f"retrying without enhanced frames, which the peer seems not to support: {error}",
            reason=str(error),
            code=_code(error.reason),
            stage="startup",
        )

    def rejected(self, what: str, theirs: StartupFrame, private_data: bytes) -> None:
        """Report that the connection was rejected: by the peer if its frame ``theirs`` is a Reply, else by this end.

        ``private_data`` is the private data of the Reply.
        """
        from open_rnic.host_driver.rdma import By

        by, who = (By.PEER, "the peer") if theirs.kind is FrameKind.REPLY else (By.LOCAL, "this end")
        enhanced = theirs.enhanced
        depths = f", the peer's IRD {_depth(enhanced.ird)}, ORD {_depth(enhanced.ord)}" if enhanced else ""
        self._event(
            "rejected",
            f"rejected by {who}: {what}{depths}{_private(private_data)}",
            wrong=True,
            by=str(by),
            reason=what,
            peer_ird=enhanced.ird if enhanced else None,
            peer_ord=enhanced.ord if enhanced else None,
            private_data=private_data.hex(),
        )

    def received(self, received: Received) -> None:
        """Report a received Send."""
        octets = bytes(received)
        text = _readable(octets)
        shown = octets[:32].hex() + "…" * (len(octets) > 32) if text is None else json.dumps(text, ensure_ascii=False)
        self._event(
            "received",
            f"received {len(octets)} octets{f': {shown}' if octets else ''}",
            octets=len(octets),
            data=octets.hex(),
            text=text,
            solicited=received.solicited,
            invalidated=received.invalidated,
        )

    def over(self, error: Exception | None) -> int:
        """Report the end of a connection, and return the exit status. None is an orderly close."""
        from open_rnic.host_driver.rdma import (
            By,
            ClosedError,
            LostError,
            MpaConnectionError,
            RejectedError,
            Terminate,
            TerminatedError,
        )

        if isinstance(error, MpaConnectionError) and error.terminate_code is not None:
            error = TerminatedError(Terminate(2, 0, error.terminate_code), By.LOCAL, str(error))
        match error:
            case None | ClosedError():
                self._event("closed", "closed")
                return Status.CLOSED
            case TerminatedError(layer=layer, type=kind, code=code, by=by):
                self._event(
                    "terminated",
                    f"terminated: {error}",
                    wrong=True,
                    layer=layer,
                    type=kind,
                    code=code,
                    by=str(by),
                    reason=str(error),
                )
            case RejectedError(frame=frame, theirs=theirs):
                self.rejected(str(error), theirs, frame.private_data)
            case _:
                reason = error.reason if isinstance(error, MpaConnectionError | LostError) else None
                stage = "startup" if isinstance(error, MpaConnectionError) and error.failed else self._stage
                self._event("failed", str(error), wrong=True, reason=str(error), code=_code(reason), stage=stage)
        return status_of(error)


def status_of(error: BaseException) -> Status:
    """Return the exit status for the error that ended a connection or prevented its establishment."""
    from open_rnic.host_driver.rdma import MpaConnectionError, RejectedError, TerminatedError

    if isinstance(error, RejectedError):
        return Status.REJECTED
    if isinstance(error, TerminatedError) or (isinstance(error, MpaConnectionError) and error.terminate_code):
        return Status.TERMINATED
    return Status.FAILED


def place(address: Address) -> str:
    """Return an address as text."""
    return f"{address[0]} port {address[1]}"


def model_name(model: Model) -> str:
    """Return the model's name as in ``--model``."""
    return ModelName[model.name].value


def _code(reason: Reason | None) -> int | None:
    """Return the MPA error code (RFC 5044 §8, RFC 6581 §8), or None if the reason has none."""
    return (reason.code or None) if reason else None


def _depth(value: int | None) -> str:
    return "none" if value == NO_NEGOTIATION else str(value)


def _private(octets: bytes) -> str:
    if not octets:
        return ""
    text = _readable(octets)
    return f", private data {json.dumps(text, ensure_ascii=False) if text is not None else octets.hex()}"


def _readable(octets: bytes) -> str | None:
    """Return the octets as text if they are short and printable, or None."""
    if len(octets) > 1024:
        return None
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in "\n\t" for one in text) else None


def report_failure(peer: Address, error: Exception) -> None:
    """Report in one line that the connection with this peer failed."""
    print(f"rnic: [{place(peer)}] {line_of(error)}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class End:
    """An end of connections: where it listens or connects to, its configuration, its TCP and what opens its devices."""

    host: str
    port: int
    config: Config
    network: AbstractAsyncContextManager[tuple[Tcp, OpenDevice]]

    @contextlib.asynccontextmanager
    async def listening(
        self, what: str = "listening", check: Callable[[Device], object] = lambda device: None
    ) -> AsyncIterator[tuple[Listener, Tcp]]:
        """Listen until the body ends, and say what is where; reports connections that fail before they are requests.

        ``check`` is called before that with a device like those of connections.
        """
        from open_rnic.host_driver import rdma

        async with self.network as (tcp, device):
            await prepare(device, check)
            opening = rdma.listen(self.host, self.port, self.config, device=device, failed=report_failure, tcp=tcp)
            async with await opening as listener:
                if what:
                    print(f"{what} at {place(listener.address)}", flush=True)
                yield listener, tcp


async def serve_requests(
    listener: Listener, handle: Callable[[ConnectionRequest], Awaitable[object]], *, once: bool
) -> None:
    """Handle one request, and raise what that raises, or all of them: see ``serve_all``."""
    if once:
        await handle(await listener.request())
    else:
        await serve_all(listener, handle)


async def serve_all(
    requests: AsyncIterable[ConnectionRequest],
    handle: Callable[[ConnectionRequest], Awaitable[object]],
    failed: Callable[[Address, Exception], object] = report_failure,
) -> None:
    """Handle each request in a task of its own. ``failed`` gets whatever one raises, and the others go on."""

    async def guarded(request: ConnectionRequest) -> None:
        try:
            await handle(request)
        except Exception as error:
            if isinstance(error, OSError) and error.filename == output.NAME:  # no failure of this peer
                raise
            failed(request.peer, error)

    async with asyncio.TaskGroup() as group:
        async for request in requests:
            group.create_task(guarded(request))


async def converse(connection: Connection, report: Report, talk: Talk) -> int:
    """Send all messages, report received ones until the peer has closed, close, and return the exit status.

    This end closes its half as soon as it has nothing more to send; a responder without messages lets the peer close
    first. After closing its half, an end can neither answer an RDMA Read nor send a Terminate.
    """
    from open_rnic.host_driver.rdma import ClosedError, RdmaError

    closes_first = not talk.echo and (bool(talk.messages) or connection.negotiated.role is Role.INITIATOR)

    async def say() -> None:
        for message in talk.messages:
            await connection.send(message)
        if closes_first:
            await connection.shutdown()

    async def hear() -> None:
        with contextlib.suppress(ClosedError):
            while True:
                received = await connection.receive(ROOM)
                report.received(received)
                if talk.echo:
                    await connection.send(received.data)
        if not closes_first:
            await connection.shutdown()  # unlike close, without a time limit for a slow peer

    async with connection:
        for result in await asyncio.gather(say(), hear(), return_exceptions=True):
            if result and not isinstance(result, RdmaError):  # the connection's own error is reported below
                raise result
    return report.over(None if isinstance(connection.error, ClosedError) else connection.error)
