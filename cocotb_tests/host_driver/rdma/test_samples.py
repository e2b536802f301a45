"""Samples of a simulated device's fabric, in the ring of another process or task."""

import asyncio
import math
import struct
from contextlib import asynccontextmanager
from functools import partial

import pytest

from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import HASTY, INITIATOR, RESPONDER
from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.devices.sim.prepare import prepare
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.rdma import Access
from open_rnic.host_driver.rdma.samples import (
    Block,
    Delivery,
    Doorbell,
    Pattern,
    Place,
    SampleReader,
    SamplesError,
    SampleWriter,
    SignalGenerator,
)

simulated = partial(open_device, "simulated", lanes=4, offload=True)
HEAD = struct.Struct("<Q")


@asynccontextmanager
async def streaming(delivery=None, **options):
    """The ends of a stream of samples: the writer, and the reader with its ring."""
    await prepare("rdma", "4")  # a build takes longer than a peer waits
    async with await rdma.listen(config=RESPONDER, device=simulated) as listener:
        async with asyncio.TaskGroup() as group:
            accepting = group.create_task(accept(listener, delivery))
            connecting = group.create_task(SampleReader.connect(*listener.address[:2], config=INITIATOR, **options))
        async with accepting.result() as writer, connecting.result() as reader:
            yield writer, reader


async def accept(listener, delivery=None):
    return await SampleWriter.accept(await listener.request(), delivery)


async def generate(writer, *args, **options):
    """Let the generator give samples, and close the connection behind them."""
    generator = await SignalGenerator.open(writer.connection.device)
    await writer.start()
    await generator.start(*args, **options)
    return await generator.finished(), await writer.finish()


async def test_a_reader_that_leaves_in_order_ends_the_writer():
    async with streaming(Delivery(drops=False), octets=4096) as (writer, reader), asyncio.TaskGroup() as group:
        generator = await SignalGenerator.open(writer.connection.device)
        await writer.start()
        await generator.start(samples=10000)
        while not (await writer.status()).blocked:
            await asyncio.sleep(0)
        while not (await generator.status()).stalls:  # the writer's queue fills
            await asyncio.sleep(0)
        leaving = group.create_task(reader.close())
        signal = await generator.finished(writer.connection)
        assert signal.stalls
        assert not signal.runs
        with pytest.raises(SamplesError, match="the reader closed with 4096 of 4096 octets not freed"):
            await writer.finish()
        await writer.connection.abort()
        await leaving


async def test_a_reader_that_leaves_early_ends_the_writer_though_the_ring_has_room():
    delivery = Delivery(drops=False, write_octets=64, bell_octets=256)
    async with streaming(delivery) as (writer, reader), asyncio.TaskGroup() as group:
        generator = await SignalGenerator.open(writer.connection.device)
        await writer.start()
        await generator.start(samples=10000, period=50)
        block = await anext(aiter(reader))
        assert len(block.octets) == 256
        leaving = group.create_task(reader.close())
        signal = await generator.finished(writer.connection)
        assert not signal.runs
        assert signal == await generator.status(), "the count is final"
        assert signal.given < 10000
        assert not (await writer.status()).blocked
        with pytest.raises(SamplesError, match=r"the reader closed with (\d+) of \1 octets not freed"):
            await writer.finish()
        await writer.connection.abort()
        await leaving


def numbers(octets):
    return struct.unpack(f"<{len(octets) // 4}I", octets)


