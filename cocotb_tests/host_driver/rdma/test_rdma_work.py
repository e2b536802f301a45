"""Work requests, scatter/gather lists, completion queues, and buffers that are posted before there is a connection."""

import asyncio
import re
import socket
import tracemalloc
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import (
    INITIATOR,
    PLAIN,
    REMOTE,
    RESPONDER,
    SIMULATED,
    Peer,
    Wire,
    bare,
    connected,
    send,
    shrink,
)
from open_rnic.cocotb_tests.host_driver.rdma.test_rdma_stream import End, pump
from open_rnic.host_driver import rdma
from open_rnic.host_driver.ddp import Tagged, decode
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.rdma import Access, CompletionQueue, Fault, Opcode, ReceiveRequest, Status, WorkRequest
from open_rnic.host_driver.rdma.memory import Growing, Scattered
from open_rnic.rtl.registers import Rtr

DEVICES = [rdma.software, *SIMULATED]
PATIENT = 60  # seconds that a simulated device may take
STRICT = rdma.Options(receiver_waits=False, linger=PATIENT)
RTR = Tagged(Opcode.RDMA_WRITE, 0, 0, True).encode()


# Scatter/gather lists

splits = st.lists(st.integers(0, 90), max_size=6)


def pieces(sizes, fill=0x55):
    return [bytearray([fill]) * size for size in sizes]


def numbered(octets):
    return bytes(n % 251 for n in range(octets))


def cut(message, sizes):
    """Return the message cut into pieces of these sizes, and the rest."""
    ends = [min(sum(sizes[:n]), len(message)) for n in range(len(sizes) + 1)]
    return [bytearray(message[at:to]) for at, to in zip(ends, [*ends[1:], len(message)], strict=True)]


def test_the_repr_of_a_completion_queue_shows_its_entries():
    cq = CompletionQueue(8)
    cq.reserve(3)
    assert repr(cq) == "<CompletionQueue of 8 entries, 3 occupied, 0 of these completed>"


@given(st.integers(0, 400), splits, splits, st.integers(128, 300))
def test_sends_go_from_pieces_into_pieces(octets, sizes, sizes2, mulpdu):
    one, other = End(mulpdu=mulpdu), End()
    message = numbered(octets)
    buffers = pieces([*sizes2, octets])
    one.post_send(cut(message, sizes))
    other.post_receive(buffers)
    pump(one, other)
    (receive,) = other.done()
    assert receive.octets == octets
    assert b"".join(buffers) == message.ljust(octets + sum(sizes2), b"\x55")
    assert bytes(receive.buffer[:octets]) == message


