"""RDMA connections over loopback, each end with its own device."""

import asyncio
import errno
import os
import re
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from open_rnic.cocotb_tests.harness.devices import closing, leaving_nothing, stalled
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.host_driver import rdma
from open_rnic.host_driver.ddp import ReadRequest, Tagged, Untagged, decode
from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.host_driver.mpa.negotiation import Config, Reason
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.observer import Agreed, Direction, Octets, Reported, silent
from open_rnic.host_driver.rdma import Access, By, Fault, Opcode, manager
from open_rnic.host_driver.rdma.offload import OffloadStream
from open_rnic.rtl.registers import EventKind, Model, Role, Rtr

INITIATOR = Config(Role.INITIATOR, timeout=HANG)
RESPONDER = Config(Role.RESPONDER, timeout=HANG)
KINDS = (Rtr.SEND, Rtr.WRITE, Rtr.READ)
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE
HASTY = rdma.Options(linger=0.2)


@asynccontextmanager
async def connected(
    initiator=INITIATOR, responder=RESPONDER, *, one=None, other=None, device=rdma.software, observers=()
):
    """Both ends of a connection; ``one`` and ``other`` are their options."""
    watching = dict(zip(("one", "other"), observers, strict=False))
    async with await rdma.listen(
        config=responder, options=other, device=device, observer=lambda: watching.get("other", silent)
    ) as listener:
        async with asyncio.TaskGroup() as group:
            theirs = group.create_task(_accept(listener))
            ours = group.create_task(
                rdma.connect(
                    *listener.address[:2],
                    initiator,
                    options=one,
                    device=device,
                    observer=watching.get("one", silent),
                )
            )
        ends = ours.result(), theirs.result()
        async with closing(*ends):
            yield ends


async def _accept(listener):
    return await (await listener.request()).accept()


class Wire:
    """The ULPDUs that one end has sent, without markers."""

    def __init__(self):
        self.events = []
        self.delineator = None

    def __call__(self, seen):
        match seen:
            case Agreed(negotiated):
                assert not negotiated.markers_tx
                self.delineator = FpduDelineator(markers=False, crc=negotiated.crc)
            case Octets(Direction.TX, octets) if self.delineator:
                self.delineator.feed(octets)
            case Reported(event):
                self.events.append(event.kind)

    @property
    def ulpdus(self):
        return [decode(each) for each in iter(self.delineator.next, None)]


class Peer:
    """The initiator's end of a connection as a bare socket, in the client-server model, without CRCs."""

    def __init__(self, sock):
        self.sock = sock
        self.loop = asyncio.get_running_loop()
        self.framer = FpduFramer(markers=False, crc=False)
        self.delineator = FpduDelineator(markers=False, crc=False)
        self.eof = False

    async def send(self, *ulpdus):
        await self.loop.sock_sendall(self.sock, b"".join(self.framer.frame(each) for each in ulpdus))

    async def ulpdu(self):
        """Return the next ULPDU; None if the connection is closed."""
        while (ulpdu := self.delineator.next()) is None and not self.eof:
            with suppress(ConnectionError):
                octets = await self.loop.sock_recv(self.sock, 65536)
                self.delineator.feed(octets)
                self.eof = not octets
        return ulpdu


PLAIN = replace(RESPONDER, crc=False)


@asynccontextmanager
async def bare(options=None, config=PLAIN, device=rdma.software):
    """A bare socket that has connected, and the responder's connection."""
    async with await rdma.listen(config=config, options=options, device=device) as listener:
        with socket.socket() as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, listener.address)
            peer = Peer(sock)
            depths = EnhancedData(ird=4, ord=4) if config.enhanced else None
            request = StartupFrame(FrameKind.REQUEST, rev=1 + config.enhanced, crc=False, enhanced=depths)
            await peer.loop.sock_sendall(sock, request.encode())
            connection = await _accept(listener)
            reply = await peer.loop.sock_recv(sock, 24)
            assert reply[:16] == b"MPA ID Rep Frame"
            yield peer, connection
            await connection.close()


SIMULATED = [partial(open_device, "simulated", lanes=4, offload=offload) for offload in (False, True)]


def opener(data_path):
    """What opens a device; ``data_path`` has set where a software device does DDP."""
    return SIMULATED[True] if data_path == "rtl" else rdma.software


# Connections in use


COMBINATIONS = [  # of CRCs and both ends' markers; the first four have each pair of values
    *(flags for flags in product((False, True), repeat=3) if not sum(flags) % 2),
    *(flags for flags in product((False, True), repeat=3) if sum(flags) % 2),
]


@pytest.mark.parametrize(("crc", "markers", "markers2"), shortened("pairs of flags suffice", 4, COMBINATIONS))
@pytest.mark.parametrize(("model", "kind"), [
    *((Model.PEER_TO_PEER, kind) for kind in KINDS),
    (Model.CLIENT_SERVER, KINDS[0]),
    *(pytest.param(Model.CLIENT_SERVER, kind, marks=long("there is no RTR in this model")) for kind in KINDS[1:]),
])  # fmt: skip
async def test_everything_works_in_every_combination(model, kind, crc, markers, markers2):
    initiator = replace(INITIATOR, model=model, rtr=(kind,), crc=crc, markers=markers, ord=1, ird=1)
    responder = replace(RESPONDER, crc=False, markers=markers2, ord=1, ird=1)
    async with connected(initiator, responder) as (ours, theirs):
        assert ours.rtr is theirs.rtr is (kind if model is Model.PEER_TO_PEER else Rtr.NONE)
        if model is Model.CLIENT_SERVER:  # the responder may send only after it has received
            await ours.send(b"first")
            assert bytes(await theirs.receive()) == b"first"
        await asyncio.gather(exercise(ours, theirs), exercise(theirs, ours))
        assert ours.error is theirs.error is None


