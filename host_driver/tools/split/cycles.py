"""How many clock cycles the device needs for a segment, from how its blocks work.

Every block gives a beat in each cycle, so a stream takes as many cycles as it has beats where it has most of them:
behind the framer and the inserter on transmit, which add octets, and before the checker on receive, which takes
octets away. To that comes how long the first beats need to get there, and the last ones from there to the end.

So the time of each packet's first beat and last beat is followed from block to block. A block adds its latency, and
gives no beat before it has given those of the packet before. What it does with the last beat only, as waiting for
a CRC, hides behind the packets that follow, if there are any.

Latencies are those that the blocks' docstrings in ``rtl`` name, less the register behind some of them, which is one
block here: :class:`.Buffer`. A beat that leaves in the cycle in which it comes has latency 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL
from open_rnic.host_driver.tools.split.stages import RTL, Direction, Stage, inseparable

__all__ = ["device_cycles"]

_BUFFER = 1  # rtl.lib.stream.Buffer, at the end of a segment
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
    anything, for the field is there without CRCs, too. Raises ValueError for a stage that the RTL cannot do.
    """
    if missing := [stage for stage in stages if stage not in RTL]:
        raise ValueError(f"the RTL has no {missing[0]}")
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
        self._gap = MARKER_INTERVAL - _LANE if markers else 0
        counts = map(self.markers_before, self.begins)
        self.marked = [
            size + _LANE * (after - before) for size, (before, after) in zip(self.whole, pairwise(counts), strict=True)
        ]

    def markers_before(self, octets: int) -> int:
        """How many are in the stream before so many octets without markers have passed, and the next one comes."""
        return -(-octets // self._gap) if self._gap else 0


def _beats(sizes: Iterable[int], width: int) -> list[int]:
    return [max(1, -(-size // width)) for size in sizes]


def _offered(beats: Iterable[int]) -> Iterator[_Packet]:
    """Packets of so many beats, without a gap."""
    at = 0
    for each in beats:
        yield _Packet(at, at + each - 1)
        at += each


def _block(
    packets: Iterable[_Packet], beats: Iterable[int], latency: int, last: int | None = None
) -> Iterator[_Packet]:
    """Behind a block that gives so many beats: its latency for a packet's first beat, and ``last`` for its last one."""
    free = 0
    for packet, each in zip(packets, beats, strict=True):
        first = max(packet.first + latency, free)
        end = max(first + each - 1, packet.last + (latency if last is None else last))
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
            case Stage.MARKER_INSERTION:
                # A Buffer; a Stage to measure, one to turn, one behind it; a wide beat turns in two.
                packets = _block(packets, marked, 5 if lanes > 8 else 4)
            case Stage.CRC_GENERATION:
                # A queue; the CRC's pipeline, lanes of zeros undone (2 bits of their number a cycle), the end, a queue.
                undo = ((lanes - 1).bit_length() + 1) // 2
                packets = _block(packets, fpdus, 1, (3 if lanes <= 2 else 4) + undo + 2)
    return iter(packets)


def _receive(stages: tuple[Stage, ...], lanes: int, sizes: _Sizes) -> Iterator[_Packet]:
    width = _LANE * lanes
    fpdus, ulpdus = _beats(sizes.whole, width), _beats(sizes.ulpdus, width)
    packets: Iterator[_Packet] = iter(())
    one_block = inseparable(Direction.RECEIVE, lanes)
    if stages[0] in one_block:
        # The packer 2, the receiver 4; the first beat waits for the lane behind its own, the last one for the CRC.
        packets = _block(_offered(_beats(sizes.marked, width)), ulpdus, 2 + 4 + 1, 2 + 4)
    for stage in stages:
        match stage:
            case _ if stage in one_block:
                pass
            case Stage.MARKER_REMOVAL:
                packets = _packed(sizes, width)
            case Stage.FRAMING:
                packets = packets if stage is not stages[0] else _stream(sizes, width)
                packets = _delineated(packets, fpdus, sizes, width)
            case Stage.CRC_CHECK:
                # Two registers before it; a queue and a Buffer; a register, the CRC with a marker beside it, to
                # compare, a queue and a Buffer.
                packets = packets if stage is not stages[0] else _offered(fpdus)
                packets = _block(packets, ulpdus, 4, 4 + 6)
            case Stage.RTR_DETECTION:  # nothing stands in the way, once the RTR has come
                packets = packets if stage is not stages[0] else _offered(ulpdus)
    return packets


def _stream(sizes: _Sizes, width: int) -> Iterator[_Packet]:
    """FPDUs in a stream without markers that is offered without a gap, so that two can be in the same beat."""
    zero = sizes.begins[0] // width
    for begin, end in pairwise(sizes.begins):
        yield _Packet(begin // width - zero, (end - 1) // width - zero)


def _packed(sizes: _Sizes, width: int) -> Iterator[_Packet]:
    """The same, behind the packer, which is given each FPDU as a chunk.

    A beat leaves 2 cycles after the octet that fills it has come. If there is none, it is shown a cycle later.
    """
    begins = sizes.begins
    chunks = list(_offered(_beats(sizes.marked, width)))

    def leaves(octet: int) -> int:
        """When the beat with this octet of the stream without markers does."""
        filling = octet // width * width + width - 1
        tail = filling >= begins[-1]
        filling = min(filling, begins[-1] - 1)
        number = bisect_right(begins, filling) - 1
        before = sizes.markers_before(filling + 1) - sizes.markers_before(begins[number])
        return chunks[number].first + (filling - begins[number] + _LANE * before) // width + 2 + tail

    for begin, end in pairwise(begins):
        yield _Packet(leaves(begin), leaves(end - 1))


def _delineated(packets: Iterator[_Packet], beats: Iterable[int], sizes: _Sizes, width: int) -> Iterator[_Packet]:
    """FPDUs, each in beats of its own.

    One is found behind a queue and a register, waits in another queue, and a register says how it is to be cut out; its
    octets wait in a queue and a window; a register is behind both, and a Segment's queue. A beat, but for an FPDU's
    last one, is cut out when there is the lane that follows it. If that is in the stream's last beat, and this is not
    full, it takes a cycle to see that it is enough.
    """
    free = 0
    partial = sizes.begins[-1] // width  # the beat that is not full, if there is one
    for packet, each, (begin, end) in zip(packets, beats, pairwise(sizes.begins), strict=True):
        ends = (end - 1) // width
        before = begin // width + each - 1 if each > 1 else -1  # where what its last beat but one needs is
        looks = (ends == partial) + (before == partial)
        first = max(packet.first + 6, free)
        last = max(first + each - 1, packet.last + 4 + (before == ends)) + looks
        yield _Packet(first + (each == 1 and looks), last)
        free = last + 1
