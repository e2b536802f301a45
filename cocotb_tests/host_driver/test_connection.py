"""Connections over loopback, each end with its own device."""

import asyncio
import errno
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import product

import pytest

from open_rnic.cocotb_tests.harness.devices import stalled
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.host_driver.connection import MpaConnectionError, RejectedError, initiate, listen
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.negotiation import Config, Reason
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.observer import Agreed, Frame, Octets, Reported, silent
from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.transport import CHUNK_OCTETS
from open_rnic.rtl.registers import EventKind, Model, Role, Rtr

INITIATOR = Config(Role.INITIATOR, timeout=HANG)
RESPONDER = Config(Role.RESPONDER, timeout=HANG)
KINDS = (Rtr.SEND, Rtr.WRITE, Rtr.READ)


@asynccontextmanager
async def connected(initiator=INITIATOR, responder=RESPONDER, observers=(silent, silent)):
    """Both ends of a connection."""
    async with SoftwareDevice() as one, SoftwareDevice() as other, await listen() as listener:
        accepting = asyncio.create_task(listener.accept(other, responder, observers[1]))
        async with (
            await initiate(*listener.address[:2], one, initiator, observers[0]) as ours,
            await accepting as theirs,
        ):
            yield ours, theirs


async def transfer(sender, receiver, ulpdus):
    """Send ULPDUs and receive them at the other end at the same time; returns the received ones."""

    async def send():
        for ulpdu in ulpdus:
            await sender.send_ulpdu(ulpdu)
        await sender.finish()

    sending = asyncio.create_task(send())
    arrived = []
    while (ulpdu := await receiver.receive_ulpdu()) is not None:
        arrived.append(ulpdu)
    await sending
    return arrived


class Peer:
    """A peer that is a bare socket."""

    def __init__(self, sock):
        self.sock = sock
        self.loop = asyncio.get_running_loop()

    async def send(self, octets):
        await self.loop.sock_sendall(self.sock, octets)

    async def receive(self, count):
        octets = b""
        while len(octets) < count:
            octets += await self.loop.sock_recv(self.sock, count - len(octets)) or pytest.fail("it closed early")
        return octets

    async def rest(self):
        octets = b""
        with suppress(ConnectionError):
            while piece := await self.loop.sock_recv(self.sock, 65536):
                octets += piece
        return octets


@asynccontextmanager
async def bare_initiator(config=RESPONDER):
    """A bare socket that has connected, and the task of the responder."""
    async with SoftwareDevice() as device, await listen() as listener:
        with socket.socket() as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, listener.address)
            yield Peer(sock), asyncio.create_task(listener.accept(device, config))


@asynccontextmanager
async def bare_responder(config=INITIATOR, **options):
    """A bare socket that has accepted a connection, and the task of the initiator."""
    async with SoftwareDevice() as device:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            task = asyncio.create_task(initiate(*server.getsockname(), device, config, **options))
            sock, _ = await asyncio.get_running_loop().sock_accept(server)
            with sock:
                yield Peer(sock), task


REQUEST = StartupFrame(FrameKind.REQUEST, enhanced=EnhancedData(4, 4, True, frozenset(KINDS)), private_data=b"hi")
REPLY = StartupFrame(FrameKind.REPLY, enhanced=EnhancedData(16, 16, True, frozenset({Rtr.WRITE})))
RTR = FpduFramer(markers=False, crc=True).frame(bytes.fromhex("c140000000010000000000000000"))


@pytest.mark.parametrize("model", Model)
@pytest.mark.parametrize("kind", KINDS)
async def test_ulpdus_go_both_ways_in_every_combination(model, kind):
    for crc, markers, markers2 in product((False, True), repeat=3):
        initiator = replace(INITIATOR, model=model, rtr=(kind,), crc=crc, markers=markers)
        responder = replace(RESPONDER, crc=False, markers=markers2)
        async with connected(initiator, responder) as (ours, theirs):
            assert ours.negotiated.crc == theirs.negotiated.crc == crc
            there, back = [b"\1" * n for n in range(1, 600, 83)], [b"\2" * n for n in range(1, 5000, 997)]
            arrived = await asyncio.gather(transfer(ours, theirs, there), transfer(theirs, ours, back))
            assert arrived == [there, back]


