"""The protocol of perftest: our ends with each other, and with ends that break it. ``make interop`` has perftest."""

import asyncio
import struct

import pytest

from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import Access, CompletionQueue, perftest
from open_rnic.host_driver.rdma.perftest import Bandwidth, Latency, PerftestError, Program, Settings
from open_rnic.rtl.registers import Model, Role

PLACE = struct.Struct(">iiiiIIQ16sii")


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(perftest, "PAUSE", 0)
    monkeypatch.setattr(perftest, "RETRY", 0)


async def both(settings, theirs=None, config=None):
    """Return the results of the client and of the server."""
    async with await rdma.listen() as listener, asyncio.TaskGroup() as group:
        serving = group.create_task(perftest.server(listener, theirs or settings))
        results = await perftest.client(
            lambda options: rdma.connect(*listener.address[:2], config, options=options), settings
        )
    return results, serving.result()


# Sizes: one octet; places in a page; half a page and beyond; several ULPDUs
@pytest.mark.parametrize("size", shortened("other places in a page", 3, [1, 2049, 70000, 200, 2048]))
@pytest.mark.parametrize("name", Program)
async def test_both_ends_complete_a_test(name, size):
    settings = Settings(name, size, 30, depth=7, buffers=10)
    ours, theirs = await both(settings)
    assert ours[:2] == (size, 30)
    if name in (Program.WRITE_BW, Program.READ_BW):
        assert ours == theirs
        assert ours.rate == pytest.approx(ours.messages * 1e6 * size / perftest.MEBIBYTE)
    elif name is Program.READ_LAT:
        assert theirs is None
    else:
        assert theirs[:2] == (size, 30)
    if name.latency:
        assert 0 < ours.least <= ours.typical <= ours.most


async def test_latency_counts_more_than_256_messages():
    ours, theirs = await both(Settings(Program.WRITE_LAT, 5, 300))
    assert isinstance(ours, Latency)
    assert isinstance(theirs, Latency)


async def test_a_sender_never_has_more_messages_on_the_way_than_the_receiver_has_buffers():
    """The server here is slow to report how many Sends have arrived."""
    settings = Settings(Program.SEND_BW, 4, 20, depth=20, buffers=6)

    async def server(listener):
        async with await (await listener.request()).accept() as control:

            async def answer(octets=None):
                got = bytes(await control.receive())
                await control.send(got if octets is None else octets)
                return got

            for _ in range(5):
                await answer()
            cq = rdma.CompletionQueue()
            options = rdma.Options(receiver_waits=False, receive_cq=cq)
            buffers = [rdma.ReceiveRequest(bytearray(4)) for _ in range(6)]
            async with await (await listener.request()).accept(receives=buffers, options=options) as data:
                for _ in range(5):
                    *_, stag, _, to, _, _, _ = PLACE.unpack(await answer(bytes(56)))
                arrived = 0
                for due in (5, 5, 5, 5):
                    await asyncio.sleep(0.05)  # more Sends than buffers would end the connection
                    assert len(cq) == due  # one less than there are buffers
                    arrived += len(cq.poll())
                    data.post_receives(*buffers[:due])
                    await data.write(struct.pack("<I", arrived), stag, to)
                await answer()
                await data.disconnected()

    async with await rdma.listen() as listener, asyncio.TaskGroup() as group:
        group.create_task(server(listener))
        results = await perftest.client(lambda options: rdma.connect(*listener.address[:2], options=options), settings)
    assert isinstance(results, Bandwidth)


async def test_the_exchange_has_perftests_format():
    """A client, octet by octet as perftest sends them."""
    settings = Settings(Program.WRITE_BW, 100, 2)
    report = struct.pack(">QQddd", 100, 2, 3.5, 2.5, 0.25)

    async def client(port):
        async with await rdma.connect("127.0.0.1", port) as control:

            async def exchange(octets):
                await control.send(octets)
                return bytes(await control.receive())

            assert await exchange(b"6.06".ljust(16, b"\0")) == b"6.06".ljust(16, b"\0")
            assert await exchange(struct.pack(">I", 65536)) == struct.pack(">I", 4096)
            assert await exchange(struct.pack(">I", 128)) == struct.pack(">I", 64)
            assert len(await exchange(b"5\0")) == 2
            assert len(await exchange(bytes(56))) == 56
            async with await rdma.connect("127.0.0.1", port) as data:
                await exchange(bytes(56))
                for _ in range(3):
                    theirs = await exchange(PLACE.pack(0, 1, 2, 3, 4, 0, 5, b"", 0, -1))
                *_, stag, _, to, _, _, _ = PLACE.unpack(theirs)
                await data.write(bytes(100), stag, to + 65536 - 100)  # the larger page
                await data.write(bytes(100), stag, to + 128)
                await exchange(bytes(56))
                for at in range(0, 40, 8):
                    await exchange(report[at : at + 8])
                await exchange(bytes(56))

    async with await rdma.listen() as listener, asyncio.TaskGroup() as group:
        serving = group.create_task(perftest.server(listener, settings))
        await client(listener.address[1])
    assert serving.result() == Bandwidth(100, 2, 2.5, 0.25)


