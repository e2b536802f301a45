"""TCP segments: the header, its options, and the checksum (RFC 9293 §3.1, RFC 2018, RFC 7323)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from ipaddress import IPv4Address
from struct import Struct
from typing import Self

from open_rnic.host_driver.net.checksum import checksum, pseudo_header

__all__ = ["HEADER", "PROTOCOL", "Flag", "Segment", "SegmentError", "Timestamps"]

PROTOCOL = 6  # of IPv4
HEADER = 20  # octets without options

_FIXED = Struct(">HHIIBBHHH")
_STAMPS = Struct(">II")
_END, _NOP, _MSS, _SCALE, _SACK_PERMITTED, _SACK, _TIMESTAMPS = 0, 1, 2, 3, 4, 5, 8
_LENGTHS = {_MSS: 4, _SCALE: 3, _SACK_PERMITTED: 2, _TIMESTAMPS: 10}
MAX_SCALE = 14  # RFC 7323 §2.3


class SegmentError(ValueError):
    """Octets that are no TCP segment."""


class Flag(IntFlag):
    """The control bits; those of ECN are not used."""

    FIN = 1
    SYN = 2
    RST = 4
    PSH = 8
    ACK = 16
    URG = 32


NO_FLAGS = Flag(0)
Timestamps = tuple[int, int]  # TSval and TSecr


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment.

    ``seq``, ``ack`` and the edges in ``sack`` are 32-bit numbers, ``window`` is the field as sent, before scaling. An
    option that is absent is None, False or empty.
    """

    source: int
    destination: int
    seq: int
    ack: int = 0
    flags: Flag = NO_FLAGS
    window: int = 0
    payload: bytes = b""
    mss: int | None = None
    scale: int | None = None
    sack_permitted: bool = False
    sack: tuple[tuple[int, int], ...] = ()
    timestamps: Timestamps | None = None

    @property
    def length(self) -> int:
        """SEG.LEN: the sequence numbers that the segment occupies, SYN and FIN included."""
        return len(self.payload) + bool(self.flags & Flag.SYN) + bool(self.flags & Flag.FIN)

    def encode(self, source: IPv4Address, destination: IPv4Address) -> bytes:
        """Return the octets of the segment between these addresses, with its checksum."""
        options = self._options()
        offset = (HEADER + len(options)) // 4
        fields = (self.source, self.destination, self.seq, self.ack, offset << 4, self.flags, self.window)
        octets = _FIXED.pack(*fields, 0, 0) + options + self.payload
        value = checksum(pseudo_header(source, destination, PROTOCOL, len(octets)), octets)
        return octets[:16] + value.to_bytes(2, "big") + octets[18:]

    def _options(self) -> bytes:
        options = b""
        if self.mss is not None:
            options += bytes([_MSS, 4]) + self.mss.to_bytes(2, "big")
        if self.sack_permitted:
            options += bytes([_SACK_PERMITTED, 2])
        if self.timestamps is not None:
            options += bytes([_TIMESTAMPS, 10]) + _STAMPS.pack(*self.timestamps)
        if self.scale is not None:
            options += bytes([_SCALE, 3, self.scale])
        if self.sack:
            edges = b"".join(edge.to_bytes(4, "big") for block in self.sack for edge in block)
            options += bytes([_SACK, 2 + len(edges)]) + edges
        return bytes([_NOP]) * (-len(options) % 4) + options

    @classmethod
    def decode(cls, octets: bytes, source: IPv4Address, destination: IPv4Address) -> Self:
        """Decode a segment. Raises SegmentError for a header that does not fit and for a wrong checksum.

        Unknown options are skipped. An option with an illegal length ends the options (RFC 9293 §3.2, MUST-7).
        """
        if len(octets) < HEADER:
            raise SegmentError(f"a segment of {len(octets)} octets is shorter than its header, {HEADER}")
        from_port, to_port, seq, ack, offset, flags, window, _, _ = _FIXED.unpack_from(octets)
        header = offset >> 4 << 2
        if not HEADER <= header <= len(octets):
            raise SegmentError(f"data offset {header} octets, in a segment of {len(octets)}")
        if checksum(pseudo_header(source, destination, PROTOCOL, len(octets)), octets):
            raise SegmentError("wrong checksum")
        options = _decode_options(octets[HEADER:header])
        mss, scale, stamps = (options.get(kind) for kind in (_MSS, _SCALE, _TIMESTAMPS))
        return cls(
            from_port,
            to_port,
            seq,
            ack,
            Flag(flags & 0x3F),
            window,
            bytes(octets[header:]),
            mss=None if mss is None else int.from_bytes(mss, "big"),
            scale=None if scale is None else min(scale[0], MAX_SCALE),
            sack_permitted=_SACK_PERMITTED in options,
            sack=_blocks(options.get(_SACK, b"")),
            timestamps=_STAMPS.unpack(stamps) if stamps else None,
        )


def _decode_options(octets: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at < len(octets) and (kind := octets[at]) != _END:
        if kind == _NOP:
            at += 1
            continue
        length = octets[at + 1] if at + 1 < len(octets) else 0
        if length < 2 or at + length > len(octets):
            break
        if length == _LENGTHS.get(kind, length):
            found.setdefault(kind, octets[at + 2 : at + length])
        at += length
    return found


def _blocks(octets: bytes) -> tuple[tuple[int, int], ...]:
    if len(octets) % 8:
        return ()
    edges = [int.from_bytes(octets[at : at + 4], "big") for at in range(0, len(octets), 4)]
    return tuple(zip(edges[::2], edges[1::2], strict=True))
