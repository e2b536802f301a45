"""DDP segments with RDMAP headers: RFC 5041 §4 and RFC 5040 §4.

A ULPDU is one DDP segment. Its header is in network byte order::

    tagged:    T=1 L Rsvd(4) DV(2), RV(2) Rsvd(2) Opcode(4), STag(32), TO(64)
    untagged:  T=0 L Rsvd(4) DV(2), RV(2) Rsvd(2) Opcode(4), 4 octets for RDMAP, QN(32), MSN(32), MO(32)

Reserved bits are sent as zero and not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

_TAGGED, _LAST, _DV = 0x80, 0x40, 0x01
_RV = 0x40
_TAGGED_HEADER = struct.Struct(">BBIQ")
_UNTAGGED_HEADER = struct.Struct(">BB4sIII")
TAGGED_OCTETS = _TAGGED_HEADER.size
UNTAGGED_OCTETS = _UNTAGGED_HEADER.size
SEND_QN, READ_QN, TERMINATE_QN = 0, 1, 2  # RFC 5040 §4.1: the untagged queues
FIRST_MSN = 1  # RFC 5041 §4.3
MAX_MESSAGE = 2**32 - 1  # octets, RFC 5041 §5.2

Octets = bytes | bytearray | memoryview  # a memoryview of single octets, in one piece


class Message(Protocol):
    """Octets of which slices can be taken, such as a memoryview; they need not lie in one piece."""

    def __len__(self) -> int: ...

    def __getitem__(self, octets: slice, /) -> Octets: ...


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

    @property
    def invalidates(self) -> bool:
        """It carries the Invalidate STag."""
        return self in (Opcode.SEND_INVALIDATE, Opcode.SEND_SE_INVALIDATE)

    @property
    def solicited(self) -> bool:
        """It asks for an event at the receiver."""
        return self in (Opcode.SEND_SE, Opcode.SEND_SE_INVALIDATE)


_OPCODES = tuple(Opcode)
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


class Fault(Enum):
    """What a stream can end of, as a Terminate says it: layer, error type, error code.

    RFC 5040 §4.8 for RDMAP, RFC 5041 §7.2 for DDP, RFC 5044 §8 and RFC 6581 §8 for MPA.
    """

    RDMAP_CATASTROPHIC = (0, 0, 0x00)
    SOURCE_STAG = (0, 1, 0x00)
    SOURCE_BOUNDS = (0, 1, 0x01)
    SOURCE_ACCESS = (0, 1, 0x02)
    SOURCE_STREAM = (0, 1, 0x03)
    SOURCE_TO_WRAP = (0, 1, 0x04)
    CANNOT_INVALIDATE = (0, 1, 0x09)
    PROTECTION = (0, 1, 0xFF)
    RDMAP_VERSION = (0, 2, 0x05)
    OPCODE = (0, 2, 0x06)
    STREAM_CATASTROPHIC = (0, 2, 0x07)
    GLOBAL_CATASTROPHIC = (0, 2, 0x08)
    CANNOT_INVALIDATE_OPERATION = (0, 2, 0x09)
    OPERATION = (0, 2, 0xFF)
    DDP_CATASTROPHIC = (1, 0, 0x00)
    STAG = (1, 1, 0x00)
    BOUNDS = (1, 1, 0x01)
    STREAM = (1, 1, 0x02)
    TO_WRAP = (1, 1, 0x03)
    TAGGED_VERSION = (1, 1, 0x04)
    QN = (1, 2, 0x01)
    NO_BUFFER = (1, 2, 0x02)
    MSN = (1, 2, 0x03)
    MO = (1, 2, 0x04)
    TOO_LONG = (1, 2, 0x05)
    UNTAGGED_VERSION = (1, 2, 0x06)
    MPA_LOST = (2, 0, 0x01)
    MPA_CRC = (2, 0, 0x02)
    MPA_MARKER = (2, 0, 0x03)
    MPA_STARTUP = (2, 0, 0x04)
    MPA_CATASTROPHIC = (2, 0, 0x05)
    MPA_IRD = (2, 0, 0x06)
    MPA_RTR = (2, 0, 0x07)

    @property
    def layer(self) -> int:
        """0 RDMAP, 1 DDP, 2 MPA."""
        return self.value[0]

    @property
    def type(self) -> int:
        """The error type, whose meaning is the layer's."""
        return self.value[1]

    @property
    def code(self) -> int:
        """The error code, whose meaning is the type's."""
        return self.value[2]

    def __str__(self) -> str:
        return _FAULTS[self]


