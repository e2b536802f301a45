"""A board whose connections share one data path: each is as if it were alone, whatever the others do."""

import asyncio
import hashlib
import random
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from open_rnic.cocotb_tests.harness.devices import closing
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.system.test_whole import BOARD, PEER, board_and_twin, connect
from open_rnic.host_driver import rdma
from open_rnic.host_driver.errors import MpaConnectionError, RejectedError
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.mpa.startup_frames import FrameKind, StartupFrame
from open_rnic.host_driver.net.pipe import Faults
from open_rnic.host_driver.observer import Counted, Direction, silent
from open_rnic.host_driver.rdma import Access, KeepAlive, RdmaError
from open_rnic.host_driver.rdma.samples import Delivery, SampleReader, SampleWriter, SignalGenerator
from open_rnic.rtl.registers import Role

FOUR = "ecpix5:4"  # with samples of the fabric
MANY = "ecpix5:64"  # with rings in memories of random latency that stall
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


@asynccontextmanager
async def connected(board, twin, *, active=False, markers=False, crc=True, private=b"", observer=silent):
    """Yield the board's end of a connection, and the twin's; if the board is ``active``, it connects."""
    engine = board.tcp.open_device
    responder = Config(Role.RESPONDER, timeout=HANG, markers=markers, crc=crc)
    initiator = Config(Role.INITIATOR, timeout=HANG, markers=markers, crc=crc, private_data=private)
    if active:
        listening = rdma.listen(str(PEER.ip), 0, responder, tcp=twin)
    else:
        listening = rdma.listen(str(BOARD.ip), 0, responder, tcp=board.tcp, device=engine)
    client = {"device": rdma.software, "tcp": twin}
    if active:
        client = {"device": engine, "tcp": board.tcp, "observer": observer}
    async with await listening as listener, asyncio.TaskGroup() as group:
        connecting = group.create_task(connect(*listener.address, config=initiator, **client))
        request = await listener.request()
        assert request.private_data == private
        passive, initiating = await request.accept(private[::-1]), await connecting
    assert initiating.negotiated.private_data == private[::-1]
    async with closing(passive, initiating):
        yield (initiating, passive) if active else (passive, initiating)


async def exchange(board, ours, theirs, rng, most=1600):
    """Move octets in both directions by RDMA Writes, RDMA Reads and Sends, and compare their digests."""
    for end, other in ((ours, theirs), (theirs, ours)):
        octets = rng.randrange(1, most)
        source, sink = bytearray(rng.randbytes(octets)), bytearray(octets)
        with end.register(source, ALL) as given, other.register(sink, ALL) as place:
            message = rng.randbytes(rng.randrange(1, most))
            answer = other.post_receive(bytearray(most))
            await board.rnic.get("IDENTITY")  # behind the registrations
            await end.write(source, place.stag, place.to)
            await end.send(message)
            assert bytes((await answer).data) == message
            assert digest(sink) == digest(source)
            assert digest(await other.read(octets, given.stag, given.to)) == digest(source)


def digest(octets):
    return hashlib.sha256(octets).hexdigest()


async def test_connections_of_mixed_roles_and_options_are_used_at_once_over_a_cable_that_loses_frames():
    async with board_and_twin(Faults(drop=0.01), FOUR) as (board, twin):

        async def one(n):
            rng = random.Random(n)
            options = {"active": n >= 2, "markers": bool(n & 1), "crc": n != 2, "private": rng.randbytes(120 * n)}
            async with connected(board, twin, **options) as ends:
                for _ in range(3):
                    await exchange(board, *ends, rng)

        await asyncio.gather(*map(one, range(4)))