@given(st.integers(0, 400), splits, splits, st.integers(0, 900), st.integers(128, 300))
def test_writes_and_reads_go_from_pieces_into_pieces(octets, source, remote, wanted, mulpdu):
    one, other = End(mulpdu=mulpdu), End(mulpdu=mulpdu)
    message = numbered(octets)
    theirs = pieces([*remote, octets])
    region = other.domain.register(theirs, REMOTE, to=100, stream=other.stream)
    one.post(WorkRequest.write(cut(message, source), region.stag, 100))
    wanted = min(wanted, len(region))
    sinks = pieces([wanted // 2, 0, wanted - wanted // 2])
    one.post(WorkRequest.read(sinks, region.stag, 100))
    pump(one, other)
    assert len(one.done()) == 2
    assert not other.ended
    assert b"".join(theirs) == message.ljust(sum(remote) + octets, b"\x55")
    assert b"".join(sinks) == b"".join(theirs)[:wanted]
    assert not len(one.domain)  # the registration for the Read is gone
    region.deregister()


def test_slices_of_regions_are_pieces_of_a_list():
    one, other = End(), End()
    source, region = one.memory(20, Access(0), to=1000)
    source[:] = numbered(20)
    target, sink = other.memory(20, Access.LOCAL_WRITE, to=50)
    assert region[4:8] == (region.stag, 1004, 4)
    assert region[30:40].octets == region[8:4].octets == 0
    with pytest.raises(ValueError, match="all octets from its first to its last"):
        region[::2]
    one.post_send([region[4:8], b"--", region])
    other.post_receive([sink[10:12], sink[:8], bytearray(30)])
    pump(one, other)
    assert (target[10:12], target[:8]) == (source[4:6], source[6:8] + b"--" + source[:4])
    region.deregister()
    sink.deregister()


def test_a_read_into_one_piece_of_a_region_names_its_stag_and_no_other():
    one, other = End(), End()
    buffer, sink = one.memory(20, Access.LOCAL_WRITE, to=1000)
    _, remote = other.memory(8, fill=7)
    one.post(WorkRequest.read(sink[4:8], remote.stag, 2))
    request = one.next()
    assert request[18:30] == sink.stag.to_bytes(4, "big") + (1004).to_bytes(8, "big")
    other.receive(request)
    pump(one, other)
    assert buffer == b"\x55" * 4 + b"\7" * 4 + b"\x55" * 12
    sink.deregister()
    remote.deregister()


def test_a_sink_without_an_stag_has_one_only_while_its_read_is_outstanding():
    one, other = End(), End()
    _, remote = other.memory(8, fill=7)
    sink = bytearray(8)
    one.post(WorkRequest.read(sink, remote.stag))
    assert not len(one.domain)
    other.receive(one.next())
    (window,) = one.domain
    assert (window.access, window.octets) == (Access.LOCAL_WRITE, 8)
    one.receive(other.next())
    assert not window.valid
    assert sink == b"\7" * 8
    remote.deregister()


def test_lists_that_can_never_be_used_are_refused():
    end, other = End(), End()
    _, plain = end.memory(10, Access.REMOTE_WRITE)
    _, foreign = other.memory(10)
    _, gone = end.memory(10)
    gone.deregister()
    for local, what in (
        ([plain[:4]], "has no right LOCAL_WRITE"),
        ([bytearray(1), foreign], "is not valid on this stream"),
        (gone, "is not valid on this stream"),
        ([bytearray(1), b"x"], "a read-only buffer"),
        (plain[:4]._replace(octets=11), "has no right"),
        ([memoryview(bytearray(8))[::2]], "a buffer must lie in one piece"),
    ):
        for post in (end.post_receive, lambda local: end.post(WorkRequest.read(local, 1))):
            with pytest.raises(ValueError, match=what):
                post(local)
    with pytest.raises(ValueError, match="11 octets at offset 0 do not lie in a region of 10"):
        end.post_send(plain[:4]._replace(octets=11))
    with pytest.raises(ValueError, match="the ULP cannot post this message: RDMA Read Response"):
        end.post(WorkRequest(Opcode.RDMA_READ_RESPONSE, b""))
    assert (end.posted, end.receives) == (0, 0)
    plain.deregister()
    foreign.deregister()


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (WorkRequest.write(b"abc", 2**32), "an STag is 0 to 0xffffffff, not 0x100000000"),
        (WorkRequest.send(b"abc", invalidate=-1), "an STag is 0 to 0xffffffff, not -0x1"),
        (WorkRequest.write(b"abc", 1, -1), "3 octets from TO -0x1 on do not stay below TO 2^64"),
        (WorkRequest.write(b"abc", 1, 2**64 - 3), "3 octets from TO 0xfffffffffffffffd on do not stay below TO 2^64"),
        (WorkRequest.read(bytearray(3), 1, 2**64), "3 octets from TO 0x10000000000000000 on do not stay below TO 2^64"),
        (WorkRequest(Opcode.SEND, b"abc", stag=5), "only a Send with Invalidate has an STag: 0x5"),
        (WorkRequest(Opcode.SEND_SE, b"abc", stag=5), "only a Send with Invalidate has an STag: 0x5"),
        (WorkRequest(Opcode.SEND_INVALIDATE, b"abc", stag=5, to=7), "a Send has no TO: 0x7"),
        (WorkRequest(Opcode.TERMINATE, b"abc"), "the ULP cannot post this message: Terminate"),
    ],
)
def test_fields_that_a_message_cannot_have_are_refused_before_anything_leaves(bad, what):
    end = End()
    with pytest.raises(ValueError, match=f"^{re.escape(what)}$"):
        end.post(bad)
    assert not end.posted
    assert not end.ready


