"""How many clock cycles the device needs for a segment, from how its blocks work.

Every block gives a beat in each cycle, so a stream takes as many cycles as it has beats where it has most of them:
behind the framer and the inserter on transmit, which add octets, and before the checker on receive, which takes
octets away. To that comes how long the first beats need to get there, and the last ones from there to the end.

So the time of each packet's first beat and last beat is followed from block to block. A block adds its latency, and
gives no beat before it has given those of the packet before. What it does with the last beat only, as waiting for
a CRC, hides behind the packets that follow, if there are any.

Latencies are those that the blocks' docstrings in ``rtl`` name, less the register behind some of them, which is one
block here: :class:`rtl.stream.Buffer`. A beat that leaves in the cycle in which it comes has latency 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from host_driver.fpdu import MARKER_INTERVAL
from host_driver.split.stages import Direction, Stage

__all__ = ["device_cycles"]

_BUFFER = 1  # rtl.stream.Buffer, at the end of a segment
_LANE = 4  # octets, as of a marker and a CRC


class _Packet(NamedTuple):
    """The cycles in which a packet's first and last beat come."""

    first: int
    last: int


def device_cycles(
    stages: tuple[Stage, ...],
    direction: Direction,
    lanes: int,
    ulpdus: Sequence[int],
    *,
    markers: bool,
    crc: bool,
    offset: int = 0,
) -> int:
    """Clock cycles from the first beat that the segment takes to the last one that it gives, both included.

    ``stages`` follow each other, and are the device's. Their input is offered without a gap, in the shape in which the
    stage before gives it, and their output taken at once. ``ulpdus`` are lengths in octets, ``offset`` is where in the
    marked stream the first FPDU begins. The fence is open; an RTR has been detected. ``crc`` does not change
    anything, for the field is there without CRCs, too.
    """
    if not ulpdus:
        return 0
    follow = _transmit if direction is Direction.TRANSMIT else _receive
    *_, last = follow(stages, lanes, _Sizes(ulpdus, markers, offset))
    return last.last + _BUFFER + 1


class _Sizes:
    """Lengths of packets in octets, as they are between stages."""

    def __init__(self, ulpdus: Sequence[int], markers: bool, offset: int):
        self.ulpdus = list(ulpdus)
        self.framed = [2 + each + 3 & ~3 for each in ulpdus]  # ULPDU_Length, PAD
        self.whole = [each + _LANE for each in self.framed]  # without markers
        #: Where each FPDU begins and the last one ends, without markers; the offset is that of the first one.
        begin = offset - (_LANE * -(-offset // MARKER_INTERVAL) if markers else 0)
        self.begins = list(accumulate(self.whole, initial=begin))
        self.marked = self.whole
        if markers:
            # Before an octet that is number n of the stream without markers are n // 508 + 1 of them.
            gap = MARKER_INTERVAL - _LANE
            counts = [(at - _LANE) // gap + 1 for at in self.begins]
            self.marked = [
                size + _LANE * (after - before)
                for size, (before, after) in zip(self.whole, pairwise(counts), strict=True)
            ]


def _beats(sizes: Iterable[int], width: int) -> list[int]:
    return [max(1, -(-size // width)) for size in sizes]


def _offered(beats: Iterable[int]) -> Iterator[_Packet]:
    """Packets of so many beats, without a gap."""
    at = 0
    for each in beats:
        yield _Packet(at, at + each - 1)
        at += each


def _block(packets: Iterable[_Packet], beats: Iterable[int], latency: int, last: int = 0) -> Iterator[_Packet]:
    """Behind a block that gives so many beats: its latency, and ``last`` from the last beat taken to the last given."""
    free = 0
    for packet, each in zip(packets, beats, strict=True):
        first = max(packet.first + latency, free)
        end = max(first + each - 1, packet.last + max(latency, last))
        yield _Packet(first, end)
        free = end + 1


def _transmit(stages: tuple[Stage, ...], lanes: int, sizes: _Sizes) -> Iterator[_Packet]:
    width = _LANE * lanes
    ulpdus, framed = _beats(sizes.ulpdus, width), _beats(sizes.framed, width)
    marked, fpdus = _beats([size - _LANE for size in sizes.marked], width), _beats(sizes.marked, width)
    given = {Stage.FENCE: ulpdus, Stage.FRAMING: ulpdus, Stage.MARKER_INSERTION: framed, Stage.CRC_GENERATION: marked}
    packets = _offered(given[stages[0]])
    for stage in stages:
        match stage:
            case Stage.FENCE:  # two Buffers: before the decision and behind it
                packets = _block(packets, ulpdus, 2)
            case Stage.FRAMING:  # a Stage
                packets = _block(packets, framed, 1)
            case Stage.MARKER_INSERTION:  # a Stage to measure, one to turn, one behind it; a wide beat turns in two
                packets = _block(packets, marked, 4 if lanes > 8 else 3)
            case Stage.CRC_GENERATION:  # a queue; the CRC: its pipeline, lanes to undo 2 bits at a time, to end, a queue
                undo = ((lanes - 1).bit_length() + 1) // 2
                packets = _block(packets, fpdus, 1, (3 if lanes <= 2 else 4) + undo + 2)
    return iter(packets)


def _receive(stages: tuple[Stage, ...], lanes: int, sizes: _Sizes) -> Iterator[_Packet]:
    raise NotImplementedError