_FAULTS = {
    Fault.RDMAP_CATASTROPHIC: "local catastrophic error",
    Fault.SOURCE_STAG: "invalid STag",
    Fault.SOURCE_BOUNDS: "base or bounds violation",
    Fault.SOURCE_ACCESS: "access rights violation",
    Fault.SOURCE_STREAM: "STag not associated with the stream",
    Fault.SOURCE_TO_WRAP: "TO wrap",
    Fault.CANNOT_INVALIDATE: "STag cannot be invalidated",
    Fault.PROTECTION: "unspecified protection error",
    Fault.RDMAP_VERSION: "invalid RDMAP version",
    Fault.OPCODE: "unexpected Opcode",
    Fault.STREAM_CATASTROPHIC: "catastrophic error, localized to the stream",
    Fault.GLOBAL_CATASTROPHIC: "catastrophic error, global",
    Fault.CANNOT_INVALIDATE_OPERATION: "STag cannot be invalidated",
    Fault.OPERATION: "unspecified operation error",
    Fault.DDP_CATASTROPHIC: "local catastrophic error",
    Fault.STAG: "invalid STag",
    Fault.BOUNDS: "base or bounds violation",
    Fault.STREAM: "STag not associated with the stream",
    Fault.TO_WRAP: "TO wrap",
    Fault.TAGGED_VERSION: "invalid DDP version",
    Fault.QN: "invalid QN",
    Fault.NO_BUFFER: "invalid MSN: no buffer available",
    Fault.MSN: "invalid MSN: out of range",
    Fault.MO: "invalid MO",
    Fault.TOO_LONG: "message too long for the available buffer",
    Fault.UNTAGGED_VERSION: "invalid DDP version",
    Fault.MPA_LOST: "TCP connection lost",
    Fault.MPA_CRC: "CRC mismatch",
    Fault.MPA_MARKER: "marker and ULPDU_Length mismatch",
    Fault.MPA_STARTUP: "invalid MPA Request or Reply",
    Fault.MPA_CATASTROPHIC: "local catastrophic error",
    Fault.MPA_IRD: "insufficient IRD",
    Fault.MPA_RTR: "no matching RTR",
}


class DdpError(Exception):
    """A ULPDU is not the segment that is due; the text names the field, its value and the one expected.

    ``fault`` is what a Terminate says of it.
    """

    def __init__(self, what: str, fault: Fault = Fault.STREAM_CATASTROPHIC) -> None:
        super().__init__(what)
        self.fault = fault


class Tagged(NamedTuple):
    """A segment for a tagged buffer: STag, and the offset TO in it, in octets."""

    opcode: Opcode
    stag: int
    to: int
    last: bool
    payload: Octets = b""

    def encode(self) -> bytes:
        """The ULPDU."""
        flags = _TAGGED | (_LAST if self.last else 0) | _DV
        return _TAGGED_HEADER.pack(flags, _RV | self.opcode, self.stag, self.to) + self.payload

    def __str__(self) -> str:
        return f"{self.opcode}, STag {self.stag:#x}, TO {self.to:#x}, L={self.last:d}, {_octets(self.payload)}"


class Untagged(NamedTuple):
    """A segment of message MSN of queue QN; MO is its place in the message, in octets."""

    opcode: Opcode
    qn: int
    msn: int
    mo: int
    last: bool
    payload: Octets = b""
    rdmap: bytes = bytes(4)  # RFC 5040 §4.1: the Invalidate STag of some messages, zero for the others

    def encode(self) -> bytes:
        """The ULPDU."""
        flags = (_LAST if self.last else 0) | _DV
        header = _UNTAGGED_HEADER.pack(flags, _RV | self.opcode, self.rdmap, self.qn, self.msn, self.mo)
        return header + self.payload

    def __str__(self) -> str:
        place = f"QN {self.qn}, MSN {self.msn}, MO {self.mo}, L={self.last:d}"
        return f"{self.opcode}, {place}, {_octets(self.payload)}"


def _octets(payload: Octets) -> str:
    return f"{len(payload)} octets" if payload else "no octets"


