"""The headers of DDP segments and RDMAP messages (RFC 5041 §4, RFC 5040 §4).

A ULPDU is one DDP segment. ``decode`` reads its header, and ``encode`` of ``Tagged`` and ``Untagged`` makes it::

    Tagged(Opcode.RDMA_WRITE, stag=5, to=0x1000, last=True, payload=b"octets").encode()

Each header is one table: a ``struct.Struct`` lists its words, and ``BitFields`` the fields within a word. All words are
in network byte order.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import NamedTuple

from open_rnic.host_driver.ddp.faults import DdpError, Fault
from open_rnic.rtl.formats.opcodes import FIRST_MSN, VERSION, Opcode

Octets = bytes | bytearray | memoryview  # a memoryview is contiguous, and its items are octets


class BitFields:
    """A word of fields, each a name and a width in bits, the most significant field first.

    A field without a name is reserved: it is sent as zero, and ignored on receipt.
    """

    def __init__(self, *fields: tuple[str, int]) -> None:
        at = sum(bits for _, bits in fields)
        self._fields: list[tuple[str, int, int]] = []  # name, shift, mask
        for name, bits in fields:
            at -= bits
            if name:
                self._fields.append((name, at, (1 << bits) - 1))

    def pack(self, *values: int) -> int:
        """Return the word with a value for each named field; raises ValueError if a value exceeds its field."""
        word = 0
        for (name, at, mask), value in zip(self._fields, values, strict=True):
            if not 0 <= value <= mask:
                raise ValueError(f"{name} is 0 to {mask:#x}, not {value:#x}")
            word |= value << at
        return word

    def unpack(self, word: int) -> tuple[int, ...]:
        """Return the value of each named field."""
        return tuple(word >> at & mask for _, at, mask in self._fields)


# RFC 5041 §4.1 and RFC 5040 §4.1
CONTROL = BitFields(("T", 1), ("L", 1), ("", 4), ("DV", 2), ("RV", 2), ("", 2), ("Opcode", 4))
CONTROL_WORD = struct.Struct(">H")
# RFC 5041 §4.2: control, STag, TO
TAGGED = struct.Struct(">HIQ")
# RFC 5041 §4.3: control, Invalidate STag (RFC 5040 §4.1), QN, MSN, MO
UNTAGGED = struct.Struct(">HIIII")
# RFC 5040 §4.4: Sink STag, Sink TO, RDMARDSZ, Source STag, Source TO
READ_REQUEST = struct.Struct(">IQIIQ")
# RFC 5040 §4.8
TERMINATE = BitFields(("Layer", 4), ("EType", 4), ("Error Code", 8), ("M", 1), ("D", 1), ("R", 1), ("", 13))
TERMINATE_WORD = struct.Struct(">I")
SEGMENT_LENGTH = struct.Struct(">H")

TAGGED_OCTETS = TAGGED.size
UNTAGGED_OCTETS = UNTAGGED.size
READ_REQUEST_OCTETS = READ_REQUEST.size
SEND_QN, READ_QN, TERMINATE_QN = 0, 1, 2  # RFC 5040 §4.1: the untagged queues


_OPCODES = tuple(Opcode)
@cache
def _pack_control(tagged: bool, last: bool, opcode: Opcode) -> int:
    return CONTROL.pack(tagged, last, VERSION, VERSION, opcode)


@lru_cache(256)
def _unpack_control(word: int) -> tuple[int, ...]:
    return CONTROL.unpack(word)


def control(ulpdu: bytes) -> tuple[int, ...]:
    """Return T, L, DV, RV and Opcode; ``ulpdu`` has at least 2 octets."""
    return _unpack_control(*CONTROL_WORD.unpack_from(ulpdu))


class Tagged(NamedTuple):
    """A segment for a tagged buffer: the STag, and the offset TO in the buffer, in octets."""

    opcode: Opcode
    stag: int
    to: int
    last: bool
    payload: Octets = b""

    def encode(self) -> bytes:
        """Return the ULPDU."""
        return TAGGED.pack(_pack_control(True, self.last, self.opcode), self.stag, self.to) + self.payload

    def __str__(self) -> str:
        return f"{self.opcode}, STag {self.stag:#x}, TO {self.to:#x}, L={self.last:d}, {_octets(self.payload)}"


class Untagged(NamedTuple):
    """A segment of message MSN on queue QN; MO is its offset in the message, in octets.

    ``stag`` is the Invalidate STag of messages that have one, and 0 in all others (RFC 5040 §4.1).
    """

    opcode: Opcode
    qn: int
    msn: int
    mo: int
    last: bool
    payload: Octets = b""
    stag: int = 0

    def encode(self) -> bytes:
        """Return the ULPDU."""
        word = _pack_control(False, self.last, self.opcode)
        return UNTAGGED.pack(word, self.stag, self.qn, self.msn, self.mo) + self.payload

    def __str__(self) -> str:
        place = f"QN {self.qn}, MSN {self.msn}, MO {self.mo}, L={self.last:d}"
        return f"{self.opcode}, {place}, {_octets(self.payload)}"


def _octets(payload: Octets) -> str:
    return f"{len(payload)} octets" if payload else "no octets"


def decode(ulpdu: bytes) -> Tagged | Untagged:
    """Decode the header of a ULPDU; the payload is a view of the ULPDU, not a copy.

    Raises DdpError if the ULPDU is too short, or if its version or Opcode is unknown.
    """
    if len(ulpdu) < CONTROL_WORD.size:
        raise DdpError(f"a ULPDU of {len(ulpdu)} octets has no DDP header")
    tagged, last, dv, rv, number = control(ulpdu)
    if dv != VERSION:
        raise DdpError(f"DDP version {dv} where 1 is due", Fault.TAGGED_VERSION if tagged else Fault.UNTAGGED_VERSION)
    if rv != VERSION:
        raise DdpError(f"RDMAP version {rv} where 1 is due", Fault.RDMAP_VERSION)
    if number >= len(_OPCODES):
        raise DdpError(f"RDMAP Opcode {number} is not known", Fault.OPCODE)
    octets = TAGGED_OCTETS if tagged else UNTAGGED_OCTETS
    if len(ulpdu) < octets:
        raise DdpError(f"a ULPDU of {len(ulpdu)} octets is shorter than its DDP header, {octets}")
    payload = memoryview(ulpdu)[octets:]
    if tagged:
        _, stag, to = TAGGED.unpack_from(ulpdu)
        return Tagged(_OPCODES[number], stag, to, bool(last), payload)
    _, stag, qn, msn, mo = UNTAGGED.unpack_from(ulpdu)
    return Untagged(_OPCODES[number], qn, msn, mo, bool(last), payload, stag)


def _header(ulpdu: bytes) -> bytes:
    """Return the DDP header that ``ulpdu`` begins with, or no octets if it is cut short."""
    if len(ulpdu) < CONTROL_WORD.size:
        return b""
    tagged, *_ = control(ulpdu)
    octets = TAGGED_OCTETS if tagged else UNTAGGED_OCTETS
    return ulpdu[:octets] if len(ulpdu) >= octets else b""


class ReadRequest(NamedTuple):
    """The RDMA Read Request header (RFC 5040 §4.4): the source and the sink. ``size`` is RDMARDSZ, in octets."""

    sink_stag: int
    sink_to: int
    size: int
    source_stag: int
    source_to: int

    def encode(self) -> bytes:
        """Return the header."""
        return READ_REQUEST.pack(*self)

    @classmethod
    def decode(cls, octets: Octets) -> ReadRequest:
        """Decode the header; raises DdpError if it does not have 28 octets."""
        if len(octets) != READ_REQUEST_OCTETS:
            raise DdpError(f"an RDMA Read Request header of {len(octets)} octets where {READ_REQUEST_OCTETS} are due")
        return cls(*READ_REQUEST.unpack(octets))

    def after(self, octets: int) -> ReadRequest:
        """Return the rest of the request after this many octets have been sent.

        The Sink TO may wrap: only the peer can check it.
        """
        sink_stag, sink_to, size, source_stag, source_to = self
        wrapped = (source_to + octets) % 2**64
        return ReadRequest(sink_stag, (sink_to + octets) % 2**64, size - octets, source_stag, wrapped)


class Terminate(NamedTuple):
    """The Terminate header (RFC 5040 §4.8): the error that ends a stream, and copies of the headers that caused it.

    ``segment_length`` is the length in octets of the DDP segment that was refused, with its header, or None if it is
    not included. ``ddp_header`` and ``rdma_header`` are copies of its headers, or no octets if they are not included.
    """

    layer: int
    type: int
    code: int
    segment_length: int | None = None
    ddp_header: bytes = b""
    rdma_header: bytes = b""

    @classmethod
    def of(cls, fault: Fault, ulpdu: bytes = b"", rdma_header: bytes = b"") -> Terminate:
        """Return the Terminate for a fault, with the copies from the refused ULPDU that RFC 5040 figure 10 asks for."""
        included = fault.layer == 1 or (fault.layer == 0 and fault.type != 0)  # errors of DDP, and of RDMAP
        ddp_header = _header(ulpdu) if included else b""
        if not ddp_header:
            return cls(*fault.value)
        return cls(*fault.value, len(ulpdu), ddp_header, rdma_header if fault.layer == 0 and fault.type == 1 else b"")

    @property
    def fault(self) -> Fault | None:
        """The error, or None if no document defines these numbers."""
        try:
            return Fault((self.layer, self.type, self.code))
        except ValueError:
            return None

    def encode(self) -> bytes:
        """Return the ULPDU, the first and last message of its queue."""
        m, d, r = self.segment_length is not None, bool(self.ddp_header), bool(self.rdma_header)
        octets = TERMINATE_WORD.pack(TERMINATE.pack(self.layer, self.type, self.code, m, d, r))
        if m or d:
            octets += SEGMENT_LENGTH.pack(self.segment_length or 0)
        octets += self.ddp_header + self.rdma_header
        return Untagged(Opcode.TERMINATE, TERMINATE_QN, FIRST_MSN, 0, True, octets).encode()

    @classmethod
    def decode(cls, octets: Octets) -> Terminate:
        """Decode the payload of a Terminate; copies of headers that are cut short are left out.

        Raises DdpError if the payload is shorter than the 4 octets of the Terminate Control.
        """
        if len(octets) < TERMINATE_WORD.size:
            raise DdpError(f"a Terminate of {len(octets)} octets where at least 4 are due")
        layer, kind, code, m, d, r = TERMINATE.unpack(*TERMINATE_WORD.unpack_from(octets))
        rest = bytes(octets[TERMINATE_WORD.size :])
        length = SEGMENT_LENGTH.unpack_from(rest)[0] if m and len(rest) >= SEGMENT_LENGTH.size else None
        rest = rest[SEGMENT_LENGTH.size :]
        ddp_header = _header(rest) if d else b""
        rdma_header = rest[len(ddp_header) :][:READ_REQUEST_OCTETS] if r else b""
        if len(rdma_header) < READ_REQUEST_OCTETS:
            rdma_header = b""
        return cls(layer, kind, code, length, ddp_header, rdma_header)

    def __str__(self) -> str:
        layer = _LAYERS.get(self.layer, f"layer {self.layer}")
        error = str(self.fault) if self.fault else "an error that no document names"
        return f"{layer}: {error} ({self.layer}/{self.type}/{self.code})"


_LAYERS = {0: "RDMAP", 1: "DDP", 2: "MPA"}
