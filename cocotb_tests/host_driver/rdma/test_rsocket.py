"""rsockets: our ends with each other, and with ends that break the protocol. ``make interop`` has librdmacm's."""

import asyncio
import hashlib
import random
import struct
from contextlib import asynccontextmanager

import pytest

from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import HASTY
from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import Access, ClosedError, rsocket
from open_rnic.host_driver.rdma.rsocket import Rsocket, RsocketError, Settings
from open_rnic.rtl.registers import Model, Role

PRIVATE = struct.Struct(">BBHBBBBQIIQII")
SMALL = Settings(buffer=96, credits=16, depth=4)


@asynccontextmanager
async def pair(one=None, other=None, config=None):
    async with await rdma.listen(options=HASTY) as listener, asyncio.TaskGroup() as group:
        connecting = group.create_task(rsocket.connect(*listener.address[:2], config, settings=one, options=HASTY))
        ends = [await rsocket.accept(await listener.request(), settings=other), await connecting]
        try:
            yield ends[1], ends[0]
        finally:
            await asyncio.gather(*(end.close() for end in ends))


async def read_all(end, most):
    digest, count = hashlib.sha256(), 0
    while part := await end.recv(most()):
        assert len(part) <= 5000
        digest.update(part)
        count += len(part)
    return count, digest.digest()


@pytest.mark.parametrize(("one", "other"), [(None, None), (SMALL, Settings(buffer=2, credits=17)), (Settings(), SMALL)])
async def test_streams_arrive_whole_in_both_directions_at_once(one, other):
    """Pieces of random sizes are sent and received, with large, small and the smallest buffers."""
    draw = random.Random(7)
    octets = 200000 if one is other else 600
    data = {name: draw.randbytes(octets) for name in ("client", "server")}

    async def send(end, stream):
        while stream:
            size = draw.choice([1, 2, 47, 48, 49, 3000, 70000])
            await end.send(stream[:size])
            stream = stream[size:]
        await end.shutdown()

    async with pair(one, other) as (client, server), asyncio.TaskGroup() as group:
        group.create_task(send(client, data["client"]))
        group.create_task(send(server, data["server"]))
        at_server = group.create_task(read_all(server, lambda: draw.choice([1, 30, 5000])))
        at_client = group.create_task(read_all(client, lambda: draw.choice([1, 30, 5000])))
    assert at_server.result() == (octets, hashlib.sha256(data["client"]).digest())
    assert at_client.result() == (octets, hashlib.sha256(data["server"]).digest())


async def test_a_sender_waits_until_the_receiver_has_read():
    async with pair(SMALL, SMALL) as (client, server):
        sending = asyncio.create_task(client.send(bytes(range(200))))
        await asyncio.sleep(0.05)
        assert not sending.done()
        assert await server.recv_exactly(200) == bytes(range(200))
        await sending


async def test_closing_ends_a_send_for_which_the_peer_has_no_room():
    async with pair(SMALL, SMALL) as (client, _):
        sending = asyncio.create_task(client.send(bytes(range(200))))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(1.9 * HASTY.linger):  # it lingers once
            await client.close()
        with pytest.raises(rdma.ClosedError):
            await sending


async def test_messages_are_never_more_than_the_receiver_has_buffers_for():
    """The connection would end with a Terminate: the receiver does not let Sends wait, as siw does not."""
    options = rdma.Options(receiver_waits=False, linger=0.2)
    async with await rdma.listen(options=options) as listener, asyncio.TaskGroup() as group:
        connecting = group.create_task(rsocket.connect(*listener.address[:2], options=options))
        settings = Settings(credits=16)
        server, client = await rsocket.accept(await listener.request(), settings=settings), await connecting
        async with server, client:

            async def send():
                for number in range(100):
                    await client.send(bytes([number & 0xFF]))

            sending = asyncio.create_task(send())
            await asyncio.sleep(0.05)
            assert await server.recv_exactly(100) == bytes(number & 0xFF for number in range(100))
            await sending