def decode(ulpdu: bytes) -> Tagged | Untagged:
    """Read a ULPDU's header; the payload is a view of the ULPDU, not a copy.

    Raises DdpError for one that is too short, or whose version or Opcode is unknown.
    """
    if len(ulpdu) < 2:
        raise DdpError(f"a ULPDU of {len(ulpdu)} octets has no DDP header")
    flags, control = ulpdu[0], ulpdu[1]
    if flags & 0x03 != _DV:
        fault = Fault.TAGGED_VERSION if flags & _TAGGED else Fault.UNTAGGED_VERSION
        raise DdpError(f"DDP version {flags & 0x03} where 1 is due", fault)
    if control & 0xC0 != _RV:
        raise DdpError(f"RDMAP version {control >> 6} where 1 is due", Fault.RDMAP_VERSION)
    if control & 0x0F >= len(_OPCODES):
        raise DdpError(f"RDMAP Opcode {control & 0x0F} is not known", Fault.OPCODE)
    opcode = _OPCODES[control & 0x0F]
    octets = TAGGED_OCTETS if flags & _TAGGED else UNTAGGED_OCTETS
    if len(ulpdu) < octets:
        raise DdpError(f"a ULPDU of {len(ulpdu)} octets is shorter than its DDP header, {octets}")
    payload = memoryview(ulpdu)[octets:]
    if flags & _TAGGED:
        _, _, stag, to = _TAGGED_HEADER.unpack_from(ulpdu)
        return Tagged(opcode, stag, to, bool(flags & _LAST), payload)
    _, _, rdmap, qn, msn, mo = _UNTAGGED_HEADER.unpack_from(ulpdu)
    return Untagged(opcode, qn, msn, mo, bool(flags & _LAST), payload, rdmap)


def header(ulpdu: bytes) -> bytes:
    """The DDP header that ``ulpdu`` begins with; no octets when it is cut short."""
    octets = TAGGED_OCTETS if ulpdu and ulpdu[0] & _TAGGED else UNTAGGED_OCTETS
    return ulpdu[:octets] if len(ulpdu) >= octets else b""


def tagged_segments(opcode: Opcode, stag: int, to: int, message: Message, mulpdu: int) -> Iterator[bytes]:
    """Cut a message for a tagged buffer into ULPDUs of at most ``mulpdu`` octets (RFC 5041 §5.2)."""
    room = mulpdu - TAGGED_OCTETS
    yield from (
        Tagged(opcode, stag, to + at, at + room >= len(message), message[at : at + room]).encode()
        for at in range(0, len(message) or 1, room)
    )


def untagged_segments(
    opcode: Opcode,
    qn: int,
    msn: int,
    message: Message,
    mulpdu: int,
    *,
    rdmap: bytes = bytes(4),
    fit: Callable[[int], int] | None = None,
) -> Iterator[bytes]:
    """Cut a message for a queue into ULPDUs of at most ``mulpdu`` octets; one of no octets has one segment.

    ``fit`` may shorten each: it is given the length of the ULPDU to come, and gives the length to make.
    """
    mo, last = 0, False
    while not last:
        length = min(mulpdu, UNTAGGED_OCTETS + len(message) - mo)
        payload = message[mo : mo + (fit(length) if fit else length) - UNTAGGED_OCTETS]
        last = mo + len(payload) == len(message)
        yield Untagged(opcode, qn, msn, mo, last, payload, rdmap).encode()
        mo += len(payload)


def send_segments(
    message: Octets, msn: int, mulpdu: int, fit: Callable[[int], int] | None = None
) -> Iterator[bytes]:
    """The segments of a Send; see ``untagged_segments``."""
    return untagged_segments(Opcode.SEND, SEND_QN, msn, memoryview(message), mulpdu, fit=fit)


def next_msn(msn: int) -> int:
    """The MSN after this one (RFC 5041 §4.3)."""
    return (msn + 1) % 2**32


