"""``rnic rping``: RDMA Reads and Writes with any peer that implements the protocol of rping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import (
    CommandError,
    UsageError,
    interruptible,
    number,
    raise_file_limit,
    with_options,
)
from open_rnic.host_driver.tools.cli.endpoint import (
    EVERYWHERE,
    ConnectionOptions,
    End,
    ModelOption,
    ServiceOption,
    place,
    serve_requests,
)

if TYPE_CHECKING:
    from open_rnic.host_driver.rdma import ConnectionRequest

_PORT, _SIZE = 7174, 64


@with_options
def rping(
    options: ConnectionOptions,
    serve: Annotated[bool, typer.Option("-s", "--server", help="Run as the server, which answers pings.")] = False,
    ping: Annotated[bool, typer.Option("-c", "--client", help="Run as the client, which sends pings.")] = False,
    address: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--address",
            metavar="HOST",
            help="The server's address; default: any address for a server, 127.0.0.1 for a client.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("-I", "--bind", metavar="ADDRESS", help="The address from which a client connects."),
    ] = None,
    port: ServiceOption = _PORT,
    count: Annotated[int, number("-C", "--count", help="The number of pings; 0: no limit.")] = 0,
    size: Annotated[int, number("-S", "--size", help="The octets of a ping, 26 to 65535.")] = _SIZE,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the data.")] = False,
    validate: Annotated[
        bool, typer.Option("-V", "--validate", help="Compare the returned data with the data sent.")
    ] = False,
    persistent: Annotated[
        bool, typer.Option("-P", "--persistent", help="Serve several clients, at the same time or one after the other.")
    ] = False,
    model: ModelOption = None,
) -> None:
    """Ping with RDMA: text goes to the server and back.

    The server reads the client's text, and writes it back. The protocol is that of librdmacm's rping, and the options
    have the same meaning.
    """
    from open_rnic.host_driver.rdma.rping import MAX_SIZE, MIN_SIZE

    if serve == ping:
        raise UsageError("rping is either a server, with -s, or a client, with -c")
    if ping and persistent:
        raise UsageError("-P is for a server: a client ends after -C pings")
    if serve and source:
        raise UsageError(f"-I {source} is for a client: a server listens at -a")
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageError(f"-S must be {MIN_SIZE} to {MAX_SIZE} octets, not {size}")
    if count < 0:
        raise UsageError(f"-C must be at least 0, not {count}")
    end = options.end(address or (EVERYWHERE if serve else "127.0.0.1"), port, model, serves=serve)
    if serve:
        raise_file_limit()
        interruptible(_serve(end, verbose, persistent))
    else:
        interruptible(_ping(end, source, count, size, verbose, validate))


def _show(line: str) -> None:
    print(line, flush=True)


def _hide(line: str) -> None:
    """Discard a line, without -v."""


async def _ping(end: End, source: str | None, count: int, size: int, verbose: bool, validate: bool) -> None:
    from open_rnic.host_driver import rdma
    from open_rnic.host_driver.rdma.rping import RpingError, client

    local = (source, 0) if source else None
    async with (
        end.network as (tcp, device),
        await rdma.connect(end.host, end.port, end.config, device=device, local_addr=local, tcp=tcp) as connection,
    ):
        try:
            await client(connection, count=count, size=size, validate=validate, show=_show if verbose else _hide)
        except RpingError as error:
            raise CommandError(str(error)) from None


async def _serve(end: End, verbose: bool, persistent: bool) -> None:
    from open_rnic.host_driver.rdma.rping import RpingError, server

    async def handle(request: ConnectionRequest) -> None:
        try:
            async with await request.accept() as connection:
                pings = await server(connection, show=_show if verbose else _hide)
                if verbose:
                    _show(f"{place(connection.peer)} has gone after {pings} pings")
        except RpingError as error:
            raise CommandError(str(error)) from None

    async with end.listening("listening" if verbose else "") as (listener, _):
        await serve_requests(listener, handle, once=not persistent)
