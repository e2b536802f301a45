"""The guest is killed during a transfer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Reason
from open_rnic.host_driver.rdma import RdmaError
from open_rnic.host_driver.tools.interop.case import Case, Finding, Mismatch, Setting, check
from open_rnic.host_driver.tools.interop.cases.offers import exchanged
from open_rnic.host_driver.tools.interop.judge import Expected

_OCTETS = 1 << 20
_SOON = 10.0  # time limit in seconds for the start of the transfer, and again for the report of its end
_UNDER_WAY = 3 << 19  # octets transferred before the guest is killed: not a multiple of a message, in either direction
_MESSAGE = 4 << 20


async def _dies_receiving(setting: Setting) -> Finding:
    await setting.serve(f"peer listen {setting.guest.service} memory={_OCTETS} hold")
    async with await setting.connect() as connection, exchanged(connection) as offers:
        data, written = bytes(_OCTETS), 0

        async def write() -> None:
            nonlocal written
            while True:
                await connection.write(data, offers.stag, offers.to)
                written += 1

        writing = asyncio.create_task(write())
        result = await _killed(setting, connection, lambda: setting.first.octets_out)
        try:
            await writing
        except RdmaError as error:  # also after a FIN, because later segments are answered with RST
            check(isinstance(error, rdma.LostError), f"the current RDMA Write ended with another error: {error}")
            ended = f"{written} RDMA Writes of 1 MiB were complete, and the next one failed: {type(error).__name__}"
    return Finding("was killed", f"{result}; {ended}")


async def _dies_sending(setting: Setting) -> Finding:
    listener = await setting.listen()
    words = " ".join([f"write={_MESSAGE}"] * 200)
    setting.run(f"peer connect {setting.host} {listener.address[1]} {words}")
    async with await (await listener.request()).accept() as connection, exchanged(connection, _MESSAGE):
        result = await _killed(setting, connection, lambda: setting.first.octets_in)
    return Finding("was killed", result)


async def _killed(setting: Setting, connection: rdma.Connection, moved: Callable[[], int]) -> str:
    """Kill the guest when enough octets have ``moved``, and return a description of the result at our end."""
    try:
        async with asyncio.timeout(_SOON):
            while moved() < _UNDER_WAY:
                check(connection.error is None, f"the connection ended before the guest was killed: {connection.error}")
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise Mismatch(f"{moved()} octets were transferred within {_SOON:g} s, not {_UNDER_WAY}") from None
    before = moved()
    await setting.guest.kill()
    try:
        async with asyncio.timeout(_SOON):
            error = await connection.disconnected()
    except TimeoutError:
        raise Mismatch(f"the end of the connection was not reported to the ULP within {_SOON:g} s") from None
    if error is None:  # to MPA, a FIN behind an FPDU is an orderly end, but a FIN inside an FPDU is an error
        check(setting.first.whole, "the stream ended inside an FPDU, but the peer's close was reported to the ULP")
        result = "TCP ended between two FPDUs, and the peer's close was reported to the ULP"
    else:
        lost = isinstance(error, rdma.LostError) and error.reason is Reason.CONNECTION_LOST
        check(lost, f"another error was reported: {error}")
        result = f"error 1: {error}"
    return f"{result}; {before:,} octets were transferred before, and {moved():,} in total"


_RULE = "RFC 5044 §8: TCP lost, or closed by a FIN, is error 1, which is reported to the ULP"
_EXPECTED = Expected(whole=False)

CASES = (
    Case("death-receiving", "the guest is killed while we write to it", _RULE, _dies_receiving, _EXPECTED, kills=True),
    Case("death-sending", "the guest is killed while it writes to us", _RULE, _dies_sending, _EXPECTED, kills=True),
)
