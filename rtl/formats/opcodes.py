"""The numbers of RDMAP and DDP headers (RFC 5040 §4.1, RFC 5041 §4), as plain data."""

from enum import IntEnum

__all__ = ["FIRST_MSN", "INVALIDATES", "READ_REQUEST_OCTETS", "SENDS", "TAGGED", "TAGGED_OCTETS", "UNTAGGED",
           "UNTAGGED_OCTETS", "VERSION", "Opcode", "Queue"]

VERSION = 1  # DV (RFC 5041 §4.1) and RV (RFC 5040 §4.1)
FIRST_MSN = 1  # RFC 5041 §4.3
TAGGED_OCTETS = 14  # control, STag, TO
UNTAGGED_OCTETS = 18  # control, Invalidate STag, QN, MSN, MO
READ_REQUEST_OCTETS = 28  # Sink STag, Sink TO, RDMARDSZ, Source STag, Source TO


class Opcode(IntEnum):
    """The types of RDMAP messages (RFC 5040 §4.1)."""

    RDMA_WRITE = 0
    RDMA_READ_REQUEST = 1
    RDMA_READ_RESPONSE = 2
    SEND = 3
    SEND_INVALIDATE = 4
    SEND_SE = 5
    SEND_SE_INVALIDATE = 6
    TERMINATE = 7

    def __str__(self) -> str:
        return _NAMES[self]

    @property
    def invalidates(self) -> bool:
        """Whether the message carries an Invalidate STag."""
        return self in INVALIDATES

    @property
    def solicited(self) -> bool:
        """Whether the message requests a solicited event at the receiver."""
        return self in (Opcode.SEND_SE, Opcode.SEND_SE_INVALIDATE)


TAGGED = (Opcode.RDMA_WRITE, Opcode.RDMA_READ_RESPONSE)
SENDS = (Opcode.SEND, Opcode.SEND_INVALIDATE, Opcode.SEND_SE, Opcode.SEND_SE_INVALIDATE)
INVALIDATES = (Opcode.SEND_INVALIDATE, Opcode.SEND_SE_INVALIDATE)
UNTAGGED = (Opcode.RDMA_READ_REQUEST, *SENDS)  # without Terminate


class Queue(IntEnum):
    """The untagged queues, by their QN (RFC 5040 §4.1)."""

    SEND = 0
    READ = 1
    TERMINATE = 2


_NAMES = {
    Opcode.RDMA_WRITE: "RDMA Write",
    Opcode.RDMA_READ_REQUEST: "RDMA Read Request",
    Opcode.RDMA_READ_RESPONSE: "RDMA Read Response",
    Opcode.SEND: "Send",
    Opcode.SEND_INVALIDATE: "Send with Invalidate",
    Opcode.SEND_SE: "Send with SE",
    Opcode.SEND_SE_INVALIDATE: "Send with SE and Invalidate",
    Opcode.TERMINATE: "Terminate",
}