@given(splits, st.integers(0, 500), st.integers(0, 500), st.binary(max_size=40))
def test_several_buffers_act_as_one(sizes, start, end, payload):
    whole = bytearray(numbered(sum(sizes)))
    scattered = Scattered([memoryview(each) for each in cut(whole, sizes)])
    assert bytes(scattered) == whole
    assert scattered[start:end] == whole[start:end]
    at = min(start, max(len(whole) - len(payload), 0))
    payload = payload[: len(whole)]
    scattered[at : at + len(payload)] = payload
    whole[at : at + len(payload)] = payload
    assert bytes(scattered) == whole


# The fence


@pytest.mark.parametrize("fence", [False, True])
def test_a_fence_waits_for_earlier_reads_and_nothing_else(fence):
    """RFC 5040 §5.5 rule 12."""
    one, other = End(), End()
    _, local = one.memory(10)
    _, remote = other.memory(10)
    for _ in range(3):
        other.buffer()
    one.post_send(b"before", fence=fence)
    for _ in range(2):
        one.post_read(local, 0, 10, remote.stag, 0)
    one.post_send(b"behind", fence=fence)
    one.post_send(b"last")
    opcodes = [decode(one.next()).opcode for _ in range(3)]
    assert opcodes == [Opcode.SEND, Opcode.RDMA_READ_REQUEST, Opcode.RDMA_READ_REQUEST]
    for request in one.sent:
        other.receive(request)
    if fence:
        for _ in range(2):
            assert one.next() is None
            assert not one.ready
            one.receive(other.next())
        assert one.ready  # it is ready although nobody has polled for completions
    assert [decode(one.next()).payload for _ in range(2)] == [b"behind", b"last"]
    for each in (local, remote):
        each.deregister()


async def test_a_fenced_send_shows_the_peer_that_its_memory_has_been_read():
    async with connected() as (ours, theirs):
        memory = bytearray(numbered(1 << 20))
        region = theirs.register(memory, Access.REMOTE_READ)
        sink = bytearray(1 << 20)
        read = ours.post_read(sink, stag=region.stag)
        sent = ours.post_send(b"yours again", fence=True)
        assert bytes(await theirs.receive()) == b"yours again"
        memory[:] = bytes(1 << 20)
        await asyncio.gather(read, sent)
        assert sink == numbered(1 << 20)


# Completion queues


def options(cq, **others):
    return rdma.Options(send_cq=cq, receive_cq=cq, **others)


async def polled(cq, count):
    found = []
    while len(found) < count:
        found += await cq.wait()
    assert len(found) == count
    return found


async def test_requests_complete_in_batches_with_all_of_their_results():
    sending, receiving = CompletionQueue(), CompletionQueue()
    async with connected(one=options(sending), other=options(receiving)) as (ours, theirs):
        region = theirs.register(bytearray(b"abcdefgh"), REMOTE)
        revoked = theirs.register(bytearray(1), REMOTE)
        sink, buffers = bytearray(3), [bytearray(4), bytearray(4)]
        theirs.post_receives(ReceiveRequest(buffers, "first"), ReceiveRequest(bytearray(20), "second"))
        ours.post(
            WorkRequest.write(b"XY", region.stag, 2, wr_id=1),
            WorkRequest.read(sink, region.stag, 1, wr_id=2),
            WorkRequest.send([b"hel", b"lo"], wr_id=3),
            WorkRequest.send(b"bye", solicited=True, invalidate=revoked.stag, wr_id=4),
        )
        done = await polled(sending, 4)
        assert [(each.wr_id, each.opcode, each.octets) for each in done] == [
            (1, Opcode.RDMA_WRITE, 2),
            (2, Opcode.RDMA_READ_REQUEST, 3),
            (3, Opcode.SEND, 5),
            (4, Opcode.SEND_SE_INVALIDATE, 3),
        ]
        assert {(each.status, each.error, each.connection) for each in done} == {(Status.SUCCESS, None, ours)}
        assert sink == b"bXY"
        first, second = await polled(receiving, 2)
        assert (first.wr_id, bytes(first), first.opcode) == ("first", b"hello", Opcode.SEND)
        assert first.connection is second.connection is theirs
        assert buffers == [b"hell", b"o\0\0\0"]
        assert (second.wr_id, bytes(second), second.solicited) == ("second", b"bye", True)
        assert second.invalidated == revoked.stag
        assert (sending.poll(), sending.free, receiving.free) == ([], 1024, 1024)


