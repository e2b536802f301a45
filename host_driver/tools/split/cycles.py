"""Predict the clock cycles that the device needs for a segment.

Every block transfers one beat per cycle. A stream therefore takes as many cycles as it has beats at the point where it
has most: behind the framer and the inserter on transmit, which add octets, and before the checker on receive, which
removes octets. The latency of the blocks before and behind this point is added.

The prediction follows the times of each packet's first and last beat from block to block. A block adds its latency, and
outputs no beat of a packet before it has output all beats of the packet before. Work that a block does on the last beat
only, such as waiting for a CRC, overlaps with the packets that follow, if there are any.

The latencies are those in the docstrings of the blocks in ``rtl``. The output register that some of these include is
counted here as a block of its own, :class:`.Buffer`. A beat that leaves in the cycle in which it arrives has latency 0.

The RDMA engine and TCP work in the same way, but for what they do once for each ULPDU or segment. Those constants have
been counted in simulation, and ``rnic split --run`` counts them again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL
from open_rnic.host_driver.tools.split.stages import MPA, RDMA, RTL, Direction, Stage, inseparable

__all__ = ["device_cycles"]

_NARROW = 16  # octets of the widest beat that is rotated at once, as AT_ONCE of rtl.lib.rotate
_BUFFER = 1  # latency of rtl.lib.stream.Buffer, at the end of a segment
_LANE = 4  # octets of a lane, a marker and a CRC


class _Packet(NamedTuple):
    """The cycles in which the first and the last beat of a packet arrive."""

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
    """Return the clock cycles from the segment's first input beat to its last output beat, both included.

    ``stages`` are adjacent stages that one part of the device does. Their input arrives without gaps, in the form in
    which the stage before outputs it, and their output is never stalled. ``ulpdus`` are lengths in octets; ``offset``
    is the position of the first FPDU in the marked stream, in octets. The fence is open, and an RTR has been detected.
    ``crc`` has no effect, because an FPDU has a CRC field even if CRCs are off. Raises ValueError for a stage that is
    not available as RTL.
    """
    if missing := [stage for stage in stages if stage not in RTL]:
        raise ValueError(f"the RTL has no {missing[0]}")
    if not ulpdus:
        return 0
    out = direction is Direction.TRANSMIT
    sizes = _Sizes(ulpdus, markers, offset)
    if stages[0] in MPA:
        *_, last = (_transmit if out else _receive)(stages, lanes, sizes)
        return last.last + _BUFFER + 1
    if stages[0] in RDMA:
        return (_gathered if out else _placed)(sizes, lanes)
    return (_sent if out else _delivered)(sizes.marked)


class _Sizes:
    """Lengths of packets in octets, between the stages."""

    def __init__(self, ulpdus: Sequence[int], markers: bool, offset: int):
        self.ulpdus = list(ulpdus)
        self.framed = [2 + each + 3 & ~3 for each in ulpdus]  # ULPDU_Length, PAD
        self.whole = [each + _LANE for each in self.framed]  # without markers
        #: Where each FPDU begins and the last one ends, in the stream without markers; ``offset`` counts markers, too.
        begin = offset - (_LANE * -(-offset // MARKER_INTERVAL) if markers else 0)
        self.begins = list(accumulate(self.whole, initial=begin))
        self._gap = MARKER_INTERVAL - _LANE if markers else 0
        counts = map(self.markers_before, self.begins)
        self.marked = [
            size + _LANE * (after - before) for size, (before, after) in zip(self.whole, pairwise(counts), strict=True)
        ]

    def markers_before(self, octets: int) -> int:
        """Return the number of markers before this octet of the stream without markers."""
        return -(-octets // self._gap) if self._gap else 0


def _beats(sizes: Iterable[int], width: int) -> list[int]:
    return [max(1, -(-size // width)) for size in sizes]


def _offered(beats: Iterable[int]) -> Iterator[_Packet]:
    """Packets of these numbers of beats, without gaps."""
    at = 0
    for each in beats:
        yield _Packet(at, at + each - 1)
        at += each


def _block(
    packets: Iterable[_Packet], beats: Iterable[int], latency: int, last: int | None = None
) -> Iterator[_Packet]:
    """Pass packets through a block; ``latency`` applies to a packet's first beat, and ``last`` to its last beat."""
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
    wide = width > _NARROW  # decisions about a beat are made a cycle before it, and it is rotated in steps
    for stage in stages:
        match stage:
            case Stage.FENCE:  # two Buffers, one before and one behind the decision
                packets = _block(packets, ulpdus, 2)
            case Stage.FRAMING:  # a Stage and a Buffer, or a Conveyor
                packets = _block(packets, framed, 2)
            case Stage.MARKER_INSERTION:
                # Three Stages, which measure, rotate and register. Wide beats rotate in two steps of a Conveyor.
                packets = _block(packets, marked, 6 if wide else 3)
            case Stage.CRC_GENERATION if lanes == 1:  # the CRC has a beat of its own, and is known when it is due
                packets = _block(packets, fpdus, 1, 3)
            case Stage.CRC_GENERATION:
                # A queue; the CRC's pipeline; removal of trailing zero lanes, 2 bits of their number per cycle; the
                # insertion; a queue. Wide beats have a Buffer behind it.
                undo = ((lanes - 1).bit_length() + 1) // 2
                packets = _block(packets, fpdus, 1 + wide, (3 if lanes <= 2 else 4) + undo + 2 + wide)
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
                # First beat: two registers, a queue, a Buffer. Last beat: a register, the CRC with an adjacent marker,
                # the comparison, a queue, a Buffer. Wide beats: a register before the CRC, and one before the queue.
                packets = packets if stage is not stages[0] else _offered(fpdus)
                packets = _block(packets, ulpdus, 4, 4 + 6 + 2 * (width > _NARROW))
            case Stage.RTR_DETECTION:  # adds no latency, once the RTR has arrived
                packets = packets if stage is not stages[0] else _offered(ulpdus)
    return packets