@pytest.mark.parametrize("model", Model)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_end_with_nothing_to_send_may_finish_at_once(model, kind):
    for _ in range(5):
        async with connected(replace(INITIATOR, model=model, rtr=(kind,))) as (ours, theirs):
            assert await asyncio.gather(transfer(theirs, ours, []), transfer(ours, theirs, [])) == [[], []]


async def test_an_observer_sees_frames_octets_and_events():
    seen = []

    def log(what):
        match what:
            case Frame(direction, frame):
                seen.append((direction.name, str(frame.kind)))
            case Reported(event):
                seen.append(str(event))
            case Octets(direction, octets):
                seen.append((direction.name, octets))

    async with connected(observers=(log, silent)) as (ours, theirs):
        await ours.ready()
        await theirs.ready()
    sent = [entry for entry in seen if entry[0] == "TX"]
    assert sent[0] == ("TX", "MPA Request")
    assert sent[2] == ("TX", RTR)
    assert ("RX", "MPA Reply") in seen
    assert [entry for entry in seen if isinstance(entry, str)] == ["TX_MPA", "RTR_SENT WRITE", "FENCE_OPEN", "RX_MPA"]


class Wire:
    """A transport without a socket: one end of a TCP connection in memory."""

    emss = 1460

    def __init__(self, name):
        self.local, self.peer, self.other = (name, 1), ("other", 1), None
        self.octets, self.comes = b"", asyncio.Event()

    def put(self, octets):
        self.octets += octets
        self.comes.set()

    async def send(self, octets):
        self.other.put(octets)

    async def receive(self, most=CHUNK_OCTETS):
        await self.comes.wait()
        octets, self.octets = self.octets[:most], self.octets[most:]
        if self.octets:
            self.comes.set()
        elif octets:
            self.comes.clear()
        return octets

    def shut(self):
        self.other.put(b"")

    def close(self, *, reset):
        self.shut()


class TcpInMemory:
    """A TCP endpoint that connects to itself."""

    address = ("memory", 1)

    def __init__(self):
        self.arrivals = asyncio.Queue()

    async def connect(self, host, port, timeout, local_addr):
        one, other = Wire("one"), Wire("other")
        one.other, other.other = other, one
        self.arrivals.put_nowait(other)
        return one

    async def listen(self, host, port):
        return self

    async def accept(self):
        return await self.arrivals.get()

    async def close(self):
        pass


async def test_any_tcp_endpoint_can_carry_connections():
    tcp = TcpInMemory()
    async with (
        SoftwareDevice() as here,
        SoftwareDevice() as there,
        await listen("memory", 1, tcp=tcp) as listener,
    ):
        accepting = asyncio.create_task(listener.accept(there, RESPONDER))
        async with await initiate("memory", 1, here, INITIATOR, tcp=tcp) as ours, await accepting as theirs:
            assert ours.mulpdu == 1454
            assert await asyncio.gather(transfer(ours, theirs, [b"there"]), transfer(theirs, ours, [b"back"])) == [
                [b"there"],
                [b"back"],
            ]


async def test_a_slow_ulp_slows_its_peer():
    async with connected() as (ours, theirs):
        sent = 0

        async def send():
            nonlocal sent
            while True:
                await ours.send_ulpdu(bytes(60000))
                sent += 1

        sending = asyncio.create_task(send())
        before = await stalled(lambda: sent)
        assert before < 300
        for _ in range(before):
            assert await theirs.receive_ulpdu() == bytes(60000)
        await asyncio.sleep(0.1)
        assert sent > before
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


async def test_mulpdu_follows_from_the_emss():
    async with connected() as (ours, _):
        emss = ours._transport._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        assert ours.mulpdu == min(64766, emss - 6 - emss % 4)