async def test_a_batch_has_at_most_the_requested_number():
    cq = CompletionQueue()
    async with connected(one=options(cq)) as (ours, theirs):
        receives = [theirs.post_receive(bytearray(9)) for _ in range(5)]
        ours.post(*(WorkRequest.send(b"x", wr_id=n) for n in range(5)))
        await asyncio.gather(*receives)
        while len(cq) < 5:
            await asyncio.sleep(0)
        assert [each.wr_id for each in cq.poll(2)] == [0, 1]
        assert [each.wr_id for each in await cq.wait(2)] == [2, 3]
        assert [each.wr_id for each in await cq.wait()] == [4]
        waiting = [asyncio.create_task(cq.wait()) for _ in range(2)]
        ours.post(WorkRequest.send(b"x", wr_id=5))
        ours.post(WorkRequest.send(b"x", wr_id=6))
        for _ in range(2):
            await theirs.receive()
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [each.wr_id for task in done for each in task.result()][:1] == [5]
        for task in rest:
            task.cancel()


async def test_connections_may_share_a_queue():
    cq = CompletionQueue()
    async with connected(one=options(cq), other=options(cq)) as (ours, theirs):
        theirs.post_receives(ReceiveRequest(bytearray(9), "theirs"))
        ours.post(WorkRequest.send(b"x", wr_id="ours"))
        done = await polled(cq, 2)
        assert {each.connection: each.wr_id for each in done} == {ours: "ours", theirs: "theirs"}


async def test_unfinished_work_of_a_connection_is_flushed():
    cq = CompletionQueue()
    async with connected(one=options(cq)) as (ours, theirs):
        ours.post_receives(*(ReceiveRequest(bytearray(9), n) for n in range(2)))
        ours.post(
            WorkRequest.read(bytearray(4), 1234, wr_id=2),
            WorkRequest.send(b"x", wr_id=3, signaled=False),
        )
        assert await theirs.disconnected()
        done = await polled(cq, 4)
        assert [each.wr_id for each in done] == [2, 3, 0, 1]
        assert [each.status for each in done] == [Status.REMOTE_ACCESS_ERROR, *[Status.FLUSHED] * 3]
        assert {each.error for each in done} == {ours.error}
        assert ours.error.fault is Fault.SOURCE_STAG
        assert cq.free == 1024
        for post in (lambda: ours.post(WorkRequest.send(b"x")), lambda: ours.post_receives(ReceiveRequest(b""))):
            with pytest.raises(rdma.TerminatedError):
                post()


async def test_reads_in_front_of_a_refused_one_succeed_and_its_status_says_that_it_was_refused():
    cq = CompletionQueue()
    async with connected(one=options(cq)) as (ours, theirs):
        given, sinks = numbered(5000), [bytearray(5000) for _ in range(5)]
        region = theirs.register(given, Access.REMOTE_READ)
        wrong = region.stag ^ 1
        ours.post(*(
            WorkRequest.read(sink, wrong if n == 2 else region.stag, region.to, wr_id=n)
            for n, sink in enumerate(sinks)
        ))  # fmt: skip
        assert await theirs.disconnected()
        done = await polled(cq, 5)
        assert [each.wr_id for each in done] == [*range(5)]
        refused = Status.REMOTE_ACCESS_ERROR
        assert [each.status for each in done] == [*[Status.SUCCESS] * 2, refused, *[Status.FLUSHED] * 2]
        assert sinks[:2] == [given, given]


LONG = 1 << 23  # octets that do not leave before the peer has refused the first of them


@pytest.mark.parametrize("kind", ["write", "send"])
async def test_the_status_of_a_message_that_was_refused_while_it_left_says_so(kind):
    cq = CompletionQueue()
    async with connected(one=options(cq)) as (ours, theirs):
        shrink(ours, theirs)
        received = theirs.post_receive(bytearray(9)), theirs.post_receive(bytearray(9))
        region = theirs.register(bytearray(9), Access.REMOTE_WRITE)
        long = {"write": WorkRequest.write(bytes(LONG), region.stag, wr_id=1),
                "send": WorkRequest.send(bytes(LONG), wr_id=1)}[kind]  # fmt: skip
        ours.post(WorkRequest.send(b"in front", wr_id=0), long, WorkRequest.send(b"behind", wr_id=2))
        assert await theirs.disconnected()
        done = await polled(cq, 3)
        assert [each.wr_id for each in done] == [*range(3)]
        access = Status.REMOTE_ACCESS_ERROR, Fault.BOUNDS
        operation = Status.REMOTE_OPERATION_ERROR, Fault.TOO_LONG
        status, fault = {"write": access, "send": operation}[kind]
        assert [each.status for each in done] == [Status.SUCCESS, status, Status.FLUSHED]
        assert {each.error for each in done} == {None, ours.error}
        assert ours.error.fault is fault
        assert bytes(await received[0]) == b"in front"
        with pytest.raises(rdma.TerminatedError):
            await received[1]


