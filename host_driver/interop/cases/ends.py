"""A guest that dies in the middle of a transfer."""

from __future__ import annotations

import asyncio
import contextlib

from host_driver import rdma
from host_driver.interop.case import Case, Finding, Mismatch, Setting, check
from host_driver.interop.cases.offers import exchanged
from host_driver.interop.judge import Expected
from host_driver.rdma import RdmaError

_OCTETS = 1 << 20
_SOON = 10.0  # seconds within which the end must be told
_UNDER_WAY = 0.3  # seconds of transfer before the guest dies
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
        error = await _killed(setting, connection)
        with contextlib.suppress(RdmaError):
            await writing
    return _finding(error, f"{written} RDMA Writes of 1 MiB were complete")


async def _dies_sending(setting: Setting) -> Finding:
    listener = await setting.listen()
    words = " ".join([f"write={_MESSAGE}"] * 200)
    setting.run(f"peer connect {setting.host} {listener.address[1]} {words}")
    async with await (await listener.request()).accept() as connection, exchanged(connection, _MESSAGE):
        error = await _killed(setting, connection)
    return _finding(error, "RDMA Writes of 4 MiB were coming in")


async def _killed(setting: Setting, connection: rdma.Connection) -> RdmaError | None:
    """Kill the guest a little later; what the ULP is told: None, when TCP was closed between two FPDUs."""
    await asyncio.sleep(_UNDER_WAY)
    check(connection.error is None, f"it ended before the guest did: {connection.error}")
    await setting.guest.kill()
    try:
        async with asyncio.timeout(_SOON):
            return await connection.disconnected()
    except TimeoutError:
        raise Mismatch(f"{_SOON:g} s after the guest's death the ULP knew nothing of it") from None


def _finding(error: RdmaError | None, moved: str) -> Finding:
    check(error is None or isinstance(error, rdma.LostError), f"the error is another: {error}")
    return Finding(f"died; {moved}", f"error: {error}" if error else "saw that the peer has closed")


_RULE = "RFC 5044 §8: TCP lost is error 1, told to the ULP"
_EXPECTED = Expected(whole=False)

CASES = (
    Case("death-receiving", "the guest is killed while we write to it", _RULE, _dies_receiving, _EXPECTED, kills=True),
    Case("death-sending", "the guest is killed while it writes to us", _RULE, _dies_sending, _EXPECTED, kills=True),
)
