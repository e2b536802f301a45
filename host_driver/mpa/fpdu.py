"""FPDUs in software: framing, markers, CRC-32C and delineation (RFC 5044 §4, §6).

Everything here is sans-IO. Stream offsets count octets of the marked stream. A marker begins at each multiple of 512,
so 508 octets lie between two markers. To slice a buffer takes longer in Python than to copy it. Therefore a ULPDU that
markers may split is copied into a buffer whose slices were made once, and those slices are joined (``_Layout``).

All fields are in network byte order, except the CRC, whose least significant octet comes first (§4.4).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache

from crc32c import crc32c

from open_rnic.host_driver.device import Event
from open_rnic.rtl.registers import MAX_ULPDU, Cause, EventKind

MARKER_INTERVAL = 512  # RFC 5044 §4.3: from one marker to the next, the marker's own octets included
MIN_MULPDU = 128  # RFC 5044 §4.5
_GAP = MARKER_INTERVAL - 4
_WHOLE = _GAP - 8  # if the ULPDU and the octets before it are no more than this, no marker follows ULPDU_Length
_LEADING = bytes(4)  # a marker that comes before ULPDU_Length: its FPDUPTR is 0 (RFC 5044 §4.3)
_PADS = [bytes(-(2 + length) % 4) for length in range(4)]  # by ULPDU_Length modulo 4
_NO_CRC = bytes(4)
_RESIDUE = 0x48674BC7  # the result of crc32c over octets that are followed by their own CRC


def mulpdu(emss: int, *, markers: bool) -> int:
    """Return the length of the largest ULPDU whose FPDU has no PAD and fits in ``emss`` octets (RFC 5044 §4.5)."""
    room = emss - 6 - emss % 4
    if markers:
        room -= 4 * -(-emss // MARKER_INTERVAL)  # the worst case
    # 2 + room is a multiple of 4, as 2 + each limit must be. A ULPDU of 130 octets has an FPDU as long as one of 128.
    return min(max(room, MIN_MULPDU + 2), MAX_ULPDU - 2)


class _Layout:
    """The positions of the markers in an FPDU with a ULPDU of ``length`` octets.

    The FPDU starts ``place`` octets after the start of the last marker. If ``place`` is 0, the FPDU begins with a
    marker. The last marker of an FPDU may lie between PAD and CRC; a marker behind the CRC belongs to the next FPDU
    (RFC 5044 §4.3). As FPDUs and markers are multiples of 4 octets, no marker splits ULPDU_Length, PAD or CRC.

    To send, copy the ULPDU into ``unmarked[ulpdu]``; the join of ``parts`` is then the FPDU without its CRC. To
    receive, copy the FPDU into ``marked[fpdu]``; the join of ``pieces`` is then the ULPDU, and ``found`` are its
    markers, which must be equal to ``markers``. Both buffers may hold octets of other FPDUs before and behind it.
    """

    __slots__ = ("count", "found", "fpdu", "marked", "markers", "octets", "parts", "pieces", "ulpdu", "unmarked")

    def __init__(self, place: int, length: int, bench: _Workbench) -> None:
        header = place or 4  # the position of ULPDU_Length
        leading = header - place
        inside = (header + (length + 1 & ~3)) // _GAP  # markers behind ULPDU_Length
        self.octets = leading + (length + 9 & ~3) + 4 * inside
        self.count = leading // 4 + inside

        fpduptrs = [MARKER_INTERVAL * nth - header for nth in range(1, inside + 1)]
        markers = [each.to_bytes(4, "big") for each in fpduptrs]
        whole, rest = divmod(header - 2 + length, _GAP)  # gaps that the ULPDU fills, and octets in one more

        def pieces(gaps: list[memoryview]) -> list[memoryview]:
            first, *others = *gaps[:whole], gaps[whole][:rest]
            return [first[header - 2 :], *others]

        self.unmarked = bench.unmarked
        self.ulpdu = slice(header - 2, header - 2 + length)
        behind = [*markers[:whole], _PADS[length % 4]]
        self.parts: list[bytes | memoryview] = [_LEADING[:leading] + length.to_bytes(2, "big")]
        for piece, octets in zip(pieces(bench.unmarked_gaps), behind, strict=True):
            self.parts += piece, octets
        self.parts += markers[whole:]  # between PAD and CRC

        self.marked = bench.marked
        self.fpdu = slice(place, place + self.octets)
        self.pieces = pieces(bench.marked_gaps)
        step = MARKER_INTERVAL // 4
        self.found = bench.words[0 if leading else step : step * inside + 1 : step]
        self.markers = memoryview(b"".join([_LEADING[:leading], *markers])).cast("I")


class _Workbench(threading.local):
    """Two buffers, sliced into the gaps between markers: one without room for the markers, and one with it.

    Each thread has one workbench for all of its connections: no FPDU needs the content that the previous one left.
    """

    def __init__(self) -> None:
        gaps = 2 + 0xFFFF // _GAP  # enough for any ULPDU_Length
        self.unmarked = memoryview(bytearray(gaps * _GAP))
        self.unmarked_gaps = [self.unmarked[_GAP * nth :][:_GAP] for nth in range(gaps)]
        self.marked = memoryview(bytearray(gaps * MARKER_INTERVAL))
        self.marked_gaps = [self.marked[MARKER_INTERVAL * nth + 4 :][:_GAP] for nth in range(gaps)]
        self.words = self.marked.cast("I")
        self.layout = lru_cache(maxsize=1024)(lambda place, length: _Layout(place, length, self))
        self.layouts = lru_cache(maxsize=1024)(self._layouts)

    def _layouts(self, place: int, lengths: tuple[int, ...]) -> tuple[list[_Layout], int, int]:
        """Return the layouts of consecutive FPDUs, the number of their markers, and the number of their octets."""
        layouts: list[_Layout] = []
        end = place
        for length in lengths:
            layouts.append(self.layout(end % MARKER_INTERVAL, _checked_length(length)))
            end += layouts[-1].octets
        return layouts, sum(each.count for each in layouts), end - place


_bench = _Workbench()


def _wrong_fpduptr(fpdu: bytes | bytearray | memoryview, place: int) -> int | None:
    """Return the first FPDUPTR that does not point to ULPDU_Length; None if all do (RFC 5044 §4.3).

    RESERVED16 is ignored, and the two low bits of FPDUPTR are taken as zero.
    """
    leading = 0 if place else 4
    for at in range(-place % MARKER_INTERVAL, len(fpdu) - 4, MARKER_INTERVAL):
        found = int.from_bytes(fpdu[at + 2 : at + 4], "big")
        if found & ~3 != max(at - leading, 0):
            return found
    return None


def _checked_offset(offset: int) -> int:
    if offset < 0 or offset % 4:
        raise ValueError(f"an FPDU cannot start at stream offset {offset}: it is not a multiple of 4, from 0 up")
    return offset


def _checked_length(length: int) -> int:
    if length > MAX_ULPDU:  # RFC 5044 §3
        raise ValueError(f"a ULPDU has at most {MAX_ULPDU} octets, not {length}")
    return length


class FpduFramer:
    """Makes FPDUs from ULPDUs: ULPDU_Length, PAD, markers and CRC (RFC 5044 §4).

    ``offset`` is the offset in the marked stream at which the next FPDU starts. ``fpdus``, ``octets`` and ``markers``
    count the output. Without ``crc``, the CRC field is sent as zero (RFC 5044 §4.1 leaves its value open).
    """

    def __init__(self, *, markers: bool, crc: bool, offset: int = 0) -> None:
        self.offset = _checked_offset(offset)
        self.fpdus = self.octets = self.markers = 0
        self._marked = markers
        self._crc = crc

    def frame(self, ulpdu: bytes) -> bytes:
        """Return the FPDU that carries ``ulpdu``; raises ValueError if the ULPDU is longer than MPA allows."""
        length = _checked_length(len(ulpdu))
        place = self.offset % MARKER_INTERVAL
        if self._marked and place + length > _WHOLE:
            return self.frame_all((ulpdu,))[0]
        head, pad = length.to_bytes(2, "big"), _PADS[length % 4]
        if self._marked and not place:
            head = _LEADING + head
            self.markers += 1
        crc = crc32c(pad, crc32c(ulpdu, crc32c(head))).to_bytes(4, "little") if self._crc else _NO_CRC
        fpdu = b"".join((head, ulpdu, pad, crc))
        self.fpdus += 1
        self.octets += len(fpdu)
        self.offset += len(fpdu)
        return fpdu

    def frame_all(self, ulpdus: Sequence[bytes]) -> list[bytes]:
        """Return the FPDUs of several ULPDUs, in order; raises ValueError, and makes none, if a ULPDU is too long."""
        if not self._marked:
            return list(map(self.frame, ulpdus))
        layouts, markers, octets = _bench.layouts(self.offset % MARKER_INTERVAL, tuple(map(len, ulpdus)))
        crc = self._crc
        fpdus = []
        for layout, ulpdu in zip(layouts, ulpdus, strict=True):
            layout.unmarked[layout.ulpdu] = ulpdu
            covered = b"".join(layout.parts)
            fpdus.append(covered + (crc32c(covered).to_bytes(4, "little") if crc else _NO_CRC))
        self.fpdus += len(fpdus)
        self.markers += markers
        self.octets += octets
        self.offset += octets
        return fpdus


class FpduDelineator:
    """Finds FPDUs in a stream that arrives in chunks of any length, checks them, and extracts the ULPDUs.

    Feed octets, then ``take`` ULPDUs. An FPDU is complete as soon as its CRC has arrived: a marker behind the CRC
    belongs to the next FPDU (RFC 5044 §4.3).

    ``error`` is the ERROR event that ended delivery, or None; after an error nothing more is delivered (RFC 5044 §8).
    The checks, in this order: ULPDU_Length is at most ``max_ulpdu``, checked as soon as it has arrived, so that at most
    one FPDU of that size is held back; the CRC, if ``crc`` is set; each FPDUPTR, without its two low bits.

    ``offset`` is the offset in the marked stream at which the next FPDU starts, or its leading marker if it has one.
    ``fpdus``, ``octets`` and ``markers`` count good FPDUs.
    """

    def __init__(self, *, markers: bool, crc: bool, offset: int = 0, max_ulpdu: int = MAX_ULPDU) -> None:
        self.offset = _checked_offset(offset)
        self.max_ulpdu = max_ulpdu
        self.fpdus = self.octets = self.markers = 0
        self.error: Event | None = None
        self._marked = markers
        self._crc = crc
        self._buffer: bytes | bytearray = b""
        self._at = 0  # the position in the buffer at which the next FPDU starts
        self._need = 1  # octets that the buffer must hold before the next check is possible

    @property
    def held(self) -> int:
        """The number of octets that wait for the rest of their FPDU."""
        return len(self._buffer) - self._at

    def feed(self, octets: bytes) -> None:
        """Take the next octets of the stream; drops them after an error."""
        if self.error:
            return
        held = len(self._buffer) - self._at
        if not held:
            self._buffer = octets  # a chunk of whole FPDUs is used without a copy
        elif held + len(octets) >= self._need:
            self._buffer = b"".join((memoryview(self._buffer)[self._at :], octets))
        else:
            if not isinstance(self._buffer, bytearray):
                self._buffer = bytearray(memoryview(self._buffer)[self._at :])  # many small chunks may follow
            self._buffer += octets
        self._at = 0

    def next(self) -> bytes | None:
        """Return the next ULPDU, or None if its FPDU is not complete or ``error`` is set."""
        return next(iter(self.take(1)), None)

    def take(self, most: int | None = None) -> list[bytes]:
        """Return the ULPDUs of all complete FPDUs, or of at most ``most`` of them, up to the first error."""
        buffer, at, end, offset = self._buffer, self._at, len(self._buffer), self.offset
        ulpdus: list[bytes] = []
        if end - at < self._need:
            return ulpdus
        crc, max_ulpdu, layout_of = self._crc, self.max_ulpdu, _bench.layout if self._marked else None
        view = memoryview(buffer)
        self._need = 1
        wrong = None
        while at < end and len(ulpdus) != most:
            place = offset % MARKER_INTERVAL
            header = at + 4 if layout_of and not place else at
            if end < header + 2:
                break
            length = buffer[header] << 8 | buffer[header + 1]
            if length > max_ulpdu:
                wrong = Cause.RX_LENGTH, length
                break
            layout = layout_of(place, length) if layout_of and place + length > _WHOLE else None
            octets = layout.octets if layout else header - at + (length + 9 & ~3)
            if end - at < octets:
                self._need = octets
                break
            fpdu = buffer if octets == end else view[at : at + octets]
            if crc and crc32c(fpdu) != _RESIDUE:
                wrong = Cause.CRC, length
                break
            if layout:
                layout.marked[layout.fpdu] = fpdu
                as_sent = layout.found == layout.markers
                ulpdu, markers = b"".join(layout.pieces), layout.count
            else:
                ulpdu, markers = bytes(buffer[header + 2 : header + 2 + length]), int(header > at)
                as_sent = not markers
            if not as_sent and (fpduptr := _wrong_fpduptr(fpdu, place)) is not None:
                wrong = Cause.FPDUPTR, fpduptr
                break
            ulpdus.append(ulpdu)
            self.markers += markers
            at += octets
            offset += octets
        self.fpdus += len(ulpdus)
        self.octets += offset - self.offset
        self.offset, self._at = offset, at
        if wrong:
            self._fail(*wrong)
        return ulpdus

    def _fail(self, cause: Cause, value: int) -> None:
        self.error = Event(EventKind.ERROR, cause, value, self.offset)
        self._buffer, self._at = b"", 0
