"""Connections whose DDP is in the RDMA engine of a device."""

import asyncio

from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import connected, exercise, run
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.rdma.offload import OffloadStream


async def offloading():
    return SoftwareDevice(offload=True)


def test_a_device_with_an_engine_does_ddp_and_the_application_sees_no_difference():
    async def test():
        async with connected(device=offloading) as (ours, theirs):
            assert isinstance(ours._stream, OffloadStream)
            assert isinstance(theirs._stream, OffloadStream)
            await asyncio.gather(exercise(ours, theirs), exercise(theirs, ours))
            assert ours.error is theirs.error is None

    run(test())