async def test_a_device_serves_one_connection_after_the_other():
    async with SoftwareDevice() as one, SoftwareDevice() as other, await listen() as listener:
        for _ in range(3):
            accepting = asyncio.create_task(listener.accept(other, RESPONDER))
            async with await initiate(*listener.address[:2], one, INITIATOR) as ours, await accepting as theirs:
                assert await transfer(theirs, ours, [b"again"]) == [b"again"]


# The responder's ULP decides


async def test_a_request_shows_its_frame_and_is_rejected_with_private_data():
    async with SoftwareDevice() as one, SoftwareDevice() as other, await listen() as listener:
        config = replace(INITIATOR, private_data=b"let me in", ird=3)
        trying = asyncio.create_task(initiate(*listener.address[:2], one, config))
        request = await listener.request(other, RESPONDER)
        assert (request.frame.private_data, request.frame.enhanced.ird) == (b"let me in", 3)
        assert request.model is Model.PEER_TO_PEER
        with pytest.raises(ValueError, match="may have 508 octets"):
            await request.reject(bytes(509))
        await request.reject(b"no")
        with pytest.raises(RejectedError, match=r"R=1") as rejected:
            await trying
        assert rejected.value.frame.private_data == b"no"


async def test_no_fin_follows_a_rejecting_reply_until_the_initiator_has_closed():
    async with SoftwareDevice() as device, await listen() as listener:
        with socket.create_connection(listener.address) as sock:
            sock.setblocking(False)
            peer = Peer(sock)
            await peer.send(REQUEST.encode())
            rejecting = asyncio.create_task((await listener.request(device, RESPONDER)).reject(b"no"))
            assert (await peer.receive(len(REPLY.encode()) + 2))[-2:] == b"no"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(peer.receive(1), 0.1)
        await rejecting


async def test_too_small_an_ird_is_rejected_by_the_configuration():
    async with SoftwareDevice() as one, SoftwareDevice() as other, await listen() as listener:
        trying = asyncio.create_task(initiate(*listener.address[:2], one, replace(INITIATOR, ird=3)))
        with pytest.raises(RejectedError, match="IRD 3 is under the ORD 8") as local:
            await listener.request(other, replace(RESPONDER, min_ord=8, private_data=b"more"))
        with pytest.raises(RejectedError, match="its ORD is 8, this end's IRD 3") as peer:
            await trying
        assert (local.value.theirs.kind, local.value.theirs.enhanced.ird) == (FrameKind.REQUEST, 3)
        assert peer.value.theirs == peer.value.frame == local.value.frame
        assert peer.value.frame.private_data == b"more"


async def test_a_peer_that_leaves_before_the_ulp_decides_is_noticed():
    async with SoftwareDevice() as device, await listen() as listener:
        with socket.create_connection(listener.address) as sock:
            sock.sendall(REQUEST.encode() + b"early")
            request = await listener.request(device, RESPONDER)
        while not request._connection.error:
            await asyncio.sleep(0.01)
        with pytest.raises(MpaConnectionError, match="the peer closed after the MPA Request"):
            await request.accept()
        await request.close()


# Bare peers


@pytest.mark.parametrize("chunk", [1, 7, 1000])
async def test_a_reply_with_fpdus_right_behind_it_loses_none(chunk):
    async with bare_responder(replace(INITIATOR, model=Model.CLIENT_SERVER)) as (peer, task):
        await peer.receive(24)
        framer = FpduFramer(markers=False, crc=True)
        reply = replace(REPLY, enhanced=EnhancedData(1, 1))
        octets = reply.encode() + framer.frame(b"first") + framer.frame(b"second")
        for at in range(0, len(octets), chunk):
            await peer.send(octets[at : at + chunk])
            await asyncio.sleep(0)
        async with await task as ours:
            assert [await ours.receive_ulpdu(), await ours.receive_ulpdu()] == [b"first", b"second"]