DATA = bytes(n % 251 for n in range(70000))


async def exercise(active, passive):
    """Send, RDMA Write, RDMA Read, and a Send with Invalidate, from one end to the other."""
    buffer = bytearray(70000)
    region = passive.register(buffer, REMOTE, to=4096)
    await active.write(DATA[:50000], region.stag, 4096)
    await active.write(DATA[50000:], region.stag, 54096)
    assert await active.read(70000, region.stag, 4096) == DATA
    reads = [active.read(100, region.stag, 4096 + n) for n in range(10)]
    assert [bytes(each) for each in await asyncio.gather(*reads)] == [DATA[n : n + 100] for n in range(10)]
    await active.send(DATA, solicited=True, invalidate=region.stag)
    received = await passive.receive(100000)
    assert (bytes(received), received.solicited, received.invalidated) == (DATA, True, region.stag)
    assert not region.valid
    assert buffer == DATA


@pytest.mark.parametrize("offload", [False, True], ids=["MPA", "RDMA"])
@pytest.mark.parametrize("lanes", [4])
async def test_everything_works_on_the_rtl(lanes, offload):
    """The devices share one interface, so nothing else changes."""
    device = partial(open_device, "simulated", lanes=lanes, offload=offload)
    initiator = replace(INITIATOR, rtr=(Rtr.READ,), ord=1, timeout=HANG, markers=True)
    async with connected(initiator, replace(RESPONDER, timeout=HANG), device=device) as (ours, theirs):
        assert ours.device.name == theirs.device.name == "simulated"
        assert isinstance(ours._stream, OffloadStream) == offload
        await asyncio.gather(exercise(ours, theirs), exercise(theirs, ours))


async def test_requests_show_the_peers_demands_and_replies_the_agreement():
    async with await rdma.listen(config=replace(RESPONDER, ird=3, ord=2), options=HASTY) as listener:
        config = replace(INITIATOR, ird=5, ord=1, private_data=b"hello")
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], config, options=HASTY))
        request = await listener.request()
        assert (request.private_data, request.model) == (b"hello", Model.PEER_TO_PEER)
        assert (request.ird, request.ord) == (5, 1)
        async with await request.accept(b"welcome") as theirs, await connecting as ours:
            assert request.peer == ours.local
            assert ours.negotiated.private_data == b"welcome"
            assert ours.negotiated.peer_ord == theirs.negotiated.ord == 2
            assert theirs.negotiated.peer_ird == 5


@pytest.mark.parametrize("listening", [None, KeepAlive(50, 9, 5)])
async def test_the_configuration_of_an_accept_replaces_the_listeners(listening):
    async with await rdma.listen(config=replace(RESPONDER, keep_alive=listening)) as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2]))
        request = await listener.request()
        config = replace(RESPONDER, keep_alive=KeepAlive(60, 10, 6))
        async with await request.accept(config=config) as theirs, await connecting:
            option = theirs._lower._transport._socket.getsockopt
            assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            names = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT
            assert [option(socket.IPPROTO_TCP, name) for name in names] == [60, 10, 6]
            assert theirs._lower.config.keep_alive == config.keep_alive
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], replace(INITIATOR, ird=3)))
        request = await listener.request()
        with pytest.raises(rdma.RejectedError, match="IRD 3 is under the ORD 8"):
            await request.accept(config=replace(RESPONDER, min_ord=8))
        with pytest.raises(rdma.RejectedError, match="its ORD is 8, this end's IRD 3"):
            await connecting


async def test_a_request_may_be_rejected_with_private_data():
    async with await rdma.listen() as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2]))
        await (await listener.request()).reject(b"not today")
        with pytest.raises(rdma.RejectedError) as caught:
            await connecting
        assert caught.value.frame.private_data == b"not today"


async def test_too_much_private_data_is_refused_and_the_request_can_still_be_answered():
    async with await rdma.listen() as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], options=HASTY))
        request = await listener.request()
        with pytest.raises(ValueError, match="private data may have 508 octets, not 509"):
            await request.accept(bytes(509))
        with pytest.raises(ValueError, match="private data may have 508 octets, not 509"):
            await request.reject(bytes(509))
        async with await request.accept(bytes(508)), await connecting as ours:
            assert ours.negotiated.private_data == bytes(508)


@pytest.mark.parametrize("again", ["accept", "reject", "close"])
async def test_a_request_is_answered_once_and_its_connection_is_left_untouched(again):
    async with await rdma.listen() as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2]))
        request = await listener.request()
        async with await request.accept() as theirs, await connecting as ours:
            if again == "close":
                await request.close()
            else:
                what = f"{again.upper()} is not possible in state ESTABLISHED"
                with pytest.raises(rdma.ProtocolError, match=what):
                    await getattr(request, again)()
            await theirs.send(b"still there")
            assert bytes(await ours.receive()) == b"still there"
        with pytest.raises(rdma.ProtocolError):
            await request.accept()


@pytest.mark.parametrize("step", ["open_stream", "_within"])
@pytest.mark.parametrize("error", [None, DeviceError("it does not answer")])
async def test_an_accept_that_is_cancelled_or_meets_a_failure_of_the_device_leaves_nothing_open(
    monkeypatch, step, error
):
    devices, waits = [], asyncio.Event()

    async def device():
        devices.append(await rdma.software())
        monkeypatch.setattr(devices[-1], "close", partial(closing, devices[-1].close))
        return devices[-1]

    async def closing(close):
        devices.pop()
        await close()
        if error:
            raise error

    async def fails(*_):
        waits.set()
        if error:
            raise error
        await asyncio.Event().wait()

    async with await rdma.listen(device=device) as listener:
        tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2]))
        request = await listener.request()
        monkeypatch.setattr(manager, step, fails)
        accepting = asyncio.create_task(request.accept(config=RESPONDER))
        await waits.wait()
        if not error:
            accepting.cancel()
        with pytest.raises(type(error) if error else asyncio.CancelledError):
            await accepting
        assert not devices
        with pytest.raises(rdma.MpaConnectionError):
            await connecting
        assert (len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))) == (tasks, descriptors)


