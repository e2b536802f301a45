"""Peculiarities of Linux siw, imitated by a socket, so that they are tested without the kernel, too."""

import asyncio

import pytest

from open_rnic.host_driver import rdma
from open_rnic.host_driver.connection import RejectedError, initiate, listen
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.rtl.registers import Role, Rtr

OFFER = EnhancedData(ird=1, ord=1, peer_to_peer=True, rtr=frozenset({Rtr.WRITE, Rtr.READ}))
# siw's Terminate after a Reply that it cannot honour: its CRC field is 0, and 2/0/7 is encoded as 0/2/7
TERMINATE = bytes.fromhex("0016 4147 00000000 00000002 00000001 00000000 02070000 00000000")


@pytest.mark.parametrize(
    ("fpdu", "hint"),
    [
        (TERMINATE, "it is a Terminate without a CRC, which says RDMAP"),
        (TERMINATE[:-4] + b"\0\0\0\1", None),  # a wrong CRC, instead of none
        (bytes.fromhex("0012 4143 00000000 00000000 00000001 00000000 00000000"), None),  # a Send RTR
        (bytes.fromhex("0012 4147 00000000 00000002 00000001 00000000 00000000"), None),  # an empty Terminate
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_terminate_without_a_crc_is_reported(fpdu, hint, at_once):
    request = StartupFrame(FrameKind.REQUEST, enhanced=OFFER)
    async with await rdma.listen(config=Config(Role.RESPONDER, rtr=(Rtr.SEND,))) as listener:
        reader, writer = await asyncio.open_connection(*listener.address[:2])
        writer.write(request.encode() + (fpdu if at_once else b""))
        accepting = asyncio.create_task((await listener.request()).accept())
        await reader.readexactly(24)
        if not at_once:
            writer.write(fpdu)
        with pytest.raises(rdma.TerminatedError) as caught:
            await accepting
        writer.close()
    error = caught.value
    assert (error.layer, error.type, error.code, error.by) == (2, 0, 2, "local")
    assert "does not match, at stream offset 0" in str(error)
    assert ("Terminate without" in str(error)) == (hint is not None)
    assert (hint or "") in str(error)


async def test_a_rejection_by_a_responder_without_markers_reports_that_markers_were_requested():
    async def refuse(listener):
        async with SoftwareDevice() as device:
            await (await listener.request(device, Config(Role.RESPONDER))).reject()

    async with SoftwareDevice() as device, await listen() as listener, asyncio.TaskGroup() as group:
        for markers in (True, False):
            group.create_task(refuse(listener))
            with pytest.raises(RejectedError) as caught:
                await initiate(*listener.address[:2], device, Config(Role.INITIATOR, markers=markers))
            assert ("markers" in str(caught.value)) == markers