@pytest.mark.parametrize(("program", "to"), [(Program.SEND_BW, 2**64 - 4), (Program.WRITE_LAT, 2**64 - 100)])
async def test_a_client_that_offers_memory_that_wraps_is_reported(program, to):
    async def client(port):
        async with await rdma.connect("127.0.0.1", port) as control:

            async def exchange(octets):
                await control.send(octets)
                await control.receive()

            for octets in (b"6.06".ljust(16, b"\0"), bytes(4), bytes(4), b"5\0", bytes(56)):
                await exchange(octets)
            async with await rdma.connect("127.0.0.1", port):
                for _ in range(5):
                    await exchange(PLACE.pack(0, 1, 2, 3, 4, 0, to, b"", 0, -1))
                await control.disconnected()

    async with await rdma.listen() as listener, asyncio.TaskGroup() as group:
        group.create_task(client(listener.address[1]))
        with pytest.raises(PerftestError, match=r"the peer offers wrong memory: .* on wrap"):
            await perftest.server(listener, Settings(program, 100, 2))


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([b"5.69"], "16 are due"),
        ([b"5.69".ljust(16, b"\0")], "version '5.69', not 5.70 or later"),
        ([b"nan".ljust(16, b"\0")], "version 'nan', not 5.70 or later"),
        ([b"six".ljust(16, b"\0")], "version 'six', not 5.70 or later"),
        ([b"6.06".ljust(16, b"\0"), bytes(4), b"\0\1\0\0"], "pages of 4096 octets and cache lines of 65536"),
        ([b"6.06".ljust(16, b"\0"), b"\1\0\0\1", bytes(4)], "pages of 16777217 octets"),
    ],
)
async def test_a_client_that_breaks_the_protocol_is_reported(messages, what):
    async def client(port):
        async with await rdma.connect("127.0.0.1", port) as control:
            for message in messages:
                await control.send(message)
            await control.disconnected()

    async with await rdma.listen() as listener:
        task = asyncio.create_task(client(listener.address[1]))
        with pytest.raises(PerftestError, match=what):
            await perftest.server(listener, Settings(Program.WRITE_BW, 100, 2))
        await task


async def test_a_send_of_another_size_is_reported():
    with pytest.raises(ExceptionGroup) as caught:
        await both(Settings(Program.SEND_BW, 8, 3), Settings(Program.SEND_BW, 12, 3))
    assert caught.group_contains(PerftestError, match="a Send of 8 octets where 12 are due")


async def test_sends_beyond_the_number_are_reported_though_they_complete_with_others(monkeypatch):
    wait = CompletionQueue.wait

    async def late(queue, most=None):
        await asyncio.sleep(0.05)
        return await wait(queue, most)

    monkeypatch.setattr(CompletionQueue, "wait", late)
    with pytest.raises(ExceptionGroup) as caught:
        await both(Settings(Program.SEND_BW, 8, 610), Settings(Program.SEND_BW, 8, 600))
    assert caught.group_contains(PerftestError, match="more than 600 Sends came")


@pytest.mark.parametrize(("ours", "theirs"), [(40, 4), (4, 40), (1000, 100), (100, 1000)])
async def test_another_number_of_sends_is_reported(monkeypatch, ours, theirs):
    monkeypatch.setattr(perftest, "PATIENCE", 0.2)
    async with await rdma.listen() as listener:
        errors = await asyncio.gather(
            perftest.server(listener, Settings(Program.SEND_BW, 8, theirs)),
            perftest.client(
                lambda options: rdma.connect(*listener.address[:2], options=options),
                Settings(Program.SEND_BW, 8, ours),
            ),
            return_exceptions=True,
        )
    # a client that has sent too much may have ended before the server counts it, and has results
    failed = errors if ours < theirs else errors[:1]
    assert all(isinstance(each, (PerftestError, rdma.RdmaError)) for each in failed)
    assert any("do both ends have the same test, -s and -n" in str(each) for each in errors)


async def test_a_peer_that_leaves_in_the_middle_is_reported():
    """The server expects more messages than the client sends."""
    with pytest.raises(ExceptionGroup) as caught:
        await both(Settings(Program.WRITE_LAT, 8, 3), Settings(Program.WRITE_LAT, 8, 4))
    assert caught.group_contains(rdma.RdmaError)


async def test_latency_of_writes_needs_a_responder_that_may_send_first():
    config = Config(Role.INITIATOR, model=Model.CLIENT_SERVER)
    with pytest.raises(ExceptionGroup) as caught:
        await both(Settings(Program.WRITE_LAT, 8, 3), config=config)
    assert caught.group_contains(PerftestError, match="only in the peer-to-peer model")


def test_memory_of_the_server_has_no_more_rights_than_the_test_needs():
    assert [each.access for each in (Program.READ_BW, Program.READ_LAT)] == [Access.REMOTE_READ] * 2
    assert [each.access for each in (Program.WRITE_BW, Program.SEND_BW, Program.WRITE_LAT)] == [Access.REMOTE_WRITE] * 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"size": 0}, "1 to 1073741824 octets, not 0"),
        ({"iterations": 0}, "at least 1 message is sent, not 0"),
        ({"depth": 0}, "depth must be 1 to 8192, not 0"),
        ({"buffers": 8193}, "buffers must be 1 to 8192, not 8193"),
    ],
)
def test_impossible_settings_are_rejected(change, what):
    with pytest.raises(ValueError, match=what):
        Settings(**{"program": Program.SEND_BW, "size": 1, "iterations": 1} | change)
