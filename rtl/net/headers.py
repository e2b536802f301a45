"""The headers of transmitted frames, as tables of words: see :mod:`.layouts` for the words of a frame.

A word is the sum of fields on a bus: sources that :class:`.Sender` names, and a word of the cache's entry for the next
hop, or a constant behind it.
"""

from enum import IntEnum
from typing import NamedTuple

from amaranth.hdl import Mux, Value, ValueLike

from open_rnic.rtl.net.layouts import EtherType, Protocol
from open_rnic.rtl.net.neighbours import Word

__all__ = ["CONSTANTS", "HeaderWord", "Stored", "arp_packet", "ipv4_packet"]

# Of the sums of an IPv4 header and of its pseudo-header, the difference: version, IHL, DF, TTL, and the header length.
_HEADER_EXCESS = 0x4500 + 0x4000 + 0x4000 + 20


def _lane(*octets: int) -> int:
    """Return a word with these octets."""
    return int.from_bytes(bytes(octets), "little")


# Words that do not depend on the packet; octets of 0 are given by another source.
CONSTANTS = {
    "ALL_0": _lane(0, 0, 0xFF, 0xFF),
    "ALL_2": _lane(0xFF, 0xFF, 0xFF, 0xFF),
    "TYPE_IPV4": _lane(0, 0, *EtherType.IPV4.to_bytes(2, "big")),
    "TYPE_ARP": _lane(0, 0, *EtherType.ARP.to_bytes(2, "big")),
    "IPV4_4": _lane(0x45, 0, 0, 0),
    "IPV4_5": _lane(0, 0, 0x40, 0),  # DF
    "IPV4_6_TCP": _lane(64, Protocol.TCP, 0, 0),  # TTL: RFC 1700
    "IPV4_6_UDP": _lane(64, Protocol.UDP, 0, 0),
    "IPV4_6_ICMP": _lane(64, Protocol.ICMP, 0, 0),
    "ARP_4": _lane(0, 1, 8, 0),
    "ARP_5_REQUEST": _lane(6, 4, 0, 1),
    "ARP_5_REPLY": _lane(6, 4, 0, 2),
    "PSEUDO_HEADER": _lane(*(0xFFFF - _HEADER_EXCESS).to_bytes(2, "big"), 0, 0),
}
Stored = IntEnum("Stored", list(CONSTANTS), start=Word.CONSTANTS)


class HeaderWord(NamedTuple):
    """A word of a header.

    Attributes
    ----------
    sources : the names of fields on the bus
    stored : the word of the next hop, or the constant, which is on the bus too; None for none
    is_stored : whether ``stored`` is on the bus
    added : octets of headers in the length, if that is one of the sources
    summed : whether the word is part of a checksum
    written : whether the word is written into the frame

    """

    sources: tuple[str, ...] = ()
    stored: ValueLike | None = None
    is_stored: ValueLike = 1
    added: ValueLike = 0
    summed: bool = False
    written: bool = True


def _ethernet(to_all: Value, ether_type: Stored) -> list[HeaderWord]:
    """Return the header of Ethernet, in whose last word other octets follow."""
    return [
        HeaderWord(stored=Mux(to_all, Stored.ALL_0, Word.MAC_0)),
        HeaderWord(stored=Mux(to_all, Stored.ALL_2, Word.MAC_2)),
        HeaderWord(("mac",)),
        HeaderWord(("mac_end",), stored=ether_type),
    ]


def ipv4_packet(to_all: Value, is_tcp: Value, is_udp: Value) -> list[HeaderWord]:
    """Return the headers of Ethernet, IPv4 (RFC 791 §3.1) and UDP (RFC 768), with checksums of 0.

    The destination has been written and added before. In its place, the sum of the header becomes that of the
    pseudo-header. TCP and ICMP have no use for the words behind.
    """
    protocol = Mux(is_tcp, Stored.IPV4_6_TCP, Mux(is_udp, Stored.IPV4_6_UDP, Stored.IPV4_6_ICMP))
    return [
        *_ethernet(to_all, Stored.TYPE_IPV4),
        HeaderWord(("length_high",), stored=Stored.IPV4_4, added=Mux(is_udp, 28, 20), summed=True),
        HeaderWord(stored=Stored.IPV4_5, summed=True),
        HeaderWord(stored=protocol, summed=True),
        HeaderWord(("address",), summed=True),
        HeaderWord(stored=Stored.PSEUDO_HEADER, summed=True, written=False),
        HeaderWord(("udp_ports",), summed=True),
        HeaderWord(("length_low",), added=8, summed=True),
    ]


def arp_packet(to_all: Value, replies: Value) -> list[HeaderWord]:
    """Return a frame of ARP (RFC 826), without padding. A request and an announcement have no MAC of the target."""
    return [
        *_ethernet(to_all, Stored.TYPE_ARP),
        HeaderWord(stored=Stored.ARP_4),
        HeaderWord(stored=Mux(replies, Stored.ARP_5_REPLY, Stored.ARP_5_REQUEST)),
        HeaderWord(("mac",)),
        HeaderWord(("mac_end", "address_begin_high")),
        HeaderWord(("address_end_low",), stored=Word.MAC_0, is_stored=replies),
        HeaderWord(stored=Word.MAC_2, is_stored=replies),
        HeaderWord(stored=Word.ADDRESS),
    ]
