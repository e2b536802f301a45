"""The stages of MPA as separate software functions: the host's part of a split.

:mod:`.fpdu` does all of them in one pass, which is faster. Here, each stage is a generator that maps packets to
packets, one for one and in order, and that works while packets arrive. The packets between two stages carry the side
information that the second stage needs:

========= ==================================== ==================================================
before    transmit                             receive
========= ==================================== ==================================================
first     ULPDUs                               octets of the stream, cut anywhere
second    ULPDUs that may leave                :class:`Unmarked` octets of the stream, cut anywhere
third     FPDUs without markers and CRC        :class:`Unmarked` FPDUs
fourth    FPDUs without CRC                    :class:`Checked` ULPDUs
end       FPDUs                                ULPDUs for the host
========= ==================================== ==================================================

``offset`` is the position of the first packet in the marked stream, in octets: a multiple of 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL
from open_rnic.host_driver.mpa.rtr import read_response, rtr_kind
from open_rnic.rtl.registers import Cause, Rtr

__all__ = [
    "Checked",
    "Unmarked",
    "append_crcs",
    "check",
    "delineate",
    "detect_rtr",
    "fence",
    "frame",
    "insert_markers",
    "remove_markers",
]

_MARKER = 4  # octets of a marker, and of a CRC
_NO_CRC = bytes(4)


@dataclass(frozen=True)
class Unmarked:
    """Octets without their markers. ``markers`` holds each marker by the index of the octet behind it."""

    octets: bytes
    markers: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of octets, including markers."""
        return len(self.octets) + _MARKER * len(self.markers)

    def cut(self, first: int, end: int) -> Unmarked:
        """Return the octets from ``first`` to before ``end``, and the markers in front of these octets."""
        return Unmarked(
            self.octets[first:end],
            {at - first: marker for at, marker in self.markers.items() if first <= at < end},
        )

    @classmethod
    def join(cls, pieces: Iterable[Unmarked]) -> Unmarked:
        """Concatenate the pieces."""
        octets = bytearray()
        markers: dict[int, bytes] = {}
        for piece in pieces:
            markers |= {len(octets) + at: marker for at, marker in piece.markers.items()}
            octets += piece.octets
        return cls(bytes(octets), markers)


@dataclass(frozen=True)
class Checked:
    """A ULPDU, and the error in its FPDU, if any. ``size`` is the length of the FPDU in octets, including markers."""

    ulpdu: bytes
    size: int
    markers: int
    cause: Cause = Cause.NONE


# --- transmit -----------------------------------------------------------------------------------


def fence(ulpdus: Iterable[bytes], received: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the ULPDUs of a peer-to-peer responder once an RTR has been ``received`` (RFC 6581 §9.2).

    If the RTR is a Read Request, its Read Response is yielded first (RFC 5040 §5.2.1).
    """
    for first in received:
        kind = rtr_kind(first)
        if kind is Rtr.NONE:
            return
        if kind is Rtr.READ:
            yield read_response(first)
        yield from ulpdus
        return


def frame(ulpdus: Iterable[bytes]) -> Iterator[bytes]:
    """Put ULPDU_Length before each ULPDU, and PAD behind it (RFC 5044 §4.1)."""
    for ulpdu in ulpdus:
        yield len(ulpdu).to_bytes(2, "big") + ulpdu + bytes(-(2 + len(ulpdu)) % 4)


def insert_markers(fpdus: Iterable[bytes], *, offset: int = 0) -> Iterator[bytes]:
    """Insert the markers (RFC 5044 §4.3), including a marker between PAD and the CRC that follows."""
    for fpdu in fpdus:
        begin = offset + _MARKER * (offset % MARKER_INTERVAL == 0)  # of ULPDU_Length
        marked = bytearray()
        for at in range(0, len(fpdu) + 1, _MARKER):  # the last position is that of the CRC
            here = offset + len(marked)
            if here % MARKER_INTERVAL == 0:
                marked += max(0, here - begin).to_bytes(_MARKER, "big")
            marked += fpdu[at : at + _MARKER]
        yield bytes(marked)
        offset += len(marked) + _MARKER


def append_crcs(fpdus: Iterable[bytes], *, crc: bool) -> Iterator[bytes]:
    """Append the CRC to each FPDU (RFC 5044 §4.4), or zeros if ``crc`` is false."""
    for fpdu in fpdus:
        yield fpdu + (crc32c(fpdu).to_bytes(4, "little") if crc else _NO_CRC)


# --- receive ------------------------------------------------------------------------------------


def remove_markers(chunks: Iterable[bytes], *, markers: bool, offset: int = 0) -> Iterator[Unmarked]:
    """Remove the markers. A marker that is cut by the end of a chunk belongs to the chunk in which it ends."""
    marker = b""  # the octets of the current marker that have arrived
    for chunk in chunks:
        octets, found, at = bytearray(), {}, 0
        while at < len(chunk):
            place = offset % MARKER_INTERVAL if markers else _MARKER
            if place < _MARKER:
                piece = chunk[at : at + _MARKER - place]
                marker += piece
                if len(marker) == _MARKER:
                    found[len(octets)], marker = marker, b""
            else:
                piece = chunk[at : at + MARKER_INTERVAL - place] if markers else chunk
                octets += piece
            at += len(piece)
            offset += len(piece)
        yield Unmarked(bytes(octets), found)


def delineate(stream: Iterable[Unmarked]) -> Iterator[Unmarked]:
    """Yield FPDUs, from ULPDU_Length to the CRC (RFC 5044 §6), each with the markers that its CRC covers."""
    held = Unmarked(b"")
    for piece in stream:
        held = Unmarked.join((held, piece))
        at = 0
        while at + 2 <= len(held.octets):
            length = int.from_bytes(held.octets[at : at + 2], "big")
            end = at + (2 + length + 3 & ~3) + _MARKER
            if end > len(held.octets):
                break
            yield held.cut(at, end)
            at = end
        held = held.cut(at, len(held.octets) + 1)


def check(fpdus: Iterable[Unmarked], *, crc: bool) -> Iterator[Checked]:
    """Yield the ULPDUs. An FPDU's CRC is checked before its FPDUPTRs (RFC 5044 §4.3, §8)."""
    for fpdu in fpdus:
        whole, before = bytearray(), 0
        astray = False
        leading = _MARKER * (0 in fpdu.markers)
        for at, marker in sorted(fpdu.markers.items()):
            whole += fpdu.octets[before:at]
            pointer = int.from_bytes(marker[2:], "big") & ~3
            astray |= pointer != max(0, len(whole) - leading)
            whole += marker
            before = at
        whole += fpdu.octets[before:]
        cause = Cause.NONE
        if crc and crc32c(whole[:-4]).to_bytes(4, "little") != whole[-4:]:
            cause = Cause.CRC
        elif astray:
            cause = Cause.FPDUPTR
        length = int.from_bytes(fpdu.octets[:2], "big")
        yield Checked(fpdu.octets[2 : 2 + length], fpdu.size, len(fpdu.markers), cause)


def detect_rtr(checked: Iterable[Checked]) -> Iterator[bytes]:
    """Yield the ULPDUs that a peer-to-peer responder delivers to its host: all behind the RTR (RFC 6581 §9.2).

    Yields nothing if the first ULPDU is not an RTR, and stops at the first bad FPDU.
    """
    awaited = True
    for each in checked:
        if each.cause is not Cause.NONE or (awaited and rtr_kind(each.ulpdu) is Rtr.NONE):
            return
        if not awaited:
            yield each.ulpdu
        awaited = False