async def test_a_peer_that_closes_at_any_octet_of_the_startup_gives_one_error_with_the_offset():
    async def request(count):
        async with bare_initiator() as (peer, task):
            await peer.send(REQUEST.encode()[:count])
            peer.sock.shutdown(socket.SHUT_WR)
            with pytest.raises(MpaConnectionError) as failed:
                await task
            assert await peer.rest() == b""
            return str(failed.value)

    async def reply(count):
        async with bare_responder() as (peer, task):
            await peer.receive(24)
            await peer.send(REPLY.encode()[:count])
            peer.sock.shutdown(socket.SHUT_WR)
            with pytest.raises(MpaConnectionError) as failed:
                await task
            assert await peer.rest() == b""
            return str(failed.value)

    for count in range(26):
        where = f"inside the MPA Request, at stream offset {count}" if count else "before the MPA Request"
        assert await request(count) == f"the peer closed {where}"
    for count in range(24):
        where = f"inside the MPA Reply, at stream offset {count}" if count else "before the MPA Reply"
        assert await reply(count) == f"the peer closed {where}"


@pytest.mark.parametrize(
    ("octets", "what"),
    [
        (REQUEST.encode()[:18] + b"\x02\x01", "PD_Length 513 at stream offset 18"),
        (REQUEST.encode()[:17] + b"\x03" + REQUEST.encode()[18:], "Rev 3 at stream offset 17"),
        (REQUEST.encode()[:17] + b"\x00" + REQUEST.encode()[18:], "Rev 0 at stream offset 17"),
        (b"GET / HTTP/1.1\r\n\r\n", 'it must be "MPA ID Req Frame"'),
        (REPLY.encode(), "a Reply came where a Request is due"),
    ],
)
async def test_a_malformed_request_closes_the_connection_at_once(octets, what):
    async with bare_initiator() as (peer, task):
        await peer.send(octets)
        with pytest.raises(MpaConnectionError) as failed:
            await task
        assert what in str(failed.value)
        assert failed.value.reason is Reason.BAD_FRAME
        assert await peer.rest() == b""


async def test_a_configuration_of_the_other_role_is_refused_at_once():
    async with SoftwareDevice() as device, await listen() as listener:
        with pytest.raises(ValueError, match="role INITIATOR is needed here, not RESPONDER"):
            await initiate(*listener.address, device, RESPONDER)
        for wait in (listener.request, listener.accept):
            with pytest.raises(ValueError, match="role RESPONDER is needed here, not INITIATOR"):
                await wait(device, INITIATOR)


async def test_an_initiator_waits_for_the_reply_no_longer_than_its_timeout():
    """RFC 5044 §7.1.2 rule 10."""
    async with bare_responder(replace(INITIATOR, timeout=2)) as (peer, task):
        await peer.receive(24)
        await peer.send(b"MPA ID")
        with pytest.raises(MpaConnectionError, match=r"no whole MPA Reply within 2 s, 6 octets of it came"):
            await task


async def test_silence_times_out():
    async with bare_initiator(replace(RESPONDER, timeout=2)) as (peer, task):
        await peer.send(b"MPA")
        with pytest.raises(MpaConnectionError, match=r"no whole MPA Request within 2 s, 3 octets of it came"):
            await task


async def test_a_reset_in_the_startup_is_reported():
    async with bare_responder() as (peer, task):
        await peer.receive(24)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.sock.close()
        with pytest.raises(MpaConnectionError, match="reset by peer"):
            await task


async def test_a_reset_before_the_accept_is_reported():
    async with SoftwareDevice() as device, await listen() as listener:
        with socket.create_connection(listener.address) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with pytest.raises(MpaConnectionError, match="reset by peer"):
            await listener.accept(device, RESPONDER)


