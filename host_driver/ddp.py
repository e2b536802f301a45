"""DDP segments with RDMAP headers: RFC 5041 §4 and RFC 5040 §4.

A ULPDU is one DDP segment. Its header is in network byte order::

    tagged:    T=1 L Rsvd(4) DV(2), RV(2) Rsvd(2) Opcode(4), STag(32), TO(64)
    untagged:  T=0 L Rsvd(4) DV(2), RV(2) Rsvd(2) Opcode(4), 4 octets for RDMAP, QN(32), MSN(32), MO(32)

Reserved bits are sent as zero and not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

_TAGGED, _LAST, _DV = 0x80, 0x40, 0x01
_RV = 0x40
_TAGGED_HEADER = struct.Struct(">BBIQ")
_UNTAGGED_HEADER = struct.Struct(">BB4sIII")
UNTAGGED_OCTETS = _UNTAGGED_HEADER.size
SEND_QN = 0  # RFC 5040 §4.1: Sends are the untagged messages of queue 0


class Opcode(IntEnum):
    """RDMAP's messages (RFC 5040 §4.1)."""

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


class DdpError(Exception):
    """A ULPDU is not the segment that is due; the text names the field, its value and the one expected."""


@dataclass(frozen=True)
class Tagged:
    """A segment for a tagged buffer: STag, and the offset TO in it, in octets."""

    opcode: Opcode
    stag: int
    to: int
    last: bool
    payload: bytes = b""

    def encode(self) -> bytes:
        """The ULPDU."""
        flags = _TAGGED | (_LAST if self.last else 0) | _DV
        return _TAGGED_HEADER.pack(flags, _RV | self.opcode, self.stag, self.to) + self.payload

    def __str__(self) -> str:
        return f"{self.opcode}, STag {self.stag:#x}, TO {self.to:#x}, L={self.last:d}, {_octets(self.payload)}"


@dataclass(frozen=True)
class Untagged:
    """A segment of message MSN of queue QN; MO is its place in the message, in octets."""

    opcode: Opcode
    qn: int
    msn: int
    mo: int
    last: bool
    payload: bytes = b""
    rdmap: bytes = bytes(4)  # RFC 5040 §4.1: the Invalidate STag of some messages, zero for the others

    def encode(self) -> bytes:
        """The ULPDU."""
        flags = (_LAST if self.last else 0) | _DV
        header = _UNTAGGED_HEADER.pack(flags, _RV | self.opcode, self.rdmap, self.qn, self.msn, self.mo)
        return header + self.payload

    def __str__(self) -> str:
        place = f"QN {self.qn}, MSN {self.msn}, MO {self.mo}, L={self.last:d}"
        return f"{self.opcode}, {place}, {_octets(self.payload)}"


def _octets(payload: bytes) -> str:
    return f"{len(payload)} octets" if payload else "no octets"


def decode(ulpdu: bytes) -> Tagged | Untagged:
    """Read a ULPDU's header; raises DdpError for one that is too short, or whose version or Opcode is unknown."""
    if len(ulpdu) < 2:
        raise DdpError(f"a ULPDU of {len(ulpdu)} octets has no DDP header")
    flags, control = ulpdu[0], ulpdu[1]
    if flags & 0x03 != _DV:
        raise DdpError(f"DDP version {flags & 0x03} where 1 is due")
    if control & 0xC0 != _RV:
        raise DdpError(f"RDMAP version {control >> 6} where 1 is due")
    if control & 0x0F > max(Opcode):
        raise DdpError(f"RDMAP Opcode {control & 0x0F} is not known")
    opcode, last = Opcode(control & 0x0F), bool(flags & _LAST)
    header = _TAGGED_HEADER if flags & _TAGGED else _UNTAGGED_HEADER
    if len(ulpdu) < header.size:
        raise DdpError(f"a ULPDU of {len(ulpdu)} octets is shorter than its DDP header, {header.size}")
    payload = ulpdu[header.size :]
    if flags & _TAGGED:
        _, _, stag, to = _TAGGED_HEADER.unpack_from(ulpdu)
        return Tagged(opcode, stag, to, last, payload)
    _, _, rdmap, qn, msn, mo = _UNTAGGED_HEADER.unpack_from(ulpdu)
    return Untagged(opcode, qn, msn, mo, last, payload, rdmap)


def send_segments(
    message: bytes, msn: int, mulpdu: int, fit: Callable[[int], int] | None = None
) -> Iterator[bytes]:
    """Cut a Send into ULPDUs of at most ``mulpdu`` octets (RFC 5041 §5.2); one of no octets has one segment.

    ``fit`` may shorten each: it is given the length of the ULPDU to come, and gives the length to make.
    """
    mo, last = 0, False
    while not last:
        length = min(mulpdu, UNTAGGED_OCTETS + len(message) - mo)
        payload = message[mo : mo + (fit(length) if fit else length) - UNTAGGED_OCTETS]
        last = mo + len(payload) == len(message)
        yield Untagged(Opcode.SEND, SEND_QN, msn, mo, last, payload).encode()
        mo += len(payload)


def next_msn(msn: int) -> int:
    """The MSN after this one (RFC 5041 §4.3)."""
    return (msn + 1) % 2**32


class SendReceiver:
    """Takes the segments of Sends that come in order, from message ``msn`` on."""

    def __init__(self, msn: int) -> None:
        self.msn = msn
        self.mo = 0

    def take(self, ulpdu: bytes) -> bytes:
        """The segment's payload; raises DdpError when it is not the one that is due."""
        segment = decode(ulpdu)
        if not isinstance(segment, Untagged) or segment.opcode is not Opcode.SEND or segment.qn != SEND_QN:
            raise DdpError(f"{segment} where a Send is due")
        if (segment.msn, segment.mo) != (self.msn, self.mo):
            raise DdpError(f"{segment} where MSN {self.msn}, MO {self.mo} is due")
        self.mo += len(segment.payload)
        if segment.last:
            self.msn, self.mo = next_msn(self.msn), 0
        return segment.payload

    def finish(self) -> None:
        """Raise DdpError when the stream ends inside a message."""
        if self.mo:
            raise DdpError(f"the stream ended after {self.mo} octets of the Send with MSN {self.msn}")