@pytest.mark.parametrize("end", ["device", "lower"])
async def test_a_send_fails_if_the_lower_connection_ends(end):
    async with connected() as (ours, _):
        await {"device": ours.device, "lower": ours._lower}[end].close()
        with pytest.raises(rdma.LostError):
            await ours.send(b"nowhere to go")


async def test_a_configuration_of_the_other_role_is_refused_at_once():
    for attempt, needed, given in (
        (rdma.connect("127.0.0.1", 1, RESPONDER), "INITIATOR", "RESPONDER"),
        (rdma.listen(config=INITIATOR), "RESPONDER", "INITIATOR"),
    ):
        with pytest.raises(ValueError, match=f"a Config with role {needed} is needed here, not {given}"):
            await attempt


async def test_a_slow_peer_delays_no_other_and_its_failure_is_reported():
    failures = []
    async with await rdma.listen(config=RESPONDER, failed=lambda *what: failures.append(what)) as listener:
        with socket.create_connection(listener.address) as slow:
            address = slow.getsockname()
            async with asyncio.TaskGroup() as group:
                accepting = group.create_task(_accept(listener))
                connecting = group.create_task(rdma.connect(*listener.address[:2], options=HASTY))
            assert not failures
        async with accepting.result(), connecting.result():
            while not failures:
                await asyncio.sleep(0.02)
        ((peer, error),) = failures
        assert peer == address
        assert str(error) == "the peer closed before the MPA Request"


async def test_a_silent_peer_is_closed_and_reported():
    failures = []
    config = replace(RESPONDER, timeout=0.1)
    async with await rdma.listen(config=config, failed=lambda *what: failures.append(what)) as listener:
        with socket.create_connection(listener.address) as silent:
            while not failures:
                await asyncio.sleep(0.02)
            assert silent.recv(1) == b""
            ((peer, error),) = failures
            assert peer == silent.getsockname()
            assert str(error) == "no whole MPA Request within 0.1 s, 0 octets of it came"


async def test_requests_that_nobody_takes_are_closed_with_the_listener():
    async with await rdma.listen() as listener:
        connecting = [asyncio.create_task(rdma.connect(*listener.address[:2])) for _ in range(3)]
        await asyncio.sleep(0.1)
        await listener.close()
        for result in await asyncio.gather(*connecting, return_exceptions=True):
            assert isinstance(result, rdma.MpaConnectionError)
        with pytest.raises(rdma.MpaConnectionError, match="the listener has been closed"):
            await listener.request()


async def test_an_initiator_that_sends_no_rtr_is_not_accepted():
    async with await rdma.listen(config=replace(RESPONDER, timeout=0.2)) as listener:
        with socket.create_connection(listener.address) as sock:
            enhanced = EnhancedData(4, 4, True, frozenset(KINDS))
            sock.sendall(StartupFrame(FrameKind.REQUEST, enhanced=enhanced).encode())
            with pytest.raises(rdma.RdmaError, match=r"no RTR within 0\.2 s"):
                await _accept(listener)


@pytest.mark.parametrize(
    ("model", "code", "reply"),
    [
        (Model.PEER_TO_PEER, 6, EnhancedData(16, 200, True, frozenset({Rtr.WRITE}))),
        (Model.PEER_TO_PEER, 7, EnhancedData(16, 16, True)),
        (Model.CLIENT_SERVER, 6, EnhancedData(16, 200)),
    ],
)
@pytest.mark.parametrize("markers", [False, True])
async def test_a_responder_learns_why_an_initiator_cannot_comply_with_the_reply(
    monkeypatch, model, code, reply, markers
):
    from open_rnic.host_driver.mpa import negotiation

    answer = negotiation.answer
    monkeypatch.setattr(negotiation, "answer", lambda config, request: (reply, answer(config, request)[1]))
    async with await rdma.listen(config=replace(RESPONDER, markers=markers)) as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], replace(INITIATOR, model=model)))
        request = await listener.request()
        with pytest.raises(rdma.TerminatedError) as terminated:
            async with await request.accept() as connection:
                await connection.receive()
        error = terminated.value
        assert (error.layer, error.type, error.code, error.by) == (2, 0, code, By.PEER)
        with pytest.raises(rdma.MpaConnectionError) as caught:
            await connecting
        assert caught.value.terminate_code == code


async def test_a_wrong_rtr_ends_the_connection_with_a_terminate():
    async with await rdma.listen() as listener:
        with socket.create_connection(listener.address) as sock:
            enhanced = EnhancedData(4, 4, True, frozenset({Rtr.WRITE}))
            sock.sendall(StartupFrame(FrameKind.REQUEST, enhanced=enhanced).encode())
            sock.sendall(FpduFramer(markers=False, crc=True).frame(Untagged(Opcode.SEND, 0, 1, 0, True).encode()))
            with pytest.raises(rdma.TerminatedError) as caught:
                await _accept(listener)
            assert (caught.value.layer, caught.value.type, caught.value.code) == (2, 0, 5)
            assert caught.value.by is By.LOCAL


async def test_work_completes_in_order_and_buffers_fill_in_order():
    async with connected() as (ours, theirs):
        received = [theirs.post_receive(bytearray(10)) for _ in range(20)]
        order = []
        sent = [ours.post_send(b"%d" % n) for n in range(20)]
        for number, future in enumerate(sent):
            future.add_done_callback(lambda _, number=number: order.append(number))
        await asyncio.gather(*sent)
        assert [bytes(await each) for each in received] == [b"%d" % n for n in range(20)]
        assert order == list(range(20))


