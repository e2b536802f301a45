"""DDP segments of Sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver.rdma import ddp
from open_rnic.host_driver.rdma.ddp import DdpError, Opcode, SendReceiver, Tagged, Untagged, decode, send_segments


@pytest.mark.parametrize("vector", FPDUS, ids=str)
def test_public_vectors_decode_and_encode(vector):
    assert decode(vector.ulpdu).encode() == vector.ulpdu


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1), st.integers(128, 2000))
def test_a_send_comes_back_from_its_segments(message, msn, mulpdu):
    segments = list(send_segments(message, msn, mulpdu))
    assert all(len(segment) <= mulpdu for segment in segments)
    receiver = SendReceiver(msn)
    assert b"".join(receiver.take(segment) for segment in segments) == message
    receiver.finish()
    assert receiver.msn == (msn + 1) % 2**32


def test_the_rfcs_example_of_2048_octets():
    """RFC 5041 §5.2's example: MULPDU 1500."""
    segments = [decode(segment) for segment in send_segments(bytes(2048), 7, 1500)]
    assert [(each.mo, len(each.payload), each.last) for each in segments] == [(0, 1482, False), (1482, 566, True)]


@pytest.mark.parametrize(
    ("ulpdu", "what"),
    [
        (b"", "a ULPDU of 0 octets has no DDP header"),
        (b"\x42\x43" + bytes(16), "DDP version 2 where 1 is due"),
        (b"\x41\x83" + bytes(16), "RDMAP version 2 where 1 is due"),
        (b"\x41\x4f" + bytes(16), "RDMAP Opcode 15 is not known"),
        (b"\x41\x43" + bytes(15), "a ULPDU of 17 octets is shorter than its DDP header, 18"),
        (Tagged(Opcode.RDMA_WRITE, 5, 6, True, b"x").encode(), "RDMA Write, STag 0x5, TO 0x6, L=1, 1 octets where"),
        (Untagged(Opcode.TERMINATE, 2, 1, 0, True).encode(), "Terminate, QN 2, MSN 1, MO 0, L=1, no octets where"),
        (next(send_segments(b"abc", 4, 128)), "Send, QN 0, MSN 4, MO 0, L=1, 3 octets where MSN 3, MO 0 is due"),
    ],
)
def test_what_is_not_due_is_refused(ulpdu, what):
    with pytest.raises(DdpError, match=what):
        SendReceiver(3).take(ulpdu)


def test_a_stream_that_ends_inside_a_message_is_refused():
    receiver = SendReceiver(1)
    receiver.take(next(send_segments(bytes(300), 1, 128)))
    with pytest.raises(DdpError, match="ended after 110 octets of the Send with MSN 1"):
        receiver.finish()


def test_msns_wrap():
    assert ddp.next_msn(2**32 - 1) == 0


def test_the_rfcs_example_of_a_tagged_message():
    """RFC 5041 §5.2's other example: MULPDU 1500, TO 16384."""
    message = memoryview(bytes(2048))
    segments = [decode(each) for each in ddp.tagged_segments(Opcode.RDMA_WRITE, 9, 16384, message, 1500)]
    assert [(each.to, len(each.payload), each.last) for each in segments] == [(16384, 1486, False), (17870, 562, True)]


@pytest.mark.parametrize("kind", ["tagged", "untagged"])
@pytest.mark.parametrize("mulpdu", [128, 130, 1442, 8882])
@pytest.mark.parametrize("full", [0, 1, 2, 3])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_message_has_full_segments_and_one_that_is_not_empty(kind, mulpdu, full, more):
    """RFC 5041 §5.2: sizes around what fits in whole segments; a message of no octets has one segment."""
    room = mulpdu - (ddp.TAGGED_OCTETS if kind == "tagged" else ddp.UNTAGGED_OCTETS)
    octets = max(full * room + more, 0)
    message = memoryview(bytes(n % 251 for n in range(octets)))
    ulpdus = list(
        ddp.tagged_segments(Opcode.RDMA_WRITE, 9, 5, message, mulpdu)
        if kind == "tagged"
        else ddp.untagged_segments(Opcode.SEND, 0, 7, message, mulpdu)
    )
    segments = [decode(each) for each in ulpdus]
    sizes = [room] * (-(-octets // room) - 1)
    assert [len(each.payload) for each in segments] == [*sizes, octets - sum(sizes)]
    assert [each.last for each in segments] == [False] * len(sizes) + [True]
    places = [each.to - 5 if kind == "tagged" else each.mo for each in segments]
    assert places == [n * room for n in range(len(segments))]
    assert b"".join(each.payload for each in segments) == message
    assert max(map(len, ulpdus)) <= mulpdu


@pytest.mark.parametrize(
    ("fault", "includes"),
    [
        (ddp.Fault.RDMAP_CATASTROPHIC, (False, False)),
        (ddp.Fault.SOURCE_BOUNDS, (True, True)),
        (ddp.Fault.OPCODE, (True, False)),
        (ddp.Fault.STAG, (True, False)),
        (ddp.Fault.QN, (True, False)),
        (ddp.Fault.MPA_CRC, (False, False)),
    ],
)
def test_terminates_include_what_figure_10_says(fault, includes):
    """RFC 5040 §4.8."""
    read = ddp.ReadRequest(1, 2, 3, 4, 5).encode()
    refused = Untagged(Opcode.RDMA_READ_REQUEST, 1, 7, 0, True, read).encode()
    ulpdu = ddp.Terminate.of(fault, refused, read).encode()
    segment = decode(ulpdu)
    assert (segment.opcode, segment.qn, segment.msn, segment.mo, segment.last) == (Opcode.TERMINATE, 2, 1, 0, True)
    control = int.from_bytes(segment.payload[:4], "big")
    assert (control >> 28, control >> 24 & 15, control >> 16 & 255) == fault.value
    m, d, r = (control >> bit & 1 for bit in (15, 14, 13))
    assert (m, d, r) == (includes[0], *includes)
    assert control & 0x1FFF == 0
    rest = (len(refused).to_bytes(2, "big") + refused[:18]) * includes[0] + read * includes[1]
    assert segment.payload[4:] == rest
    terminate = ddp.Terminate.decode(segment.payload)
    assert terminate.encode() == ulpdu
    assert terminate.fault is fault


def test_the_terminate_of_a_crc_error_is_the_vector():
    ulpdu = ddp.Terminate.of(ddp.Fault.MPA_CRC).encode()
    assert ulpdu.hex() == "4147000000000000000200000001" + "0000000020020000"


@pytest.mark.parametrize("octets", range(5, 60))
def test_terminates_that_are_cut_short_lose_only_headers(octets):
    read = ddp.ReadRequest(1, 2, 3, 4, 5).encode()
    refused = Untagged(Opcode.RDMA_READ_REQUEST, 1, 7, 0, True, read).encode()
    whole = decode(ddp.Terminate.of(ddp.Fault.SOURCE_STAG, refused, read).encode()).payload
    terminate = ddp.Terminate.decode(whole[:octets])
    assert terminate.fault is ddp.Fault.SOURCE_STAG
    assert terminate.ddp_header in (b"", refused[:18])
    assert terminate.rdma_header in (b"", read)


def test_a_terminate_that_no_document_knows_is_told_by_its_numbers():
    terminate = ddp.Terminate.decode(bytes.fromhex("57990000"))
    assert terminate.fault is None
    assert str(terminate) == "layer 5: an error that no document names (5/7/153)"
    with pytest.raises(DdpError, match="a Terminate of 3 octets where at least 4 are due"):
        ddp.Terminate.decode(bytes(3))
