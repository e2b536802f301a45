"""DDP stream sessions over socket pairs, one kind as they are and one made to look like the kernel's SCTP."""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import SCTP, missing, needs
from open_rnic.host_driver.connection import MpaConnectionError
from open_rnic.host_driver.mpa.negotiation import Config, Reason
from open_rnic.host_driver.sctp import transport as sctp_transport
from open_rnic.host_driver.sctp.session import Control, Function, Ppid
from open_rnic.host_driver.sctp.transport import (
    KernelLink,
    MessageLink,
    SctpRejectedError,
    ancillary_data,
    initiate,
    listen,
    open_session,
    payload_protocol,
    request,
)
from open_rnic.rtl.registers import Model, Role

ACTIVE = Config(Role.INITIATOR, private_data=b"hi", timeout=HANG)
PASSIVE = Config(Role.RESPONDER, timeout=HANG)


ACK = b"acknowledged"


class KernelSocket:
    """One end of a socket pair with the calls and notifications of a kernel's SCTP socket."""

    def __init__(self, sock, indication=1):
        self.sock = sock
        self.notifications = [struct.pack("=HHIHHHHi", 0x8001, 0, 20, 0, 0, 1, 1, 1)]  # the association is up
        if indication is not None:
            self.notifications.append(struct.pack("=HHIIi", 0x8007, 0, 16, indication, 1))
        sock.setblocking(False)

    def getsockopt(self, level, option, size):
        assert (level, option, size) == (132, 14, 176)
        return bytes(20) + struct.pack("=I", 1452) + bytes(152)

    def sendmsg(self, buffers, ancillary):
        [(level, kind, octets)] = ancillary
        stream, _, flags, ppid, *_ = struct.unpack("=HHHxxIIIIIi", octets)
        assert (level, kind, stream, flags) == (132, 1, 0, 1)
        assert socket.ntohl(ppid) in (16, 17)
        self.sock.send(octets + b"".join(buffers))

    def recvmsg(self, octets, space):
        if self.notifications:
            return self.notifications.pop(0), [], 0x8000 | socket.MSG_EOR, None
        message = self.sock.recv(octets)
        if message == ACK:
            return struct.pack("=HHIi", 0x8009, 0, 12, 1), [], 0x8000 | socket.MSG_EOR, None  # the sender is dry
        with suppress(OSError):
            self.sock.send(ACK)
        return message[32:], [(132, 1, message[:32])], socket.MSG_EOR, None

    def fileno(self):
        return self.sock.fileno()

    def close(self):
        self.sock.close()


def pair(kind):
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return [MessageLink(each) if kind == "messages" else KernelLink(KernelSocket(each)) for each in ends]


@asynccontextmanager
async def opened(kind="messages", active=ACTIVE, passive=PASSIVE):
    ours, theirs = pair(kind)
    opening = asyncio.create_task(open_session(ours, active))
    accepted = await (await request(theirs, passive)).accept(b"welcome")
    async with await opening as one, accepted as other:
        yield one, other


async def collect(connection):
    segments = []
    while (segment := await connection.receive()) is not None:
        segments.append(segment)
    return segments


async def send_all(connection, segments):
    for each in segments:
        await connection.send(each)
    await connection.terminate()


@pytest.mark.parametrize("kind", ["messages", "kernel"])
@pytest.mark.parametrize("config", [ACTIVE, replace(ACTIVE, enhanced=False, model=Model.CLIENT_SERVER)])
async def test_segments_go_both_ways_and_each_end_terminates(kind, config):
    async with opened(kind, config) as (one, other):
        assert one.negotiated.enhanced == config.enhanced
        assert (one.negotiated.private_data, other.negotiated.private_data) == (b"welcome", b"hi")
        there, back = [bytes([n]) * n for n in range(100)], [bytes([n]) * 300 for n in range(50)]
        got, gone, _, _ = await asyncio.gather(
            collect(one), collect(other), send_all(one, there), send_all(other, back)
        )
        assert (got, gone) == (back, there)
        assert one.error is other.error is None


async def test_a_slow_receiver_slows_the_sender():
    async with opened() as (one, other):
        sending = asyncio.create_task(send_all(one, [bytes(8000)] * 500))
        _, still = await asyncio.wait([sending], timeout=0.3)
        assert still
        assert len(other._segments) == sctp_transport.SEGMENTS_WAITING
        assert await collect(other) == [bytes(8000)] * 500
        await sending


async def test_a_session_closed_right_after_its_accept_terminates_in_order():
    ours, theirs = pair("kernel")
    opening = asyncio.create_task(open_session(ours, ACTIVE))
    accepted = await (await request(theirs, PASSIVE)).accept()
    await accepted.terminate()
    await accepted.close()
    async with await opening as one:
        assert await one.receive() is None


async def test_a_rejection_reaches_the_active_ulp():
    ours, theirs = pair("messages")
    opening = asyncio.create_task(open_session(ours, ACTIVE))
    await (await request(theirs, PASSIVE)).reject(b"go away")
    with pytest.raises(SctpRejectedError) as refused:
        await opening
    assert (refused.value.control.private_data, refused.value.may_retry_unenhanced) == (b"go away", True)


async def test_the_configuration_itself_may_reject():
    ours, theirs = pair("messages")
    opening = asyncio.create_task(open_session(ours, replace(ACTIVE, ird=2)))
    with pytest.raises(SctpRejectedError, match="the initiator's IRD 2 is under the ORD 8"):
        await request(theirs, replace(PASSIVE, min_ord=8))
    with pytest.raises(SctpRejectedError) as refused:
        await opening
    assert refused.value.control.enhanced.ord == 8


