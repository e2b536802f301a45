"""Peers that send arbitrary octets: no exception escapes, nothing hangs, no memory grows, every error has a reason."""

import asyncio
import random
import tracemalloc
from dataclasses import replace

import pytest

from open_rnic.cocotb_tests.host_driver.test_connection import INITIATOR, RESPONDER, bare_initiator, bare_responder
from open_rnic.cocotb_tests.soaks.faults import mutated
from open_rnic.cocotb_tests.soaks.fpdus import configured
from open_rnic.cocotb_tests.soaks.startup import negotiate
from open_rnic.host_driver.connection import MpaConnectionError
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.negotiation import Reason
from open_rnic.host_driver.mpa.rtr import rtr_ulpdu
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.rtl.registers import EventKind, Model, Role, Rtr

# Startup frames; the soak sends mutated ones.


def test_startup_frames_take_no_more_memory_than_one_of_them():
    rng = random.Random(5044)
    tracemalloc.start()
    try:
        for _ in range(200):
            negotiate(rng, RESPONDER, FrameKind.REQUEST.value + rng.randbytes(100_000))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# FPDU streams, at the responder's device of a peer-to-peer connection


def drain(path):
    while path.ulpdus:
        path.ulpdus.pop()
    while path.take_event().kind is not EventKind.NONE:
        pass


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("markers", [False, True])
def test_random_streams_take_no_more_memory_than_an_fpdu(markers, crc):
    rng = random.Random(1)
    tracemalloc.start()
    try:
        for start in (b"", b"\xfd\x00", b"\xff\xff"):
            path = configured(markers=markers, crc=crc, permissive=True)
            path.receive((bytes(4) if markers else b"") + start)
            for _ in range(50):
                path.receive(rng.randbytes(20_000))
                drain(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# Connections


GOOD = {
    Role.RESPONDER: StartupFrame(
        FrameKind.REQUEST, enhanced=EnhancedData(4, 4, True, frozenset({Rtr.WRITE})), private_data=b"hi"
    ).encode(),
    Role.INITIATOR: StartupFrame(FrameKind.REPLY, enhanced=EnhancedData(4, 4)).encode(),
}


def changed(octets, at, value):
    return octets[:at] + value + octets[at + len(value) :]


REFUSED = [
    ("PD_Length 513 at stream offset 18", 18, b"\x02\x01"),
    ("PD_Length 65535 at stream offset 18", 18, b"\xff\xff"),
    ("PD_Length 3 at stream offset 18", 18, b"\x00\x03"),
    ('it must be "MPA ID Re', 15, b"E"),
    ('it must be "MPA ID Re', 0, b"GET / HTTP/1.1"),
    ("Rev 0 at stream offset 17", 17, b"\0"),
    ("Rev 3 at stream offset 17", 17, b"\3"),
    ("Rev 255 at stream offset 17", 17, b"\xff"),
    ("S=1 and Rev 1 at stream offset 16", 17, b"\1"),
]


async def send(peer, octets, pace):
    """Send all octets in one segment, or one by one until the peer closes."""
    size = len(octets) if pace == "at once" else 1
    for at in range(0, len(octets), size):
        try:
            await peer.send(octets[at : at + size])
        except ConnectionError:
            return
        await asyncio.sleep(0)


@pytest.mark.parametrize("pace", ["at once", "octet by octet"])
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(("what", "at", "value"), REFUSED)
async def test_an_unsupported_frame_is_error_4_and_is_not_answered(what, at, value, role, pace):
    octets = changed(GOOD[role], at, value)
    fpdus = FpduFramer(markers=False, crc=True).frame(rtr_ulpdu(Rtr.WRITE))
    initiator = replace(INITIATOR, model=Model.CLIENT_SERVER)
    ends = bare_initiator() if role is Role.RESPONDER else bare_responder(initiator)
    async with ends as (peer, task):
        if role is Role.INITIATOR:
            await peer.receive(24)
        sending = asyncio.create_task(send(peer, octets + fpdus, pace))
        with pytest.raises(MpaConnectionError) as failed:
            await task
        await sending
        assert what in str(failed.value)
        assert failed.value.reason is Reason.BAD_FRAME
        assert await peer.rest() == b""


@pytest.mark.parametrize("pace", ["at once", "octet by octet"])
@pytest.mark.parametrize("role", Role)
async def test_reserved_bits_are_not_checked_and_fpdus_right_behind_a_frame_are_taken(role, pace):
    octets = changed(GOOD[role], 16, bytes([GOOD[role][16] | 0x0F]))
    framer = FpduFramer(markers=False, crc=True)
    fpdus = [rtr_ulpdu(Rtr.WRITE)] if role is Role.RESPONDER else []
    octets += b"".join(framer.frame(each) for each in (*fpdus, b"first", b"second"))
    initiator = replace(INITIATOR, model=Model.CLIENT_SERVER)
    ends = bare_initiator() if role is Role.RESPONDER else bare_responder(initiator)
    async with ends as (peer, task):
        if role is Role.INITIATOR:
            await peer.receive(24)
        sending = asyncio.create_task(send(peer, octets, pace))
        async with await task as connection:
            assert [await connection.receive_ulpdu() for _ in range(2)] == [b"first", b"second"]
        await sending


@pytest.mark.parametrize(
    ("config", "reply", "code"),
    [
        ({"max_ird": 20}, EnhancedData(16, 21, True, frozenset({Rtr.WRITE})), 6),
        ({"rtr": (Rtr.READ,)}, EnhancedData(16, 16, True, frozenset({Rtr.SEND, Rtr.WRITE})), 7),
        ({}, EnhancedData(16, 16), 7),
        ({"model": Model.CLIENT_SERVER}, EnhancedData(16, 16, True, frozenset({Rtr.WRITE})), 7),
    ],
)
@pytest.mark.parametrize("markers", [False, True])
async def test_a_reply_that_the_initiator_cannot_comply_with_is_answered_by_its_terminate_alone(
    config, reply, code, markers
):
    octets = StartupFrame(FrameKind.REPLY, markers=markers, enhanced=reply).encode()
    ulpdu = bytes.fromhex(f"4147 00000000 00000002 00000001 00000000 20{code:02x}0000")
    async with bare_responder(replace(INITIATOR, **config)) as (peer, task):
        await peer.receive(24)
        await peer.send(octets)
        assert await peer.rest() == FpduFramer(markers=markers, crc=True).frame(ulpdu)
        peer.sock.shutdown(1)
        with pytest.raises(MpaConnectionError) as failed:
            await task
        assert failed.value.reason.code == code


async def test_200_connections_with_mutated_streams_end_with_a_reason():
    rng = random.Random(3)

    async def one(role):
        framer = FpduFramer(markers=False, crc=True)
        fpdus = [framer.frame(rtr_ulpdu(Rtr.WRITE)), *(framer.frame(rng.randbytes(100)) for _ in range(3))]
        octets = mutated(rng, GOOD[role] + b"".join(fpdus))
        initiator = replace(INITIATOR, model=Model.CLIENT_SERVER)
        ends = bare_initiator() if role is Role.RESPONDER else bare_responder(initiator)
        async with ends as (peer, task):
            if role is Role.INITIATOR:
                await peer.receive(24)
            await send(peer, octets, "at once")
            peer.sock.shutdown(1)
            try:
                async with await task as connection:
                    while await connection.receive_ulpdu() is not None:
                        pass
            except MpaConnectionError as error:
                return str(error)
            return None

    ended = await asyncio.gather(*(one(role) for _ in range(100) for role in Role))
    assert "" not in ended
    assert sum(reason is not None for reason in ended) > 100
