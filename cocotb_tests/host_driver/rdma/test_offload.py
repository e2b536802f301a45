"""Connections whose DDP is in the RDMA engine of a device."""

import asyncio
from functools import partial

import pytest

from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import connected, exercise, run
from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.rdma import Access
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


@pytest.mark.parametrize("octets", [1000, 4096])
def test_messages_of_any_length_and_alignment_pass_through_the_rtl(octets):
    async def test():
        one = rdma.Options(mulpdu=octets)
        device = partial(open_device, "simulated", lanes=4, offload=True)
        async with connected(one=one, device=device) as (ours, theirs):
            message = bytes(n % 251 for n in range(3 * octets))
            memory = bytearray(5 * octets)
            region = theirs.register(memory, Access.REMOTE_READ | Access.REMOTE_WRITE)
            for number in (*range(20), octets - 19, octets - 18, octets - 17, 2 * octets, 2 * octets + 1):
                await ours.send([message[:number], message[number : 2 * number]])
                assert bytes(await theirs.receive()) == message[: 2 * number]
                await ours.write(message[:number], region.stag, number)
                assert await ours.read(number, region.stag, number) == message[:number]
                assert memory[number : 2 * number] == message[:number]

    run(test())
