"""The layouts of frames, segments and datagrams, and the constants of their headers.

A frame is preceded by two octets of padding, so that its IPv4 header begins on a lane:

====  =============================================================  ================================================
word  of an IPv4 packet                                              of an ARP packet
====  =============================================================  ================================================
0     padding, destination (2 octets)                                as IPv4
1     destination (4)                                                as IPv4
2     source (4)                                                     as IPv4
3     source (2), EtherType                                          as IPv4
4     version and IHL, type of service, Total Length                 hardware type, protocol type
5     identification, flags and fragment offset                      address lengths, operation
6     TTL, protocol, checksum                                        sender's MAC (4)
7     source                                                         sender's MAC (2), sender (2)
8     destination                                                    sender (2), target's MAC (2)
9     options, or the first octets of TCP, UDP or ICMP               target's MAC (4)
10    the octets that follow                                         target
====  =============================================================  ================================================
"""

from enum import IntEnum

from amaranth.lib import data

from open_rnic.rtl.formats.layouts import Packet

__all__ = [
    "LEAST_WORDS",
    "MOST_WORDS",
    "Counts",
    "EtherType",
    "Frame",
    "Protocol",
    "RxDatagram",
    "RxSegment",
    "Station",
    "TxDatagram",
    "TxSegment",
    "lane16",
]

MOST_WORDS = 379  # of a frame with its padding: 2 + 14 octets, and a packet of 1,500
LEAST_WORDS = 16  # of a frame that is transmitted: 2 + 60 octets


class EtherType(IntEnum):
    """The EtherTypes of the frames that are processed."""

    IPV4 = 0x0800
    ARP = 0x0806
    VLAN = 0x8100


class Protocol(IntEnum):
    """IPv4 protocol numbers."""

    ICMP = 1
    TCP = 6
    UDP = 17


class Station(data.StructLayout):
    """The addresses of this host, each with its first octet in bits 7:0, as in a lane.

    Members
    -------
    mac : 48 bits
    address : 32 bits
    mask : 32 bits
        The bits of the network in ``address``.
    gateway : 32 bits
        The next hop for other networks; 0 for none.
    """

    def __init__(self):
        super().__init__({"mac": 48, "address": 32, "mask": 32, "gateway": 32})


class Counts(data.StructLayout):
    """Pulses, each for a received frame that was discarded. At most one bit is 1; a bad frame is counted by the MAC.

    Members
    -------
    no_room : 1 bit
        The frame was good, but there was no room for its content.
    checksum : 1 bit
        The checksum of IPv4, TCP, UDP or ICMP is wrong.
    ignored : 1 bit
        The frame is not for this host, malformed, or of a kind that this host does not process.
    """

    def __init__(self):
        super().__init__({"no_room": 1, "checksum": 1, "ignored": 1})


class Frame(Packet):
    """A beat of a received frame. ``bad`` (1 bit), valid on the last beat, reports an error of the MAC, such as FCS."""

    def __init__(self):
        super().__init__(1, bad=1)


class RxSegment(Packet):
    """A beat of a received TCP segment, from its header on.

    Two fields are valid on the first beat: ``source`` (32 bits) is the peer's IPv4 address as an integer, ``length``
    (16 bits) the number of octets of the segment.
    """

    def __init__(self):
        super().__init__(1, source=32, length=16)


class TxSegment(Packet):
    """A beat of a TCP segment to send, from its header on, with a checksum of 0.

    Two fields are valid on the first beat: ``destination`` (32 bits) is the peer's IPv4 address as an integer,
    ``length`` (16 bits) the number of octets of the segment, at most 1,480.
    """

    def __init__(self):
        super().__init__(1, destination=32, length=16)


class RxDatagram(Packet):
    """A beat of the payload of a received UDP datagram.

    The fields are valid on the first beat: ``source`` (32 bits, an integer), ``source_port``, ``destination_port`` and
    ``length`` (16 bits each), the number of octets of the payload.
    """

    def __init__(self):
        super().__init__(1, source=32, source_port=16, destination_port=16, length=16)


class TxDatagram(Packet):
    """A beat of the payload of a UDP datagram to send.

    The fields are valid on the first beat: ``destination`` (32 bits, an integer), ``source_port``,
    ``destination_port`` and ``length`` (16 bits each), the number of octets of the payload, at most 1,472.
    """

    def __init__(self):
        super().__init__(1, destination=32, source_port=16, destination_port=16, length=16)


def lane16(value: int) -> int:
    """Return a 16-bit constant as it lies in half a lane."""
    return int.from_bytes(value.to_bytes(2, "big"), "little")