async def test_a_receiver_without_buffers_slows_the_sender():
    """RFC 5041 §7.1 allows the Send to wait in TCP; no queue grows meanwhile."""
    async with connected(one=rdma.Options(send_depth=4)) as (ours, theirs):
        sent = 0

        async def send():
            nonlocal sent
            while sent < 600:
                await ours.send(sent.to_bytes(4, "big") * 16384)
                sent += 1

        sending = asyncio.create_task(send())
        assert await stalled(lambda: sent) < 500
        for number in range(600):
            assert (await theirs.receive()).data == number.to_bytes(4, "big") * 16384
        await sending


async def test_a_send_without_a_buffer_may_be_an_error_instead():
    async with connected(other=rdma.Options(receiver_waits=False)) as (ours, theirs):
        theirs.post_receive(bytearray(9))
        await ours.send(b"fits")
        await ours.send(b"too many")
        assert (await ended(ours)).terminate.fault is Fault.NO_BUFFER
        assert (await ended(theirs)).by is By.LOCAL


async def test_queues_are_bounded():
    options = rdma.Options(send_depth=3, receive_depth=2)
    async with connected(one=options) as (ours, theirs):
        for _ in range(2):
            ours.post_receive(bytearray(1))
        with pytest.raises(rdma.QueueFullError, match="2 buffers are posted already"):
            ours.post_receive(bytearray(1))
        posted = [ours.post_send(b"x") for _ in range(3)]
        with pytest.raises(rdma.QueueFullError, match="3 operations are posted already"):
            ours.post_send(b"x")
        await asyncio.gather(*(ours.send(b"x") for _ in range(20)))  # these wait for room
        assert all(each.done() for each in posted)
        for _ in range(23):
            await theirs.receive()


async def test_cancelled_waiting_for_room_takes_no_room():
    async with connected(one=rdma.Options(send_depth=1)) as (ours, theirs):
        sink = ours.register(bytearray(1), Access.LOCAL_WRITE)
        source = theirs.register(bytearray(1), Access.REMOTE_READ)
        await ours.send(b"0")
        read = ours.post_read(sink, 1, source.stag)  # is not answered before somebody receives the Send
        waiting = [asyncio.create_task(ours.send(b"%d" % n)) for n in (1, 2)]
        await asyncio.sleep(0)
        read.add_done_callback(lambda _: waiting[0].cancel())  # at the moment at which it gets the room
        assert [bytes(await theirs.receive()) for _ in range(2)] == [b"0", b"2"]
        assert waiting[0].cancelled()
        await waiting[1]


async def test_a_listener_survives_refusals_of_the_system(monkeypatch):
    failures = []
    async with await rdma.listen(failed=lambda *failure: failures.append(failure)) as listener:
        arrival = type(listener._lower).arrival

        async def refuse(lower):
            monkeypatch.setattr(type(lower), "arrival", arrival)
            raise rdma.MpaConnectionError("Too many open files", Reason.LOCAL)

        monkeypatch.setattr(type(listener._lower), "arrival", refuse)
        for _ in range(2):  # the listener waits in the real one already
            accepting = asyncio.create_task(_accept(listener))
            ours, theirs = await rdma.connect(*listener.address[:2]), await accepting
            await asyncio.gather(ours.close(), theirs.close())
        ((address, error),) = failures
        assert address == listener.address
        assert str(error) == "Too many open files"


async def a_send_has_begun(connection):
    while not connection._stream.progress.rx_mo:
        await connection._sync(end=True)  # an engine announces no segment but the last
        await asyncio.sleep(0)


@pytest.mark.parametrize("depth", [1, 2, 128])
@pytest.mark.parametrize("stage", ["before", "within", "arrived"])
async def test_a_cancelled_receive_loses_no_send_and_keeps_their_order(stage, depth):
    """Each Send has two segments."""
    async with bare(rdma.Options(receive_depth=depth)) as (peer, connection):
        for msn in range(1, 6):
            first = Untagged(Opcode.SEND, 0, msn, 0, False, b"%d first, " % msn).encode()
            waiting = asyncio.create_task(connection.receive(64))
            if stage != "before":
                await peer.send(first)
                await a_send_has_begun(connection)
                if stage == "arrived":
                    await peer.send(send(msn, 9, b"last"))
                    while connection._arrived.empty():
                        await asyncio.sleep(0)
            else:
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert waiting.cancelled()
            again = asyncio.create_task(connection.receive(64))
            await asyncio.sleep(0)
            if stage == "before":
                await peer.send(first)
            if stage != "arrived":
                await peer.send(send(msn, 9, b"last"))
            assert bytes(await again) == b"%d first, last" % msn
        assert not connection._stream.receives


async def test_receiving_with_a_time_limit_again_and_again_loses_nothing():
    async with connected() as (ours, theirs):
        sending = asyncio.gather(*(ours.send(b"%d" % n * (1 << 20)) for n in range(8)))
        for number in range(8):
            received = None
            while received is None:
                with suppress(TimeoutError):
                    received = await asyncio.wait_for(theirs.receive(1 << 20), 0.001)
            assert (len(received), received.data[:1]) == (1 << 20, b"%d" % number)
        await sending


@pytest.mark.parametrize("waits", [True, False])
async def test_the_limit_of_a_cancelled_receive_does_not_hold_for_the_next_send(waits):
    options = rdma.Options(receiver_waits=waits)
    async with connected(one=options, other=options) as (ours, theirs):
        for number in range(80):  # more than an engine has buffers
            waiting = asyncio.create_task(theirs.receive(10))
            await asyncio.sleep(0)
            longer = theirs.post_receive(bytearray(100))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await ours.send(bytes([number]) * 100)
            assert bytes(await longer) == bytes([number]) * 100
        assert not theirs._stream.receives