async def test_the_status_of_a_read_beyond_the_peers_ird_is_an_operation_error():
    cq = CompletionQueue()
    initiator = replace(INITIATOR, negotiate_ord=False, ord=4)
    responder = replace(RESPONDER, ird=1)
    async with connected(initiator, responder, one=options(cq)) as (ours, theirs):
        region = theirs.register(bytearray(1 << 20), Access.REMOTE_READ)
        ours.post(*(WorkRequest.read(bytearray(1 << 20), region.stag, wr_id=n) for n in range(4)))
        assert await theirs.disconnected()
        statuses = [each.status for each in await polled(cq, 4)]
        assert ours.error.fault is Fault.NO_BUFFER
        at = statuses.index(Status.REMOTE_OPERATION_ERROR)
        assert at > 0
        assert {*statuses[:at]} <= {Status.SUCCESS, Status.FLUSHED}
        assert {*statuses[at + 1 :]} <= {Status.FLUSHED}


async def test_buffers_are_flushed_when_the_peer_closes_its_half():
    cq = CompletionQueue()
    async with connected(one=options(cq)) as (ours, theirs):
        ours.post_receives(ReceiveRequest(bytearray(9), 5))
        await theirs.shutdown()
        (flushed,) = await polled(cq, 1)
        assert (flushed.wr_id, flushed.octets, flushed.status) == (5, 0, Status.FLUSHED)
        assert isinstance(flushed.error, rdma.ClosedError)
        assert ours.error is None


async def test_unsignalled_work_makes_no_completion_entry():
    cq = CompletionQueue(8)
    async with connected(one=options(cq)) as (ours, theirs):
        for round_ in range(20):
            ours.post(*(WorkRequest.send(b"x", signaled=False) for _ in range(7)), WorkRequest.send(b"x", wr_id=round_))
            for _ in range(8):
                await theirs.receive()
            assert [each.wr_id for each in await cq.wait()] == [round_]
        assert cq.free == 8


async def test_a_full_queue_takes_no_request_and_loses_no_completion():
    cq = CompletionQueue(3)
    async with connected(one=options(cq)) as (ours, theirs):
        ours.post_receives(ReceiveRequest(bytearray(9), "receive"))
        for requests in ([WorkRequest.send(b"x")] * 3, [WorkRequest.send(b"x", signaled=False)] * 3):
            with pytest.raises(rdma.QueueFullError, match="queue of 3 entries has room for 2 more"):
                ours.post(*requests)
        with pytest.raises(rdma.QueueFullError):
            ours.post_receives(*[ReceiveRequest(bytearray(9))] * 3)
        with pytest.raises(ValueError, match="an STag is 0 to"):
            ours.post(WorkRequest.send(b"x"), WorkRequest.write(b"x", 2**32))
        assert (cq.free, ours._stream.posted, ours._stream.receives) == (2, 0, 1)
        ours.post(*(WorkRequest.send(b"%d" % n, wr_id=n) for n in range(2)))
        assert [bytes(await theirs.receive()) for _ in range(2)] == [b"0", b"1"]
        await theirs.send(b"x")
        assert {each.wr_id for each in await polled(cq, 3)} == {0, 1, "receive"}


async def test_requests_need_a_queue():
    async with connected() as (ours, _):
        for post, what in (
            (lambda: ours.post(WorkRequest.send(b"x")), r"Options\.send_cq is None"),
            (lambda: ours.post_receives(ReceiveRequest(bytearray(1))), r"Options\.receive_cq is None"),
        ):
            with pytest.raises(ValueError, match=what):
                post()
    with pytest.raises(ValueError, match="at least 1 entry, not 0"):
        CompletionQueue(0)


