"""``rnic listen``: a responder that reports each event of its connections."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import (
    UsageError,
    check_least,
    interruptible,
    number,
    raise_file_limit,
    with_options,
)
from open_rnic.host_driver.tools.cli.endpoint import (
    EVERYWHERE,
    End,
    EndpointOptions,
    OnlyModelOption,
    PortOption,
    Report,
    Status,
    Talk,
    converse,
    model_name,
    prepare,
    serve_all,
)
from open_rnic.rtl.registers import Model, Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from open_rnic.host_driver import rdma
    from open_rnic.host_driver.connection import Address
    from open_rnic.host_driver.rdma import ConnectionRequest


@with_options
def listen(
    options: EndpointOptions,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="ADDRESS",
            help="The address to listen at; default: that of the board or of the TAP device, else 127.0.0.1, as "
            "a port that the system chooses is for peers of this machine; 0.0.0.0 is any.",
        ),
    ] = None,
    port: PortOption = 0,
    min_ord: Annotated[
        int,
        number(
            "--min-ord",
            help="The least ORD that this end needs. An enhanced Request with a lower IRD is rejected, with this value "
            "in the Reply.",
        ),
    ] = 0,
    model: OnlyModelOption = None,
    reject: Annotated[bool, typer.Option("--reject", help="Reject every Request.")] = False,
    connections: Annotated[
        int,
        number("--connections", help="Answer this many Requests, serve all at once, and end behind them; 0: no limit."),
    ] = 0,
    once: Annotated[bool, typer.Option("--once", help="The same as --connections 1.")] = False,
) -> None:
    """Wait for RDMA connections, and report each and its messages.

    The report has the parameters of a connection, and the messages received. Each connection has a device of its own,
    or a place on a board, which refuses connections beyond its last. With --connections or --once, the exit status is 0
    if all connections were closed in order, 1 if one failed, 2 if the command cannot be carried out as given, 3 if a
    connection was rejected, and 4 if a Terminate ended one; it is the highest of these.
    """
    check_least(0, {"--connections": connections})
    if once and connections not in (0, 1):
        raise UsageError(f"--once contradicts --connections {connections}")
    limit = 1 if once else connections
    config = options.configuration(Role.RESPONDER, model, min_ord=min_ord)
    responder = _Responder(
        report=Report(options.as_json, several=limit != 1),
        answer=config.private_data,
        takes=set() if reject else {Model[model.name]} if model else set(Model),
        talk=options.talk(),
    )
    raise_file_limit()
    host = host or (EVERYWHERE if options.has_address else "127.0.0.1")
    raise typer.Exit(interruptible(responder.serve(End(host, port, config, options.network()), limit)))


@dataclass
class _Responder:
    """Answers connection requests, and serves each connection to its end."""

    report: Report
    answer: bytes  # private data of the Reply
    takes: set[Model]  # Requests of other models are rejected
    talk: Talk

    async def serve(self, end: End, limit: int) -> int:
        """Listen until this many Requests are answered, or until interrupted if it is 0; returns the exit status."""
        from open_rnic.host_driver import rdma

        statuses: list[int] = []
        answered = 0  # Requests; a connection that fails before its Reply does not count
        enough = asyncio.Event()

        def answers() -> None:
            nonlocal answered
            answered += 1
            if answered == limit:
                enough.set()

        def failed(peer: Address, error: Exception) -> None:
            if not enough.is_set():
                status = self.report.of(peer).over(error)
                if isinstance(error, rdma.RejectedError):  # by the configuration
                    statuses.append(status)
                    answers()

        def broken(peer: Address, error: Exception) -> None:
            statuses.append(self.report.of(peer).over(error))

        async def handle(request: rdma.ConnectionRequest) -> None:
            statuses.append(await self.handle(request))

        async with end.network as (tcp, device), contextlib.AsyncExitStack() as stack:
            with self.report.failing("listen"):
                await prepare(device)
                opened = await rdma.listen(end.host, end.port, end.config, device=device, failed=failed, tcp=tcp)
            listener = await stack.enter_async_context(opened)
            self.report.listening(listener.address)

            async def requests() -> AsyncIterator[rdma.ConnectionRequest]:
                full = asyncio.create_task(enough.wait())
                try:
                    while not enough.is_set():
                        arriving = asyncio.create_task(listener.request())
                        try:
                            await asyncio.wait((arriving, full), return_when=asyncio.FIRST_COMPLETED)
                        finally:
                            arriving.cancel()  # before the listener is closed
                        if not enough.is_set():
                            answers()
                            yield arriving.result()
                        elif arriving.done():
                            await arriving.result().close()
                finally:
                    full.cancel()

            await serve_all(requests(), handle, broken)
        return max(statuses, default=0)

    async def handle(self, request: ConnectionRequest) -> int:
        """Answer a request, serve the connection to its end, and return the exit status."""
        from open_rnic.host_driver.rdma import MpaConnectionError, RdmaError

        report = self.report.of(request.peer)
        report.request(request)
        try:
            if request.model not in self.takes:
                await request.reject(self.answer)
                report.rejected(self._unwanted(request), request.frame, self.answer)
                return Status.REJECTED
            connection = await request.accept(self.answer)
        except (MpaConnectionError, RdmaError) as error:
            return report.over(error)
        report.established(connection)
        return await converse(connection, report, self.talk)

    def _unwanted(self, request: ConnectionRequest) -> str:
        if not self.takes:
            return "every Request is rejected (--reject)"
        offered = " or ".join(model_name(each) for each in self.takes)
        return f"the Request asks for {model_name(request.model)}, and --model is {offered}"
