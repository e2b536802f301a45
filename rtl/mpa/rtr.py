"""Facts about RTRs (RFC 6581 §9.2) that :class:`.RtrGenerator` and :class:`.RtrDetector` share."""

from enum import IntEnum

__all__ = ["HEADER", "Opcode"]

HEADER = 48  # octets, whole beats at up to 4 lanes, that hold the longest RTR: a Read Request of 46 octets


class Opcode(IntEnum):
    """The RDMAP opcodes that the device knows (RFC 5040 §4.1)."""

    WRITE = 0
    READ_REQUEST = 1
    READ_RESPONSE = 2
    SEND = 3
    TERMINATE = 7
