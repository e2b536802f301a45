"""FPDUs in software: framing, markers, CRC-32C and delineation (RFC 5044 §4, §6).

Everything here is sans-IO. Where markers lie in an FPDU depends only on its ULPDU_Length and on where it starts
between two markers, so that is worked out once (``_Layout``), and octets move in whole slices.

Stream offsets count octets of the marked stream: those that are multiples of 512 begin a marker.
All fields are in network order, except the CRC, whose least significant octet comes first (§4.4).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from struct import Struct

from crc32c import crc32c

from host_driver.device import Event
from rtl.registers import MAX_ULPDU, Cause, EventKind

MARKER_INTERVAL = 512  # RFC 5044 §4.3: from one marker to the next, the marker's own octets included
MIN_MULPDU = 128  # RFC 5044 §4.5
_GAP = MARKER_INTERVAL - 4
_NO_CRC = bytes(4)
_RESIDUE = 0x48674BC7  # what crc32c gives over octets that are followed by their own CRC


def mulpdu(emss: int, *, markers: bool) -> int:
    """The largest ULPDU whose FPDU fits in a TCP segment of ``emss`` octets (RFC 5044 §4.5)."""
    room = emss - 6 - emss % 4
    if markers:
        room -= 4 * -(-emss // MARKER_INTERVAL)  # the worst case
    return min(max(room, MIN_MULPDU), MAX_ULPDU)


class _Layout:
    """Where markers lie in an FPDU of ``length`` octets of ULPDU, which starts ``start`` octets after a marker's begin.

    At ``start`` 0 a marker comes first, and belongs to this FPDU. The last may lie between PAD and CRC: one behind
    the CRC belongs to the next FPDU (RFC 5044 §4.3). As FPDUs and markers are multiples of 4 octets, none splits
    ULPDU_Length, PAD or CRC.
    """

    __slots__ = ("fpduptrs", "leading", "octets", "parts", "split", "wire")

    def __init__(self, start: int, length: int) -> None:
        pad = -(2 + length) % 4
        covered = 2 + length + pad  # what the CRC covers, without markers
        before = range(MARKER_INTERVAL - (start or 4), covered + 1, _GAP)  # octets before each marker but a leading one
        self.leading = int(start == 0)
        self.fpduptrs = (0,) * self.leading + tuple(each + 4 * nth for nth, each in enumerate(before))
        self.octets = covered + 4 + 4 * len(self.fpduptrs)

        cuts = [0, *(each - 2 for each in before if each < covered), length]
        sizes = [end - begin for begin, end in pairwise(cuts)]
        at_end = covered in before  # a marker between PAD and CRC

        # To send: the ULPDU's pieces go into the holes at odd places.
        markers = [each.to_bytes(4, "big") for each in self.fpduptrs]
        first, last = markers[: self.leading], markers[len(markers) - at_end :]
        self.parts = [b""] * (2 * len(sizes) + 1)
        self.parts[0] = b"".join(first) + length.to_bytes(2, "big")
        self.parts[2:-1:2] = markers[self.leading : len(markers) - at_end]
        self.parts[-1] = bytes(pad) + b"".join(last)
        self.split = Struct("".join(f"{size}s" for size in sizes))

        # To receive: FPDUPTRs and pieces in turn. RESERVED16, PAD and CRC are skipped.
        pieces = "2xH".join(f"{size}s" for size in sizes)
        self.wire = Struct(f">{'2xH' * self.leading}2x{pieces}{pad}x{'2xH' * at_end}4x")


_layout = lru_cache(maxsize=1024)(_Layout)


def _checked_offset(offset: int) -> int:
    if offset < 0 or offset % 4:
        raise ValueError(f"an FPDU cannot start at stream offset {offset}: it is not a multiple of 4, from 0 up")
    return offset


class FpduFramer:
    """Makes FPDUs from ULPDUs: ULPDU_Length, PAD, markers and CRC (RFC 5044 §4).

    ``offset`` is where in the marked stream the next FPDU starts. ``fpdus``, ``octets`` and ``markers`` count
    what was made. Without ``crc`` the field is sent as zero (RFC 5044 §4.1 leaves its value open).
    """

    def __init__(self, *, markers: bool, crc: bool, offset: int = 0) -> None:
        self.offset = _checked_offset(offset)
        self.fpdus = self.octets = self.markers = 0
        self._marked = markers
        self._crc = crc

    def frame(self, ulpdu: bytes) -> bytes:
        """The FPDU that carries ``ulpdu``; raises ValueError when that is longer than MPA allows."""
        length = len(ulpdu)
        if length > MAX_ULPDU:  # RFC 5044 §3
            raise ValueError(f"a ULPDU has at most {MAX_ULPDU} octets, not {length}")
        if self._marked:
            layout = _layout(self.offset % MARKER_INTERVAL, length)
            parts = layout.parts.copy()
            parts[1::2] = layout.split.unpack(ulpdu)
            covered = b"".join(parts)
            fpdu = covered + (crc32c(covered).to_bytes(4, "little") if self._crc else _NO_CRC)
            self.markers += len(layout.fpduptrs)
        else:
            head, pad = length.to_bytes(2, "big"), bytes(-(2 + length) % 4)
            crc = crc32c(pad, crc32c(ulpdu, crc32c(head))).to_bytes(4, "little") if self._crc else _NO_CRC
            fpdu = b"".join((head, ulpdu, pad, crc))
        self.fpdus += 1
        self.octets += len(fpdu)
        self.offset += len(fpdu)
        return fpdu


class FpduDelineator:
    """Finds FPDUs in a stream that comes in chunks of any length, checks them, and takes the ULPDUs out.

    Feed octets, then call ``next`` until it gives None. An FPDU is given as soon as its CRC is there: a marker
    behind it belongs to the next one (RFC 5044 §4.3).

    ``error`` is the ERROR event that ended delivery, or None; after an error nothing more is delivered
    (RFC 5044 §8). The checks are, in this order: ULPDU_Length against ``max_ulpdu`` as soon as it is there, so
    that no more than one FPDU of that size is ever held back; the CRC, if ``crc``; each FPDUPTR, without its two
    low bits.

    ``offset`` is where in the marked stream the next FPDU starts, with its leading marker if it has one.
    ``fpdus``, ``octets`` and ``markers`` count what was good.
    """

    def __init__(self, *, markers: bool, crc: bool, offset: int = 0, max_ulpdu: int = MAX_ULPDU) -> None:
        self.offset = _checked_offset(offset)
        self.max_ulpdu = max_ulpdu
        self.fpdus = self.octets = self.markers = 0
        self.error: Event | None = None
        self._marked = markers
        self._crc = crc
        self._buffer: bytes | bytearray = b""
        self._at = 0  # where in the buffer the next FPDU starts
        self._need = 1  # octets without which there is nothing to look at

    @property
    def held(self) -> int:
        """Octets that wait for the rest of their FPDU."""
        return len(self._buffer) - self._at

    def feed(self, octets: bytes) -> None:
        """Take the next octets of the stream; after an error they are dropped."""
        if self.error:
            return
        if not self.held:
            self._buffer = octets  # chunks of whole FPDUs are never copied together
        else:
            if isinstance(self._buffer, bytearray):
                del self._buffer[: self._at]
            else:
                self._buffer = bytearray(memoryview(self._buffer)[self._at :])
            self._buffer += octets
        self._at = 0

    def next(self) -> bytes | None:
        """The next ULPDU, or None when its FPDU is not complete or ``error`` is set."""
        buffer, at = self._buffer, self._at
        held = len(buffer) - at
        if held < self._need:
            return None
        leading = self._marked and self.offset % MARKER_INTERVAL == 0
        ulpdu = at + (6 if leading else 2)
        if len(buffer) < ulpdu:
            return None
        length = buffer[ulpdu - 2] << 8 | buffer[ulpdu - 1]
        if length > self.max_ulpdu:
            self._fail(Cause.RX_LENGTH, length)
            return None
        layout = _layout(self.offset % MARKER_INTERVAL, length) if self._marked else None
        octets = layout.octets if layout else length + 9 & ~3
        if held < octets:
            self._need = octets
            return None
        if self._crc and crc32c(buffer if len(buffer) == octets else memoryview(buffer)[at : at + octets]) != _RESIDUE:
            self._fail(Cause.CRC, length)
            return None
        if layout:
            fields = layout.wire.unpack_from(buffer, at)
            fpduptrs = fields[1 - layout.leading :: 2]
            if fpduptrs != layout.fpduptrs:
                for found, expected in zip(fpduptrs, layout.fpduptrs, strict=True):
                    if found & ~3 != expected:
                        self._fail(Cause.FPDUPTR, found)
                        return None
            self.markers += len(fpduptrs)
            result = b"".join(fields[layout.leading :: 2])
        else:
            result = bytes(buffer[ulpdu : ulpdu + length])
        self._at += octets
        self._need = 1
        self.fpdus += 1
        self.octets += octets
        self.offset += octets
        return result

    def _fail(self, cause: Cause, value: int) -> None:
        self.error = Event(EventKind.ERROR, cause, value, self.offset)
        self._buffer, self._at = b"", 0