async def test_the_end_of_the_peer_ends_the_stream_but_not_what_has_arrived():
    async with pair() as (client, server):
        await client.send(b"last")
        await client.close()
        assert await server.recv() == b"last"
        assert await server.recv() == b""
        assert await server.recv() == b""
        with pytest.raises(ClosedError, match="by the peer"):
            await server.send(b"more")
        with pytest.raises(ClosedError):
            await server.recv_exactly(1)
        with pytest.raises(ClosedError, match="by this end"):
            await client.send(b"more")


async def test_after_a_shutdown_the_peer_can_still_send():
    async with pair() as (client, server):
        await client.shutdown()
        await client.shutdown()
        assert await server.recv() == b""
        await server.send(b"answer")
        assert await client.recv() == b"answer"
        with pytest.raises(ClosedError, match="by this end"):
            await client.send(b"more")


async def test_a_connection_that_ends_without_notice_is_an_error():
    async with pair() as (client, server):
        await client.send(b"last")
        waiting = asyncio.create_task(server.recv_exactly(5))
        await client.connection.abort()
        with pytest.raises(rdma.RdmaError):
            await waiting
        for call in (server.recv(), server.send(b"x"), server.map(bytearray(1), 0)):
            with pytest.raises((rdma.RdmaError, ValueError)):
                await call


async def test_a_responder_in_the_client_server_model_may_send_first():
    """Its first FPDU still waits for that of the initiator, which is a CREDIT."""
    async with pair(config=Config(Role.INITIATOR, model=Model.CLIENT_SERVER)) as (client, server):
        await server.send(b"first")
        assert await client.recv_exactly(5) == b"first"


# Mapped memory


async def test_mapped_memory_is_written_at_its_offset():
    async with pair(Settings(maps=0), Settings(maps=2)) as (client, server):
        low, high = bytearray(100), bytearray(70000)
        await client.map(low, 1000)
        number = await client.map(high, 1 << 40)
        with pytest.raises(ValueError, match="room for 2 maps, and they are in use"):
            await client.map(bytearray(1), 0)
        await client.send(b"!")  # behind the maps
        await server.recv_exactly(1)
        await server.write_at(b"abc", 1097)
        await server.write_at(b"z" * 70000, 1 << 40)
        for offset in (999, 1100, (1 << 40) + 70000):
            with pytest.raises(ValueError, match=f"not mapped offset {offset}"):
                await server.write_at(b"x", offset)
        await server.send(b"!")
        await client.recv_exactly(1)
        assert (bytes(low), bytes(high)) == (bytes(97) + b"abc", b"z" * 70000)
        with pytest.raises(ValueError, match="room for 0 maps"):
            await server.map(bytearray(1), 0)
        client.unmap(number)
        other = bytearray(4)
        assert await client.map(other, 5) == number
        await client.send(b"!")
        await server.recv_exactly(1)
        await server.write_at(b"four", 5)
        await server.send(b"!")
        await client.recv_exactly(1)
        assert other == b"four"


async def test_a_withdrawn_map_cannot_be_written():
    async with pair(None, Settings(maps=1)) as (client, server):
        memory = bytearray(4)
        client.unmap(await client.map(memory, 0))
        await client.send(b"!")
        await server.recv_exactly(1)
        await server.write_at(b"four", 0)
        with pytest.raises(rdma.TerminatedError):
            await client.recv()
        assert memory == bytes(4)


# The format, and peers that do not keep to it


