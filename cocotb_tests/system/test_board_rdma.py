"""A complete board with an RDMA engine and memory of its own, in simulation, driven through its UART."""

import asyncio
import random
from fractions import Fraction

import pytest

from open_rnic.cocotb_tests.harness.devices import closing
from open_rnic.host_driver import rdma
from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.serial.simulated import Noise, SimulatedBoardDevice
from open_rnic.host_driver.rdma import Access, DeviceBuffer, rping
from open_rnic.host_driver.rdma.offload import OffloadStream

OCTETS = 1 << 13
FAST = Fraction(4)  # clock cycles in a bit: the minimum of the UART
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


async def board():
    return await SimulatedBoardDevice.open_top(1, FAST, 2048, Noise(1, 1e-4), memory=OCTETS)


async def test_the_host_accesses_any_octets_of_the_memory():
    async with await board() as device:
        copy = bytearray(OCTETS)
        device.write_memory(0, copy)
        for _ in range(30):
            octets = random.randbytes(random.randint(1, 20))
            at = random.randrange(OCTETS - 33)
            device.write_memory(at, octets)
            copy[at : at + len(octets)] = octets
            assert await device.read_memory(at - at % 7, 33) == copy[at - at % 7 :][:33]
        assert await device.read_memory(0, OCTETS) == copy


async def test_programs_run_unchanged_with_the_engine_of_a_board():
    async with await rdma.listen() as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], device=board))
        peer, ours = await (await listener.request()).accept(), await connecting
        async with closing(peer, ours):
            assert isinstance(ours._stream, OffloadStream)
            serving = asyncio.create_task(rping.server(peer))
            assert await rping.client(ours, count=2, size=100, validate=True) == 2
            await ours.close()
            assert await serving == 2


async def test_a_peer_reads_and_writes_the_memory_of_a_board():
    async with await rdma.listen(device=board) as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2]))
        ours, peer = await (await listener.request()).accept(), await connecting
        async with closing(ours, peer):
            memory = DeviceBuffer(ours.device, 3000)
            memory.write(b"of the board")
            region = ours.register(memory, ALL)
            assert await peer.read(12, region.stag) == b"of the board"
            octets = random.randbytes(2000)
            await peer.write(octets, region.stag, 17)
            received = ours.post_receive(region[2500:2600])
            await peer.send(b"written")
            assert len(await received) == 7
            found = await memory.read()
            assert (found[17:2017], found[2500:2507]) == (octets, b"written")
            DeviceBuffer(ours.device, 3000)
            with pytest.raises(ValueError, match="has no 3000 consecutive octets of memory left"):
                ours.post_send(bytes(3000))


async def test_a_board_without_an_engine_says_so():
    async with await SimulatedBoardDevice.open_top(1, FAST, 512) as device:
        assert device.memory is None
        device._offload = None
        await device._meet_engine()
        assert device.memory is None
        device._offload = True
        with pytest.raises(DeviceError, match="the board has no RDMA engine: build it with --core rdma"):
            await device._meet_engine()