async def test_a_request_too_many_is_terminated():
    ours, theirs = pair("messages")
    opening = asyncio.create_task(open_session(ours, ACTIVE))
    await (await request(theirs, PASSIVE)).abort("too many requests wait")
    with pytest.raises(MpaConnectionError, match="without asking its ULP"):
        await opening


async def test_a_local_error_is_reported_to_the_peers_rdmap():
    async with opened() as (one, other):
        await one.abort("no memory")
        assert (await other.receive())[18:22].hex() == "20050000"
        assert await other.receive() is None
        with pytest.raises(MpaConnectionError, match="no memory"):
            await one.send(b"")


async def test_a_local_error_is_reported_to_a_peer_that_still_sends():
    """A close with unread messages would destroy messages that the other end has not read."""
    ours, theirs = pair("messages")
    await ours.send(Ppid.CONTROL, Control(Function.INITIATE).encode(0))
    accepted = await (await request(theirs, PASSIVE)).accept()
    for ssn in range(1, 40):  # more than are received ahead of the ULP
        await ours.send(Ppid.SEGMENT, struct.pack(">H", ssn))
    await asyncio.sleep(0.05)
    aborting = asyncio.create_task(accepted.abort("no memory"))
    await asyncio.sleep(0.05)
    assert [(await ours.receive())[0] for _ in range(3)] == [Ppid.CONTROL, Ppid.SEGMENT, Ppid.CONTROL]
    ours.close()
    await aborting


async def test_silence_times_out():
    for kind in ("messages", "kernel"):
        ours, theirs = pair(kind)
        with pytest.raises(MpaConnectionError, match=r"no Initiate within 0\.1 s") as failed:
            await request(ours, replace(PASSIVE, timeout=0.1))
        assert failed.value.reason is Reason.TIMED_OUT
        theirs.close()


async def test_an_association_that_ends_without_a_terminate_is_an_error():
    ours, theirs = pair("messages")
    opening = asyncio.create_task(open_session(ours, ACTIVE))
    accepted = await (await request(theirs, PASSIVE)).accept()
    async with await opening as one:
        await one.send(b"octets")
        assert await accepted.receive() == b"octets"
        await accepted.close()
        with pytest.raises(MpaConnectionError, match="closed the association in state OPEN"):
            await one.receive()


@pytest.mark.parametrize(
    ("ppid", "octets", "what"),
    [(17, b"\0\0\0\x09", "Function Code 9"), (5, bytes(4), "identifier 5"), (17, b"\0", "length 1")],
)
async def test_a_bad_chunk_is_answered_by_a_terminate_and_refused_with_a_reason(ppid, octets, what):
    ours, theirs = pair("messages")
    await theirs.send(ppid, octets)
    with pytest.raises(MpaConnectionError, match=what):
        await request(ours, PASSIVE)
    assert await theirs.receive() == (Ppid.CONTROL, Control(Function.TERMINATE).encode(0))
    theirs.close()


@pytest.mark.parametrize("indication", [None, 0, 2])
async def test_a_peer_without_ddps_adaptation_indication_is_refused(indication):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        link = KernelLink(KernelSocket(ours, indication))
        with pytest.raises(MpaConnectionError, match="no DDP Adaptation Indication"):
            await open_session(link, replace(ACTIVE, timeout=0.1))
        assert theirs.recv(100) == b""


def test_the_kernels_longest_segment_leaves_room_for_the_ddp_ssn():
    ours, theirs = pair("kernel")
    assert ours.max_segment == 1450
    ours.close()
    theirs.close()


def test_ancillary_data_has_the_ppid_in_network_order():
    octets = ancillary_data(17)
    assert len(octets) == 32
    assert octets[8:12] == b"\0\0\0\x11"
    assert payload_protocol([(1, 1, b"other"), (132, 1, octets)]) == 17
    assert payload_protocol([]) == -1


@pytest.mark.skipif(not missing(SCTP), reason="the system has SCTP")
async def test_a_system_without_sctp_is_reported_in_one_line():
    with pytest.raises(MpaConnectionError, match="this system has no SCTP: Protocol not supported"):
        await listen()
    with pytest.raises(MpaConnectionError, match="this system has no SCTP: Protocol not supported"):
        await initiate("127.0.0.1", 1, ACTIVE)


@needs(SCTP)
async def test_a_session_over_the_kernels_sctp():
    async with await listen() as listener:
        opening = asyncio.create_task(initiate(*listener.address[:2], ACTIVE))
        accepted = await (await listener.request(PASSIVE)).accept(b"welcome")
        async with await opening as one, accepted as other:
            assert one.negotiated.private_data == b"welcome"
            await send_all(one, [b"1", b"2" * one.max_segment])
            assert await collect(other) == [b"1", b"2" * one.max_segment]
            await other.terminate()
            assert await collect(one) == []


async def test_a_configuration_of_the_other_role_is_refused_at_once():
    ours, theirs = pair("messages")
    with pytest.raises(ValueError, match="role INITIATOR is needed here, not RESPONDER"):
        await open_session(ours, PASSIVE)
    with pytest.raises(ValueError, match="role RESPONDER is needed here, not INITIATOR"):
        await request(theirs, ACTIVE)
    ours.close()
    theirs.close()
