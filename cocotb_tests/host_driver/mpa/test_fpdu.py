"""Framing and delineation in software (RFC 5044 §4)."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from open_rnic.cocotb_tests.vectors import CRCS, FPDUS
from open_rnic.host_driver.device import Event
from open_rnic.host_driver.mpa.fpdu import MIN_MULPDU, FpduDelineator, FpduFramer, mulpdu
from open_rnic.rtl.registers import MAX_ULPDU, Cause, EventKind

offsets = st.integers(0, 300).map(lambda n: 4 * n)
lengths = st.one_of(st.integers(0, 1100), st.integers(0, MAX_ULPDU), st.sampled_from([MAX_ULPDU, MAX_ULPDU - 1]))


def word_by_word(ulpdu: bytes, offset: int, markers: bool) -> bytes:
    """Return one FPDU, built four octets at a time from the text of the RFC, independently of the framer."""
    words = len(ulpdu).to_bytes(2, "big") + ulpdu
    words += bytes(-len(words) % 4)
    fpdu = bytearray()
    header = None
    for at in range(0, len(words) + 4, 4):
        if markers and (offset + len(fpdu)) % 512 == 0:
            fpdu += (0 if header is None else len(fpdu) - header).to_bytes(4, "big")
        if header is None:
            header = len(fpdu)
        fpdu += words[at : at + 4] or crc32c(bytes(fpdu)).to_bytes(4, "little")
    return bytes(fpdu)


def deframe(chunks: list[bytes], **settings: object) -> tuple[list[bytes], FpduDelineator]:
    delineator = FpduDelineator(**settings)  # type: ignore[arg-type]
    ulpdus = []
    for chunk in chunks:
        delineator.feed(chunk)
        ulpdus += delineator.take()
    return ulpdus, delineator


@pytest.mark.parametrize("vector", CRCS, ids=lambda vector: vector.octets.hex()[:8])
def test_the_crc_matches_the_vectors(vector):
    assert crc32c(vector.octets).to_bytes(4, "little") == vector.wire


@pytest.mark.parametrize("vector", FPDUS, ids=str)
def test_vectors_frame_and_deframe(vector):
    framer = FpduFramer(markers=vector.markers, crc=True, offset=vector.stream_offset)
    assert framer.frame(vector.ulpdu) == vector.wire
    ulpdus, _ = deframe([vector.wire], markers=vector.markers, crc=True, offset=vector.stream_offset)
    assert ulpdus == [vector.ulpdu]


@pytest.mark.parametrize("offset", range(0, 512, 4))
def test_short_fpdus_at_every_place_between_markers_match_the_rfc(offset):
    for length in (*range(13), *range(480, 530), *range(990, 1030)):
        ulpdu = random.Random(length).randbytes(length)
        assert FpduFramer(markers=True, crc=True, offset=offset).frame(ulpdu) == word_by_word(ulpdu, offset, True)


def cut(stream: bytes, seed: int) -> list[bytes]:
    chunks, at = [], 0
    choice = random.Random(seed)
    while at < len(stream):
        size = choice.choice([1, 2, 3, 5, 400, 1460, 20000])
        chunks.append(stream[at : at + size])
        at += size
    return chunks


@given(st.lists(lengths, max_size=5), offsets, st.booleans(), st.booleans(), st.integers())
def test_framed_ulpdus_are_recovered_however_the_stream_is_cut(sizes, offset, markers, crc, seed):
    sent = [random.Random(size).randbytes(size) for size in sizes]
    framer = FpduFramer(markers=markers, crc=crc, offset=offset)
    fpdus = [framer.frame(ulpdu) for ulpdu in sent]
    received, delineator = deframe(cut(b"".join(fpdus), seed), markers=markers, crc=crc, offset=offset)
    assert received == sent
    assert delineator.error is None
    assert delineator.held == 0
    for name in ("offset", "octets", "fpdus", "markers"):
        assert getattr(delineator, name) == getattr(framer, name)


@given(lengths, offsets, st.booleans())
@settings(max_examples=40)
def test_fpdus_match_the_rfc(length, offset, markers):
    ulpdu = random.Random(length).randbytes(length)
    assert FpduFramer(markers=markers, crc=True, offset=offset).frame(ulpdu) == word_by_word(ulpdu, offset, markers)


def test_taken_one_by_one_or_at_once_ulpdus_and_counts_are_the_same():
    framer = FpduFramer(markers=True, crc=True)
    fpdus = [framer.frame(bytes([size % 256]) * size) for size in (0, 600, 18, 8882, 3)]
    at_once, by_one = (FpduDelineator(markers=True, crc=True) for _ in range(2))
    for each in (at_once, by_one):
        each.feed(b"".join(fpdus) + b"\0")
    assert at_once.take() == [by_one.next() for _ in fpdus]
    assert (at_once.take(), by_one.next()) == ([], None)
    assert all(getattr(at_once, name) == getattr(by_one, name) for name in ("offset", "octets", "fpdus", "markers"))


def test_fpdus_behind_a_bad_fpdu_are_neither_delivered_nor_counted():
    framer = FpduFramer(markers=True, crc=True)
    good, bad, late = (framer.frame(bytes(600)) for _ in range(3))
    bad = with_fpduptr(bad, 1024 - len(good), 4)
    received, delineator = deframe([good + bad + late], markers=True, crc=True)
    assert received == [bytes(600)]
    assert (delineator.fpdus, delineator.octets, delineator.markers) == (1, len(good), 2)
    assert delineator.error == Event(EventKind.ERROR, Cause.FPDUPTR, 4, len(good))


def test_an_fpdu_is_delivered_before_the_marker_behind_it():
    framer = FpduFramer(markers=True, crc=True)
    first = framer.frame(bytes(512 - 4 - 6))
    assert framer.offset == 512
    assert deframe([first], markers=True, crc=True)[0] == [bytes(502)]
    assert framer.frame(b"")[:4] == bytes(4)  # FPDUPTR 0: the marker is the next FPDU's


def test_without_crc_the_field_is_sent_as_zero_and_ignored():
    fpdu = FpduFramer(markers=False, crc=False).frame(b"ab")
    assert fpdu == bytes.fromhex("0002616200000000")
    assert deframe([fpdu[:-4] + b"\1\2\3\4"], markers=False, crc=False)[0] == [b"ab"]


def check_flip(length: int, offset: int, markers: bool, bit: int) -> None:
    """Return a good FPDU, one with a flipped bit, and enough octets for any ULPDU_Length that the flip can make."""
    framer = FpduFramer(markers=markers, crc=True, offset=offset)
    before = framer.frame(b"good")
    start = framer.offset
    fpdu = bytearray(framer.frame(bytes(length)))
    bit %= 8 * len(fpdu)
    fpdu[bit // 8] ^= 1 << bit % 8
    header = 4 if markers and start % 512 == 0 else 0
    claimed = int.from_bytes(fpdu[header : header + 2], "big")
    behind = framer.frame(b"late") + bytes(70000)

    received, delineator = deframe([before + fpdu, behind], markers=markers, crc=True, offset=offset)
    assert received == [b"good"]
    assert delineator.error is not None
    assert delineator.error.offset == start
    assert delineator.error.value == claimed
    # A length over the maximum is reported at once, as error 3.
    assert delineator.error.cause is (Cause.CRC if claimed <= MAX_ULPDU else Cause.RX_LENGTH)


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize(("length", "offset"), [(0, 496), (5, 0), (18, 488), (40, 480)])
def test_every_single_flipped_bit_is_found(length, offset, markers):
    for bit in range(8 * (length + 20)):
        check_flip(length, offset, markers, bit)


@given(lengths, offsets, st.booleans(), st.integers(0, 1 << 20))
@settings(max_examples=60)
def test_one_flipped_bit_in_any_fpdu_is_found(length, offset, markers, bit):
    check_flip(length, offset, markers, bit)


def with_fpduptr(fpdu: bytes, at: int, fpduptr: int, reserved: int = 0) -> bytes:
    fpdu = fpdu[:at] + reserved.to_bytes(2, "big") + fpduptr.to_bytes(2, "big") + fpdu[at + 4 : -4]
    return fpdu + crc32c(fpdu).to_bytes(4, "little")


@pytest.mark.parametrize("at", [0, 512, 1024])
def test_a_wrong_fpduptr_under_a_good_crc_is_error_3(at):
    fpdu = FpduFramer(markers=True, crc=True).frame(bytes(1200))
    received, delineator = deframe([with_fpduptr(fpdu, at, at ^ 0x40)], markers=True, crc=True)
    assert received == []
    assert delineator.error is not None
    assert (delineator.error.cause, delineator.error.value, delineator.error.offset) == (Cause.FPDUPTR, at ^ 0x40, 0)


def test_the_crc_is_checked_before_the_fpduptr():
    fpdu = bytearray(FpduFramer(markers=True, crc=True).frame(bytes(1200)))
    fpdu[515] ^= 0x40
    assert deframe([bytes(fpdu)], markers=True, crc=True)[1].error.cause is Cause.CRC
    assert deframe([bytes(fpdu)], markers=True, crc=False)[1].error.cause is Cause.FPDUPTR


def test_reserved_bits_of_a_marker_are_ignored():
    fpdu = FpduFramer(markers=True, crc=True).frame(bytes(600))
    assert deframe([with_fpduptr(fpdu, 512, 508 | 3, 0xBEEF)], markers=True, crc=True)[0] == [bytes(600)]


def test_a_length_over_the_maximum_is_refused_as_soon_as_it_arrives():
    delineator = FpduDelineator(markers=True, crc=True, max_ulpdu=100)
    delineator.feed(bytes(4) + b"\0")
    assert delineator.next() is None
    assert delineator.error is None
    delineator.feed(b"\x65")
    assert delineator.next() is None
    assert (delineator.error.cause, delineator.error.value, delineator.error.offset) == (Cause.RX_LENGTH, 101, 0)
    delineator.feed(FpduFramer(markers=True, crc=True).frame(b"late"))
    assert delineator.next() is None
    assert delineator.held == 0


@pytest.mark.parametrize(
    ("emss", "without", "with_markers"), [(536, 530, 522), (1448, 1442, 1430), (1460, 1454, 1442), (8960, 8954, 8882)]
)
def test_mulpdu_of_usual_segments(emss, without, with_markers):
    assert mulpdu(emss, markers=False) == without
    assert mulpdu(emss, markers=True) == with_markers


@given(st.integers(160, 9000), offsets, st.booleans())
def test_an_fpdu_of_mulpdu_fits_its_segment(emss, offset, markers):
    framer = FpduFramer(markers=markers, crc=True, offset=offset)
    assert len(framer.frame(bytes(mulpdu(emss, markers=markers)))) <= emss


def test_mulpdu_stays_within_what_mpa_allows():
    assert MIN_MULPDU <= mulpdu(100, markers=True) < MIN_MULPDU + 4
    assert MAX_ULPDU - 4 < mulpdu(1 << 20, markers=False) <= MAX_ULPDU


@pytest.mark.parametrize("markers", [False, True])
def test_no_emss_gives_a_mulpdu_that_needs_a_pad(markers):
    for emss in range(1, 1 << 16):
        length = mulpdu(emss, markers=markers)
        assert (2 + length) % 4 == 0
        assert MIN_MULPDU <= length <= MAX_ULPDU
        assert length <= emss - 6 or length < MIN_MULPDU + 4


@given(st.integers(1, 65535), offsets, st.booleans(), st.booleans())
def test_an_fpdu_of_mulpdu_has_no_pad(emss, offset, markers, crc):
    framer = FpduFramer(markers=markers, crc=crc, offset=offset)
    length = mulpdu(emss, markers=markers)
    assert len(framer.frame(bytes(length))) == 2 + length + 4 + 4 * framer.markers


def test_a_ulpdu_over_what_mpa_carries_is_refused_by_its_length():
    with pytest.raises(ValueError, match="at most 64768 octets, not 64769"):
        FpduFramer(markers=False, crc=True).frame(bytes(64769))


@pytest.mark.parametrize("offset", [-4, 6])
def test_an_impossible_start_offset_is_refused(offset):
    with pytest.raises(ValueError, match=f"stream offset {offset}"):
        FpduFramer(markers=True, crc=True, offset=offset)
