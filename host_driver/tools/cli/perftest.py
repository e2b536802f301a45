"""``rnic perftest``: the tests of perftest, opposite its programs or this one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import (
    CommandError,
    check_least,
    check_range,
    interruptible,
    number,
    with_options,
)
from open_rnic.host_driver.tools.cli.endpoint import (
    EVERYWHERE,
    MAX_IRD,
    ConnectionOptions,
    End,
    ModelOption,
    ServiceOption,
    place,
    prepare,
    status_of,
)

if TYPE_CHECKING:
    from open_rnic.host_driver.rdma.perftest import Settings

_PORT, _READS, _DEPTH, _BUFFERS = 18515, 16, 128, 512


class ProgramName(StrEnum):
    """A program of perftest; values as in ``host_driver.rdma.perftest.Program``."""

    WRITE_BW = "ib_write_bw"
    READ_BW = "ib_read_bw"
    SEND_BW = "ib_send_bw"
    WRITE_LAT = "ib_write_lat"
    READ_LAT = "ib_read_lat"


@with_options
def perftest(
    test: Annotated[ProgramName, typer.Argument(metavar="TEST", help=f"One of {', '.join(ProgramName)}.")],
    options: ConnectionOptions,
    host: Annotated[
        str | None, typer.Argument(metavar="HOST", help="The server; without it, this end is the server.")
    ] = None,
    port: ServiceOption = _PORT,
    source: Annotated[
        str | None,
        typer.Option("--bind", metavar="ADDRESS", help="This end's address; default: of a server, any address."),
    ] = None,
    size: Annotated[
        int | None, number("-s", "--size", help="The octets of a message; default: 65536, or 2 in a test of latency.")
    ] = None,
    iterations: Annotated[
        int | None, number("-n", "--iters", help="The messages of a test; default: 5000 for ib_write_bw, or else 1000.")
    ] = None,
    depth: Annotated[
        int, number("-t", "--tx-depth", help="The number of messages that a client posts at a time.")
    ] = _DEPTH,
    buffers: Annotated[
        int, number("-r", "--rx-depth", help="The number of buffers that the receiver of Sends posts at a time.")
    ] = _BUFFERS,
    reads: Annotated[int, number("-o", "--outs", help="The number of RDMA Reads that may be outstanding.")] = _READS,
    model: ModelOption = None,
) -> None:
    """Measure RDMA, opposite perftest's programs or this command.

    The protocol is that of perftest with -R, and the options have the same meaning. Both ends need the same test, -s,
    -n and -r. A message counts as sent when it has been handed over; the last one when the peer has it.
    """
    from open_rnic.host_driver.rdma.perftest import MAX_DEPTH, MAX_SIZE, Program, Settings

    check_range(1, MAX_IRD, {"-o": reads})
    check_range(1, MAX_SIZE, {"-s": size})
    check_range(1, MAX_DEPTH, {"-t": depth, "-r": buffers})
    if iterations is not None:
        check_least(1, {"-n": iterations})
    settings = Settings.of(Program(test), size, iterations, depth, buffers)
    end = options.end(host or source or EVERYWHERE, port, model, serves=host is None)
    end = replace(end, config=replace(end.config, ird=reads, ord=reads))
    interruptible(_serve(end, settings) if host is None else _run(end, source, settings))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Explain an error of the test: a connection that ends in the middle may be the first sign of other parameters."""
    from open_rnic.host_driver.rdma import RdmaError
    from open_rnic.host_driver.rdma.perftest import SAME, PerftestError

    try:
        yield
    except PerftestError as error:
        raise CommandError(str(error)) from None
    except RdmaError as error:
        explained = CommandError(f"{error}: {SAME}")
        explained.status = status_of(error)
        raise explained from None


async def _serve(end: End, settings: Settings) -> None:
    from open_rnic.host_driver import rdma
    from open_rnic.host_driver.rdma.perftest import server

    async with end.network as (tcp, device):
        await prepare(device)
        async with await rdma.listen(end.host, end.port, end.config, device=device, tcp=tcp) as listener:
            print(f"listening at {place(listener.address)}", flush=True)
            with _explained():
                results = await server(listener, settings)
    print(results or f"{settings.iterations} messages of {settings.size} octets: the client has the results")


async def _run(end: End, source: str | None, settings: Settings) -> None:
    from open_rnic.host_driver import rdma
    from open_rnic.host_driver.rdma.perftest import client

    local = (source, 0) if source else None
    async with end.network as (tcp, device):
        await prepare(device)
        connect = partial(rdma.connect, end.host, end.port, end.config, device=device, local_addr=local, tcp=tcp)
        with _explained():
            results = await client(lambda options: connect(options=options), settings)
    print(results)
