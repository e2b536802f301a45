"""The codec of DDP and RDMAP headers, and segmentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver import ddp
from open_rnic.host_driver.ddp import DdpError, Opcode, ReadRequest, Tagged, Terminate, Untagged, decode, headers


@pytest.mark.parametrize("vector", FPDUS, ids=str)
def test_public_vectors_decode_and_encode(vector):
    assert decode(vector.ulpdu).encode() == vector.ulpdu


@pytest.mark.parametrize(
    ("message", "octets"),
    [
        # RFC 5041 §4.2 figure 3: T, L, Rsvd, DV, then RsvdULP, STag, TO
        (Tagged(Opcode.RDMA_WRITE, 0x11223344, 0x5566778899AABBCC, last=True), "c140 11223344 5566778899aabbcc"),
        (Tagged(Opcode.RDMA_READ_RESPONSE, 1, 2, last=False, payload=b"x"), "8142 00000001 0000000000000002 78"),
        # RFC 5041 §4.3 figure 4: T, L, Rsvd, DV, then RsvdULP, QN, MSN, MO
        (Untagged(Opcode.SEND, 0, 0x11223344, 0x55667788, last=False), "0143 00000000 00000000 11223344 55667788"),
        (
            Untagged(Opcode.SEND_SE_INVALIDATE, 0, 1, 0, last=True, payload=b"x", stag=0xA1B2C3D4),
            "4146 a1b2c3d4 00000000 00000001 00000000 78",
        ),
    ],
)
def test_segments_have_the_octets_of_the_figures(message, octets):
    assert message.encode() == bytes.fromhex(octets)
    assert decode(message.encode()) == message


def test_a_read_request_has_the_octets_of_the_figure():
    """RFC 5040 §4.4 figure 6: Sink STag, Sink TO, RDMARDSZ, Source STag, Source TO."""
    read = ReadRequest(0x11223344, 0x0102030405060708, 0x99AABBCC, 0x55667788, 0x1112131415161718)
    assert read.encode() == bytes.fromhex("11223344 0102030405060708 99aabbcc 55667788 1112131415161718")
    assert ReadRequest.decode(read.encode()) == read
    with pytest.raises(DdpError, match="an RDMA Read Request header of 27 octets where 28 are due"):
        ReadRequest.decode(read.encode()[:-1])


@pytest.mark.parametrize("fields", [headers.CONTROL, headers.TERMINATE])
@given(data=st.data())
def test_every_bit_field_survives_a_round_trip(fields, data):
    values = data.draw(st.tuples(*(st.integers(0, largest) for largest in fields.unpack(-1))))
    assert fields.unpack(fields.pack(*values)) == values


@pytest.mark.parametrize("fields", [headers.CONTROL, headers.TERMINATE])
def test_a_value_that_exceeds_its_bit_field_is_refused(fields):
    largest = fields.unpack(-1)
    for nth, most in enumerate(largest):
        for value in (most + 1, -1):
            with pytest.raises(ValueError, match=f"is 0 to {most:#x}, not {value:#x}"):
                fields.pack(*largest[:nth], value, *largest[nth + 1 :])


@given(st.binary(max_size=80))
def test_decoding_and_encoding_lose_only_reserved_bits(octets):
    try:
        segment = decode(octets)
    except DdpError:
        return
    assert segment.encode() == bytes([octets[0] & 0xC3, octets[1] & 0xCF]) + octets[2:]


@given(
    st.integers(0, 15),
    st.integers(0, 15),
    st.integers(0, 255),
    st.one_of(st.just((None, b"", b"")), st.tuples(st.integers(0, 65535), st.sampled_from((14, 18)), st.booleans())),
)
def test_terminates_survive_a_round_trip(layer, kind, code, copies):
    length, header, rdma = copies
    if header:
        header = (b"\x41\x41" if header == 18 else b"\xc1\x42") + bytes(range(header - 2))
        rdma = bytes(range(28)) * rdma
    terminate = Terminate(layer, kind, code, length, header, rdma or b"")
    assert Terminate.decode(decode(terminate.encode()).payload) == terminate


def test_the_rfcs_example_of_2048_octets():
    """RFC 5041 §5.2's example: MULPDU 1500."""
    segments = [decode(each) for each in ddp.untagged_segments(Opcode.SEND, 0, 7, bytes(2048), 1500)]
    assert [(each.mo, len(each.payload), each.last) for each in segments] == [(0, 1482, False), (1482, 566, True)]


@pytest.mark.parametrize(
    ("ulpdu", "what"),
    [
        (b"", "a ULPDU of 0 octets has no DDP header"),
        (b"\x42\x43" + bytes(16), "DDP version 2 where 1 is due"),
        (b"\x41\x83" + bytes(16), "RDMAP version 2 where 1 is due"),
        (b"\x41\x4f" + bytes(16), "RDMAP Opcode 15 is not known"),
        (b"\x41\x43" + bytes(15), "a ULPDU of 17 octets is shorter than its DDP header, 18"),
    ],
)
def test_invalid_headers_are_refused(ulpdu, what):
    with pytest.raises(DdpError, match=what):
        decode(ulpdu)


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
def test_terminates_include_the_headers_of_figure_10(fault, includes):
    """RFC 5040 §4.8."""
    read = ReadRequest(1, 2, 3, 4, 5).encode()
    refused = Untagged(Opcode.RDMA_READ_REQUEST, 1, 7, 0, True, read).encode()
    ulpdu = Terminate.of(fault, refused, read).encode()
    segment = decode(ulpdu)
    assert (segment.opcode, segment.qn, segment.msn, segment.mo, segment.last) == (Opcode.TERMINATE, 2, 1, 0, True)
    control = int.from_bytes(segment.payload[:4], "big")
    assert (control >> 28, control >> 24 & 15, control >> 16 & 255) == fault.value
    m, d, r = (control >> bit & 1 for bit in (15, 14, 13))
    assert (m, d, r) == (includes[0], *includes)
    assert control & 0x1FFF == 0
    rest = (len(refused).to_bytes(2, "big") + refused[:18]) * includes[0] + read * includes[1]
    assert segment.payload[4:] == rest
    terminate = Terminate.decode(segment.payload)
    assert terminate.encode() == ulpdu
    assert terminate.fault is fault


def test_the_terminate_of_a_crc_error_is_the_vector():
    ulpdu = Terminate.of(ddp.Fault.MPA_CRC).encode()
    assert ulpdu.hex() == "4147000000000000000200000001" + "0000000020020000"


@pytest.mark.parametrize("octets", range(5, 60))
def test_truncated_terminates_lose_only_headers(octets):
    read = ReadRequest(1, 2, 3, 4, 5).encode()
    refused = Untagged(Opcode.RDMA_READ_REQUEST, 1, 7, 0, True, read).encode()
    whole = decode(Terminate.of(ddp.Fault.SOURCE_STAG, refused, read).encode()).payload
    terminate = Terminate.decode(whole[:octets])
    assert terminate.fault is ddp.Fault.SOURCE_STAG
    assert terminate.ddp_header in (b"", refused[:18])
    assert terminate.rdma_header in (b"", read)


def test_a_terminate_with_an_undefined_code_is_reported_by_its_numbers():
    terminate = Terminate.decode(bytes.fromhex("57990000"))
    assert terminate.fault is None
    assert str(terminate) == "layer 5: an error that no document names (5/7/153)"
    with pytest.raises(DdpError, match="a Terminate of 3 octets where at least 4 are due"):
        Terminate.decode(bytes(3))
