"""The constants of the protocol between host and device; ``docs/link.md`` describes the formats in tables.

A frame consists of octets and their CRC-32C, encoded by COBS, and a zero octet. Fields of several octets are
little-endian, and so is the CRC.
"""

from enum import IntEnum, IntFlag

VERSION = 2  # version of the protocol
LINK_PORT = 57767  # the UDP port of a device, one of those that are free for private use (RFC 6335 §6)
WINDOW = 2  # maximum number of outstanding requests, and number of responses that the device keeps
# Sizes of the memory for a frame in octets. A request without COBS, and a response with COBS, must be shorter.
SIZES = (512, 1024, 2048, 4096)
HEADER = 5  # octets at the start of a request, which its response repeats: sequence and Ask, session
TRAILER = 7  # octets behind the records of a response: Status, discarded frames, version and size, CRC
MARGIN = 32  # octets at the end of a response that are reserved for records and trailer, in addition to one beat
RECORD = 255  # maximum number of a stream's octets in one record


SEQUENCE = 15  # mask of the sequence number in the first octet of a request


class Ask(IntFlag):
    """The flags in the first octet of a request."""

    OPEN = 16  # begin this session if it is not the current one
    ULPDU = 32  # the response may contain octets of received ULPDUs
    MPA = 64  # the response may contain octets of the outgoing MPA stream


class Op(IntEnum):
    """The kind of an operation, in bits 5:3 of its first octet. Bits 2:0 are the number of argument octets.

    ULPDU, MPA and EMPTY have two more bits: :data:`LAST` and :data:`TURN`. The comments list the arguments.
    """

    END = 0  # the end of the request; no arguments
    READ = 1  # register address / 4 (2)
    WRITE = 2  # a word (4 octets), register address / 4 (2)
    ULPDU = 3  # length of the ULPDU (2), position of the last octet in the frame (2); then the octets
    MPA = 4  # two unused octets, position of the last octet in the frame (2); then the octets
    EMPTY = 5  # a ULPDU of no octets: four zeros
    CLEAR = 6  # discard incomplete beats, and set both turns to 0; no arguments


ARGUMENTS = {Op.END: 0, Op.READ: 2, Op.WRITE: 6, Op.ULPDU: 4, Op.MPA: 4, Op.EMPTY: 4, Op.CLEAR: 0}
LAST = 1 << 6  # the packet ends with these octets
TURN = 1 << 7  # the turn of the stream


def op(kind: Op) -> int:
    """Return the first octet of an operation, without LAST and TURN."""
    return kind << 3 | ARGUMENTS[kind]


# The type of a record is in its last octet, so a response is read from its end.
VALUE = 0  # the word of a register precedes
# A stream has not accepted all octets of a request, and its turn has changed. The position of the first octet that it
# has not accepted is in this octet (bits 13:8) and in the preceding one (bits 7:0).
SHORT = 1 << 6
OCTETS = 1 << 7  # octets of a stream precede, and their count; this octet also holds the following fields
OCTETS_ULPDU = 1 << 6  # the octets belong to a received ULPDU; if clear, to the MPA stream
OCTETS_LAST = 1 << 5  # the packet ends with these octets
VERDICT_LSB = 3  # the Verdict of a ULPDU that ends here, 2 bits


class Status(IntFlag):
    """The status of a response."""

    REFUSED = 1  # the session is not the current one, and the request was not executed
    EVENT = 2  # an event is pending
    FRESH = 4  # the device has had no session since it started
    INTERRUPT = 8  # the RDMA engine requests an interrupt