def _stream(sizes: _Sizes, width: int) -> Iterator[_Packet]:
    """FPDUs in a stream without markers and without gaps, in which one beat can hold parts of two FPDUs."""
    zero = sizes.begins[0] // width
    for begin, end in pairwise(sizes.begins):
        yield _Packet(begin // width - zero, (end - 1) // width - zero)


def _packed(sizes: _Sizes, width: int) -> Iterator[_Packet]:
    """The same stream at the output of the packer, whose input has one chunk for each FPDU.

    A beat leaves 2 cycles after the octet that completes it has arrived, a wide beat 5. An incomplete beat leaves 1
    cycle later.
    """
    latency = 5 if width > _NARROW else 2
    begins = sizes.begins
    chunks = list(_offered(_beats(sizes.marked, width)))

    def leaves(octet: int) -> int:
        """Return the cycle in which the beat with this octet of the stream without markers leaves."""
        filling = octet // width * width + width - 1
        tail = filling >= begins[-1]
        filling = min(filling, begins[-1] - 1)
        number = bisect_right(begins, filling) - 1
        before = sizes.markers_before(filling + 1) - sizes.markers_before(begins[number])
        return chunks[number].first + (filling - begins[number] + _LANE * before) // width + latency + tail

    for begin, end in pairwise(begins):
        yield _Packet(leaves(begin), leaves(end - 1))


def _delineated(packets: Iterator[_Packet], beats: Iterable[int], sizes: _Sizes, width: int) -> Iterator[_Packet]:
    """FPDUs, each in beats of its own.

    The finder has a queue and a register at its input; it passes each FPDU on through another queue, and a register
    holds how to cut it out. The octets pass a queue and a window meanwhile. A register follows, and the queue of the
    Segment. A beat other than an FPDU's last one is cut out as soon as the lane behind it has arrived. If that lane is
    in the stream's last beat, and this beat is incomplete, it takes one more cycle to see that it suffices. A wide
    beat takes 3 cycles more: a register for how to cut, one behind the window, and one between two rotations.
    """
    free = 0
    late = 3 if width > _NARROW else 0
    partial = sizes.begins[-1] // width  # the beat that is incomplete, if there is one
    for packet, each, (begin, end) in zip(packets, beats, pairwise(sizes.begins), strict=True):
        ends = (end - 1) // width
        before = begin // width + each - 1 if each > 1 else -1  # the stream beat that the last beat but one needs
        looks = (ends == partial) + (before == partial)
        first = max(packet.first + 6 + late, free)
        last = max(first + each - 1, packet.last + 4 + late + (before == ends)) + looks
        yield _Packet(first + (each == 1 and looks), last)
        free = last + 1


# The RDMA engine: cycles from the first address given to memory, or the first beat of a ULPDU, to the last beat or
# word.
_HEADER = 14  # octets of a tagged segment's header, which precede its first octet from memory
_FETCH = 3  # from an address to the beat with the octets of that word
_LOAD = 7  # least from one message to the next
_STORE = 2  # from a ULPDU's last beat to its first behind StoreAndForward
_PLACE = 6  # from a beat behind it to its word in memory


def _gathered(sizes: _Sizes, lanes: int) -> int:
    """Cycles of the RDMA engine to send ULPDUs: a beat in each cycle, and a few cycles between two ULPDUs."""
    width = _LANE * lanes
    between = 1 if lanes <= 4 else 2
    *others, last = _beats(sizes.ulpdus, width)
    return sum(max(each + between, _LOAD) for each in others) + last + _FETCH - _HEADER // width


def _placed(sizes: _Sizes, lanes: int) -> int:
    """Cycles of the RDMA engine to place ULPDUs, each of which waits until it is complete."""
    free = 0
    for packet in _offered(_beats(sizes.ulpdus, _LANE * lanes)):
        free = max(packet.last + _STORE, free) + packet.last - packet.first + 1
    return free + _PLACE


# TCP, 32 bits wide: cycles from the first beat of a packet to the last one of its frame, and back. The first packet
# enters its frame while it is stored. Each of the others is written to a ring, then a segment is built of it, and then
# its frame leaves: its beats count three times, and those of several packets overlap. Receive does the same in the
# other order.
_CUT_THROUGH = 40  # of the first packet, besides its beats, twice
_CUT_THROUGH_LEAST = 65  # and besides its beats at least
_BUILD = 195  # to build a segment, besides its beats
_LEAVE = 12  # of a frame besides its beats
_DELIVER, _DELIVERS = 55, 3
_NEXT, _NEXT_LEAST = 36, 42  # from one segment received to the next, besides its beats, and at least


def _sent(fpdus: Sequence[int]) -> int:
    """Cycles of TCP to send packets, each in a segment of its own."""
    first, *others = _beats(fpdus, _LANE)
    written = built = first
    left = max(2 * first + _CUT_THROUGH, first + _CUT_THROUGH_LEAST)
    for each in others:
        written += each
        built = max(written, built) + each + _BUILD
        left = max(built, left) + each + _LEAVE
    return left


def _delivered(fpdus: Sequence[int]) -> int:
    """Cycles of TCP to receive segments and to deliver their octets."""
    first, *others = _beats(fpdus, _LANE)
    return _DELIVER + _DELIVERS * first + sum(max(each + _NEXT, _NEXT_LEAST) for each in others)