async def test_the_next_receive_returns_the_send_that_a_cancelled_one_had_begun():
    async with bare() as (peer, connection):
        waiting = [asyncio.create_task(connection.receive(64)) for _ in range(3)]
        await peer.send(Untagged(Opcode.SEND, 0, 1, 0, False, b"one").encode())
        await a_send_has_begun(connection)
        waiting[0].cancel()
        await peer.send(send(1, 3, b"!"), send(2, 0, b"two"))
        assert [bytes(await each) for each in waiting[1:]] == [b"one!", b"two"]
        assert not connection._stream.receives
        peer.sock.shutdown(socket.SHUT_WR)
        for result in await asyncio.gather(connection.receive(), connection.receive(), return_exceptions=True):
            assert isinstance(result, rdma.ClosedError)


async def test_more_reads_than_the_ord_wait_for_their_turn():
    one, other = Wire(), Wire()
    initiator = replace(INITIATOR, rtr=(Rtr.READ,), ord=1, ird=0)
    async with connected(initiator, replace(RESPONDER, ird=1, ord=0), observers=(one, other)) as (ours, theirs):
        region = theirs.register(bytearray(b"abcdefgh"), Access.REMOTE_READ)
        reads = await asyncio.gather(*(ours.read(1, region.stag, n) for n in range(8)))
        assert b"".join(reads) == b"abcdefgh"
        requests = [each for each in one.ulpdus if each.opcode is Opcode.RDMA_READ_REQUEST]
        assert [each.msn for each in requests] == list(range(1, 10))  # the first is the RTR
        assert EventKind.RESPONSE_RECEIVED in one.events
        with pytest.raises(ValueError, match="the connection's ORD is 0"):
            await theirs.read(1, 1)


async def test_a_cancelled_read_does_no_harm():
    async with connected() as (ours, theirs):
        region = theirs.register(bytearray(b"abc"), Access.REMOTE_READ)
        for _ in range(3):
            reading = asyncio.create_task(ours.read(3, region.stag))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        assert await ours.read(3, region.stag) == b"abc"
        assert len(ours.domain) == 0


async def test_memory_of_the_domain_serves_every_connection_in_it():
    domain = rdma.ProtectionDomain()
    buffer = bytearray(2)
    with domain.register(buffer, Access.REMOTE_WRITE) as region:
        async with await rdma.listen(domain=domain) as listener:
            for number in range(2):
                accepting = asyncio.create_task(_accept(listener))
                ours, theirs = await rdma.connect(*listener.address[:2]), await accepting
                await ours.write(b"%d" % number, region.stag, number)
                await ours.send(b"done")
                await theirs.receive()
                await asyncio.gather(ours.close(), theirs.close())
        assert buffer == b"01"


async def test_a_region_that_is_not_valid_any_more_cannot_be_awaited():
    async with connected() as (ours, theirs):
        revoked, left, shared = (ours.register(bytearray(5), Access.REMOTE_WRITE) for _ in range(3))
        assert await revoked is revoked
        await theirs.send(b"", invalidate=revoked.stag)
        await ours.receive()
        shared.deregister()
        await ours.close()
        for region in (revoked, left, shared):
            with pytest.raises(ValueError, match=f"STag {region.stag:#x} is not valid"):
                await region


# The end of connections


async def ended(connection):
    """Return the error of the connection, which later work and posted buffers must raise, too."""
    async with asyncio.timeout(HANG):
        error = await connection.disconnected()
    assert error is connection.error
    for post in (lambda: connection.post_send(b""), lambda: connection.post_receive(bytearray(1))):
        with pytest.raises(type(error)):
            post()
    await connection.close()
    return error


def write(stag, to, payload=b"abcd"):
    return Tagged(Opcode.RDMA_WRITE, stag, to, True, payload).encode()


def send(msn=1, mo=0, payload=b"abcd", qn=0, opcode=Opcode.SEND, stag=0):
    return Untagged(opcode, qn, msn, mo, True, payload, stag).encode()


def read(stag, to, size, msn=1):
    return Untagged(Opcode.RDMA_READ_REQUEST, 1, msn, 0, True, ReadRequest(9, 8, size, stag, to).encode()).encode()


async def test_more_reads_than_the_ird_end_the_connection(data_path):
    config = replace(PLAIN, ird=2, max_ird=2)
    async with bare(config=config, device=opener(data_path)) as (peer, connection):
        region = connection.register(bytearray(1 << 20), Access.REMOTE_READ)
        await peer.send(*(read(region.stag, 0, 1 << 20, msn) for msn in (1, 2, 3)))
        while (segment := decode(await peer.ulpdu())).opcode is not Opcode.TERMINATE:
            pass
        assert rdma.Terminate.decode(segment.payload).fault is Fault.NO_BUFFER
        assert (await ended(connection)).what.endswith("where 2 (the IRD) are outstanding")


async def test_a_peers_terminate_is_reported_with_all_of_its_fields():
    async with connected() as (ours, theirs):
        region = theirs.register(bytearray(4), Access.REMOTE_READ)
        waiting = theirs.post_receive(bytearray(4))
        await ours.write(b"abcd", region.stag)
        error = await ended(ours)
        assert (error.layer, error.type, error.code, error.by) == (*Fault.STAG.value, By.PEER)
        assert error.terminate.segment_length == 18
        assert decode(error.terminate.ddp_header).stag == region.stag
        assert str(error) == "the peer ended the connection, DDP: invalid STag (1/1/0)"
        theirs_error = await ended(theirs)
        assert str(theirs_error).startswith("this end ended the connection, DDP: invalid STag (1/1/0): STag 0x")
        with pytest.raises(rdma.TerminatedError):
            await waiting