@pytest.mark.parametrize("period", [1, 20])
async def test_all_samples_arrive_in_their_order_if_the_stream_stalls_for_the_reader(period):
    count = 0
    delivery = Delivery(drops=False, write_octets=500, bell_octets=900, bell_ticks=4)
    async with streaming(delivery, octets=3002) as (writer, reader), asyncio.TaskGroup() as group:
        generating = group.create_task(generate(writer, samples=3000, period=period))
        rest = b""
        async for block in reader:
            octets = rest + block.octets  # the ring is no multiple of a sample
            found, rest = octets[: len(octets) // 4 * 4], octets[len(octets) // 4 * 4 :]
            assert numbers(found) == tuple(range(count, count + len(found) // 4))
            assert block.lost == 0
            count += len(found) // 4
        await reader.close()
        signal, status = await generating
        assert not rest
        assert count == signal.given == 3000
        assert (status.octets, status.dropped, status.bells) == (12000, 0, reader.bells)


async def test_a_slow_reader_loses_samples_and_knows_which():
    expected = lost = gaps = 0
    ending = None

    async with streaming(octets=4096) as (writer, reader), asyncio.TaskGroup() as group:
        generator = await SignalGenerator.open(writer.connection.device)
        await writer.start()
        await generator.start()

        async def end():
            await generator.stop()
            return await generator.finished(), await writer.finish()

        async for block in reader:
            expected += block.lost
            lost += block.lost
            gaps += block.lost > 0
            found = numbers(block.octets)
            assert found == tuple(range(expected, expected + len(found)))
            expected += len(found)
            if gaps == 5 and not ending:
                ending = group.create_task(end())
            elif not ending:
                before = (await writer.status()).dropped
                while (await writer.status()).dropped < before + 2000:
                    await asyncio.sleep(0)
        await reader.close()
        signal, status = await ending
        assert reader.octets == status.octets
        assert lost == reader.lost <= status.dropped
        assert status.octets // 4 + status.dropped == signal.given
        assert expected + status.dropped - lost == signal.given, "the rest was dropped behind the last sample"


async def test_a_sine_arrives_with_the_numbers_of_its_samples():
    async with streaming(Delivery(drops=False)) as (writer, reader), asyncio.TaskGroup() as group:
        group.create_task(generate(writer, Pattern.SINE, samples=500, turns=1 / 64))
        found = [pair async for block in reader for pair in struct.iter_unpack("<hH", block.octets)]
        await reader.close()
        assert [number for _, number in found] == list(range(500))
        assert [value for value, _ in found] == [round(32767 * math.sin(math.pi * n / 32)) for n in range(500)]


async def test_a_doorbell_can_be_an_rdma_write_and_a_wrong_head_has_no_effect():
    await prepare("rdma", "4")
    async with await rdma.listen(config=RESPONDER, device=simulated) as listener:
        domain = rdma.ProtectionDomain()
        memory = bytearray(1024 + 16)
        region = domain.register(memory, Access.REMOTE_WRITE)
        ring = Place(0, region.stag, 1024)
        async with asyncio.TaskGroup() as group:
            accepting = group.create_task(_accept(listener))
            connecting = group.create_task(rdma.connect(*listener.address[:2], INITIATOR, domain=domain))
        async with connecting.result() as ours, accepting.result() as theirs:
            head = theirs.register(bytearray(8), Access.REMOTE_WRITE)
            bell = Place(1024, region.stag, 16)
            delivery = Delivery(drops=False, write_octets=100, doorbell=Doorbell.WRITE, bell_place=bell)
            writer = await SampleWriter.open(theirs, ring, head, delivery)
            generator = await SignalGenerator.open(theirs.device)
            await writer.start()
            await generator.start(samples=300)
            while (await writer.status()).octets < 1024:
                await asyncio.sleep(0)
            await ours.write(HEAD.pack(1025), head.stag)
            await ours.write(HEAD.pack(176), head.stag)
            while (await writer.status()).freed != 176:
                await asyncio.sleep(0)
            assert (await writer.status()).bad_head
            await generator.finished()
            assert (await writer.stop()).octets == 1200
            await theirs.send(b"")
            await ours.receive()
            assert struct.unpack_from("<QQ", memory, 1024) == (1200, 0)
            assert numbers(memory[176:1024] + memory[:176]) == tuple(range(44, 300))
            with pytest.raises(ValueError, match="has written to its ring already"):
                await SampleWriter.open(theirs, ring, head, delivery)
            await ours.abort()
            await theirs.disconnected()
            with pytest.raises(rdma.RdmaError):
                await writer.stop()
        region.deregister()


async def _accept(listener):
    return await (await listener.request()).accept()


WRAPPING = struct.pack(">QII", 2**64 - 4096, 1, 4096)


@pytest.mark.parametrize(
    "private_data", [b"", bytes(12), Place(0, 1, 0).encode(), Place(0, 1, 1000).encode(), WRAPPING]
)
async def test_a_request_without_the_place_of_a_ring_that_fits_is_rejected(private_data):
    async with await rdma.listen(config=RESPONDER, device=partial(open_device, "software", lanes=4)) as listener:
        config = rdma.Config(rdma.Role.INITIATOR, private_data=private_data)
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], config))
        with pytest.raises(ValueError, match=r"a place has 16 octets|on wrap|a ring has 1 to|half of the ring"):
            await accept(listener)
        with pytest.raises(rdma.RejectedError):
            await connecting