async def test_an_unusable_rtr_is_answered_with_terminate_7_and_nothing_else():
    async with bare_responder(replace(INITIATOR, rtr=(Rtr.SEND,))) as (peer, task):
        await peer.receive(24)
        await peer.send(REPLY.encode())
        ulpdu = bytes.fromhex("41470000000000000002000000010000000020070000")
        terminate = FpduFramer(markers=False, crc=True).frame(ulpdu)
        assert await peer.rest() == terminate
        peer.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(MpaConnectionError, match="takes Write as RTR, this end can send Send") as failed:
            await task
        assert failed.value.reason.code == 7


PLAIN_REPLY = StartupFrame(FrameKind.REPLY, rev=1)


@pytest.mark.parametrize(
    "answer",
    [b"", None, PLAIN_REPLY.encode(), replace(PLAIN_REPLY, rejected=True).encode()],
    ids=["FIN", "RST", "Rev 1", "Rev 1 with R"],
)
async def test_fallback_tries_once_more_without_enhancement(answer):
    async with SoftwareDevice() as device:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            loop = asyncio.get_running_loop()
            task = asyncio.create_task(initiate(*server.getsockname(), device, INITIATOR, fallback=True))
            sock, _ = await loop.sock_accept(server)
            with sock:
                await Peer(sock).receive(24)
                if answer is None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                else:
                    await Peer(sock).send(answer)
            sock, _ = await loop.sock_accept(server)
            with sock:
                peer = Peer(sock)
                assert (await peer.receive(20))[16:18] == b"\x40\x01"
                await peer.send(PLAIN_REPLY.encode())
                async with await task as ours:
                    assert not ours.negotiated.enhanced


async def test_there_is_no_fallback_unless_it_is_allowed():
    async with bare_responder() as (peer, task):
        await peer.receive(24)
        await peer.send(PLAIN_REPLY.encode())
        with pytest.raises(MpaConnectionError, match="S=0 to a Request with S=1") as failed:
            await task
        assert failed.value.may_retry_unenhanced


TERMINATE_5 = FpduFramer(markers=False, crc=True).frame(bytes.fromhex("41470000000000000002000000010000000020050000"))


