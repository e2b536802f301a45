"""``rnic rcopy``, ``rnic rstream`` and ``rnic riostream``: librdmacm's programs on rsockets."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import (
    CommandError,
    UsageError,
    check_least,
    check_range,
    interruptible,
    number,
    with_options,
)
from open_rnic.host_driver.tools.cli.endpoint import (
    EVERYWHERE,
    ConnectionOptions,
    End,
    ModelOption,
    ServiceOption,
    prepare,
    serve_requests,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from open_rnic.host_driver.rdma import ConnectionRequest, rsocket
    from open_rnic.host_driver.rdma.rstream import Settings

_COPY_PORT, _STREAM_PORT = 7427, 7471

BindOption = Annotated[
    str | None, typer.Option("--bind", metavar="ADDRESS", help="The address at which a server listens; default: any.")
]


@dataclass(frozen=True, kw_only=True)
class StreamOptions(ConnectionOptions):
    """The options of rstream and riostream."""

    server: Annotated[
        str | None,
        typer.Option("-s", "--server", metavar="HOST", help="The server; without it, this end is the server."),
    ] = None
    bind: BindOption = None
    port: ServiceOption = _STREAM_PORT
    size: Annotated[int, number("-S", "--size", help="The octets of a transfer.")] = 1000
    count: Annotated[int, number("-C", "--count", help="The number of transfers in a turn.")] = 1000
    iterations: Annotated[int, number("-I", "--iterations", help="The number of turns of each end.")] = 1
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify the data, like `-T verify` at the other end.")
    ] = False
    model: ModelOption = None


@with_options
def rcopy(
    options: ConnectionOptions,
    source: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to copy; without it, this end is the server.")
    ] = None,
    target: Annotated[
        str | None, typer.Argument(metavar="HOST[:PATH]", help="The server, and the file there; default: FILE.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="The folder in which a server stores the files; default: this."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End after one client, as a server.")] = False,
    bind: BindOption = None,
    port: ServiceOption = _COPY_PORT,
    model: ModelOption = None,
) -> None:
    """Copy a file over RDMA; without arguments, be the server.

    The protocol is that of librdmacm's rcopy, which can be at either end. A server stores files only below --folder,
    whatever paths its clients give, and replaces existing ones.
    """
    if source is None:
        folder = folder or Path()
        if not folder.is_dir():
            raise UsageError(f"--folder {folder} is no folder")
        interruptible(_serve_files(_end(options, None, bind, port, model), folder, once))
        return
    if folder or once:
        raise UsageError(f"{f'--folder {folder}' if folder else '--once'} is for a server")
    host, path = _host_and_path(target or "")
    if not host:
        raise UsageError(f"the server to which {source} is copied is missing")
    if not source.is_file():
        raise UsageError(f"{source} is no file")
    interruptible(_copy(_end(options, host, bind, port, model), source, path or str(source)))


def _host_and_path(target: str) -> tuple[str, str]:
    """Return the parts of HOST[:PATH]; raises UsageError for an IPv6 address that is not in brackets."""
    with contextlib.suppress(ValueError):
        raise UsageError(f"the IPv6 address {IPv6Address(target)} must be in brackets: [{target}]")
    host, _, path = target.partition(":")
    if target.startswith("["):
        host, _, path = target[1:].partition("]")
        if (path and not path.startswith(":")) or "]" not in target:
            raise UsageError(f"{target} is not [ADDRESS] or [ADDRESS]:PATH")
        path = path[1:]
    return host, path


@with_options
def rstream(options: StreamOptions) -> None:
    """Measure a stream over RDMA.

    First the client sends, then the server. The protocol is that of librdmacm's rstream, which can be at either end.
    Both ends need the same -S, -C and -I.
    """
    _stream(options, mapped=False)


@with_options
def riostream(options: StreamOptions) -> None:
    """Measure RDMA Writes to mapped memory.

    First the client writes, then the server. The protocol is that of librdmacm's riostream, which can be at either end.
    Both ends need the same -S, -C and -I.
    """
    _stream(options, mapped=True)


def _end(options: ConnectionOptions, host: str | None, bind: str | None, port: int, model: ModelOption) -> End:
    """Return this end, a server without ``host``; raises UsageError for options that have no effect."""
    if bind and host:
        raise UsageError(f"--bind {bind} is for a server")
    return options.end(host or bind or EVERYWHERE, port, model, serves=host is None)


def _stream(options: StreamOptions, *, mapped: bool) -> None:
    from open_rnic.host_driver.rdma.rstream import MAX_SIZE, Settings

    end = _end(options, options.server, options.bind, options.port, options.model)
    check_range(1, MAX_SIZE, {"-S": options.size})
    check_least(1, {"-C": options.count, "-I": options.iterations})
    settings = Settings(options.size, options.count, options.iterations, options.verify)
    interruptible(_measure(end, settings, mapped, leads=options.server is not None))


@contextlib.asynccontextmanager
async def _connected(end: End, settings: rsocket.Settings) -> AsyncIterator[rsocket.Rsocket]:
    from open_rnic.host_driver.rdma import rsocket

    async with end.network as (tcp, device):
        await prepare(device)
        own = settings.within(tcp)
        connecting = rsocket.connect(end.host, end.port, end.config, settings=own, device=device, tcp=tcp)
        async with await connecting as connected:
            yield connected


async def _serve_files(end: End, folder: Path, once: bool) -> None:
    from open_rnic.host_driver.rdma import rcopy, rsocket

    async def handle(request: ConnectionRequest) -> None:
        try:
            async with await rsocket.accept(request, settings=rsocket.Settings().within(tcp)) as connected:
                await rcopy.serve(connected, folder, lambda copied: print(copied, flush=True))
        except rcopy.RcopyError as error:
            raise CommandError(str(error)) from None

    async with end.listening() as (listener, tcp):
        await serve_requests(listener, handle, once=once)


async def _copy(end: End, source: Path, path: str) -> None:
    from open_rnic.host_driver.rdma import rcopy, rsocket

    try:
        async with _connected(end, rsocket.Settings()) as connected:
            print(await rcopy.send_file(connected, source, path))
    except (rcopy.RcopyError, ValueError) as error:
        raise CommandError(str(error)) from None


async def _measure(end: End, settings: Settings, mapped: bool, *, leads: bool) -> None:
    from open_rnic.host_driver.rdma import rsocket, rstream

    run = rstream.mapped if mapped else rstream.stream
    own = rsocket.Settings(buffer=rstream.BUFFER, maps=int(mapped))
    try:
        if leads:
            async with _connected(end, own) as connected:
                print(await run(connected, settings, leads=True))
            return
        async with (
            end.listening() as (listener, tcp),
            await rsocket.accept(await listener.request(), settings=own.within(tcp)) as connected,
        ):
            print(await run(connected, settings, leads=False))
    except rstream.RstreamError as error:
        raise CommandError(str(error)) from None