@pytest.mark.parametrize("offload", [False, True])
async def test_a_device_without_a_sample_writer_is_refused(offload):
    async def software():
        return SoftwareDevice(offload=offload)

    async with await rdma.listen(config=RESPONDER, device=software) as listener:
        connecting = asyncio.create_task(SampleReader.connect(*listener.address[:2]))
        with pytest.raises(ValueError, match="the software device of this connection has no sample writer"):
            await accept(listener)
        with pytest.raises(ValueError, match="the software device has no signal generator"):
            await SignalGenerator.open(await software())
        with pytest.raises(rdma.RejectedError):
            await connecting


@pytest.mark.parametrize(("values", "what"), [
    ({"write_octets": 0}, "write_octets is at least 1 and at most half of the ring of 4096 octets, not 0"),
    ({"write_octets": 2049}, "write_octets .* not 2049"),
    ({"bell_octets": 1 << 32}, "bell_octets has 32 bits, not 4294967296"),
    ({"bell_ticks": -1}, "bell_ticks has 32 bits, not -1"),
    ({"doorbell": Doorbell.WRITE}, "a doorbell of the kind WRITE needs a bell_place of 16 octets"),
    ({"doorbell": Doorbell.WRITE, "bell_place": Place(0, 1, 15)}, "needs a bell_place of 16 octets"),
])  # fmt: skip
def test_a_delivery_that_makes_no_sense_is_refused(values, what):
    with pytest.raises(ValueError, match=what):
        Delivery(**values).check(Place(0, 1, 4096))


@pytest.mark.parametrize(("values", "what"), [
    ({"samples": 1 << 32}, "samples has 32 bits, not 4294967296"),
    ({"period": 0}, "period is at least 1 and has 32 bits, not 0"),
    ({"turns": 1.0}, "turns is at least 0 and less than 1, not 1"),
])  # fmt: skip
def test_a_signal_that_makes_no_sense_is_refused(values, what):
    with pytest.raises(ValueError, match=what):
        asyncio.run(SignalGenerator(None).start(**values))


@pytest.mark.parametrize("record", [b"", bytes(15), struct.pack("<QQ", 4097, 0), struct.pack("<QQ", 0, 0)])
async def test_a_send_that_is_no_record_is_an_error_of_the_peer(record):
    async with await rdma.listen(config=RESPONDER, options=HASTY) as listener:
        connecting = asyncio.create_task(SampleReader.connect(*listener.address[:2], octets=4096, options=HASTY))
        async with await (await listener.request()).accept(Place(0, 1, 8).encode()) as theirs:
            head = theirs.register(bytearray(8), Access.REMOTE_WRITE)
            async with await connecting as reader:
                reader._head = Place.of(head)
                await theirs.send(struct.pack("<QQ", 4, 3))
                blocks = aiter(reader)
                assert await anext(blocks) == Block(memoryview(bytes(4)), 3)
                await theirs.send(record)
                with pytest.raises(SamplesError, match="behind octet 4, with octets free up to 4096 and 3 samples"):
                    await anext(blocks)


@pytest.mark.parametrize(
    ("private_data", "what"),
    [
        (b"", "a place has 16 octets, not 0"),
        (struct.pack(">QII", 2**64 - 8, 1, 8), "8 octets from TO 0xfffffffffffffff8 on wrap"),
        (Place(0, 1, 7).encode(), "a head has 8 octets, not 7"),
    ],
)
async def test_a_reply_without_the_place_of_a_head_is_an_error_of_the_peer(private_data, what):
    async with await rdma.listen(config=RESPONDER) as listener:
        connecting = asyncio.create_task(SampleReader.connect(*listener.address[:2]))
        theirs = await (await listener.request()).accept(private_data)
        with pytest.raises(SamplesError, match=what):
            await connecting
        await theirs.abort()
