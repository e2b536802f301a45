"""What host and device say to each other over a link, as plain data: ``docs/link.md`` has the tables.

A frame is octets and their CRC-32C, as ``crc32c`` of the packages has it, least significant octet first; encoded by
COBS, so that it has no zero; and a zero. Fields of several octets have the least significant one first.
"""

from enum import IntEnum, IntFlag

VERSION = 1  # of the link
WINDOW = 2  # requests that may be under way: the device keeps so many responses
# Octets of memory for a frame: a request before COBS, or a response behind it, has fewer.
SIZES = (512, 1024, 2048, 4096)
HEADER = 5  # octets that a request begins with: sequence and Ask, session; its response begins with them, too
TRAILER = 7  # behind a response's records: Status, damaged, version and size, CRC
MARGIN = 32  # octets at the end of a response into which no stream's octets go, beside a beat
RECORD = 255  # octets that a record can have


SEQUENCE = 15  # bits of a request's first octet: requests are counted modulo 16


class Ask(IntFlag):
    """The other bits of a request's first octet."""

    OPEN = 16  # begin this session, if it is another than the present one
    ULPDU = 32  # octets of received ULPDUs are welcome
    MPA = 64  # octets of the MPA stream to send are welcome


class Op(IntEnum):
    """An operation: bits 5:3 of its first octet, in which bits 2:0 say how many octets of arguments follow.

    For all that give octets, bit 6 says that these end the packet, and bit 7 is the turn.
    """

    END = 0  # of the request
    READ = 1  # register address / 4
    WRITE = 2  # a word, register address / 4
    ULPDU = 3  # the ULPDU's length, the place in the frame of the last octet here, and octets
    MPA = 4  # two octets without meaning, the place of the last octet here, and octets
    EMPTY = 5  # a ULPDU of no octets: four octets of zeros
    CLEAR = 6  # forget beats that are not full, and set both turns to 0


ARGUMENTS = {Op.END: 0, Op.READ: 1, Op.WRITE: 5, Op.ULPDU: 4, Op.MPA: 4, Op.EMPTY: 4, Op.CLEAR: 0}
LAST = 1 << 6
TURN = 1 << 7


def op(kind: Op) -> int:
    """The first octet of an operation."""
    return kind << 3 | ARGUMENTS[kind]


# The last octet of a record of a response, from which one goes back to its other octets.
VALUE = 0  # behind a register's word
# Behind the low octet of a place, whose high bits are in this one: of the first octet of the request that was not taken
# by a stream, whose turn has changed with that.
SHORT = 1 << 6
OCTETS = 1 << 7  # this bit set in a record's last octet: behind a count, behind so many octets of a stream
OCTETS_ULPDU = 1 << 6  # of a received ULPDU, not of the MPA stream
OCTETS_LAST = 1 << 5  # the packet ends here
VERDICT_LSB = 3  # two bits, of a ULPDU's last octets


class Status(IntFlag):
    """Of a response."""

    REFUSED = 1  # the device knows this session not, or no longer
    EVENT = 2  # an event waits
    FRESH = 4  # the device has had no session yet
