"""What ``rnic listen``, ``rnic connect`` and ``rnic rping`` share: their options, and how they tell what happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from open_rnic.host_driver.mpa.startup import NO_NEGOTIATION, FrameKind
from open_rnic.host_driver.tools.cli.common import UsageError, open_device, whole_number
from open_rnic.host_driver.tools.cli.demo import ModelName, RtrName
from open_rnic.rtl.registers import Model, Role, Rtr

if TYPE_CHECKING:
    from open_rnic.host_driver.connection import Address
    from open_rnic.host_driver.mpa.negotiation import Config, Reason
    from open_rnic.host_driver.mpa.startup import StartupFrame
    from open_rnic.host_driver.rdma import Connection, ConnectionRequest, MpaConnectionError, Received
    from open_rnic.host_driver.rdma.connection import OpenDevice

SEND_OCTETS = 1 << 16  # of a file that go in one Send
ROOM = 1 << 20  # octets that a Send of the peer's may have
MAX_IRD = 128  # as in ``host_driver.mpa.negotiation.Config``


class DialectName(StrEnum):
    """Whose form the enhanced data has; values as in ``host_driver.mpa.startup.Dialect``."""

    RFC6581 = "rfc6581"
    DRAFT_02 = "draft-02"


def port_number(text: str | int) -> int:
    """What ``typer.Option(parser=port_number)`` makes of an option's text."""
    port = whole_number(text)
    if not 0 <= port <= 65535:
        raise typer.BadParameter(f"a port is 0 to 65535, not {port}")
    return port


def peer_port(text: str | int) -> int:
    """The same for a port to connect to."""
    port = port_number(text)
    if port == 0:
        raise typer.BadParameter("nothing can be reached at port 0")
    return port


