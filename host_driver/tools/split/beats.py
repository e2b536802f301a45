"""Convert packets, as :mod:`.software` represents them, to the beats of a segment's ports, and back.

``opening`` packets are sent first, by themselves; the other packets follow once these have passed. On a stream that is
not divided into packets, the last opening packet and the next one can share a beat, which is then transferred twice
(:class:`.StreamBeat`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from open_rnic.host_driver.tools.split.software import Checked, Unmarked
from open_rnic.rtl.registers import Cause, Verdict

__all__ = ["Checks", "Fpdus", "Lanes", "Packets", "Port", "port"]

Fields = dict[str, tuple[int, int]]  # least significant bit and width of each field
_LANE = 4  # octets


class Port(Protocol):
    """The port between two stages."""

    def write(self, opening: Sequence[Any], others: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Return the payloads of the beats of ``opening``, and of ``others``."""

    def read(self, opening: Sequence[int], others: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """Return the packets in these payloads; the inverse of :meth:`write`."""


def port(fields: Fields, settings: Mapping[str, int] = MappingProxyType({})) -> Port:
    """Return the converter for a stream whose payload has these fields; ``settings`` are on each beat."""
    for kind, name in ((Checks, "cause"), (Fpdus, "gives"), (Lanes, "count")):
        if name in fields:
            return kind(fields, settings)
    return Packets(fields, settings)


class _Port:
    def __init__(self, fields: Fields, settings: Mapping[str, int] = MappingProxyType({})):
        self.fields = fields
        self.settings = settings
        self.width = fields["data"][1] // 8 & ~3  # octets of a beat

    def word(self, data: bytes, **values: int) -> int:
        """Return a payload; values for fields that the stream does not have are ignored."""
        word = int.from_bytes(data, "little")
        for name, value in {**self.settings, **values}.items():
            if name in self.fields:
                word |= int(value) << self.fields[name][0]
        return word

    def get(self, word: int, name: str) -> int:
        """Return a field of a payload."""
        lsb, width = self.fields[name]
        return word >> lsb & ((1 << width) - 1)

    def data(self, word: int, octets: int) -> bytes:
        """Return the first octets of a payload's data."""
        return self.get(word, "data").to_bytes(self.width + 2, "little")[:octets]

    def marker(self, unmarked: Unmarked, first: int) -> dict[str, int]:
        """Return the marker fields of the beat that begins with octet ``first``."""
        for at, marker in unmarked.markers.items():
            if first <= at < first + self.width:
                return {"marked": 1, "place": (at - first) // _LANE, "marker": int.from_bytes(marker, "little")}
        return {}

    def markers(self, word: int, first: int) -> dict[int, bytes]:
        """Return the marker in such a beat; the inverse of :meth:`marker`."""
        if not self.get(word, "marked"):
            return {}
        return {first + _LANE * self.get(word, "place"): self.get(word, "marker").to_bytes(_LANE, "little")}


class _Apart(_Port):
    """A port on which every packet begins in a new beat."""

    def write(self, opening: Sequence[Any], others: Sequence[Any]) -> tuple[list[int], list[int]]:
        """See :class:`Port`."""
        return self._words(opening), self._words(others)

    def read(self, opening: Sequence[int], others: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """See :class:`Port`."""
        return list(self._packets(opening)), list(self._packets(others))

    def _words(self, packets: Iterable[Any]) -> list[int]:
        return [word for packet in packets for word in self._beats(packet)]

    def _beats(self, packet: Any) -> Iterator[int]:
        raise NotImplementedError

    def _packets(self, words: Iterable[int]) -> Iterator[Any]:
        raise NotImplementedError

    def cut(self, octets: bytes, **extra: int) -> Iterator[int]:
        """Yield the beats of a packet with these octets."""
        end = max(1, -(-len(octets) // self.width)) * self.width
        for at in range(0, end, self.width):
            beat = octets[at : at + self.width]
            yield self.word(beat, octets=len(beat), last=at + self.width == end, **extra)

    def joined(self, words: Iterable[int]) -> Iterator[tuple[bytes, int]]:
        """Yield packets, each with its last payload."""
        octets = bytearray()
        for word in words:
            last = self.get(word, "last")
            octets += self.data(word, self.get(word, "octets") if last else self.width)
            if last:
                yield bytes(octets), word
                octets.clear()


class Packets(_Apart):
    """Packets of octets: :class:`.Packet`, ``TxUlpdu`` and ``RxUlpdu``."""

    def _beats(self, packet: bytes) -> Iterator[int]:
        return self.cut(packet, length=len(packet), verdict=Verdict.GOOD)

    def _packets(self, words: Iterable[int]) -> Iterator[bytes]:
        for octets, word in self.joined(words):
            if "verdict" in self.fields and self.get(word, "verdict") != Verdict.GOOD:
                return
            yield octets


class Checks(_Apart):
    """:class:`Checked` ULPDUs: :class:`.CheckedUlpdu`."""

    def _beats(self, packet: Checked) -> Iterator[int]:
        ulpdu = packet.ulpdu
        return self.cut(
            ulpdu,
            length=len(ulpdu),
            cause=packet.cause,
            value=len(ulpdu),
            size=packet.size // _LANE,
            markers=packet.markers,
        )

    def _packets(self, words: Iterable[int]) -> Iterator[Checked]:
        for octets, word in self.joined(words):
            size = _LANE * self.get(word, "size")
            yield Checked(octets, size, self.get(word, "markers"), Cause(self.get(word, "cause")))


class Fpdus(_Apart):
    """:class:`Unmarked` FPDUs: :class:`.AlignedBeat`."""

    def _beats(self, packet: Unmarked) -> Iterator[int]:
        octets, width = packet.octets, self.width
        length = int.from_bytes(octets[:2], "big")
        ulpdu_end = max(1, -(-length // width)) * width  # beats of the ULPDU lag by the 2 octets of ULPDU_Length
        for at in range(0, len(octets), width):
            yield self.word(
                octets[at : at + width + 2],
                count=min(width, len(octets) - at) // _LANE,
                last=at + width >= len(octets),
                length=length,
                gives=at < ulpdu_end,
                ends=at + width == ulpdu_end,
                octets=max(0, length - (ulpdu_end - width)),
                **self.marker(packet, at),
            )

    def _packets(self, words: Iterable[int]) -> Iterator[Unmarked]:
        octets = bytearray()
        markers: dict[int, bytes] = {}
        for word in words:
            count = _LANE * self.get(word, "count")
            found = self.markers(word, len(octets))
            octets += self.data(word, count)
            markers |= {at: marker for at, marker in found.items() if at < len(octets)}
            if self.get(word, "last"):
                yield Unmarked(bytes(octets), markers)
                octets, markers = bytearray(), {}


class Lanes(_Port):
    """The :class:`Unmarked` stream: :class:`.StreamBeat`."""

    def write(self, opening: Sequence[Unmarked], others: Sequence[Unmarked]) -> tuple[list[int], list[int]]:
        """See :class:`Port`."""
        stream = Unmarked.join((*opening, *others))
        before = sum(len(each.octets) for each in opening)
        # A marker is in a beat as soon as it has arrived, which is before the lane behind it.
        return self._beats(stream, 0, before), self._beats(stream, before, len(stream.octets))

    def _beats(self, stream: Unmarked, begin: int, end: int) -> list[int]:
        words = []
        for at in range(begin // self.width * self.width, end, self.width):
            beat = stream.cut(at, min(end, at + self.width))
            words.append(self.word(beat.octets, count=len(beat.octets) // _LANE, **self.marker(beat, 0)))
        return words

    def read(self, opening: Sequence[int], others: Sequence[int]) -> tuple[list[Unmarked], list[Unmarked]]:
        """See :class:`Port`; each list has at most one element."""
        first, whole = self._stream(opening), self._stream([*opening, *others])
        border = len(first.octets)
        return [first], [whole.cut(border, len(whole.octets) + 1)]

    def _stream(self, words: Sequence[int]) -> Unmarked:
        octets, at = bytearray(), 0
        markers: dict[int, bytes] = {}
        for word in words:
            count = _LANE * self.get(word, "count")
            octets[at:] = self.data(word, count)  # an incomplete beat is repeated with more octets
            markers |= self.markers(word, at)
            at += self.width * (count == self.width)
        return Unmarked(bytes(octets), markers)