async def test_outstanding_work_fails_with_the_error_that_ends_the_connection():
    async with connected(one=rdma.Options(send_depth=300)) as (ours, theirs):
        reads = [asyncio.create_task(ours.read(10, 12345)) for _ in range(20)]
        await asyncio.sleep(0)
        sends = [ours.post_send(bytes(1 << 16)) for _ in range(200)]
        for result in await asyncio.gather(*reads, *sends, return_exceptions=True):
            if not isinstance(result, rdma.Completion):
                assert result.terminate.fault is Fault.SOURCE_STAG
        assert (await ended(theirs)).terminate.rdma_header


@pytest.mark.parametrize("fault", [Fault.RDMAP_CATASTROPHIC, Fault.OPERATION])
async def test_an_end_may_terminate_by_itself(fault):
    async with connected() as (ours, theirs):
        await ours.terminate(fault, "enough")
        assert str(ours.error).endswith("enough")
        assert (await ended(theirs)).terminate == rdma.Terminate(*fault.value)


async def test_a_crc_error_is_reported_to_the_peer():
    """RFC 5044 §8: MPA finds the error, and its ULP reports it."""
    async with bare(config=RESPONDER) as (peer, connection):
        peer.framer = FpduFramer(markers=False, crc=True)
        await peer.send(send())
        fpdu = bytearray(peer.framer.frame(send(msn=2)))
        fpdu[10] ^= 1
        await peer.loop.sock_sendall(peer.sock, bytes(fpdu))
        segment = decode(await peer.ulpdu())
        assert rdma.Terminate.decode(segment.payload) == rdma.Terminate(2, 0, 2)
        assert await peer.ulpdu() is None
        peer.sock.close()
        error = await ended(connection)
        assert (error.layer, error.type, error.code, error.by) == (2, 0, 2, By.LOCAL)


@pytest.mark.parametrize("enhanced", [False, True])
async def test_a_bad_first_fpdu_is_reported_by_a_terminate_with_enhanced_frames_only(enhanced):
    """RFC 5044 §7.1.2 rule 4, RFC 6581 §9.3: see docs/rfc6581.md."""
    async with bare(config=replace(RESPONDER, enhanced=enhanced)) as (peer, connection):
        fpdu = bytearray(FpduFramer(markers=False, crc=True).frame(send()))
        fpdu[10] ^= 1
        await peer.loop.sock_sendall(peer.sock, bytes(fpdu))
        if enhanced:
            delineator = FpduDelineator(markers=False, crc=True)
            delineator.feed(await peer.loop.sock_recv(peer.sock, 65536))
            assert rdma.Terminate.decode(decode(delineator.next()).payload) == rdma.Terminate(2, 0, 2)
            peer.sock.close()
        else:
            with pytest.raises(ConnectionResetError):
                await peer.loop.sock_recv(peer.sock, 65536)
        error = await ended(connection)
        assert (error.layer, error.type, error.code, error.by) == (2, 0, 2, By.LOCAL)


@pytest.mark.parametrize("first", ["initiator", "responder", "both"])
async def test_an_orderly_close_completes_everything_and_is_no_error(first):
    async with connected(one=HASTY, other=HASTY) as (ours, theirs):
        sent = [ours.post_send(b"x" * 100000) for _ in range(10)]
        received = [theirs.post_receive(bytearray(100000)) for _ in range(10)]
        extra = theirs.post_receive(bytearray(1))
        closing = {"initiator": [ours], "responder": [theirs], "both": [ours, theirs]}[first]
        if first == "responder":
            await asyncio.gather(*sent, *received)
        results = asyncio.gather(*sent, *received, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in closing))
        assert not [each for each in await results if isinstance(each, Exception)]
        with pytest.raises(rdma.ClosedError):
            await extra
        for end in (ours, theirs):
            await end.close()
            assert isinstance(end.error, rdma.ClosedError)
            with pytest.raises(rdma.ClosedError):
                await end.send(b"late")


async def test_a_half_closed_connection_still_carries_sends_the_other_way():
    """RFC 5041 §6.2.1."""
    async with connected() as (ours, theirs):
        await ours.send(b"last words")
        await ours.shutdown()
        with pytest.raises(rdma.ClosedError, match="closed by this end"):
            ours.post_send(b"more")
        assert bytes(await theirs.receive()) == b"last words"
        with pytest.raises(rdma.ClosedError, match="closed by the peer"):
            await theirs.receive()
        assert await theirs.disconnected() is None
        with pytest.raises(rdma.ClosedError, match="closed by the peer"):
            await theirs.read(1, 1)
        await theirs.send(b"goodbye")
        assert bytes(await ours.receive()) == b"goodbye"


async def test_an_error_behind_a_shutdown_causes_a_reset():
    """No Terminate can follow the end of this end's half."""
    async with bare() as (peer, connection):
        await peer.send(write(0, 0, b""))
        await connection.shutdown()
        assert await peer.ulpdu() is None
        await peer.send(write(1234, 0))
        assert (await ended(connection)).fault is Fault.STAG
        assert peer.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EPIPE  # Linux, for a reset


async def test_reads_that_a_closing_peer_does_not_answer_fail():
    async with connected() as (ours, theirs):
        region = theirs.register(bytearray(1), Access.REMOTE_READ)
        await theirs.shutdown()
        assert await ours.disconnected() is None
        with pytest.raises(rdma.ClosedError):
            await ours.read(1, region.stag)


def partial_send(msn=1, mo=0, payload=b"abcd", last=False):
    return Untagged(Opcode.SEND, 0, msn, mo, last, payload).encode()


