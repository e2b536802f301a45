"""``rnic memory``: memory that programs of stock Linux read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import (
    CommandError,
    check_range,
    interruptible,
    number,
    raise_file_limit,
    with_options,
)
from open_rnic.host_driver.tools.cli.endpoint import (
    EVERYWHERE,
    ConnectionOptions,
    End,
    ListenOption,
    ModelOption,
    ServiceOption,
    place,
    report_failure,
)
from open_rnic.rtl.registers import Role

if TYPE_CHECKING:
    from open_rnic.host_driver.device import Device
    from open_rnic.host_driver.rdma.memory import DeviceBuffer

_PORT, _OCTETS, _MOST = 7471, 4096, 1 << 30


@with_options
def memory(
    options: ConnectionOptions,
    octets: Annotated[int, number("--octets", help="The size of the memory.")] = _OCTETS,
    bind: ListenOption = EVERYWHERE,
    port: ServiceOption = _PORT,
    once: Annotated[bool, typer.Option("--once", help="End after one peer.")] = False,
    model: ModelOption = None,
) -> None:
    """Offer memory, which peers read and write by RDMA.

    One peer after the other is served. The private data of the Reply has the memory's place: TO (64 bits), STag (32)
    and length (32), in network order. The program for stock Linux is host_driver/linux/memory.c.
    """
    check_range(1, _MOST, {"--octets": octets})
    end = End(bind, port, options.configuration(Role.RESPONDER, model), options.network())
    raise_file_limit()
    interruptible(_serve(end, octets, once))


async def _serve(end: End, octets: int, once: bool) -> None:
    from open_rnic.host_driver.rdma.shared import memory_of, share

    def allocated(device: Device) -> bytearray | DeviceBuffer:
        try:
            return memory_of(device, octets)
        except ValueError as problem:
            raise CommandError(f"--octets {octets}: {problem}") from None

    def check(device: Device) -> None:
        if not isinstance(found := allocated(device), bytearray):
            found.free()

    async with end.listening(f"{octets} octets", check) as (listener, _):
        memory: bytearray | DeviceBuffer | None = None
        async for request in listener:
            memory = memory or allocated(request.device)
            before = bytes(memory) if isinstance(memory, bytearray) else b""
            try:
                if error := await share(request, memory):
                    raise error
            except ConnectionError as error:
                if once:
                    raise
                report_failure(request.peer, error)
            changed = ""
            if isinstance(memory, bytearray):
                count = sum(one != other for one, other in zip(before, memory, strict=True))
                changed = f": {count} octets have changed"
            print(f"{place(request.peer)} has gone{changed}", flush=True)
            if once:
                return
