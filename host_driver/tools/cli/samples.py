"""``rnic samples``: samples of a device's fabric, streamed into the memory of programs."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from open_rnic.host_driver.tools.cli.common import (
    CommandError,
    UsageError,
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
    OffloadName,
    ServiceOption,
    place,
    serve_requests,
)
from open_rnic.rtl.registers import Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from open_rnic.host_driver.rdma.manager import ConnectionRequest
    from open_rnic.host_driver.rdma.samples import Delivery

_PORT, _MOST, _TURN = 7471, 0xFFFF_FFFF, 1000


class PatternName(StrEnum):
    """The signals of the generator."""

    COUNTER = "counter"
    SINE = "sine"


@with_options
def samples(
    options: ConnectionOptions,
    count: Annotated[int, number("--count", help="The samples for each peer; 0: until it leaves.")] = 0,
    pattern: Annotated[PatternName, typer.Option("--pattern", help="The signal.")] = PatternName.COUNTER,
    turn: Annotated[int, number("--turn", help="The samples in a turn of the sine.")] = _TURN,
    period: Annotated[int, number("--period", help="The clock cycles from one sample to the next.")] = 1,
    drop: Annotated[
        bool, typer.Option("--drop", help="Drop and count samples for which there is no room; default: they wait.")
    ] = False,
    bind: ListenOption = EVERYWHERE,
    port: ServiceOption = _PORT,
    once: Annotated[bool, typer.Option("--once", help="End after one peer.")] = False,
    model: ModelOption = None,
) -> None:
    """Stream samples of the fabric into the memory of peers.

    One peer after the other has them. The samples, of 4 octets, are those of a generator in the device. The programs
    for stock Linux are host_driver/linux/receive_samples.c and receive_samples.py.
    """
    from open_rnic.host_driver.devices import names
    from open_rnic.host_driver.rdma.samples import Delivery, Pattern

    check_range(0, _MOST, {"--count": count})
    check_range(1, _MOST, {"--period": period})
    check_range(2, _MOST, {"--turn": turn})
    network = options.network()
    if options.offload is OffloadName.NONE or not names.parse(options.device).samples:
        offload = " --offload none" if options.offload else ""
        who = f"--device {options.device}{offload}"
        raise UsageError(f"{who} has no sample writer; simulated and udp:sim:ecpix5 have one")
    end = End(bind, port, options.configuration(Role.RESPONDER, model), network)
    signal = {"pattern": Pattern[pattern.name], "samples": count, "period": period, "turns": 1 / turn}
    handle = partial(_stream, delivery=Delivery(drops=drop), signal=signal)
    raise_file_limit()
    interruptible(_serve(end, handle, once))


async def _serve(end: End, handle: Callable[[ConnectionRequest], Awaitable[None]], once: bool) -> None:
    async with end.listening("samples") as (listener, _):
        await serve_requests(listener, handle, once=once)


async def _stream(request: ConnectionRequest, delivery: Delivery, signal: Mapping[str, Any]) -> None:
    """Stream to a peer until all samples have been announced to it, or it leaves."""
    from open_rnic.host_driver.rdma.samples import SamplesError, SampleWriter, SignalGenerator

    try:
        async with await SampleWriter.accept(request, delivery) as writer:
            generator = await SignalGenerator.open(writer.connection.device)
            await writer.start()
            await generator.start(**signal)
            given = (await generator.finished(writer.connection)).given
            status = await writer.finish()
    except (SamplesError, ValueError) as error:
        raise CommandError(str(error)) from None
    written = status.octets // writer.sample
    print(f"{place(request.peer)} has gone: {given} samples, {written} written, {status.dropped} dropped", flush=True)