INSIDE = {
    "a Send": (
        lambda stag: (send(), partial_send(2), partial_send(2, 4)),
        "the Send with MSN 2 from MO 8 on is missing",
    ),
    "a Send of which only an empty segment came": (
        lambda stag: (partial_send(payload=b""),),
        "the Send with MSN 1 from MO 0 on is missing",
    ),
    "an RDMA Write": (
        lambda stag: (Tagged(Opcode.RDMA_WRITE, stag, 2, False, b"abcd").encode(),),
        "from TO 0x6 on is missing",
    ),
    "both": (
        lambda stag: (partial_send(), Tagged(Opcode.RDMA_WRITE, stag, 2, False, b"abcd").encode()),
        r"the Send with MSN 1 from MO 4 on, the RDMA Write to STag 0x[0-9a-f]+ from TO 0x6 on is missing",
    ),
}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("waits", [False, True])
async def test_a_peer_that_closes_inside_a_message_is_an_error(name, waits, data_path):
    """RFC 5040 §2.4, RFC 5041 §2.3: a graceful end lets messages in progress complete."""
    ulpdus, what = INSIDE[name]
    if data_path != "software":  # an engine does not report where an RDMA Write stopped
        what = re.sub("(the RDMA Write .*)?from TO 0x6 on", "the rest of an RDMA Write", what)
    async with bare(rdma.Options(receiver_waits=waits), device=opener(data_path)) as (peer, connection):
        waiting = [connection.post_receive(bytearray(20)) for _ in range(3)]
        region = connection.register(bytearray(20), Access.REMOTE_WRITE)
        await peer.send(*ulpdus(region.stag))
        peer.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(rdma.LostError, match=f"^the peer closed inside a message: .*{what}$"):
            await waiting[-1]
        assert (await ended(connection)).reason is rdma.Reason.CONNECTION_LOST
        assert not region.valid


@pytest.mark.parametrize("answered", [0, 4])
async def test_a_peer_that_closes_before_it_has_answered_a_read_is_an_error(answered, data_path):
    async with bare(device=opener(data_path)) as (peer, connection):
        await peer.send(write(0, 0, b""))
        sink = connection.register(bytearray(10), Access.LOCAL_WRITE)
        reads = [connection.post_read(sink, 10, 1234) for _ in range(2)]
        requests = [decode(await peer.ulpdu()) for _ in reads]
        assert [each.opcode for each in requests] == [Opcode.RDMA_READ_REQUEST] * 2
        named = ReadRequest.decode(requests[0].payload)
        if answered:
            sink = named.sink_stag, named.sink_to
            await peer.send(Tagged(Opcode.RDMA_READ_RESPONSE, *sink, False, bytes(answered)).encode())
        peer.sock.shutdown(socket.SHUT_WR)
        missing = f"{10 - answered} of 10 octets of an RDMA Read Response and of 1 behind it is missing"
        for read in reads:
            with pytest.raises(rdma.LostError, match=missing):
                await read


async def test_a_peer_that_closes_behind_whole_messages_closes_in_order():
    async with bare() as (peer, connection):
        region = connection.register(bytearray(20), Access.REMOTE_WRITE)
        halves = [Tagged(Opcode.RDMA_WRITE, region.stag, 4 * n, n == 1, b"abcd").encode() for n in range(2)]
        await peer.send(*halves, partial_send(), partial_send(mo=4, last=True))
        received = await connection.receive()
        assert (bytes(received), bytes(region.view[:9])) == (b"abcdabcd", b"abcdabcd\0")
        peer.sock.shutdown(socket.SHUT_WR)
        assert await connection.disconnected() is None


class SlowDevice(SoftwareDevice):
    """ULPDUs reach the host long after they have opened the fence."""

    async def read_ulpdus(self):
        ulpdus = await super().read_ulpdus()
        await asyncio.sleep(0.2)
        return ulpdus


async def slow():
    return SlowDevice()


@pytest.mark.parametrize("device", [rdma.software, slow, *SIMULATED])
async def test_a_read_of_no_octets_before_the_first_send_is_answered_before_the_close(device):
    """RFC 5040 §5.2.1; the Read Request is what opens the responder's fence (RFC 5044 §7.1.2)."""
    config = replace(PLAIN, timeout=60)
    async with bare(rdma.Options(linger=60), config, device) as (peer, connection):
        sending = connection.post_send(b"hello")
        closing = asyncio.create_task(connection.shutdown())
        await sending  # it waits behind the fence
        await asyncio.sleep(0.05)
        assert not closing.done()
        await peer.send(read(0, 0, 0))
        came = []
        while (ulpdu := await peer.ulpdu()) is not None:
            came.append(decode(ulpdu).opcode)
        assert sorted(came) == [Opcode.RDMA_READ_RESPONSE, Opcode.SEND]
        await closing
        peer.sock.close()


async def test_a_close_does_not_wait_for_sends_that_nobody_receives():
    async with bare() as (peer, connection):
        await peer.send(send(), send(2), read(0, 0, 0))
        while not connection._blocked:
            await connection._sync()  # an engine does not announce this
            await asyncio.sleep(0)
        await connection.shutdown()
        assert await peer.ulpdu() is None


async def test_a_peer_that_vanishes_is_a_lost_connection():
    async with bare() as (peer, connection):
        await peer.send(send())
        waiting = [connection.post_receive(bytearray(9)) for _ in range(2)]
        await waiting[0]
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes.fromhex("0100000000000000"))
        peer.sock.close()
        with pytest.raises(rdma.LostError, match="reset"):
            await waiting[1]
        assert (await ended(connection)).reason is rdma.Reason.CONNECTION_LOST


async def test_close_does_not_wait_for_a_peer_that_does_nothing():
    async with bare(rdma.Options(linger=0.2)) as (peer, connection):
        await peer.send(send())
        await connection.receive()
        for _ in range(100):
            connection.post_send(bytes(1 << 20))
        await connection.close()
        assert isinstance(connection.error, rdma.LostError)
        assert peer.sock.fileno() >= 0


async def test_a_close_that_cannot_flush_is_no_orderly_end_at_either_end():
    """The last Sends are lost, and the receiver must not take the earlier ones for the complete sequence."""
    async with connected(one=HASTY) as (ours, theirs):
        shrink(ours, theirs)
        posted = [ours.post_send(bytes(1 << 20)) for _ in range(8)]
        await ours.close()
        assert str(ours.error) == "not all that was posted had left within 0.2 s of the close: it was reset"
        assert any(each.exception() is ours.error for each in posted)
        with pytest.raises(rdma.LostError, match="reset"):
            await asyncio.gather(*(theirs.receive(1 << 20) for _ in range(8)))