# Buffers before the connection


@asynccontextmanager
async def asked(request, device, **others):
    """Yield a bare socket that has sent a Request, and the responder's view of the request."""
    async with await rdma.listen(device=device, options=STRICT, **others) as listener:
        with socket.socket() as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, listener.address)
            peer = Peer(sock)
            await peer.loop.sock_sendall(sock, request.encode())
            yield peer, await listener.request()


async def all_taken(connection, ulpdus):
    """Wait until this many ULPDUs are taken, so that each Send has found a buffer or none before the ULP continues."""
    while await taken(connection) < ulpdus and not connection.error:
        await asyncio.sleep(0)


async def taken(connection):
    """The number of ULPDUs that software or an engine has taken."""
    engine = await connection.device.get("RDMA_ULPDUS") if connection.device.memory is not None else 0
    return connection._taken + (engine & 0xFFFF)


@pytest.mark.parametrize("device", DEVICES)
async def test_a_send_right_behind_the_rtr_finds_a_buffer_that_accept_was_given(device):
    """RFC 6581 §9.2 allows it, and RFC 5041 §7.1 lets a Send without a buffer end the stream."""
    config = replace(PLAIN, timeout=PATIENT)
    enhanced = EnhancedData(4, 4, True, frozenset({Rtr.WRITE}))
    request = StartupFrame(FrameKind.REQUEST, crc=False, enhanced=enhanced)
    async with asked(request, device, config=config) as (peer, arrived):
        await peer.send(RTR, send(1, payload=b"one"), send(2, payload=b"two"), send(3, payload=b"three"))
        cq = CompletionQueue()
        receives = [ReceiveRequest(bytearray(8), "mine"), bytearray(8), [bytearray(2), bytearray(8)]]
        wanted = rdma.Options(receiver_waits=False, receive_cq=cq, linger=PATIENT)
        connection = await arrived.accept(receives=receives, options=wanted)
        await all_taken(connection, 3)
        assert bytes(await connection.receive()) == b"two"
        assert bytes(await connection.receive()) == b"three"
        (done,) = cq.poll()
        assert (done.wr_id, bytes(done), done.connection) == ("mine", b"one", connection)
        assert connection.error is None
        peer.sock.close()
        await connection.close()


@pytest.mark.parametrize("device", DEVICES)
async def test_a_send_in_answer_to_the_rtr_finds_a_buffer_that_connect_was_given(device):
    async def respond(listening):
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(listening)
        peer = Peer(sock)
        assert (await loop.sock_recv(sock, 24))[:16] == b"MPA ID Req Frame"
        reply = StartupFrame(FrameKind.REPLY, crc=False, enhanced=EnhancedData(4, 4, True, frozenset({Rtr.WRITE})))
        await loop.sock_sendall(sock, reply.encode())
        assert decode(await peer.ulpdu()).opcode is Opcode.RDMA_WRITE
        await peer.send(send(1, payload=b"at once"))
        return peer

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        responding = asyncio.create_task(respond(listening))
        config = replace(INITIATOR, rtr=(Rtr.WRITE,), crc=False, timeout=PATIENT)
        buffer = bytearray(10)
        address = listening.getsockname()
        connection = await rdma.connect(*address, config, device=device, options=STRICT, receives=[buffer])
        peer = await responding
        await all_taken(connection, 1)
        received = await connection.receive()
        assert (bytes(received), buffer) == (b"at once", b"at once\0\0\0")
        peer.sock.close()
        await connection.close()


