"""``rnic listen``: a responder that tells what happens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import (
    DeviceOption,
    LanesOption,
    interruptible,
    raise_file_limit,
    whole_number,
)
from open_rnic.host_driver.tools.cli.endpoint import (
    MAX_IRD,
    DialectName,
    DialectOption,
    EchoOption,
    FixedIrdOption,
    FixedOrdOption,
    IrdOption,
    JsonOption,
    MarkersOption,
    MaxIrdOption,
    NoCrcOption,
    OnlyModelOption,
    OrdOption,
    PortOption,
    PrivateOption,
    Report,
    RequireCrcOption,
    RevOption,
    RtrOption,
    SendOption,
    Status,
    Talk,
    TimeoutOption,
    configuration,
    converse,
    model_name,
    opener,
    prepare,
    talk,
)
from open_rnic.rtl.registers import Model, Role

if TYPE_CHECKING:
    from open_rnic.host_driver.connection import Address
    from open_rnic.host_driver.mpa.negotiation import Config
    from open_rnic.host_driver.rdma import ConnectionRequest
    from open_rnic.host_driver.rdma.connection import OpenDevice


def listen(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen at.")] = "127.0.0.1",
    port: PortOption = 0,
    ird: IrdOption = 16,
    ord: OrdOption = 16,  # noqa: A002
    max_ird: MaxIrdOption = MAX_IRD,
    min_ord: Annotated[
        int,
        typer.Option(
            "--min-ord",
            metavar="N",
            parser=whole_number,
            help="The ORD that this end needs: an enhanced Request with less IRD is rejected. A rejection tells it.",
        ),
    ] = 0,
    fixed_ird: FixedIrdOption = False,
    fixed_ord: FixedOrdOption = False,
    model: OnlyModelOption = None,
    rtr: RtrOption = None,
    require_crc: RequireCrcOption = False,
    no_crc: NoCrcOption = False,
    markers: MarkersOption = False,
    rev: RevOption = 2,
    dialect: DialectOption = DialectName.RFC6581,
    private_data: PrivateOption = "",
    timeout: TimeoutOption = 10.0,
    reject: Annotated[bool, typer.Option("--reject", help="Reject every Request.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End with the first Request that is answered.")] = False,
    send: SendOption = None,
    echo: EchoOption = False,
    device: DeviceOption = "software",
    lanes: LanesOption = 4,
    as_json: JsonOption = False,
) -> None:
    """Wait for RDMA connections, and tell of each what it is and what it brings.

    Each connection has a device of its own. With --once the exit status is 0 when the connection was closed in order, 1
    when it failed, 3 when it was rejected, 4 when a Terminate ended it; 2: the command cannot be carried out as given.
    """
    config = configuration(
        Role.RESPONDER,
        model=model,
        rtr=rtr,
        ird=ird,
        ord=ord,
        max_ird=max_ird,
        min_ord=min_ord,
        negotiate_ird=not fixed_ird,
        negotiate_ord=not fixed_ord,
        require_crc=require_crc,
        no_crc=no_crc,
        markers=markers,
        rev=rev,
        dialect=dialect,
        private_data=private_data,
        timeout=timeout,
    )
    responder = _Responder(
        report=Report(as_json, several=not once),
        answer=config.private_data,
        takes=set() if reject else {Model[model.name]} if model else set(Model),
        talk=talk(send, echo),
    )
    raise_file_limit()
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
        from open_rnic.host_driver import rdma

        answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()  # what does not count is no answer

        def failed(peer: Address, error: Exception) -> None:
            if not (once and answered.done()):
                status = self.report.of(peer).over(error)
                if isinstance(error, rdma.RejectedError) and not answered.done():  # by the configuration
                    answered.set_result(status)

        with self.report.failing("listen"):
            await prepare(device)
            opened = await rdma.listen(host, port, config, device=device, failed=failed)
        async with opened as listener:
            self.report.listening(listener.address)
            if once:
                arriving = asyncio.create_task(listener.request())
                try:
                    await asyncio.wait((arriving, answered), return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    arriving.cancel()  # before the listener is closed under it
                    raise
                if not answered.done():
                    answered.set_result(1)  # it is the first that counts
                    return await self.handle(arriving.result())
                arriving.cancel()
                return answered.result()
            async with asyncio.TaskGroup() as group:
                async for request in listener:
                    group.create_task(self.handle(request))
        return 0

    async def handle(self, request: ConnectionRequest) -> int:
        """Answer it, and see the connection through; the exit status."""
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
