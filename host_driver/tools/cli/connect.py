"""``rnic connect``: an initiator that reports each event of its connection."""

from __future__ import annotations

from typing import Annotated

import typer

from open_rnic.host_driver.tools.cli.common import interruptible, with_options
from open_rnic.host_driver.tools.cli.endpoint import (
    BindOption,
    End,
    EndpointOptions,
    HostArgument,
    ModelOption,
    PortArgument,
    Report,
    Talk,
    converse,
    peer_of,
)
from open_rnic.rtl.registers import Role


@with_options
def connect(
    host: HostArgument,
    options: EndpointOptions,
    port: PortArgument = None,
    bind: BindOption = None,
    model: ModelOption = None,
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback",
            help="If the peer does not support RFC 6581, connect again without it, in the client-server model.",
        ),
    ] = False,
) -> None:
    """Make an RDMA connection, and report it and each message.

    The report has the parameters of the connection, and the messages received. The command sends the messages given by
    --send, closes its half of the connection, and reports received messages until the peer closes as well. With --echo,
    it lets the peer close first.

    The exit status is 0 if the connection was closed in order, 1 if it failed, 2 if the command cannot be carried out
    as given, 3 if the connection was rejected, and 4 if a Terminate ended it.
    """
    host, port = peer_of(host, port)
    end = End(host, port, options.configuration(Role.INITIATOR, model, fallback=fallback), options.network())
    raise typer.Exit(interruptible(_run(end, Report(options.as_json), fallback, bind, options.talk())))


async def _run(end: End, report: Report, fallback: bool, bind: str | None, saying: Talk) -> int:
    from open_rnic.host_driver import rdma

    asked = report.of((end.host, end.port))
    local_addr = (bind, 0) if bind else None
    async with end.network as (tcp, device):
        with asked.failing("connect"):
            connection = await rdma.connect(
                end.host,
                end.port,
                end.config,
                device=device,
                fallback=fallback,
                retrying=asked.retrying,
                local_addr=local_addr,
                tcp=tcp,
            )
        report = report.of(connection.peer)
        report.established(connection)
        return await converse(connection, report, saying)
