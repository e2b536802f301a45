"""The formats of Ethernet, ARP, IPv4, ICMP and UDP.

Each format is a dataclass with ``encode`` and ``decode``::

    echo = IcmpEcho(reply=False, identifier=1, sequence=7, payload=b"octets")
    packet = Ipv4(source, destination, Protocol.ICMP, echo.encode())
    frame = Ethernet(their_mac, our_mac, EtherType.IPV4, packet.encode()).encode()

``decode`` raises ``FrameError`` for octets that do not have the format. All fields are in network byte order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from ipaddress import IPv4Address
from typing import Self

from open_rnic.host_driver.net.checksum import checksum, pseudo_header

MAC_OCTETS = 6
BROADCAST_MAC = b"\xff" * MAC_OCTETS
UNKNOWN_MAC = bytes(MAC_OCTETS)  # the target hardware address of an ARP request
NO_ADDRESS = IPv4Address(0)  # the sender of an ARP probe

_ETHERNET = struct.Struct(">6s6sH")
_TAG = struct.Struct(">HH")  # IEEE 802.1Q §9.6: control information, and the EtherType behind it
_VLAN_ID = 0xFFF  # in the control information; 0 in a tag that has only a priority
_ARP = struct.Struct(">HHBBH6s4s6s4s")  # RFC 826
_IPV4 = struct.Struct(">BBHHHBBH4s4s")  # RFC 791 §3.1
_ICMP = struct.Struct(">BBHHH")  # RFC 792: type, code, checksum, and two fields of the type
_UDP = struct.Struct(">HHHH")  # RFC 768

ETHERNET_OCTETS = _ETHERNET.size
IPV4_OCTETS = _IPV4.size  # without options
UDP_OCTETS = _UDP.size

_MOST_OCTETS = 0xFFFF  # that a 16-bit length can hold
_DONT_FRAGMENT = 0x4000
_FRAGMENT = 0x3FFF  # MF and the fragment offset


class Discard(StrEnum):
    """The reason why a frame or a packet was discarded."""

    MALFORMED = "malformed"
    BAD_CHECKSUM = "bad checksum"
    FRAGMENT = "fragment"
    TOO_LONG = "longer than the MTU"
    OTHER_MAC = "Ethernet destination of another host"
    MULTICAST = "Ethernet multicast"
    ETHERTYPE = "EtherType neither IPv4 nor ARP"
    OTHER_ADDRESS = "IPv4 destination of another host"
    BAD_SOURCE = "IPv4 source that no host may have"
    BROADCAST = "broadcast of a protocol that allows none"
    ICMP_TYPE = "ICMP message other than an echo request"
    NO_PROTOCOL = "IPv4 protocol without a handler"
    NO_PORT = "UDP port without a handler"
    ARP_UNASKED = "ARP packet that neither asks nor answers this host"
    CONFLICT = "ARP packet of another host that claims this host's address"
    NOT_HELD = "packet to an address that this host may not use yet"
    NO_ROUTE = "IPv4 source without a route"
    ARP_QUEUE = "packet displaced while its next hop was being resolved"
    ARP_FAILED = "packet whose next hop did not answer ARP"


class FrameError(ValueError):
    """Octets that do not have the format. The message names the field and its value."""

    def __init__(self, what: str, reason: Discard = Discard.MALFORMED) -> None:
        super().__init__(what)
        self.reason = reason


class EtherType(IntEnum):
    """The EtherTypes that a host decodes."""

    IPV4 = 0x0800
    ARP = 0x0806
    VLAN = 0x8100  # a tag (IEEE 802.1Q §9.6)


class Protocol(IntEnum):
    """IPv4 protocol numbers."""

    ICMP = 1
    TCP = 6
    UDP = 17


def _need(octets: bytes, least: int, what: str) -> None:
    if len(octets) < least:
        raise FrameError(f"{what} has {len(octets)} octets, fewer than {least}")


def _verify(value: int, what: str) -> None:
    """Raise FrameError unless the checksum over octets that include theirs is 0."""
    if value:
        raise FrameError(f"the checksum of {what} is wrong by {value:#06x}", Discard.BAD_CHECKSUM)


def _check_mac(mac: bytes, what: str) -> None:
    if len(mac) != MAC_OCTETS:
        raise FrameError(f"{what} is {mac.hex(':')}, not {MAC_OCTETS} octets")


@dataclass(frozen=True, slots=True)
class Ethernet:
    """An Ethernet frame (RFC 894) without its padding and FCS, which are the MAC's.

    Members
    -------
    destination, source : bytes, 6 octets
    ethertype : int, 16 bits; see EtherType. Less than 0x600 is the length of an IEEE 802.3 frame
    payload : bytes; after ``decode`` it includes any padding
    """

    destination: bytes
    source: bytes
    ethertype: int
    payload: bytes

    def __post_init__(self) -> None:
        _check_mac(self.destination, "the Ethernet destination")
        _check_mac(self.source, "the Ethernet source")

    def encode(self) -> bytes:
        """Return the frame."""
        return _ETHERNET.pack(self.destination, self.source, self.ethertype) + self.payload

    def untagged(self) -> Self:
        """Return the frame without a tag that has only a priority; another frame as it is."""
        if self.ethertype != EtherType.VLAN or len(self.payload) < _TAG.size:
            return self
        control, ethertype = _TAG.unpack_from(self.payload)
        if control & _VLAN_ID:
            return self
        return replace(self, ethertype=ethertype, payload=self.payload[_TAG.size :])

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        """Decode a frame; raises FrameError if it is shorter than its header."""
        _need(octets, ETHERNET_OCTETS, "an Ethernet frame")
        destination, source, ethertype = _ETHERNET.unpack_from(octets)
        return cls(destination, source, ethertype, octets[ETHERNET_OCTETS:])


class ArpOperation(IntEnum):
    """The opcodes of RFC 826."""

    REQUEST = 1
    REPLY = 2


@dataclass(frozen=True, slots=True)
class Arp:
    """An ARP packet for IPv4 over Ethernet (RFC 826).

    Members
    -------
    operation : ArpOperation
    sender_mac, target_mac : bytes, 6 octets; the target of a request is UNKNOWN_MAC
    sender, target : IPv4Address; the sender of a probe is NO_ADDRESS
    """

    operation: ArpOperation
    sender_mac: bytes
    sender: IPv4Address
    target_mac: bytes
    target: IPv4Address

    _ETHERNET_IPV4 = (1, EtherType.IPV4, MAC_OCTETS, 4)

    def __post_init__(self) -> None:
        _check_mac(self.sender_mac, "the sender hardware address")
        _check_mac(self.target_mac, "the target hardware address")

    @property
    def is_probe(self) -> bool:
        """Whether the sender asks if its target address is in use (RFC 5227 §1.1)."""
        return self.operation is ArpOperation.REQUEST and self.sender == NO_ADDRESS

    def encode(self) -> bytes:
        """Return the packet."""
        addresses = self.sender_mac, self.sender.packed, self.target_mac, self.target.packed
        return _ARP.pack(*self._ETHERNET_IPV4, self.operation, *addresses)

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        """Decode a packet; octets behind it are padding. Raises FrameError if it is not for IPv4 over Ethernet."""
        _need(octets, _ARP.size, "an ARP packet")
        *kinds, operation, sender_mac, sender, target_mac, target = _ARP.unpack_from(octets)
        names = "hardware type", "protocol type", "hardware address length", "protocol address length"
        for name, value, due in zip(names, kinds, cls._ETHERNET_IPV4, strict=True):
            if value != due:
                raise FrameError(f"the ARP {name} is {value:#x}, not {due:#x}")
        if operation not in iter(ArpOperation):
            raise FrameError(f"the ARP operation is {operation}, neither request nor reply")
        return cls(ArpOperation(operation), sender_mac, IPv4Address(sender), target_mac, IPv4Address(target))


@dataclass(frozen=True, slots=True)
class Ipv4:
    """An IPv4 packet (RFC 791) that is not a fragment.

    ``encode`` sets DF, so no identification needs to be unique (RFC 6864 §4.1). ``decode`` skips options, and ignores
    the type of service and DF. A TTL of 0 or 1 is not an error for the destination (RFC 1122 §3.2.1.7).

    Members
    -------
    source, destination : IPv4Address
    protocol : int, 8 bits; see Protocol
    payload : bytes, at most 65,515 octets
    ttl : int, 8 bits
    identification : int, 16 bits
    header : bytes; the header as received, with its options; no octets in a packet to be sent
    """

    source: IPv4Address
    destination: IPv4Address
    protocol: int
    payload: bytes
    ttl: int = 64  # RFC 1700
    identification: int = 0
    header: bytes = field(default=b"", repr=False, compare=False)

    def encode(self) -> bytes:
        """Return the packet with a header of 20 octets; raises FrameError if it is longer than 65,535 octets."""
        length = IPV4_OCTETS + len(self.payload)
        if length > _MOST_OCTETS:
            raise FrameError(f"the IPv4 total length is {length}, more than {_MOST_OCTETS}")
        addresses = self.source.packed, self.destination.packed
        fields = 0x45, 0, length, self.identification, _DONT_FRAGMENT, self.ttl, self.protocol
        return _IPV4.pack(*fields, checksum(_IPV4.pack(*fields, 0, *addresses)), *addresses) + self.payload

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        """Decode a packet; octets behind its total length are padding.

        Raises FrameError for the errors of RFC 1122 §3.2.1.1 and §3.2.1.2 and for fragments.
        """
        _need(octets, IPV4_OCTETS, "an IPv4 packet")
        version, _, length, identification, fragment, ttl, protocol, _, source, destination = _IPV4.unpack_from(octets)
        if version >> 4 != 4:
            raise FrameError(f"the IP version is {version >> 4}, not 4")
        header_octets = 4 * (version & 0xF)
        if header_octets < IPV4_OCTETS:
            raise FrameError(f"the IHL is {version & 0xF}, less than 5")
        _need(octets, header_octets, f"an IPv4 packet with IHL {version & 0xF}")
        header = octets[:header_octets]
        _verify(checksum(header), "an IPv4 header")
        if not header_octets <= length <= len(octets):
            raise FrameError(f"the IPv4 total length is {length}, not {header_octets} to {len(octets)}")
        if fragment & _FRAGMENT:
            raise FrameError(f"flags and fragment offset are {fragment:#06x}: a fragment", Discard.FRAGMENT)
        addresses = IPv4Address(source), IPv4Address(destination)
        return cls(*addresses, protocol, octets[header_octets:length], ttl, identification, header)


class IcmpType(IntEnum):
    """The ICMP types that a host sends."""

    ECHO_REPLY = 0
    UNREACHABLE = 3
    ECHO = 8


class Unreachable(IntEnum):
    """The codes of Destination Unreachable that a host sends (RFC 1122 §3.2.2.1)."""

    PROTOCOL = 2
    PORT = 3


def _encode_icmp(kind: IcmpType, code: int, words: tuple[int, int], payload: bytes) -> bytes:
    return _ICMP.pack(kind, code, checksum(_ICMP.pack(kind, code, 0, *words), payload), *words) + payload


def _decode_icmp(octets: bytes) -> tuple[int, int, int, int, bytes]:
    """Return type, code, the two words behind the checksum, and the rest."""
    _need(octets, _ICMP.size, "an ICMP message")
    _verify(checksum(octets), "an ICMP message")
    kind, code, _, first, second = _ICMP.unpack_from(octets)
    return kind, code, first, second, octets[_ICMP.size :]


@dataclass(frozen=True, slots=True)
class IcmpEcho:
    """An ICMP Echo or Echo Reply message (RFC 792).

    Members
    -------
    reply : bool; set in an Echo Reply
    identifier, sequence : int, 16 bits
    payload : bytes
    """

    reply: bool
    identifier: int
    sequence: int
    payload: bytes

    def encode(self) -> bytes:
        """Return the message."""
        kind = IcmpType.ECHO_REPLY if self.reply else IcmpType.ECHO
        return _encode_icmp(kind, 0, (self.identifier, self.sequence), self.payload)

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        """Decode a message; raises FrameError for other ICMP messages, too."""
        kind, code, identifier, sequence, payload = _decode_icmp(octets)
        if kind not in (IcmpType.ECHO, IcmpType.ECHO_REPLY):
            raise FrameError(f"the ICMP type is {kind}, not an echo", Discard.ICMP_TYPE)
        if code:
            raise FrameError(f"the code of an ICMP echo is {code}, not 0")
        return cls(kind == IcmpType.ECHO_REPLY, identifier, sequence, payload)


@dataclass(frozen=True, slots=True)
class IcmpUnreachable:
    """An ICMP Destination Unreachable message (RFC 792).

    Members
    -------
    code : int, 8 bits; see Unreachable
    packet : bytes; the header and the first octets of the packet that was not delivered, unchanged
    """

    code: int
    packet: bytes

    def encode(self) -> bytes:
        """Return the message."""
        return _encode_icmp(IcmpType.UNREACHABLE, self.code, (0, 0), self.packet)

    @classmethod
    def decode(cls, octets: bytes) -> Self:
        """Decode a message; raises FrameError for other ICMP messages, too."""
        kind, code, _, _, packet = _decode_icmp(octets)
        if kind != IcmpType.UNREACHABLE:
            raise FrameError(f"the ICMP type is {kind}, not Destination Unreachable", Discard.ICMP_TYPE)
        return cls(code, packet)


@dataclass(frozen=True, slots=True)
class Udp:
    """A UDP datagram (RFC 768). Its checksum covers the addresses of the IPv4 packet as well.

    Members
    -------
    source_port, destination_port : int, 16 bits
    payload : bytes, at most 65,527 octets
    """

    source_port: int
    destination_port: int
    payload: bytes

    def encode(self, source: IPv4Address, destination: IPv4Address) -> bytes:
        """Return the datagram for these addresses; raises FrameError if it is longer than 65,535 octets."""
        length = UDP_OCTETS + len(self.payload)
        if length > _MOST_OCTETS:
            raise FrameError(f"the UDP length is {length}, more than {_MOST_OCTETS}")
        fields = self.source_port, self.destination_port, length
        covered = pseudo_header(source, destination, Protocol.UDP, length), _UDP.pack(*fields, 0), self.payload
        return _UDP.pack(*fields, checksum(*covered) or 0xFFFF) + self.payload  # RFC 768: 0 means no checksum

    @classmethod
    def decode(cls, octets: bytes, source: IPv4Address, destination: IPv4Address) -> Self:
        """Decode a datagram between these addresses; octets behind its length are ignored."""
        _need(octets, UDP_OCTETS, "a UDP datagram")
        source_port, destination_port, length, sent_checksum = _UDP.unpack_from(octets)
        if not UDP_OCTETS <= length <= len(octets):
            raise FrameError(f"the UDP length is {length}, not {UDP_OCTETS} to {len(octets)}")
        datagram = octets[:length]
        if sent_checksum:
            _verify(checksum(pseudo_header(source, destination, Protocol.UDP, length), datagram), "a UDP datagram")
        return cls(source_port, destination_port, datagram[UDP_OCTETS:])