async def test_buffers_that_cannot_be_posted_are_refused_before_anything_is_answered():
    cq = CompletionQueue(2)
    request = StartupFrame(FrameKind.REQUEST, crc=False, enhanced=EnhancedData(4, 4))
    async with asked(request, rdma.software, config=PLAIN) as (peer, arrived):
        few = rdma.Options(receive_depth=2, receive_cq=cq)
        for receives, error, what in (
            ([bytearray(1), b"read-only"], ValueError, "a read-only buffer cannot receive"),
            ([ReceiveRequest(bytearray(1)), b"read-only"], ValueError, "a read-only buffer cannot receive"),
            ([bytearray(1)] * 3, rdma.QueueFullError, r"3 more are over the 2 of Options\.receive_depth"),
        ):
            with pytest.raises(error, match=what):
                await arrived.accept(receives=receives, options=few)
        with pytest.raises(rdma.QueueFullError, match="has room for 2 more"):
            await arrived.accept(receives=[ReceiveRequest(bytearray(1))] * 3, options=rdma.Options(receive_cq=cq))
        with pytest.raises(ValueError, match=r"Options\.receive_cq is None"):
            await arrived.accept(receives=[ReceiveRequest(bytearray(1))])
        with pytest.raises(ValueError, match="private data may have 508 octets, not 509"):
            await arrived.accept(bytes(509), receives=[ReceiveRequest(bytearray(1))], options=few)
        assert (cq.free, cq.poll()) == (2, [])
        connection = await arrived.accept(receives=[ReceiveRequest(bytearray(9), 1)], options=few)
        assert (await peer.loop.sock_recv(peer.sock, 24))[:16] == b"MPA ID Rep Frame"
        await peer.send(send())
        assert bytes((await cq.wait())[0]) == b"abcd"
        peer.sock.close()
        await connection.close()


async def test_a_connection_that_is_never_made_frees_its_entries_in_the_queue():
    cq = CompletionQueue(2)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = unused.getsockname()
    with pytest.raises(rdma.MpaConnectionError):
        await rdma.connect(*address, options=options(cq), receives=[ReceiveRequest(bytearray(1)), bytearray(1)])
    assert (cq.free, cq.poll()) == (2, [])


# Receives of unknown length


async def test_a_receive_allocates_memory_only_for_octets_that_arrive():
    async with bare() as (peer, connection):
        room, calls = 1 << 20, 50
        tracemalloc.start()
        waiting = [asyncio.create_task(connection.receive(room)) for _ in range(calls)]
        await asyncio.sleep(0)
        assert connection._stream.receives == calls
        await peer.send(*(send(n + 1, payload=b"%d" % n) for n in range(calls)))
        assert [bytes(await each) for each in waiting] == [b"%d" % n for n in range(calls)]
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert held < room


def test_growing_room_is_bounded():
    other = End()
    other.post_receive(Growing(8))
    other.receive(send(payload=b"12345678"))
    (done,) = other.done()
    assert bytes(done.buffer[:8]) == b"12345678"
    other.post_receive(Growing(8))
    other.receive(send(2, payload=b"123456789"))
    assert other.terminate.fault is Fault.TOO_LONG


# The local address


async def test_a_connection_is_made_from_the_given_address():
    async with await rdma.listen("127.0.0.1") as listener:
        with socket.create_server(("127.0.0.3", 0)) as free:
            port = free.getsockname()[1]
        for local in (("127.0.0.2", 0), ("127.0.0.3", port)):
            connecting = asyncio.create_task(rdma.connect(*listener.address[:2], local_addr=local))
            request = await listener.request()
            assert request.peer[0] == local[0]
            assert local[1] in (0, request.peer[1])
            theirs, ours = await request.accept(), await connecting
            assert ours.local == request.peer
            await asyncio.gather(ours.close(), theirs.close())


@pytest.mark.parametrize(
    ("local", "what"),
    [
        ("192.0.2.1", "cannot connect to 127.0.0.1 port 9 from 192.0.2.1 port 0: Cannot assign requested address"),
        ("::1", "cannot connect to 127.0.0.1 port 9 from ::1 port 0: one address is IPv4, the other IPv6"),
        ("no address", "cannot find 'no address' port 0: "),
    ],
)
async def test_an_unusable_local_address_is_refused(local, what):
    with pytest.raises(rdma.MpaConnectionError) as caught:
        await rdma.connect("127.0.0.1", 9, local_addr=(local, 0))
    assert str(caught.value).startswith(what)


# On the wire


async def test_gathered_messages_leave_in_full_segments():
    wire = Wire()
    async with connected(one=rdma.Options(mulpdu=142), observers=(wire,)) as (ours, theirs):
        await ours.send([b"x" * 100, b"", b"y" * 100, b"z" * 100])
        assert bytes(await theirs.receive()) == b"x" * 100 + b"y" * 100 + b"z" * 100
        assert [len(each.payload) for each in wire.ulpdus] == [0, 124, 124, 52]
