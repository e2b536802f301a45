"""The beats of a segment's ports: packets as :mod:`.software` has them, as payloads and back.

``opening`` are packets that go first, alone; the others follow when these have gone through. On a stream that is not
cut into packets the two can share a beat, which comes twice then (:class:`.StreamBeat`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from open_rnic.host_driver.tools.split.software import Checked, Unmarked
from open_rnic.rtl.registers import Cause, Verdict

__all__ = ["Checks", "Fpdus", "Lanes", "Packets", "Port", "port"]

Fields = dict[str, tuple[int, int]]  # least significant bit and width
_LANE = 4  # octets


class Port(Protocol):
    """What is between two stages, in beats."""

    def write(self, opening: Sequence[Any], others: Sequence[Any]) -> tuple[list[int], list[int]]:
        """The payloads of ``opening``, and of the others."""

    def read(self, opening: Sequence[int], others: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """The packets of such payloads."""


def port(fields: Fields) -> Port:
    """The port of a stream whose payload has these fields."""
    for kind, name in ((Checks, "cause"), (Fpdus, "gives"), (Lanes, "count")):
        if name in fields:
            return kind(fields)
    return Packets(fields)


class _Port:
    def __init__(self, fields: Fields):
        self.fields = fields
        self.width = fields["data"][1] // 8 & ~3  # octets of a beat

    def word(self, data: bytes, **values: int) -> int:
        """A payload; fields that it has not are left out."""
        word = int.from_bytes(data, "little")
        for name, value in values.items():
            if name in self.fields:
                word |= int(value) << self.fields[name][0]
        return word

    def get(self, word: int, name: str) -> int:
        """A field of a payload."""
        lsb, width = self.fields[name]
        return word >> lsb & ((1 << width) - 1)

    def data(self, word: int, octets: int) -> bytes:
        """The first octets of a payload's data."""
        return self.get(word, "data").to_bytes(self.width + 2, "little")[:octets]

    def marker(self, unmarked: Unmarked, first: int) -> dict[str, int]:
        """The marker of the beat whose first octet is that one."""
        for at, marker in unmarked.markers.items():
            if first <= at < first + self.width:
                return {"marked": 1, "place": (at - first) // _LANE, "marker": int.from_bytes(marker, "little")}
        return {}

    def markers(self, word: int, first: int) -> dict[int, bytes]:
        """And back."""
        if not self.get(word, "marked"):
            return {}
        return {first + _LANE * self.get(word, "place"): self.get(word, "marker").to_bytes(_LANE, "little")}


class _Apart(_Port):
    """A port on which every packet has beats of its own."""

    def write(self, opening: Sequence[Any], others: Sequence[Any]) -> tuple[list[int], list[int]]:
        """As of :class:`Port`."""
        return self._words(opening), self._words(others)

    def read(self, opening: Sequence[int], others: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """As of :class:`Port`."""
        return list(self._packets(opening)), list(self._packets(others))

    def _words(self, packets: Iterable[Any]) -> list[int]:
        return [word for packet in packets for word in self._beats(packet)]

    def _beats(self, packet: Any) -> Iterator[int]:
        raise NotImplementedError

    def _packets(self, words: Iterable[int]) -> Iterator[Any]:
        raise NotImplementedError

    def cut(self, octets: bytes, **extra: int) -> Iterator[int]:
        """The beats of a packet of these octets."""
        end = max(1, -(-len(octets) // self.width)) * self.width
        for at in range(0, end, self.width):
            beat = octets[at : at + self.width]
            yield self.word(beat, octets=len(beat), last=at + self.width == end, **extra)

    def joined(self, words: Iterable[int]) -> Iterator[tuple[bytes, int]]:
        """Packets, each with its last payload."""
        octets = bytearray()
        for word in words:
            last = self.get(word, "last")
            octets += self.data(word, self.get(word, "octets") if last else self.width)
            if last:
                yield bytes(octets), word
                octets.clear()


class Packets(_Apart):
    """Octets: :class:`.Packet`, ``TxUlpdu`` and ``RxUlpdu``."""

    def _beats(self, packet: bytes) -> Iterator[int]:
        return self.cut(packet, length=len(packet))

    def _packets(self, words: Iterable[int]) -> Iterator[bytes]:
        for octets, word in self.joined(words):
            if "verdict" in self.fields and self.get(word, "verdict") != Verdict.GOOD:
                return
            yield octets


class Checks(_Apart):
    """:class:`Checked`: packets with ``CHECKED`` of :mod:`.checker`."""

    def _beats(self, packet: Checked) -> Iterator[int]:
        ulpdu = packet.ulpdu
        return self.cut(ulpdu, cause=packet.cause, value=len(ulpdu), size=packet.size // _LANE, markers=packet.markers)

    def _packets(self, words: Iterable[int]) -> Iterator[Checked]:
        for octets, word in self.joined(words):
            size = _LANE * self.get(word, "size")
            yield Checked(octets, size, self.get(word, "markers"), Cause(self.get(word, "cause")))


class Fpdus(_Apart):
    """:class:`Unmarked` FPDUs: :class:`.AlignedBeat`."""

    def _beats(self, packet: Unmarked) -> Iterator[int]:
        octets, width = packet.octets, self.width
        length = int.from_bytes(octets[:2], "big")
        ulpdu_end = max(1, -(-length // width)) * width  # in beats that are 2 octets late
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
        """As of :class:`Port`."""
        stream = Unmarked.join((*opening, *others))
        before = sum(len(each.octets) for each in opening)
        # A marker is shown as soon as it is there, which is before the lane behind it.
        return self._beats(stream, 0, before), self._beats(stream, before, len(stream.octets))

    def _beats(self, stream: Unmarked, begin: int, end: int) -> list[int]:
        words = []
        for at in range(begin // self.width * self.width, end, self.width):
            beat = stream.cut(at, min(end, at + self.width))
            words.append(self.word(beat.octets, count=len(beat.octets) // _LANE, **self.marker(beat, 0)))
        return words

    def read(self, opening: Sequence[int], others: Sequence[int]) -> tuple[list[Unmarked], list[Unmarked]]:
        """As of :class:`Port`, with at most one of each."""
        first, whole = self._stream(opening), self._stream([*opening, *others])
        border = len(first.octets)
        return [first], [whole.cut(border, len(whole.octets) + 1)]

    def _stream(self, words: Sequence[int]) -> Unmarked:
        octets, at = bytearray(), 0
        markers: dict[int, bytes] = {}
        for word in words:
            count = _LANE * self.get(word, "count")
            octets[at:] = self.data(word, count)  # a beat that was not full comes again with more
            markers |= self.markers(word, at)
            at += self.width * (count == self.width)
        return Unmarked(bytes(octets), markers)
