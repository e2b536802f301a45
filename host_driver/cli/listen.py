"""``rnic listen``: a responder that tells what happens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from host_driver.cli.common import DeviceOption, LanesOption, UsageError, interruptible
from host_driver.cli.endpoint import (
    CrcOption,
    DialectName,
    DialectOption,
    EchoOption,
    IrdOption,
    JsonOption,
    MarkersOption,
    OnlyModelOption,
    OrdOption,
    PortOption,
    PrivateOption,
    Report,
    RevOption,
    RtrOption,
    SendOption,
    Talk,
    TimeoutOption,
    configuration,
    converse,
    opener,
    prepare,
    talk,
    text_or_file,
)
from rtl.registers import Model, Role

if TYPE_CHECKING:
    from host_driver.connection import Address
    from host_driver.negotiation import Config
    from host_driver.rdma import ConnectionRequest
    from host_driver.rdma.connection import OpenDevice


def listen(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen at.")] = "127.0.0.1",
    port: PortOption = 0,
    ird: IrdOption = 16,
    ord: OrdOption = 16,  # noqa: A002
    model: OnlyModelOption = None,
    rtr: RtrOption = None,
    crc: CrcOption = True,
    markers: MarkersOption = False,
    rev: RevOption = 2,
    dialect: DialectOption = DialectName.RFC6581,
    private_data: PrivateOption = "",
    timeout: TimeoutOption = 10.0,
    reject: Annotated[bool, typer.Option("--reject", help="Reject every Request.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End with the first connection, whatever it comes to.")] = False,
    send: SendOption = None,
    echo: EchoOption = False,
    device: DeviceOption = "software",
    lanes: LanesOption = 4,
    as_json: JsonOption = False,
) -> None:
    """Wait for RDMA connections, and tell of each what it is and what it brings.

    Each connection has a device of its own.
    """
    from host_driver.negotiation import check_private_data

    config = configuration(
        Role.RESPONDER,
        rtr=rtr,
        ird=ird,
        ord=ord,
        crc=crc,
        markers=markers,
        rev=rev,
        dialect=dialect,
        timeout=timeout,
    )
    answer = text_or_file(private_data, "--private-data")
    try:
        check_private_data(answer, enhanced=rev == 2)
    except ValueError as error:
        raise UsageError(str(error)) from None
    responder = _Responder(
        report=Report(as_json, several=not once),
        answer=answer,
        takes=set() if reject else {Model[model.name]} if model else set(Model),
        talk=talk(send, echo),
    )
    raise typer.Exit(interruptible(responder.serve(host, port, config, opener(device, lanes), once)))


@dataclass
class _Responder:
    """What becomes of each connection."""

    report: Report
    answer: bytes  # private data of the Reply
    takes: set[Model]  # Requests of other models are rejected
    talk: Talk

    async def serve(self, host: str, port: int, config: Config, device: OpenDevice, once: bool) -> int:
        """Listen, for one connection or until interrupted; the exit status."""
        from host_driver import rdma

        first_failure: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def failed(peer: Address, error: Exception) -> None:
            if not (once and first_failure.done()):
                status = self.report.of(peer).over(error)
                if not first_failure.done():
                    first_failure.set_result(status)

        await prepare(device)
        async with await rdma.listen(host, port, config, device=device, failed=failed) as listener:
            self.report.listening(listener.address)
            if once:
                arriving = asyncio.create_task(listener.request())
                try:
                    await asyncio.wait((arriving, first_failure), return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    arriving.cancel()  # before the listener is closed under it
                    raise
                if not first_failure.done():
                    first_failure.set_result(1)  # it is the first connection that counts
                    return await self.handle(arriving.result())
                arriving.cancel()
                return first_failure.result()
            async with asyncio.TaskGroup() as group:
                async for request in listener:
                    group.create_task(self.handle(request))
        return 0

    async def handle(self, request: ConnectionRequest) -> int:
        """Answer it, and see the connection through; the exit status."""
        from host_driver.rdma import MpaConnectionError, RdmaError

        report = self.report.of(request.peer)
        report.request(request)
        try:
            if request.model not in self.takes:
                await request.reject(self.answer)
                report.rejected("local", "not wanted", self.answer)
                return 1
            connection = await request.accept(self.answer)
        except (MpaConnectionError, RdmaError) as error:
            return report.over(error)
        report.established(connection)
        return await converse(connection, report, self.talk)