PortArgument = Annotated[int, typer.Argument(metavar="PORT", parser=peer_port, help="The responder's TCP port.")]
PortOption = Annotated[
    int, typer.Option("--port", metavar="N", parser=port_number, help="The TCP port; 0: the system chooses.")
]
ModelOption = Annotated[
    ModelName | None,
    typer.Option("--model", help="The connection model. Peer-to-peer if not given, client-server with --rev 1."),
]
OnlyModelOption = Annotated[
    ModelName | None, typer.Option("--model", help="Reject Requests of the other connection model.")
]
RtrOption = Annotated[
    list[RtrName] | None,
    typer.Option("--rtr", help="An RTR that this end supports; repeat it, the preferred one first. All, if not given."),
]
IrdOption = Annotated[
    int,
    typer.Option(
        "--ird",
        metavar="N",
        parser=whole_number,
        help="RDMA Reads that the peer may have outstanding; raised to its ORD, as far as --max-ird allows.",
    ),
]
OrdOption = Annotated[
    int,
    typer.Option(
        "--ord", metavar="N", parser=whole_number, help="RDMA Reads to have outstanding; lowered to the peer's IRD."
    ),
]
MaxIrdOption = Annotated[
    int,
    typer.Option(
        "--max-ird",
        metavar="N",
        parser=whole_number,
        help="The IRD that there is room for. A responder offers no more; an initiator ends with Terminate 2/0/6 when "
        "the Reply needs more.",
    ),
]
FixedIrdOption = Annotated[
    bool, typer.Option("--no-negotiate-ird", help="Send 0x3FFF as the IRD: it is not negotiated, and --ird stays.")
]
FixedOrdOption = Annotated[
    bool, typer.Option("--no-negotiate-ord", help="Send 0x3FFF as the ORD: it is not negotiated, and --ord stays.")
]
RequireCrcOption = Annotated[bool, typer.Option("--require-crc", help="Require CRCs, as without it.")]
NoCrcOption = Annotated[bool, typer.Option("--no-crc", help="Use CRCs only if the peer requires them.")]
MarkersOption = Annotated[bool, typer.Option("--markers", help="Want markers in what the peer sends.")]
RevOption = Annotated[
    int, typer.Option("--rev", metavar="N", parser=whole_number, help="2: RFC 6581. 1: RFC 5044 alone.")
]
DialectOption = Annotated[
    DialectName,
    typer.Option(
        "--dialect",
        help="The form of the enhanced data. Nothing on the wire tells which it is: both ends must be given the same.",
    ),
]
PrivateOption = Annotated[
    str, typer.Option("--private-data", metavar="TEXT|@FILE", help="What goes along in the startup frame.")
]
BindOption = Annotated[
    str | None, typer.Option("--bind", metavar="ADDRESS", help="This end's address; without it the system chooses.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="For the peer's startup frame, and then for its RTR.")
]
SendOption = Annotated[
    list[str] | None,
    typer.Option("--send", metavar="TEXT|@FILE", help="Send this; repeat it for more. A file goes 64 KiB a Send."),
]
EchoOption = Annotated[
    bool,
    typer.Option("--echo", help="Send back what is received until the peer closes; with it at both ends, none does."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON object a line for each event.")]


def text_or_file(text: str, option: str) -> bytes:
    """The octets of ``TEXT`` or of ``@FILE``; raises UsageError for a file that cannot be read."""
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise UsageError(f"{option} {text}: {error.strerror}") from None


def talk(sends: list[str] | None, echo: bool) -> Talk:
    """What ``--send`` and ``--echo`` ask for."""
    messages = []
    for text in sends or ():
        octets = text_or_file(text, "--send")
        size = SEND_OCTETS if text.startswith("@") else len(octets)
        messages += [octets[at : at + size] for at in range(0, len(octets), size or 1)] or [b""]
    return Talk(messages, echo)


def configuration(
    role: Role,
    *,
    model: ModelName | None = None,
    rtr: list[RtrName] | None = None,
    ird: int,
    ord: int,  # noqa: A002
    max_ird: int = MAX_IRD,
    min_ord: int = 0,
    negotiate_ird: bool = True,
    negotiate_ord: bool = True,
    require_crc: bool,
    no_crc: bool,
    markers: bool,
    rev: int = 2,
    fallback: bool = False,
    dialect: DialectName = DialectName.RFC6581,
    private_data: str = "",
    timeout: float,
) -> Config:
    """The options as a configuration; raises UsageError for what it refuses, and for what could have no effect."""
    from open_rnic.host_driver.mpa.negotiation import Config
    from open_rnic.host_driver.mpa.startup import Dialect

    if rev not in (1, 2):
        raise UsageError(f"--rev is 1 or 2, not {rev}")
    if rev == 1 and model is ModelName.PEER_TO_PEER:
        raise UsageError("--model peer-to-peer needs --rev 2: it is RFC 6581's (§9.2)")
    if rev == 1:
        for option, given in {
            "--rtr": rtr,
            "--min-ord": min_ord,
            "--no-negotiate-ird": not negotiate_ird,
            "--no-negotiate-ord": not negotiate_ord,
            "--fallback": fallback,
            f"--dialect {dialect.value}": dialect is not DialectName.RFC6581,
        }.items():
            if given:
                raise UsageError(f"{option} has no effect with --rev 1, which has no enhanced data")
    if rtr and model is ModelName.CLIENT_SERVER:
        raise UsageError("--rtr has no effect with --model client-server, which has no RTR")
    if require_crc and no_crc:
        raise UsageError("--require-crc and --no-crc exclude each other")
    if model is None:
        model = ModelName.PEER_TO_PEER if rev == 2 else ModelName.CLIENT_SERVER
    everything: dict[str, Any] = {"rtr": tuple(Rtr[kind.name] for kind in dict.fromkeys(rtr))} if rtr else {}
    try:
        return Config(
            role,
            model=Model[model.name],
            ird=ird,
            ord=ord,
            max_ird=max_ird,
            min_ord=min_ord,
            negotiate_ird=negotiate_ird,
            negotiate_ord=negotiate_ord,
            crc=not no_crc,
            markers=markers,
            enhanced=rev == 2,
            dialect=Dialect(dialect.value),
            private_data=text_or_file(private_data, "--private-data"),
            timeout=timeout,
            **everything,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def opener(device: str, lanes: int) -> OpenDevice:
    """What opens the device of each connection; raises UsageError at once for one that there is not."""
    from open_rnic.host_driver.devices import check

    try:
        check(device, lanes=lanes)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return partial(open_device, device, lanes)


@dataclass(frozen=True)
class Talk:
    """What an end says once it is connected: these messages, a Send each, and then what it hears."""

    messages: list[bytes]
    echo: bool


async def prepare(device: OpenDevice) -> None:
    """Open a device and close it: a simulated one may have to be built, which must not happen while a peer waits."""
    await (await device()).close()


class Status(IntEnum):
    """How a connection ended, as an exit status; 2 is a command that cannot be carried out as it is given."""

    CLOSED = 0
    FAILED = 1
    REJECTED = 3
    TERMINATED = 4


class Report:
    """Tells of one event after the other: a line of text, or of JSON with the event's name in ``event``.

    ``failed``, ``rejected`` and ``terminated`` are lines of standard error, and with JSON events besides. ``peer`` is
    in every JSON line of a connection's. In a line of text it is when there may be several connections.
    """

    def __init__(self, as_json: bool, *, several: bool = False, peer: Address | None = None) -> None:
        self._json = as_json
        self._several = several
        self._peer = peer
        self._stage = "startup"

    def of(self, peer: Address) -> Report:
        """The same for the connection with this peer."""
        return Report(self._json, several=self._several, peer=peer)

    def _tell(self, event: str, line: str, *, wrong: bool = False, **fields: object) -> None:
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
        """What ends the command in its body is an event too; ``stage`` is where it is without a startup exchange."""
        from open_rnic.host_driver.device import DeviceError
        from open_rnic.host_driver.rdma import MpaConnectionError

        try:
            yield
        except (MpaConnectionError, DeviceError) as error:
            self._stage = "device" if isinstance(error, DeviceError) else stage
            raise typer.Exit(self.over(error)) from None

    def listening(self, address: Address) -> None:
        """The port is open."""
        self._tell("listening", f"listening at {place(address)}", address=address[0], port=address[1])

    def request(self, request: ConnectionRequest) -> None:
        """A connection is asked for."""
        enhanced = request.frame.enhanced
        rtr = [kind.name.lower() for kind in sorted(enhanced.rtr)] if enhanced else []
        parts = [model_name(request.model), f"Rev {request.frame.rev}"]
        if rtr:
            parts.append("RTR " + " or ".join(kind.capitalize() for kind in rtr))
        if enhanced:
            parts.append(f"IRD {_depth(request.ird)}, ORD {_depth(request.ord)}")
        self._tell(
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
        """It is there; ``ird`` and ``ord`` are this end's, ``peer_ird`` and ``peer_ord`` what the peer's frame said."""
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
        self._tell(
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
        """A first attempt failed, and there will be one without enhanced frames."""
        self._tell(
            "fallback",
            f"without enhanced frames now, as the peer seems to know none: {error}",
            reason=str(error),
            code=_code(error.reason),
            stage="startup",
        )

    def rejected(self, what: str, theirs: StartupFrame, private_data: bytes) -> None:
        """There will be no connection, because one end did not want it: the one that did not send ``theirs`` is local.

        ``private_data`` is the Reply's.
        """
        from open_rnic.host_driver.rdma import By

        by, who = (By.PEER, "the peer") if theirs.kind is FrameKind.REPLY else (By.LOCAL, "this end")
        enhanced = theirs.enhanced
        depths = f", the peer's IRD {_depth(enhanced.ird)}, ORD {_depth(enhanced.ord)}" if enhanced else ""
        self._tell(
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
        """A Send has come."""
        octets = bytes(received)
        text = _readable(octets)
        shown = octets[:32].hex() + "…" * (len(octets) > 32) if text is None else json.dumps(text, ensure_ascii=False)
        self._tell(
            "received",
            f"received {len(octets)} octets{f': {shown}' if octets else ''}",
            octets=len(octets),
            data=octets.hex(),
            text=text,
            solicited=received.solicited,
            invalidated=received.invalidated,
        )

    def over(self, error: Exception | None) -> int:
        """How a connection ended; the exit status for it. None: it was closed in order."""
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
                self._tell("closed", "closed")
                return Status.CLOSED
            case TerminatedError(layer=layer, type=kind, code=code, by=by):
                self._tell(
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
                self._tell("failed", str(error), wrong=True, reason=str(error), code=_code(reason), stage=stage)
        return status_of(error)


def status_of(error: BaseException) -> Status:
    """The exit status of what ended a connection, or kept it from being one."""
    from open_rnic.host_driver.rdma import MpaConnectionError, RejectedError, TerminatedError

    if isinstance(error, RejectedError):
        return Status.REJECTED
    if isinstance(error, TerminatedError) or (isinstance(error, MpaConnectionError) and error.terminate_code):
        return Status.TERMINATED
    return Status.FAILED


def place(address: Address) -> str:
    """An address, for a person."""
    return f"{address[0]} port {address[1]}"


def model_name(model: Model) -> str:
    """What ``--model`` calls it."""
    return ModelName[model.name].value


def _code(reason: Reason | None) -> int | None:
    """The MPA error code (RFC 5044 §8, RFC 6581 §8); None when there is none for it."""
    return (reason.code or None) if reason else None


def _depth(value: int | None) -> str:
    return "none" if value == NO_NEGOTIATION else str(value)


def _private(octets: bytes) -> str:
    if not octets:
        return ""
    text = _readable(octets)
    return f", private data {json.dumps(text, ensure_ascii=False) if text is not None else octets.hex()}"


def _readable(octets: bytes) -> str | None:
    """The octets as text, if they are short and meant for people."""
    if len(octets) > 1024:
        return None
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in "\n\t" for one in text) else None


async def converse(connection: Connection, report: Report, talk: Talk) -> int:
    """Send what there is to send, tell of what comes until the peer has closed, and close; the exit status.

    This end closes its half as soon as it has nothing more to send; a responder that never had anything leaves it to
    the peer to close first. Behind the end of its half it could answer no RDMA Read, and send no Terminate.
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
            await connection.shutdown()  # unlike close, it leaves a slow peer all the time that it takes

    async with connection:
        for result in await asyncio.gather(say(), hear(), return_exceptions=True):
            if result and not isinstance(result, RdmaError):  # of these the connection tells below
                raise result
    return report.over(None if isinstance(connection.error, ClosedError) else connection.error)