@pytest.mark.parametrize("model", Model)
async def test_a_local_error_of_a_responder_is_reported_behind_the_first_fpdu(model):
    async with bare_initiator() as (peer, task):
        await peer.send(replace(REQUEST, enhanced=EnhancedData(1, 1, model is Model.PEER_TO_PEER)).encode())
        await peer.receive(24)
        aborting = asyncio.create_task((await task).abort("no memory"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await peer.receive(1)
        await peer.send(RTR)
        assert await peer.rest() == TERMINATE_5
        peer.sock.shutdown(socket.SHUT_WR)
        await aborting


async def test_a_local_error_that_no_terminate_can_report_is_a_reset(monkeypatch):
    monkeypatch.setattr("open_rnic.host_driver.connection.LINGER", 0.1)
    async with bare_initiator() as (peer, task):
        theirs = await established_bare_initiator(peer, task)
        await theirs.abort("no memory")  # no RTR has come, so nothing may leave
        with pytest.raises(ConnectionResetError):
            await peer.receive(1)


async def test_an_error_behind_the_end_of_this_end_s_half_is_a_reset_at_once(monkeypatch):
    monkeypatch.setattr("open_rnic.host_driver.connection.LINGER", HANG)  # it does not wait that long
    async with bare_initiator() as (peer, task):
        theirs = await established_bare_initiator(peer, task)
        await peer.send(RTR)
        await theirs.finish()
        assert await peer.rest() == b""
        await theirs.abort("no memory")
        assert peer.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EPIPE  # Linux, for a reset


async def test_a_local_error_before_mpa_is_on_is_reported_without_an_rtr():
    def no_memory(seen):
        if isinstance(seen, Agreed):
            raise MemoryError("no memory")

    async with bare_responder(INITIATOR, observer=no_memory) as (peer, task):
        await peer.receive(24)
        await peer.send(REPLY.encode())
        assert await peer.rest() == TERMINATE_5
        peer.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(MpaConnectionError, match="observer failed: no memory") as failed:
            await task
        assert failed.value.reason is Reason.LOCAL


async def test_a_local_error_of_an_initiator_is_reported_and_ends_all_waiting():
    async with bare_responder(replace(INITIATOR, model=Model.CLIENT_SERVER)) as (peer, task):
        await peer.receive(24)
        await peer.send(replace(REPLY, enhanced=EnhancedData(1, 1)).encode())
        ours = await task
        waiting = asyncio.create_task(ours.receive_ulpdu())
        aborting = asyncio.create_task(ours.abort("no memory"))
        assert await peer.rest() == TERMINATE_5
        peer.sock.shutdown(socket.SHUT_WR)
        await aborting
        with pytest.raises(MpaConnectionError, match="no memory") as failed:
            await waiting
        assert failed.value.reason is Reason.LOCAL


async def established_bare_initiator(peer, task):
    await peer.send(REQUEST.encode())
    await peer.receive(24)
    return await task


@pytest.mark.parametrize("cut", [1, 3, 19])
async def test_a_peer_that_closes_inside_an_fpdu_gives_the_good_ones_and_then_one_error(cut):
    async with bare_initiator() as (peer, task), await established_bare_initiator(peer, task) as theirs:
        framer = FpduFramer(markers=False, crc=True)
        framer.frame(b"")
        await peer.send(RTR + framer.frame(b"good") + framer.frame(bytes(100))[:cut])
        peer.sock.shutdown(socket.SHUT_WR)
        assert await theirs.receive_ulpdu() == b"good"
        for _ in range(2):
            with pytest.raises(MpaConnectionError) as failed:
                await theirs.receive_ulpdu()
            expected = f"the peer closed inside an FPDU, {cut} octets after stream offset 32"
            assert str(failed.value) == expected


async def test_tasks_that_wait_fail_if_the_peer_closes_before_the_rtr():
    async with bare_initiator() as (peer, task), await established_bare_initiator(peer, task) as theirs:
        sending = asyncio.create_task(theirs.ready())
        peer.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(MpaConnectionError, match="the peer closed before its RTR"):
            await sending


async def test_a_flipped_bit_ends_the_connection_with_error_2_after_the_good_ulpdus():
    async with bare_initiator() as (peer, task), await established_bare_initiator(peer, task) as theirs:
        framer = FpduFramer(markers=False, crc=True)
        bad = bytearray(framer.frame(b"good") + framer.frame(b"bad"))
        bad[-6] ^= 4
        await peer.send(RTR + bytes(bad))
        assert await theirs.receive_ulpdu() == b"good"
        with pytest.raises(MpaConnectionError, match=r"error 2: the CRC .* at stream offset 32") as failed:
            await theirs.receive_ulpdu()
        assert failed.value.reason.code == 2
        with pytest.raises(MpaConnectionError, match="error 2"):
            await theirs.send_ulpdu(b"more")
        await theirs.terminate(2)
        assert (await peer.rest())[-8:-4] == b"\x20\x02\0\0"


async def test_a_cancelled_send_does_not_delay_the_end():
    async with connected() as (ours, theirs):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                while True:
                    await ours.send_ulpdu(bytes(60000))
        receiving = asyncio.create_task(transfer(theirs, ours, []))
        finishing = asyncio.create_task(ours.finish())
        while await theirs.receive_ulpdu() is not None:
            pass
        await finishing
        assert await receiving == []


async def test_a_reset_ends_a_waiting_sender():
    async with bare_initiator() as (peer, task), await established_bare_initiator(peer, task) as theirs:
        await peer.send(RTR)
        await theirs.ready()

        async def flood():
            while True:
                await theirs.send_ulpdu(bytes(60000))

        flooding = asyncio.create_task(flood())
        await asyncio.sleep(0.1)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.sock.close()
        with pytest.raises(MpaConnectionError, match=r"reset by peer \(\d+ octets received"):
            await flooding
        with pytest.raises(MpaConnectionError, match="reset by peer"):
            await theirs.receive_ulpdu()


async def test_an_observer_that_fails_ends_the_connection():
    def full(seen):
        if isinstance(seen, Octets) and len(seen.octets) > 1000:
            raise OSError(28, "No space left on device")

    async with connected(observers=(full, silent)) as (ours, _):
        await ours.send_ulpdu(bytes(1000))
        with pytest.raises(MpaConnectionError, match="the connection's observer failed: No space left on device"):
            await ours.receive_ulpdu()


async def test_a_device_that_goes_away_ends_the_connection():
    async with connected() as (ours, theirs):
        await theirs.ready()
        receiving = asyncio.create_task(ours.receive_ulpdu())
        await asyncio.sleep(0)
        await ours.device.close()
        with pytest.raises(MpaConnectionError, match="the device failed"):
            await receiving
        with pytest.raises(MpaConnectionError, match="the device failed"):
            await ours.send_ulpdu(b"")


async def test_a_device_that_passes_too_many_octets_is_refused():
    class Loose(SoftwareDevice):
        async def read_ulpdu(self):
            ulpdu = await super().read_ulpdu()
            return ulpdu._replace(octets=ulpdu.octets + b"?")

    async with Loose() as device, await listen() as listener:
        with socket.create_connection(listener.address) as sock:
            sock.sendall(REQUEST.encode())
            with pytest.raises(MpaConnectionError, match=r"device failed: it passed 21 octets .* up to 20 stream"):
                await listener.accept(device, RESPONDER)


async def test_closing_wakes_tasks_that_wait():
    async with connected() as (ours, _):
        receiving = asyncio.create_task(ours.receive_ulpdu())
        await asyncio.sleep(0)
        await ours.close()
        await ours.close()
        with pytest.raises(MpaConnectionError, match="closed at this end"):
            await receiving


async def test_failures_to_connect_or_listen_name_the_address():
    async with SoftwareDevice() as device, await listen() as listener:
        port = listener.address[1]
        with pytest.raises(MpaConnectionError, match=rf"listen at 127\.0\.0\.1 port {port}: Address already"):
            await listen(port=port)
        await listener.close()
        with pytest.raises(MpaConnectionError, match=rf"connect to 127\.0\.0\.1 port {port}: Connection refused$"):
            await initiate("127.0.0.1", port, device, INITIATOR)
        with pytest.raises(MpaConnectionError, match=r"cannot find 'no\.such\.host\.invalid' port 1: \S"):
            await initiate("no.such.host.invalid", 1, device, INITIATOR)
        with pytest.raises(MpaConnectionError, match="a port is 0 to 65535, not 99999"):
            await initiate("127.0.0.1", 99999, device, INITIATOR)


async def test_events_reach_the_ulp():
    async with connected() as (_, theirs):
        kinds = [(await theirs.next_event()).kind for _ in range(4)]
        assert set(kinds) == {EventKind.RX_MPA, EventKind.TX_MPA, EventKind.RTR_RECEIVED, EventKind.FENCE_OPEN}


async def test_a_listener_at_all_addresses_takes_both_families_and_shows_each_address_as_its_own():
    async with await listen("::") as listener:
        for host in ("127.0.0.1", "::1"):
            _, writer = await asyncio.open_connection(host, listener.address[1])
            arrival = await listener.arrival()
            assert arrival.peer == writer.get_extra_info("sockname")
            assert arrival._transport.local == writer.get_extra_info("peername")
            arrival.close()
            writer.close()
        with pytest.raises(MpaConnectionError, match=r"connect to 127\.0\.0\.1 port 1: Connection refused$"):
            await KERNEL.connect("::ffff:127.0.0.1", 1, HANG, None)


async def test_ipv6_works_too():
    async with SoftwareDevice() as one, SoftwareDevice() as other, await listen("::1") as listener:
        accepting = asyncio.create_task(listener.accept(other, RESPONDER))
        async with await initiate(*listener.address[:2], one, INITIATOR) as ours, await accepting as theirs:
            assert await transfer(ours, theirs, [b"six"]) == [b"six"]
