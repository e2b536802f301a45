"""MPA Request and Reply Frames: RFC 5044 §7.1.1 with the enhanced data of RFC 6581 §6 and §9.

Both frames consist of a header of 20 octets and 0 to 512 octets of Private Data, in network byte order::

    0   Key, 16 octets: "MPA ID Req Frame" or "MPA ID Rep Frame"
    16  M C R S, and 4 reserved bits: sent as zero, not checked when received
    17  Rev
    18  PD_Length, 2 octets: the Private Data, enhanced data included
    20  if S is one: A B IRD(14) C D ORD(14)
    ..  the private data of the ULP

The length of a frame is known only after its octets 18 and 19, and FPDUs follow the frame. ``StartupDecoder.missing``
therefore gives the number of octets that may be taken, which never reaches past the end of the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from open_rnic.rtl.registers import Rtr

HEADER_OCTETS = 20
ENHANCED_OCTETS = 4
MAX_PRIVATE_DATA = 512  # RFC 5044 §7.1.1; the enhanced data counts too (RFC 6581 §6)
NO_NEGOTIATION = 0x3FFF  # RFC 6581 §9.1: with this value, IRD or ORD is left to the ULP

_KEY_OCTETS = 16
_M, _C, _R, _S = 0x80, 0x40, 0x20, 0x10
_UPPER, _LOWER = 0x8000, 0x4000  # the flags before IRD, A and B, and before ORD, C and D


class Dialect(Enum):
    """The document that defines the 32 bits of enhanced data; the rest of the frame is the same in all of them.

    DRAFT_02 is draft-ietf-storm-mpa-peer-connect-02, which agrees with -01: A, B and C stand for the Send, Write and
    Read RTR, D is reserved, no flag selects the model, and the IRD in a Request is the IRD that the initiator asks of
    the responder. Draft -09 has the form of RFC 6581.
    """

    RFC_6581 = "rfc6581"
    DRAFT_02 = "draft-02"

    def __str__(self) -> str:
        return self.value


_RTR_FLAGS = {  # the word, and the bit in it
    Dialect.RFC_6581: {Rtr.SEND: (0, _LOWER), Rtr.WRITE: (1, _UPPER), Rtr.READ: (1, _LOWER)},
    Dialect.DRAFT_02: {Rtr.SEND: (0, _UPPER), Rtr.WRITE: (0, _LOWER), Rtr.READ: (1, _UPPER)},
}


class FrameKind(Enum):
    """The kinds of startup frames; the value is the Key."""

    REQUEST = b"MPA ID Req Frame"
    REPLY = b"MPA ID Rep Frame"

    def __str__(self) -> str:
        return f"MPA {self.name.capitalize()}"


class StartupError(ValueError):
    """A startup frame is improperly formatted: MPA error 4 (RFC 5044 §8).

    ``field`` is the name of the field in the RFC, ``value`` its value, and ``offset`` its stream
    offset in octets.
    """

    def __init__(self, frame: FrameKind, field: str, value: int | bytes, offset: int, rule: str) -> None:
        self.frame = frame
        self.field = field
        self.value = value
        self.offset = offset
        shown = value.hex() if isinstance(value, bytes) else value
        super().__init__(f"{frame} with {field} {shown} at stream offset {offset}: {rule}")


@dataclass(frozen=True)
class EnhancedData:
    """The 32 bits of RFC 6581 §9: Control Flags A to D, IRD and ORD.

    ``ird`` and ``ord`` are numbers of RDMA Read Requests, 0 to 0x3FFE, or NO_NEGOTIATION. Raises ValueError for
    values that cannot be encoded.
    """

    ird: int
    ord: int
    peer_to_peer: bool = False  # A
    rtr: frozenset[Rtr] = frozenset()  # B: SEND, C: WRITE, D: READ
    dialect: Dialect = field(default=Dialect.RFC_6581, kw_only=True)

    def __post_init__(self) -> None:
        for name, value in (("IRD", self.ird), ("ORD", self.ord)):
            if not 0 <= value <= NO_NEGOTIATION:
                raise ValueError(f"{name} is 0 to {NO_NEGOTIATION}, not {value}")
        if self.dialect is Dialect.DRAFT_02 and self.peer_to_peer != bool(self.rtr):
            raise ValueError(f"{self.dialect} expresses the peer-to-peer model by an RTR kind: both or none")

    def encode(self) -> bytes:
        """Return the four octets, in network byte order."""
        words = [self.ird, self.ord]
        if self.dialect is Dialect.RFC_6581 and self.peer_to_peer:
            words[0] |= _UPPER
        for kind in self.rtr:
            word, bit = _RTR_FLAGS[self.dialect][kind]
            words[word] |= bit
        return struct.pack(">HH", *words)

    @classmethod
    def decode(cls, octets: bytes, dialect: Dialect = Dialect.RFC_6581) -> EnhancedData:
        """Decode four octets; every value is valid."""
        words = struct.unpack(">HH", octets)
        rtr = frozenset(kind for kind, (word, bit) in _RTR_FLAGS[dialect].items() if words[word] & bit)
        return cls(
            ird=words[0] & NO_NEGOTIATION,
            ord=words[1] & NO_NEGOTIATION,
            peer_to_peer=bool(words[0] & _UPPER) if dialect is Dialect.RFC_6581 else bool(rtr),
            rtr=rtr,
            dialect=dialect,
        )

    def fields(self) -> dict[str, object]:
        """Return IRD, ORD and the flags, each under its name in the dialect."""
        send, write, read = (int(kind in self.rtr) for kind in (Rtr.SEND, Rtr.WRITE, Rtr.READ))
        flags = {"A": int(self.peer_to_peer), "B": send, "C_rtr_write": write, "D_rtr_read": read}
        if self.dialect is Dialect.DRAFT_02:
            flags = {"A_rtr_send": send, "B_rtr_write": write, "C_rtr_read": read}
        return {**flags, "ird": self.ird, "ord": self.ord}

    def __str__(self) -> str:
        model = "peer-to-peer" if self.peer_to_peer else "client-server"
        flag = f"A={int(self.peer_to_peer)}" if self.dialect is Dialect.RFC_6581 else str(self.dialect)
        names = [kind.name.capitalize() for kind in sorted(self.rtr)]
        rtr = f", RTR {' or '.join(names)}" if names else ""
        return f"{flag} {model}{rtr}, IRD {_depth(self.ird)}, ORD {_depth(self.ord)}"


@dataclass(frozen=True)
class StartupFrame:
    """An MPA Request or Reply Frame.

    ``private_data`` is the ULP's, without the enhanced data: up to 512 octets, or 508 if there is enhanced data. S is
    one if ``enhanced`` is given, and zero otherwise. Raises ValueError for values that cannot be encoded.
    """

    kind: FrameKind
    markers: bool = False  # M: the sender of this frame wants markers in the stream that it receives
    crc: bool = True  # C
    rejected: bool = False  # R
    rev: int = 2
    enhanced: EnhancedData | None = None
    private_data: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.rev <= 255:
            raise ValueError(f"Rev is 0 to 255, not {self.rev}")
        if self.pd_length > MAX_PRIVATE_DATA:
            room = MAX_PRIVATE_DATA - self.pd_length + len(self.private_data)
            raise ValueError(f"private data may have {room} octets, not {len(self.private_data)} (RFC 5044 §7.1.1)")

    @property
    def pd_length(self) -> int:
        """PD_Length: the octets of Private Data, enhanced data included."""
        return len(self.private_data) + (ENHANCED_OCTETS if self.enhanced else 0)

    def encode(self) -> bytes:
        """Return the 20 + PD_Length octets of the frame."""
        flags = (
            (_M if self.markers else 0)
            | (_C if self.crc else 0)
            | (_R if self.rejected else 0)
            | (_S if self.enhanced else 0)
        )
        enhanced = self.enhanced.encode() if self.enhanced else b""
        return self.kind.value + struct.pack(">BBH", flags, self.rev, self.pd_length) + enhanced + self.private_data

    def fields(self) -> dict[str, object]:
        """Return every field under its name in the RFCs, flags as 0 or 1, private data in hex."""
        named: dict[str, object] = {
            "kind": self.kind.name.lower(),
            "rev": self.rev,
            "M": int(self.markers),
            "C": int(self.crc),
            "R": int(self.rejected),
            "S": int(self.enhanced is not None),
        }
        if self.enhanced:
            named |= self.enhanced.fields()
        return named | {"private_data": self.private_data.hex()}

    def describe(self) -> list[str]:
        """Describe the fields to a person: a line for the header, and one for each further part."""
        flags = " ".join(
            f"{name}={int(bit)}"
            for name, bit in (("M", self.markers), ("C", self.crc), ("R", self.rejected), ("S", bool(self.enhanced)))
        )
        lines = [f"Rev {self.rev}  {flags}  PD_Length {self.pd_length}"]
        if self.enhanced:
            lines.append(str(self.enhanced))
        if self.private_data:
            shown = self.private_data[:16].hex() + ("…" if len(self.private_data) > 16 else "")
            lines.append(f"private data, {len(self.private_data)} octets: {shown}")
        return lines


def _depth(value: int) -> str:
    return "0x3FFF (not negotiated)" if value == NO_NEGOTIATION else str(value)


_WRONG_KEY: Mapping[FrameKind, str] = {
    FrameKind.REQUEST: "a Reply came where a Request is due",
    FrameKind.REPLY: "a Request came where a Reply is due; both ends are initiators (RFC 5044 §7.1.2 rule 8)",
}


class StartupDecoder:
    """Decodes one frame of the ``expected`` kind from octets that arrive in pieces.

    Feed it at most ``missing`` octets at a time until ``frame`` is set. Errors are found as early as possible: a wrong
    Key at its first octet that differs, a wrong PD_Length at its second octet.
    """

    def __init__(self, expected: FrameKind, dialect: Dialect = Dialect.RFC_6581) -> None:
        self.expected = expected
        self.dialect = dialect
        self.frame: StartupFrame | None = None
        self._octets = bytearray()
        self._whole = HEADER_OCTETS

    @property
    def missing(self) -> int:
        """The number of octets that may be fed now: these belong to the frame in any case. 0 if it is complete."""
        return self._whole - len(self._octets)

    @property
    def received(self) -> int:
        """The number of octets fed so far."""
        return len(self._octets)

    def feed(self, octets: bytes) -> None:
        """Take octets; raises StartupError for a bad frame, and ValueError for more octets than ``missing``."""
        if len(octets) > self.missing:
            raise ValueError(f"{len(octets)} octets given where {self.missing} are missing")
        self._octets += octets
        self._check_key()
        if len(self._octets) == HEADER_OCTETS:
            self._whole = HEADER_OCTETS + self._check_length()
        if not self.missing:
            self.frame = self._decode()

    def _check_key(self) -> None:
        key = bytes(self._octets[:_KEY_OCTETS])
        if self.expected.value.startswith(key):
            return
        other = FrameKind.REPLY if self.expected is FrameKind.REQUEST else FrameKind.REQUEST
        if other.value.startswith(key):
            raise StartupError(self.expected, "Key", key, 0, _WRONG_KEY[self.expected])
        raise StartupError(self.expected, "Key", key, 0, f'it must be "{self.expected.value.decode()}"')

    def _check_length(self) -> int:
        flags, _, length = struct.unpack(">BBH", self._octets[_KEY_OCTETS:])
        if length > MAX_PRIVATE_DATA:
            raise StartupError(self.expected, "PD_Length", length, 18, f"at most {MAX_PRIVATE_DATA} (RFC 5044 §7.1.1)")
        if flags & _S and length < ENHANCED_OCTETS:
            raise StartupError(
                self.expected, "PD_Length", length, 18, f"S=1 needs at least {ENHANCED_OCTETS} (RFC 6581 §6)"
            )
        return int(length)

    def _decode(self) -> StartupFrame:
        flags, rev, _ = struct.unpack(">BBH", self._octets[_KEY_OCTETS:HEADER_OCTETS])
        private = bytes(self._octets[HEADER_OCTETS:])
        enhanced = EnhancedData.decode(private[:ENHANCED_OCTETS], self.dialect) if flags & _S else None
        return StartupFrame(
            kind=self.expected,
            markers=bool(flags & _M),
            crc=bool(flags & _C),
            rejected=bool(flags & _R),
            rev=rev,
            enhanced=enhanced,
            private_data=private[ENHANCED_OCTETS:] if enhanced else private,
        )
