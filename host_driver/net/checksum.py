"""The Internet checksum (RFC 1071), and the pseudo-header that the checksums of TCP and UDP cover."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

_PSEUDO_HEADER = struct.Struct(">4s4sBBH")  # source, destination, zero, protocol, length
_ONES = 0xFFFF


def checksum(*parts: bytes) -> int:
    """Return the 16-bit ones' complement of the ones' complement sum over the concatenated parts.

    An odd last octet is padded with zeros on the right. Octets that include a correct checksum yield 0.

    The concatenation is one integer in base 2^16. As 2^16 = 1 modulo 2^16 - 1, its remainder is the sum of its 16-bit
    words with all carries added back (RFC 1071 §2). A remainder of 0 is the sum 0xFFFF, unless every octet is 0.
    """
    octets = b"".join(parts)
    number = int.from_bytes(octets, "big")
    if len(octets) % 2:
        number <<= 8
    return _ONES - (number % _ONES or (_ONES if number else 0))


def pseudo_header(source: IPv4Address, destination: IPv4Address, protocol: int, length: int) -> bytes:
    """Return the IPv4 pseudo-header (RFC 9293 §3.1, RFC 768); ``length`` is that of transport header and data."""
    return _PSEUDO_HEADER.pack(source.packed, destination.packed, 0, protocol, length)