@asynccontextmanager
async def all_connected(board, twin, connections, keep_alive=None):
    """Yield the ends of so many connections, the board's first, of which each end has opened half.

    ``keep_alive`` is the board's.
    """
    ours = {"tcp": board.tcp, "device": board.tcp.open_device}
    theirs = {"tcp": twin, "device": rdma.software}
    arrivals = asyncio.Semaphore(8)  # at a time, of those for which the board listens

    async def answer(listener):
        for _ in range(connections // 2):
            request = await listener.request()
            yield request.private_data, asyncio.create_task(request.accept())

    def config(role, end, **options):
        return Config(role, timeout=HANG, keep_alive=keep_alive if end is ours else None, **options)

    async def opened(address, passive, active):
        """Return the passive and the active ends, which know each other by the private data."""

        async def connect_one(number):
            async with arrivals:
                initiator = config(Role.INITIATOR, active, private_data=number)
                return number, await connect(*listener.address, config=initiator, **active)

        listening = rdma.listen(str(address), 0, config(Role.RESPONDER, passive), **passive)
        async with await listening as listener, asyncio.TaskGroup() as tasks:
            connecting = [tasks.create_task(connect_one(bytes([n]))) for n in range(connections // 2)]
            accepting = {number: accepted async for number, accepted in answer(listener)}
            initiators = dict([await each for each in connecting])
            return [(await accepting[number], initiators[number]) for number in initiators]

    async with asyncio.TaskGroup() as tasks:
        passive = tasks.create_task(opened(BOARD.ip, ours, theirs))
        active = tasks.create_task(opened(PEER.ip, theirs, ours))
    passive, active = passive.result(), active.result()
    pairs = [*passive, *(ends[::-1] for ends in active)]
    async with closing(*(end for pair in pairs for end in pair)):
        yield pairs


@long("more connections than boards have, over the same path")
async def test_64_connections_with_rings_in_slow_memories_are_used_at_once_over_a_cable_that_loses_frames():

    async def use(board, ours, theirs, n):
        rng = random.Random(n)
        for _ in range(1 if n % 8 else 3):  # some 4,500 octets each way, in each eighth connection; a ring holds 4,096
            await exchange(board, ours, theirs, rng, most=1000)

    async with board_and_twin(name=MANY) as (board, twin), all_connected(board, twin, 64) as pairs:
        with pytest.raises(MpaConnectionError, match="all 64 connections of the device are in use"):
            await rdma.connect(str(PEER.ip), 7, tcp=board.tcp, device=board.tcp.open_device)
        board.cable.change(Faults(drop=0.005))
        await asyncio.gather(*(use(board, *ends, n) for n, ends in enumerate(pairs)))
        assert all(direction.lost for direction in board.cable.directions)


async def test_the_packets_of_a_startup_frame_are_not_counted_as_fpdus():
    async with board_and_twin(name=FOUR) as (board, twin):
        seen = []
        options = {"active": True, "private": bytes(500), "observer": seen.append}
        async with connected(board, twin, **options) as (ours, theirs):
            await exchange(board, ours, theirs, random.Random(1))
            fpdus = await ours.device.get("TX_FPDUS")
        counted = [each.fpdus for each in seen if isinstance(each, Counted) and each.direction is Direction.TX]
        assert sum(counted) == fpdus


async def test_an_error_a_terminate_and_a_reset_leave_the_other_connections_as_they_are():
    async with board_and_twin(name=FOUR) as (board, twin), AsyncExitStack() as stack:
        first, second, third, last = [
            await stack.enter_async_context(connected(board, twin, active=active)) for active in (0, 1, 0, 1)
        ]
        rng = random.Random(1)
        memory = bytearray(100)
        region = last[0].register(memory, ALL)
        await board.rnic.get("IDENTITY")  # behind the registration

        async def ends(connection, why):
            with pytest.raises(RdmaError, match=why):
                await connection.receive()

        busy = asyncio.create_task(exchange(board, *last, rng))
        # The STag of another connection is none of this one's.
        await first[1].post_write(b"not here", region.stag, region.to)
        await asyncio.gather(ends(first[0], "invalid STag"), ends(first[1], "invalid STag"))
        await exchange(board, *last, rng)
        await second[1].abort()
        await ends(second[0], "reset")
        await exchange(board, *third, rng)
        await busy
        assert memory == bytes(100)
        await last[1].write(b"here", region.stag, region.to)
        await exchange(board, *last, rng)
        assert memory[:4] == b"here"


async def test_a_connection_that_does_not_receive_stalls_no_other():
    async with board_and_twin(name=FOUR) as (board, twin), connected(board, twin) as (ours, theirs):
        sends = [asyncio.create_task(theirs.send(bytes(1000))) for _ in range(20)]  # no buffer is posted
        async with connected(board, twin, active=True) as others:
            for n in range(3):
                await exchange(board, *others, random.Random(n))
        for _ in sends:
            assert len(await ours.receive(1000)) == 1000
        await asyncio.gather(*sends)


async def test_samples_reach_one_peer_after_another_beside_other_connections():
    """A second peer is refused while the first one has the sample writer, and gets samples when that has gone."""
    count = 3000
    async with board_and_twin(Faults(drop=0.01), FOUR) as (board, twin), AsyncExitStack() as stack:
        engine = board.tcp.open_device
        config = Config(Role.RESPONDER, timeout=HANG)

        async def read():
            options = {"octets": 1 << 12, "config": Config(Role.INITIATOR, timeout=HANG), "tcp": twin}
            async with await SampleReader.connect(*listener.address, **options) as reader:
                return b"".join([bytes(block.octets) async for block in reader])

        async def stream(request):
            async with await SampleWriter.accept(request, Delivery(drops=False)) as writer:
                with pytest.raises(ValueError, match="another connection of the device has its sample writer"):
                    await stack.enter_async_context(await SampleWriter.accept(await second, Delivery()))
                generator = await SignalGenerator.open(writer.connection.device)
                await writer.start()
                await generator.start(samples=count)
                assert (await generator.finished(writer.connection)).given == count
                return await writer.finish()

        others = await stack.enter_async_context(connected(board, twin, active=True))
        listening = rdma.listen(str(BOARD.ip), 0, config, tcp=board.tcp, device=engine)
        async with await listening as listener:
            for n in range(2):
                reading = asyncio.create_task(read())
                request = await listener.request()
                refused = asyncio.create_task(read())
                second = asyncio.ensure_future(listener.request())
                streaming = asyncio.create_task(stream(request))
                await exchange(board, *others, random.Random(n))
                assert (await streaming).octets == 4 * count
                assert await reading == b"".join(number.to_bytes(4, "little") for number in range(count))
                with pytest.raises(RejectedError):
                    await refused


async def test_a_connection_beyond_the_last_is_refused():
    async with board_and_twin(name=FOUR) as (board, twin), AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(connected(board, twin, active=True))
        with pytest.raises(MpaConnectionError, match="all 4 connections of the device are in use"):
            await rdma.connect(str(PEER.ip), 7, tcp=board.tcp, device=board.tcp.open_device)
        while await board.rnic.get("CHANGED"):  # what the host has seen is cleared, so the interrupt ends
            await asyncio.sleep(0.01)


async def test_requests_of_peers_that_have_gone_do_not_use_up_a_board():
    async with board_and_twin(name=FOUR) as (board, twin):
        config = Config(Role.RESPONDER, timeout=HANG)
        device = board.tcp.open_device
        async with await rdma.listen(str(BOARD.ip), 0, config, tcp=board.tcp, device=device) as listener:
            for _ in range(6):
                peer = await twin.connect(*listener.address[:2], HANG, None)
                await peer.send(StartupFrame(FrameKind.REQUEST).encode())
                request = await listener.request()
                peer.close(reset=True)
                while request._request._connection.error is None:
                    await asyncio.sleep(0.01)
                with pytest.raises(MpaConnectionError):
                    await request.accept()
        async with all_connected(board, twin, 4) as pairs:
            for ends in pairs:
                await exchange(board, *ends, random.Random(1))


async def test_idle_connections_of_a_peer_that_has_vanished_do_not_use_up_a_board(monkeypatch):
    async with board_and_twin(name=FOUR) as (board, twin):
        async with all_connected(board, twin, 4, keep_alive=KeepAlive(1, 1, 4)) as pairs:
            await asyncio.sleep(2.5)
            assert [end.error for pair in pairs for end in pair] == [None] * 8  # idle, and alive
            monkeypatch.setattr(twin.host, "receive", lambda *_: None)
            for ours, _ in pairs:
                with pytest.raises(RdmaError, match="timed out"):
                    await ours.receive()
        monkeypatch.undo()
        async with connected(board, twin) as ends:
            await exchange(board, *ends, random.Random(1))