class ReadRequest(NamedTuple):
    """The RDMA Read Request header (RFC 5040 §4.4): what to send where. ``size`` is RDMARDSZ, in octets."""

    sink_stag: int
    sink_to: int
    size: int
    source_stag: int
    source_to: int

    def encode(self) -> bytes:
        """The header."""
        return _READ_REQUEST.pack(*self)

    @classmethod
    def decode(cls, octets: Octets) -> ReadRequest:
        """Read the header; raises DdpError when it is not 28 octets."""
        if len(octets) != READ_REQUEST_OCTETS:
            raise DdpError(f"an RDMA Read Request header of {len(octets)} octets where {READ_REQUEST_OCTETS} are due")
        return cls(*_READ_REQUEST.unpack(octets))

    def after(self, octets: int) -> ReadRequest:
        """What is left of it when so many octets have been sent; a sink's TO is the peer's affair and may wrap."""
        sink_stag, sink_to, size, source_stag, source_to = self
        wrapped = (source_to + octets) % 2**64
        return ReadRequest(sink_stag, (sink_to + octets) % 2**64, size - octets, source_stag, wrapped)


_READ_REQUEST = struct.Struct(">IQIIQ")
READ_REQUEST_OCTETS = _READ_REQUEST.size


class Terminate(NamedTuple):
    """The Terminate header (RFC 5040 §4.8): why a stream ends, and headers of what made it end.

    ``segment_length`` is the length of the DDP segment that was refused, in octets with its header; None: unknown.
    ``ddp_header`` and ``rdma_header`` are its headers; no octets: not included.
    """

    layer: int
    type: int
    code: int
    segment_length: int | None = None
    ddp_header: bytes = b""
    rdma_header: bytes = b""

    @classmethod
    def of(cls, fault: Fault, ulpdu: bytes = b"", rdma_header: bytes = b"") -> Terminate:
        """For this fault; ``ulpdu`` is the refused one, of which the Terminate tells what RFC 5040 figure 10 says."""
        included = fault.layer == 1 or (fault.layer == 0 and fault.type != 0)  # RDMAP's, or DDP's
        told = header(ulpdu) if included else b""
        if not told:
            return cls(*fault.value)
        return cls(*fault.value, len(ulpdu), told, rdma_header if fault.layer == 0 and fault.type == 1 else b"")

    @property
    def fault(self) -> Fault | None:
        """What it says, if a document defines it."""
        try:
            return Fault((self.layer, self.type, self.code))
        except ValueError:
            return None

    def encode(self) -> bytes:
        """The ULPDU: it is the first and last message of its queue."""
        m, d, r = self.segment_length is not None, bool(self.ddp_header), bool(self.rdma_header)
        control = self.layer << 28 | self.type << 24 | self.code << 16 | m << 15 | d << 14 | r << 13
        octets = control.to_bytes(4, "big")
        if m or d:
            octets += (self.segment_length or 0).to_bytes(2, "big")
        octets += self.ddp_header + self.rdma_header
        return Untagged(Opcode.TERMINATE, TERMINATE_QN, FIRST_MSN, 0, True, octets).encode()

    @classmethod
    def decode(cls, octets: Octets) -> Terminate:
        """Read the message behind the DDP header; headers that are cut short are left out.

        Raises DdpError when there are not even the 4 octets of the Terminate Control.
        """
        if len(octets) < 4:
            raise DdpError(f"a Terminate of {len(octets)} octets where at least 4 are due")
        control = int.from_bytes(octets[:4], "big")
        m, d, r = control >> 15 & 1, control >> 14 & 1, control >> 13 & 1
        rest = bytes(octets[4:])
        length = int.from_bytes(rest[:2], "big") if m and len(rest) >= 2 else None
        told = header(rest[2:]) if d else b""
        rdma = rest[2 + len(told) :][:READ_REQUEST_OCTETS] if r else b""
        if len(rdma) < READ_REQUEST_OCTETS:
            rdma = b""
        return cls(control >> 28, control >> 24 & 0xF, control >> 16 & 0xFF, length, told, rdma)

    def __str__(self) -> str:
        where = _LAYERS.get(self.layer, f"layer {self.layer}")
        what = str(self.fault) if self.fault else "an error that no document names"
        return f"{where}: {what} ({self.layer}/{self.type}/{self.code})"


_LAYERS = {0: "RDMAP", 1: "DDP", 2: "MPA"}


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
        return bytes(segment.payload)

    def finish(self) -> None:
        """Raise DdpError when the stream ends inside a message."""
        if self.mo:
            raise DdpError(f"the stream ended after {self.mo} octets of the Send with MSN {self.msn}")
