"""The Internet checksum against RFC 1071, and against dpkt."""

from ipaddress import IPv4Address

import dpkt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from open_rnic.host_driver.net.checksum import checksum, pseudo_header


def test_example_of_rfc_1071_section_3():
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2 ^ 0xFFFF


@given(st.lists(st.binary(max_size=40)))
@example([b""])
@example([bytes(5)])
@example([b"\xff\xff"])
@example([b"\xff", b"\xff\x00", b"\x00"])
def test_checksum_of_parts_is_the_checksum_of_their_concatenation(parts):
    assert checksum(*parts) == dpkt.in_cksum(b"".join(parts))


@pytest.mark.parametrize("octets", [20, 1460, 65535])
def test_octets_with_their_checksum_yield_zero(octets):
    data = bytes(at * 7 % 256 for at in range(octets // 2 * 2))
    assert checksum(data, checksum(data).to_bytes(2, "big")) == 0


def test_pseudo_header_has_the_layout_of_rfc_9293_section_3_1():
    header = pseudo_header(IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2"), 6, 0x1234)
    assert header == bytes([10, 9, 0, 1, 10, 9, 0, 2, 0, 6, 0x12, 0x34])
