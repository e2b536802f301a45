"""The memory of a device that has memory of its own: what is copied, and when."""

import asyncio
import random

import pytest

from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import connected
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.rdma import Access, DeviceBuffer, ProtectionDomain, TerminatedError
from open_rnic.host_driver.rdma.engine import CopiedMemory

OCTETS = 1 << 12
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE


class Board:
    """Octets of a device, and the ranges of them that were accessed."""

    def __init__(self):
        self.octets = bytearray(OCTETS)
        self.written, self.read = [], []

    def write_memory(self, address, octets):
        self.written.append((address, len(octets)))
        self.octets[address : address + len(octets)] = octets

    async def read_memory(self, address, octets):
        self.read.append((address, octets))
        return bytes(self.octets[address : address + octets])


def test_only_changed_octets_of_shared_buffers_are_copied_and_each_side_keeps_its_own():
    board = Board()
    memory, buffer = CopiedMemory(board, OCTETS), bytearray(range(100))
    at = memory.share(memoryview(buffer), writable=True)
    assert board.octets[at : at + 100] == buffer
    board.written.clear()
    memory.store()
    assert not board.written
    buffer[3:5], buffer[90:91] = b"ab", b"c"
    board.octets[at + 40 : at + 42] = b"xy"  # the peer
    memory.store()
    assert board.written == [(at + 3, 2), (at + 90, 1)]
    buffer[50:51] = b"d"  # not stored yet
    asyncio.run(memory.load_shared())
    expected = bytearray(range(100))
    expected[3:5], expected[40:42], expected[50:51], expected[90:91] = b"ab", b"xy", b"d", b"c"
    assert buffer == expected
    memory.store()
    assert board.octets[at : at + 100] == expected
    memory.unmap(at)
    buffer[:] = bytes(100)
    memory.store()
    assert board.octets[at : at + 100] == expected


def test_random_changes_of_both_sides_reach_the_other():
    rng, board = random.Random(1), Board()
    memory, buffer = CopiedMemory(board, OCTETS), bytearray(200)
    at = memory.share(memoryview(buffer), writable=True)
    for _ in range(300):
        for place in rng.sample(range(200), 5):  # no octet is changed by both
            side, start = (buffer, 0) if rng.random() < 0.5 else (board.octets, at)
            side[start + place] = rng.randrange(256)
        memory.store()
        asyncio.run(memory.load_shared())
        assert board.octets[at : at + 200] == buffer


def test_what_peers_cannot_write_is_not_read_back():
    board = Board()
    memory = CopiedMemory(board, OCTETS)
    memory.share(memoryview(bytearray(10)), writable=False)
    asyncio.run(memory.load_shared())
    assert not board.read


async def small():
    return SoftwareDevice(offload=True, octets=OCTETS)


async def test_memory_of_the_device_is_registered_and_posted_without_copies():
    async with connected(device=small) as (ours, theirs):
        buffer = DeviceBuffer(ours.device, 1000)
        buffer.write(b"from the device")
        copies = ours.device.memory._access
        copies.write_memory = None  # nobody may write any more
        region = ours.register(buffer, REMOTE | Access.LOCAL_WRITE)
        assert await theirs.read(15, region.stag) == b"from the device"
        await theirs.write(b"from the peer", region.stag, 100)
        received = ours.post_receive(region[200:300])
        await theirs.send(b"a Send")
        assert len(await received) == 6
        octets = await buffer.read()
        assert (octets[100:113], octets[200:206]) == (b"from the peer", b"a Send")
        source = theirs.register(bytearray(b"of the peer"), Access.REMOTE_READ)
        await ours.post_read(region, 11, source.stag, offset=300)
        assert (await buffer.read())[300:311] == b"of the peer"
        await ours.send(region[100:113])
        assert bytes(await theirs.receive()) == b"from the peer"
        with pytest.raises(TypeError, match="read and written by its methods"):
            bytes(received.result())
        region.deregister()
        buffer.free()
        DeviceBuffer(ours.device, 1500).free()  # there is room again


async def test_buffers_that_do_not_fit_are_refused():
    async with connected(device=small) as (ours, theirs):
        ours.register(bytearray(2000), REMOTE)
        ours.register(bytearray(1900), Access.LOCAL_WRITE)  # which has no place in the device
        for post in (
            lambda: ours.register(bytearray(2100), REMOTE),
            lambda: ours.post_send(bytes(2040)),
            lambda: ours.post_receive(bytearray(2040)),
            lambda: DeviceBuffer(ours.device, 2100),
        ):
            with pytest.raises(ValueError, match="consecutive octets of memory left for a buffer"):
                post()
        with pytest.raises(ValueError, match="at most 2048 octets in this device, not 2049"):
            ours.post_write(bytes(2049), 1)
        sent = [ours.post_send(bytes([n]) * 1000) for n in range(8)]  # they wait for their turn
        for n in range(8):
            assert bytes(await theirs.receive()) == bytes([n]) * 1000
        await asyncio.gather(*sent)


async def test_a_receive_has_room_for_a_part_of_the_devices_memory():
    async with connected(other=None, device=small) as (ours, theirs):
        receiving = asyncio.create_task(theirs.receive(65536))
        await asyncio.sleep(0)
        await ours.send(bytes(OCTETS // 4))
        assert len(await receiving) == OCTETS // 4
        receiving = asyncio.create_task(theirs.receive(65536))
        await asyncio.sleep(0)
        ours.post_send(bytes(OCTETS // 4 + 1))
        with pytest.raises(TerminatedError, match="of at least 1025 octets for a buffer of 1024"):
            await receiving


async def test_memory_of_a_device_is_only_for_its_own_connections():
    async with connected(device=small) as (ours, theirs):
        buffer = DeviceBuffer(ours.device, 100)
        for post in (
            lambda: theirs.register(buffer, REMOTE),
            lambda: theirs.post_send(buffer),
            lambda: theirs.post_receive(buffer),
        ):
            with pytest.raises(ValueError, match="memory of a device is only for connections whose RDMA engine"):
                post()
        with pytest.raises(ValueError, match="posted alone, not in a list"):
            ours.post_send([buffer, b"more"])
        with pytest.raises(ValueError, match="registered for a connection with DDP in that device"):
            ProtectionDomain().register(buffer, REMOTE)
        with pytest.raises(ValueError, match="101 octets do not fit into 100 octets"):
            buffer.write(bytes(101))
    with pytest.raises(ValueError, match="the software device has no memory of its own"):
        DeviceBuffer(SoftwareDevice(offload=True), 100)