async def test_a_shutdown_delivers_everything_to_a_receiver_slower_than_linger():
    async with connected(one=HASTY) as (ours, theirs):
        shrink(ours, theirs)
        for _ in range(8):
            ours.post_send(bytes(1 << 20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ours.shutdown(), 0.4)  # a cancelled wait cancels nothing else
        closing = asyncio.create_task(ours.shutdown())
        for _ in range(8):
            await theirs.receive(1 << 20)
        await closing
        await ours.close()
        assert isinstance(ours.error, rdma.ClosedError)
        assert await theirs.disconnected() is None


def shrink(sender, receiver):
    """Buffers so small that Sends wait for the receiver."""
    sender._lower._transport._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
    receiver._lower._transport._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)


async def test_an_exception_in_the_body_ends_the_connection_at_once():
    async def fail(connection):
        async with connection:
            raise ZeroDivisionError

    async with connected() as (ours, theirs):
        waiting = ours.post_receive(bytearray(1))
        with pytest.raises(ZeroDivisionError):
            await fail(ours)
        with pytest.raises(rdma.ClosedError):
            await waiting
        assert isinstance(await ended(theirs), rdma.LostError)


async def test_a_failure_of_the_device_is_reported():
    async with connected() as (ours, theirs):
        waiting = ours.post_receive(bytearray(1))
        await ours.device.close()
        with pytest.raises(rdma.LostError, match="the device failed"):
            await waiting
        assert isinstance(await ended(theirs), rdma.LostError)


def test_a_test_that_leaves_memory_registered_fails():
    with pytest.raises(AssertionError, match="memory is still registered"), leaving_nothing():
        kept = rdma.ProtectionDomain().register(bytearray(1), REMOTE)
    assert kept.valid


async def test_many_connections_at_once_leave_nothing_behind():
    """The full thousand: `rnic bench host`."""
    count = 150

    async def serve(listener):
        connection = await _accept(listener)
        async with connection:
            region = connection.register(bytearray(b"from the server"), Access.REMOTE_READ)
            await connection.send(region.stag.to_bytes(4, "big"))
            assert bytes(await connection.receive(64)) == b"thanks"
            await connection.disconnected()

    async def use(connection, everyone):
        stag = int.from_bytes((await connection.receive(64)).data, "big")
        await everyone.wait()
        assert await connection.read(15, stag) == b"from the server"
        await connection.send(b"thanks")
        await connection.close()

    everyone = asyncio.Barrier(count)
    async with await rdma.listen() as listener, asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(serve(listener))
        for _ in range(count):
            connection = await rdma.connect(*listener.address[:2])
            group.create_task(use(connection, everyone))


async def test_the_repr_of_a_connection_shows_its_ends_and_how_it_ended():
    async with connected() as (client, server):
        ends = f"<Connection from {client.local[0]} port {client.local[1]} to 127.0.0.1 port {server.local[1]}, "
        assert repr(client) == f"{ends}established>"
        await client.close()
        assert repr(client) == f"{ends}ended: the connection was closed by this end>"


async def test_requests_of_peers_that_have_gone_leave_nothing_behind():
    async with await rdma.listen() as listener:
        tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            _, writer = await asyncio.open_connection(*listener.address[:2])
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.write(StartupFrame(FrameKind.REQUEST).encode())
            request = await listener.request()
            writer.close()  # with a reset
            while request._request._connection.error is None:
                await asyncio.sleep(0.01)
            with pytest.raises(rdma.MpaConnectionError):
                await request.accept()
        assert (len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))) == (tasks, descriptors)


def test_options_that_contradict_are_refused():
    for options, what in (
        ({"send_depth": 0}, "send_depth is at least 1, not 0"),
        ({"receive_depth": 0}, "receive_depth is at least 1, not 0"),
        ({"mulpdu": 127}, "mulpdu is at least 128 octets"),
    ):
        with pytest.raises(ValueError, match=what):
            rdma.Options(**options)


async def test_ulpdus_are_as_long_as_the_mulpdu():
    wire = Wire()
    async with connected(one=rdma.Options(mulpdu=1000), observers=(wire,)) as (ours, theirs):
        assert ours.mulpdu == 1000
        assert 1000 < theirs.mulpdu <= 64768
        await ours.send(bytes(3000))
        await theirs.receive()
        assert [len(each.payload) for each in wire.ulpdus] == [0, 982, 982, 982, 54]


@pytest.mark.parametrize("late", [False, True])
async def test_two_ends_that_send_and_then_read_before_they_receive_are_warned_once(monkeypatch, caplog, late):
    monkeypatch.setattr("open_rnic.host_driver.rdma.connection._HINT", 0.01)
    async with connected() as (ours, theirs):
        region = theirs.register(bytearray(9), Access.REMOTE_READ)
        for _ in range(2):
            await theirs.send(b"nobody receives this yet")
            while late and not ours._blocked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05 if late else 0)  # longer than the warning takes
            reading = asyncio.create_task(ours.read(9, region.stag, region.to))
            while not caplog.records:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert "call receive or post_receive before the Read" in caplog.text
            await ours.receive()
            assert await reading == bytes(9)
        assert len(caplog.records) == 1


async def test_a_send_that_waits_without_a_read_behind_it_is_no_reason_for_a_warning(monkeypatch, caplog):
    monkeypatch.setattr("open_rnic.host_driver.rdma.connection._HINT", 0.01)
    async with connected() as (ours, theirs):
        await theirs.send(b"nobody receives this yet")
        while not ours._blocked:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        await ours.receive()
        assert not caplog.records