class Raw:
    """An rsocket on the API of RDMA alone, with a table of two entries, in the byte order of its host."""

    def __init__(self, order="<", flags=0):
        self.order = order
        self.domain = rdma.ProtectionDomain()
        self.buffer, self.table = bytearray(64), bytearray(32)
        region, table = (self.domain.register(each, Access.REMOTE_WRITE) for each in (self.buffer, self.table))
        self.private_data = PRIVATE.pack(1, flags, 384, 0, 0, 0, 0, table.to, table.stag, 2, region.to, region.stag, 32)

    async def connect(self, listener):
        config = Config(Role.INITIATOR, private_data=self.private_data)
        self.connection = await rdma.connect(*listener.address[:2], config, domain=self.domain)
        fields = PRIVATE.unpack(self.connection.negotiated.private_data)
        assert fields[:2] == (1, 2)  # version; maps, and a little-endian host
        self.credit = fields[2]
        (self.table_to, self.table_stag, entries), self.half = fields[7:10], fields[10:]
        assert entries == 2

    async def say(self, operation, value):
        await self.connection.send(struct.pack(self.order + "I", operation << 29 | value))

    async def hear(self):
        [word] = struct.unpack(self.order + "I", bytes(await self.connection.receive()))
        return word >> 29, word & 0x1FFFFFFF


@asynccontextmanager
async def against(raw, maps=0):
    async with await rdma.listen(options=HASTY) as listener, asyncio.TaskGroup() as group:
        connecting = group.create_task(raw.connect(listener))
        server = await rsocket.accept(await listener.request(), settings=Settings(buffer=64, credits=32, maps=maps))
        await connecting
        async with server, raw.connection:
            yield server
    for region in tuple(raw.domain):
        region.deregister()


@pytest.mark.parametrize(("order", "flags"), [("<", 0), (">", 1)])
async def test_messages_and_tables_have_librdmacms_format(order, flags):
    raw = Raw(order, flags)
    async with against(raw) as server:
        assert raw.credit == 32
        assert raw.half[2] == 32
        assert await raw.hear() == (4, 32)  # CREDIT: the second half of the buffer
        to, stag, octets = struct.unpack(order + "QII", raw.table[16:])
        assert (to, stag, octets) == (raw.half[0] + 32, raw.half[1], 32)
        await raw.connection.write(b"hello", raw.half[1], raw.half[0])
        await raw.say(0, 5)
        assert await server.recv() == b"hello"
        await server.send(b"answer")
        assert await raw.hear() == (0, 6)
        assert raw.buffer[:6] == b"answer"
        await server.send(bytes(range(20)) + b"abcdef")  # the rest of the half
        assert await raw.hear() == (0, 26)
        more = asyncio.create_task(server.send(b"more"))
        await asyncio.sleep(0.02)
        assert not more.done()
        own = PRIVATE.unpack(raw.private_data)
        entry = struct.pack("<QII", own[10] + 32, own[11], 32)  # in the order of the end that reads it
        await raw.connection.write(entry, raw.table_stag, raw.table_to + 16)
        await raw.say(4, 386)
        assert await raw.hear() == (0, 4)
        assert raw.buffer[32:36] == b"more"
        await more
        await raw.say(7, 1)  # keepalive
        await raw.say(7, 2)  # shutdown
        assert await server.recv() == b""
        await server.send(b"x")
        assert await raw.hear() == (0, 1)
        await server.close()
        assert await raw.hear() == (7, 0)  # disconnect


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ((0, 0), "wrote 0 octets"),
        ((0, 65), "wrote 65 octets where 64 had room"),
        ((1, 0), "unknown message 0x20000000"),
        ((2, 0), "unknown message 0x40000000"),
        ((7, 3), "unknown message 0xe0000003"),
        ((4, 385), "gives credit up to 385, and this end has sent 0"),
        (b"abc", "a message of 3 octets, not 4"),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_reported(message, what):
    raw = Raw()
    async with against(raw) as server:
        await raw.hear()
        if isinstance(message, bytes):
            await raw.connection.send(message)
        else:
            await raw.say(*message)
        for call in (server.recv, server.recv):
            with pytest.raises(RsocketError, match=what):
                await call()
        with pytest.raises(RsocketError, match=what):
            await server.send(b"x")
        await raw.connection.disconnected()


