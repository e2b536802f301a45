"""The codec of MPA Request and Reply Frames."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.cocotb_tests.vectors import VECTORS
from open_rnic.host_driver.mpa.startup_frames import (
    Dialect,
    EnhancedData,
    FrameKind,
    StartupDecoder,
    StartupError,
    StartupFrame,
)
from open_rnic.rtl.registers import Rtr

KINDS = [Rtr.SEND, Rtr.WRITE, Rtr.READ]
enhanced = st.builds(
    EnhancedData,
    ird=st.integers(0, 0x3FFF),
    ord=st.integers(0, 0x3FFF),
    peer_to_peer=st.booleans(),
    rtr=st.frozensets(st.sampled_from(KINDS)),
)
frames = st.builds(
    StartupFrame,
    kind=st.sampled_from(FrameKind),
    markers=st.booleans(),
    crc=st.booleans(),
    rejected=st.booleans(),
    rev=st.integers(0, 255),
    enhanced=st.none() | enhanced,
    private_data=st.binary(max_size=508),
)


def decode(kind, octets, chunk=1):
    """Decode a stream in pieces of ``chunk`` octets, at most ``missing``; returns the remaining octets, too."""
    decoder = StartupDecoder(kind)
    while decoder.missing:
        piece = octets[: min(chunk, decoder.missing)]
        assert piece, "the frame ended too early"
        decoder.feed(piece)
        octets = octets[len(piece) :]
    return decoder.frame, octets


@pytest.mark.parametrize("vector", VECTORS["startup"], ids=lambda vector: vector["source"])
def test_public_vectors_decode_and_encode(vector):
    wire = bytes.fromhex(vector["wire"])
    frame, _ = decode(FrameKind[vector["fields"]["kind"].upper()], wire)
    assert frame.fields() == vector["fields"]
    assert frame.encode() == wire


@given(frames, st.integers(1, 600), st.binary(max_size=40))
def test_every_frame_survives_a_round_trip_and_no_octet_behind_it_is_taken(frame, chunk, behind):
    assert decode(frame.kind, frame.encode() + behind, chunk) == (frame, behind)


@given(st.binary(min_size=1, max_size=600), st.sampled_from(FrameKind), st.booleans())
def test_random_octets_are_a_frame_or_a_startup_error(octets, kind, keyed):
    octets = kind.value + octets if keyed else octets
    decoder = StartupDecoder(kind)
    with suppress(StartupError):
        while decoder.missing and octets:
            taken = octets[: decoder.missing]
            decoder.feed(taken)
            octets = octets[len(taken) :]
        assert (decoder.frame is None) == bool(decoder.missing)


def header(flags=0x50, rev=2, length=4, key=FrameKind.REQUEST.value):
    return key + bytes([flags, rev]) + length.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("octets", "message"),
    [
        (header(length=513), "MPA Request with PD_Length 513 at stream offset 18: at most 512"),
        (header(length=65535), "PD_Length 65535 at stream offset 18"),
        (header(length=3), "PD_Length 3 at stream offset 18: S=1 needs at least 4"),
        (header(key=FrameKind.REPLY.value), "a Reply came where a Request is due"),
        (b"GET / HTTP/1.1\r\n", '47 at stream offset 0: it must be "MPA ID Req Frame"'),
    ],
)
def test_a_bad_frame_is_refused_by_field_value_and_place(octets, message):
    with pytest.raises(StartupError) as refused:
        decode(FrameKind.REQUEST, octets)
    assert message in str(refused.value)


def test_two_initiators_are_reported_as_such():
    with pytest.raises(StartupError, match="both ends are initiators"):
        decode(FrameKind.REPLY, header())


def test_reserved_bits_are_not_checked():
    frame, _ = decode(FrameKind.REQUEST, header(flags=0x0F, length=0))
    assert frame == StartupFrame(FrameKind.REQUEST, crc=False)


def test_the_longest_private_data_fits_and_one_octet_more_does_not():
    some = EnhancedData(1, 1)
    frame = StartupFrame(FrameKind.REPLY, enhanced=some, private_data=bytes(508))
    assert len(frame.encode()) == 532
    with pytest.raises(ValueError, match="may have 508 octets, not 509"):
        StartupFrame(FrameKind.REPLY, enhanced=some, private_data=bytes(509))
    with pytest.raises(ValueError, match="may have 512 octets, not 513"):
        StartupFrame(FrameKind.REPLY, private_data=bytes(513))


@pytest.mark.parametrize("values", [(-1, 0), (0, 0x4000)])
def test_ird_and_ord_have_14_bits(values):
    with pytest.raises(ValueError, match="is 0 to 16383, not"):
        EnhancedData(*values)


def test_a_person_can_read_a_frame():
    data = EnhancedData(16, 0x3FFF, True, frozenset({Rtr.WRITE, Rtr.READ}))
    lines = StartupFrame(FrameKind.REQUEST, markers=True, enhanced=data, private_data=b"hello").describe()
    assert lines == [
        "Rev 2  M=1 C=1 R=0 S=1  PD_Length 9",
        "A=1 peer-to-peer, RTR Write or Read, IRD 16, ORD 0x3FFF (not negotiated)",
        "private data, 5 octets: 68656c6c6f",
    ]


# The dialect of the drafts -01 and -02


@pytest.mark.parametrize(
    ("rtr", "wire"),
    [
        (set(), "00050006"),
        ({Rtr.SEND}, "80050006"),  # A
        ({Rtr.WRITE}, "40050006"),  # B
        ({Rtr.READ}, "00058006"),  # C
        (set(KINDS), "c0058006"),
    ],
)
def test_the_drafts_have_the_rtr_kinds_in_a_b_and_c(rtr, wire):
    data = EnhancedData(5, 6, bool(rtr), frozenset(rtr), dialect=Dialect.DRAFT_02)
    assert data.encode().hex() == wire
    assert EnhancedData.decode(bytes.fromhex(wire), Dialect.DRAFT_02) == data


def test_the_drafts_ignore_d():
    assert EnhancedData.decode(bytes.fromhex("00054006"), Dialect.DRAFT_02) == EnhancedData(
        5, 6, dialect=Dialect.DRAFT_02
    )


@given(st.binary(min_size=4, max_size=4), st.sampled_from(Dialect))
def test_any_four_octets_survive_a_round_trip(octets, dialect):
    back = EnhancedData.decode(octets, dialect).encode()
    reserved = bytes([0, 0, 0x40 if dialect is Dialect.DRAFT_02 else 0, 0])
    assert back == bytes(octet & ~mask for octet, mask in zip(octets, reserved, strict=True))


def test_the_drafts_cannot_encode_a_model_without_its_rtr():
    with pytest.raises(ValueError, match="by an RTR kind: both or none"):
        EnhancedData(1, 1, peer_to_peer=True, dialect=Dialect.DRAFT_02)


def test_a_frame_of_the_drafts_names_its_own_flags():
    frame = StartupFrame(
        FrameKind.REPLY, enhanced=EnhancedData(1, 2, True, frozenset({Rtr.READ}), dialect=Dialect.DRAFT_02)
    )
    decoder = StartupDecoder(FrameKind.REPLY, Dialect.DRAFT_02)
    decoder.feed(frame.encode()[:20])
    decoder.feed(frame.encode()[20:])
    assert decoder.frame == frame
    named = decoder.frame.fields()
    assert [named[name] for name in ("A_rtr_send", "B_rtr_write", "C_rtr_read")] == [0, 0, 1]
    assert frame.describe()[1] == "draft-02 peer-to-peer, RTR Read, IRD 1, ORD 2"
