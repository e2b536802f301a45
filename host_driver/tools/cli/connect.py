"""``rnic connect``: an initiator that tells what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import DeviceOption, LanesOption, interruptible
from open_rnic.host_driver.tools.cli.endpoint import (
    MAX_IRD,
    BindOption,
    DialectName,
    DialectOption,
    EchoOption,
    FixedIrdOption,
    FixedOrdOption,
    IrdOption,
    JsonOption,
    MarkersOption,
    MaxIrdOption,
    ModelOption,
    NoCrcOption,
    OrdOption,
    PortArgument,
    PrivateOption,
    Report,
    RequireCrcOption,
    RevOption,
    RtrOption,
    SendOption,
    Talk,
    TimeoutOption,
    configuration,
    converse,
    opener,
    talk,
)
from open_rnic.rtl.registers import Role

if TYPE_CHECKING:
    from open_rnic.host_driver.mpa.negotiation import Config
    from open_rnic.host_driver.rdma.connection import OpenDevice


def connect(
    host: Annotated[str, typer.Argument(metavar="HOST", help="The responder's name or address.")],
    port: PortArgument,
    bind: BindOption = None,
    ird: IrdOption = 16,
    ord: OrdOption = 16,  # noqa: A002
    max_ird: MaxIrdOption = MAX_IRD,
    fixed_ird: FixedIrdOption = False,
    fixed_ord: FixedOrdOption = False,
    model: ModelOption = None,
    rtr: RtrOption = None,
    require_crc: RequireCrcOption = False,
    no_crc: NoCrcOption = False,
    markers: MarkersOption = False,
    rev: RevOption = 2,
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback",
            help="Try once more as RFC 5044 alone, in the client-server model, when the peer knows nothing else.",
        ),
    ] = False,
    dialect: DialectOption = DialectName.RFC6581,
    private_data: PrivateOption = "",
    timeout: TimeoutOption = 10.0,
    send: SendOption = None,
    echo: EchoOption = False,
    device: DeviceOption = "software",
    lanes: LanesOption = 4,
    as_json: JsonOption = False,
) -> None:
    """Make an RDMA connection, and tell what it is and what it brings.

    It sends what --send gives it, then closes its half of the connection, and tells of what it receives until the peer
    has closed, too. With --echo it leaves it to the peer to close first.

    The exit status is 0 when the connection was closed in order, 1 when it failed, 2 when the command cannot be carried
    out as given, 3 when the connection was rejected, 4 when a Terminate ended it.
    """
    config = configuration(
        Role.INITIATOR,
        model=model,
        rtr=rtr,
        ird=ird,
        ord=ord,
        max_ird=max_ird,
        negotiate_ird=not fixed_ird,
        negotiate_ord=not fixed_ord,
        require_crc=require_crc,
        no_crc=no_crc,
        markers=markers,
        rev=rev,
        fallback=fallback,
        dialect=dialect,
        private_data=private_data,
        timeout=timeout,
    )
    work = _run(host, port, config, opener(device, lanes), Report(as_json), fallback, bind, talk(send, echo))
    raise typer.Exit(interruptible(work))


async def _run(
    host: str,
    port: int,
    config: Config,
    device: OpenDevice,
    report: Report,
    fallback: bool,
    bind: str | None,
    saying: Talk,
) -> int:
    from open_rnic.host_driver import rdma

    asked = report.of((host, port))
    local_addr = (bind, 0) if bind else None
    with asked.failing("connect"):
        connection = await rdma.connect(
            host, port, config, device=device, fallback=fallback, retrying=asked.retrying, local_addr=local_addr
        )
    report = report.of(connection.peer)
    report.established(connection)
    return await converse(connection, report, saying)