@pytest.mark.parametrize("where", ["room", "map"])
async def test_a_peer_that_offers_memory_that_wraps_is_reported(where):
    raw = Raw()
    async with against(raw, maps=1) as server:
        place = struct.pack("<QII", 2**64 - 1, 1, 32)
        at, entry = (0, place) if where == "room" else (32, bytes(8) + place)
        await raw.connection.write(entry, raw.table_stag, raw.table_to + at)
        await raw.connection.write(b"!", raw.half[1], raw.half[0])
        await raw.say(0, 1)
        await server.recv()
        for _ in range(2):
            with pytest.raises(RsocketError, match=r"32 octets from TO 0xf{16} on wrap"):
                await (server.send(b"x") if where == "room" else server.write_at(b"x", 0))
        with pytest.raises(RsocketError, match="wrap"):
            await server.recv()
        await raw.connection.disconnected()


@pytest.mark.parametrize(
    ("private_data", "what"),
    [
        (b"hello", "version 1, is missing"),
        (PRIVATE.pack(2, 0, 384, 0, 0, 0, 0, 0, 1, 2, 0, 1, 32), "version 1, is missing"),
        (PRIVATE.pack(1, 0, 4, 0, 0, 0, 0, 0, 1, 2, 0, 1, 32), "4 credits"),
        (PRIVATE.pack(1, 0, 384, 0, 0, 0, 0, 0, 1, 0, 0, 1, 32), "a table of 0 entries"),
        (PRIVATE.pack(1, 2, 384, 0, 0, 0, 2, 2**64 - 80, 1, 2, 0, 1, 32), "80 octets from TO 0xf{14}b0 on wrap"),
        (PRIVATE.pack(1, 0, 384, 0, 0, 0, 0, 0, 1, 2, 2**64 - 32, 1, 32), "32 octets from TO 0xf{14}e0 on wrap"),
    ],
    ids=["text", "version", "credits", "table", "place of the table", "place of the buffer"],
)
async def test_a_peer_that_is_no_rsocket_is_rejected(private_data, what):
    config = Config(Role.INITIATOR, private_data=private_data)
    async with await rdma.listen() as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], config))
        with pytest.raises(RsocketError, match=what):
            await rsocket.accept(await listener.request())
        with pytest.raises(rdma.RejectedError):
            await connecting
        connecting = asyncio.create_task(rsocket.connect(*listener.address[:2]))
        other = await (await listener.request()).accept(private_data)
        with pytest.raises(RsocketError, match=what):
            await connecting
        await other.close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"buffer": 7}, "buffer must be even"),
        ({"buffer": 0}, "buffer must be 2 to"),
        ({"credits": 15}, "credits must be 16 to 32767"),
        ({"depth": 1}, "depth must be 2 to"),
        ({"maps": 129}, "maps must be 0 to 128"),
    ],
)
def test_impossible_settings_are_rejected(change, what):
    with pytest.raises(ValueError, match=what):
        Settings(**change)


async def test_numbers_of_messages_wrap():
    async with pair(Settings(), Settings(buffer=256)) as (client, server):
        await client.send(b"!")
        await server.recv()
        await asyncio.sleep(0.02)  # both ends have the first CREDIT
        start = 0xFFF0
        client._sent, client._limit = start, (start + 384) & 0xFFFF
        server._read = server._credited = start
        for number in range(100):
            await client.send(bytes([number & 0xFF]))
            assert await server.recv() == bytes([number & 0xFF])
        assert client._sent == (start + 100) & 0xFFFF


async def test_an_rsocket_is_closed_by_its_block():
    async with pair() as (client, server):
        async with client:
            assert isinstance(client, Rsocket)
        assert client.connection.error is not None
    for end in (client, server):
        assert end.connection.error is not None
        assert not list(end.connection.domain)
