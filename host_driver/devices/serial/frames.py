"""Encoding of requests and decoding of responses: the tables of ``docs/link.md``, on the host's side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cobs import cobs
from crc32c import crc32c

from open_rnic.rtl.host_link.protocol import (
    ARGUMENTS,
    HEADER,
    LAST,
    OCTETS,
    OCTETS_LAST,
    OCTETS_ULPDU,
    SEQUENCE,
    SHORT,
    TRAILER,
    TURN,
    VALUE,
    VERDICT_LSB,
    Ask,
    Op,
    Status,
    op,
)
from open_rnic.rtl.registers import Verdict

_CRC = 4
_END = 1
_FLAGS = sum(Status)
ZERO = b"\0"


def _register(address: int) -> bytes:
    return (address >> 2).to_bytes(2, "little")


def frame(octets: bytes) -> bytes:
    """Encode octets as a frame: with their CRC, and a zero at the end."""
    encoded: bytes = cobs.encode(octets + crc32c(octets).to_bytes(_CRC, "little"))
    return encoded + ZERO


def unframe(encoded: bytes) -> bytes | None:
    """Return the octets of a frame, which is given without the zero; None if the frame is damaged."""
    try:
        octets = cobs.decode(encoded)
    except cobs.DecodeError:
        return None
    body, crc = octets[:-_CRC], octets[-_CRC:]
    return body if len(octets) >= _CRC and crc32c(body) == int.from_bytes(crc, "little") else None


@dataclass(frozen=True)
class Piece:
    """Octets of a stream in a request, by the positions of the first and the last octet."""

    first: int
    final: int


class Request:
    """The operations of a request, in the order of their execution.

    ``size`` is the size of the device's frames: a request with its CRC has fewer octets.
    """

    def __init__(self, size: int) -> None:
        self._octets = bytearray(HEADER)
        self._size = size - 1 - _CRC - _END

    @property
    def room(self) -> int:
        """The number of octets of operations that still fit."""
        return self._size - len(self._octets)

    @property
    def empty(self) -> bool:
        """Whether the request has no operation."""
        return len(self._octets) == HEADER

    def read(self, address: int) -> None:
        """Read the register at this octet address; the response has a VALUE for it."""
        self._octets += bytes((op(Op.READ),)) + _register(address)

    def write(self, address: int, word: int) -> None:
        """Write the register."""
        self._octets += bytes((op(Op.WRITE), *word.to_bytes(4, "little"))) + _register(address)

    def clear(self) -> None:
        """Drop the unfinished beats in the link."""
        self._octets.append(op(Op.CLEAR))

    def put(self, kind: Op, octets: bytes, *, length: int = 0, last: bool, turn: int) -> Piece:
        """Give octets to the stream of ``kind``. ``last`` ends the packet; ``length`` is the length of a ULPDU.

        Empty ``octets`` give an empty ULPDU.
        """
        if not octets:
            kind = Op.EMPTY
        first = len(self._octets) + 1 + ARGUMENTS[kind]
        final = first + max(len(octets) - 1, 0)
        self._octets.append(op(kind) | LAST * last | TURN * turn)
        self._octets += length.to_bytes(2, "little") + final.to_bytes(2, "little") + octets
        return Piece(first, final)

    def encode(self, sequence: int, session: int, ask: Ask) -> bytes:
        """Return the frame."""
        self._octets[:HEADER] = bytes((sequence | ask,)) + session.to_bytes(4, "little")
        return frame(bytes(self._octets) + bytes((op(Op.END),)))


PUT_OCTETS = 5  # octets of a ``put``, besides those that it gives


@dataclass(frozen=True)
class Part:
    """A part of a packet from a stream. ``verdict`` is valid on the last part of a ULPDU."""

    octets: bytes
    last: bool
    verdict: Verdict


@dataclass(frozen=True)
class Response:
    """A device's answer. ``size`` is the size of its frames, ``damaged`` its count of damaged frames, modulo 256."""

    version: int
    size: int
    status: Status
    damaged: int
    sequence: int
    session: int
    values: list[int]
    short: list[int]
    ulpdu: list[Part]
    mpa: list[Part]


def response(octets: bytes) -> Response | None:
    """Decode a response, given without its CRC; returns None if it is malformed."""
    end = len(octets) - (TRAILER - _CRC)
    if end < HEADER:
        return None
    session = int.from_bytes(octets[1:HEADER], "little")
    status, damaged, info = octets[end:]
    found = Response(
        info >> 4, 1 << (info & 15), Status(status & _FLAGS), damaged, octets[0] & SEQUENCE, session, [], [], [], []
    )
    for tag, record in _records(octets[HEADER:end]):
        if tag is None:
            return None
        if tag & OCTETS:
            part = Part(record, bool(tag & OCTETS_LAST), Verdict(tag >> VERDICT_LSB & 3))
            (found.ulpdu if tag & OCTETS_ULPDU else found.mpa).insert(0, part)
        elif tag & SHORT:
            found.short.insert(0, (tag & ~SHORT) << 8 | record[0])
        else:
            found.values.insert(0, int.from_bytes(record, "little"))
    return found


def _records(octets: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Yield the records from the last to the first, each with its tag. A tag of None marks a malformed record."""
    end = len(octets)
    while end:
        tag, end = octets[end - 1], end - 1
        if tag & OCTETS and end:
            length, end = octets[end - 1], end - 1
        elif tag & OCTETS or (not tag & SHORT and tag != VALUE):
            length = end + 1
        else:
            length = 1 if tag & SHORT else 4
        if length > end:
            yield None, b""
            return
        yield tag, octets[end - length : end]
        end -= length


__all__ = ["PUT_OCTETS", "ZERO", "Part", "Piece", "Request", "Response", "frame", "response", "unframe"]
