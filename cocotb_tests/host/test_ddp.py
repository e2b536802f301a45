"""DDP segments of Sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocotb_tests.vectors import FPDUS
from host_driver import ddp
from host_driver.ddp import DdpError, Opcode, SendReceiver, Tagged, Untagged, decode, send_segments


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
