"""The separate software stages, compared with the software data path and the test vectors."""

import random
from itertools import chain

import pytest

from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.rtr import read_response, rtr_ulpdu
from open_rnic.host_driver.tools.split.software import (
    Checked,
    append_crcs,
    check,
    delineate,
    detect_rtr,
    fence,
    frame,
    insert_markers,
    remove_markers,
)
from open_rnic.rtl.registers import Cause, Rtr

LENGTHS = [0, 1, 2, 3, 50, 486, *range(498, 512), 1442, 3000]


def transmitted(ulpdus, *, markers, crc, offset=0):
    framed = frame(ulpdus)
    return list(append_crcs(insert_markers(framed, offset=offset) if markers else framed, crc=crc))


def received(chunks, *, markers, crc, offset=0):
    return list(check(delineate(remove_markers(chunks, markers=markers, offset=offset)), crc=crc))


def cut(octets):
    while octets:
        size = random.randint(1, 700)
        yield octets[:size]
        octets = octets[size:]


@pytest.mark.parametrize("vector", [each for each in FPDUS if each.stream_offset % 4 == 0], ids=str)
def test_the_stages_together_send_and_receive_the_vectors(vector):
    where = {"markers": vector.markers, "crc": True, "offset": vector.stream_offset}
    assert transmitted([vector.ulpdu], **where) == [vector.wire]
    assert [(each.ulpdu, each.cause) for each in received([vector.wire], **where)] == [(vector.ulpdu, Cause.NONE)]


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 64, 508])
def test_the_stages_together_match_the_software_data_path(markers, crc, offset):
    ulpdus = [random.randbytes(length) for length in random.sample(LENGTHS, len(LENGTHS))]
    framer = FpduFramer(markers=markers, crc=crc, offset=offset)
    fpdus = framer.frame_all(ulpdus)
    assert transmitted(ulpdus, markers=markers, crc=crc, offset=offset) == fpdus
    found = received(cut(b"".join(fpdus)), markers=markers, crc=crc, offset=offset)
    assert [each.ulpdu for each in found] == ulpdus
    assert [each.size for each in found] == list(map(len, fpdus))
    assert sum(each.markers for each in found) == framer.markers
    assert {each.cause for each in found} == {Cause.NONE}


@pytest.mark.parametrize(("at", "cause"), [(600, Cause.CRC), (514, Cause.CRC)])
def test_an_altered_octet_is_detected_by_the_crc(at, cause):
    fpdu = bytearray(transmitted([bytes(1000)], markers=True, crc=True)[0])
    fpdu[at] ^= 1
    assert received([bytes(fpdu)], markers=True, crc=True)[0].cause is cause


def test_a_wrong_fpduptr_is_detected_without_crcs():
    fpdu = bytearray(transmitted([bytes(1000)], markers=True, crc=False)[0])
    fpdu[515] ^= 4  # FPDUPTR, in octets 514 and 515
    assert received([bytes(fpdu)], markers=True, crc=False)[0].cause is Cause.FPDUPTR


@pytest.mark.parametrize("kind", [Rtr.SEND, Rtr.WRITE, Rtr.READ])
def test_the_fence_opens_behind_an_rtr_and_answers_a_read(kind):
    answer = [read_response(rtr_ulpdu(kind))] if kind is Rtr.READ else []
    assert list(fence([b"one", b"two"], [rtr_ulpdu(kind), b"data"])) == [*answer, b"one", b"two"]


@pytest.mark.parametrize("came", [[], [b"no RTR"], [b"no RTR", rtr_ulpdu(Rtr.WRITE)]])
def test_the_fence_stays_closed_without_an_rtr(came):
    assert list(fence([b"one"], came)) == []


def test_an_rtr_is_removed_and_nothing_is_delivered_behind_an_error():
    def checked(ulpdu, cause=Cause.NONE):
        return Checked(ulpdu, 0, 0, cause)

    rtr = checked(rtr_ulpdu(Rtr.WRITE))
    assert list(detect_rtr([rtr, checked(b"one"), checked(b"two", Cause.CRC), checked(b"three")])) == [b"one"]
    assert list(detect_rtr([checked(b"one"), rtr, checked(b"two")])) == []


def test_stages_output_packets_without_waiting_for_the_next_ones():
    """A packet that ends a connection, such as a Terminate, must not wait for the next packet."""
    endless = chain.from_iterable([random.randbytes(9)] for _ in iter(int, 1))
    assert len(next(append_crcs(insert_markers(frame(endless)), crc=True))) == 20
