"""One direction of an Ethernet segment that loses, repeats, delays and damages frames by a seeded plan; without I/O.

>>> direction = Direction(Faults(duplicate=1.0, delay=0.5), seed=7)
>>> direction.offer(b"frame", now=10.0)
(<Kind.DUPLICATE: 'duplicated'>,)
>>> direction.deadline
10.5
>>> direction.due(10.5)
[b'frame', b'frame']
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import NamedTuple

__all__ = ["Arrival", "Direction", "Fault", "Faults", "Kind"]

_MACS = 12  # octets of the MAC addresses, which stay intact
_HEADER = 14  # octets of the Ethernet header, which no truncated frame lacks
_PROBABILITIES = ("drop", "duplicate", "reorder", "corrupt", "truncate")


class Kind(StrEnum):
    """A fault that a frame met. The first four lose the frame."""

    CUT = "cut"
    OVERFLOW = "queue full"
    DROP = "dropped"
    BAD_FCS = "bad FCS"
    DUPLICATE = "duplicated"
    REORDER = "late"
    CORRUPT = "corrupted"
    TRUNCATE = "truncated"


_LOSSES = (Kind.CUT, Kind.OVERFLOW, Kind.DROP, Kind.BAD_FCS)


@dataclass(frozen=True)
class Faults:
    """The plan of one direction. The default delivers every frame at once.

    A frame waits for the rate first, then meets its faults, then the delay: a frame that is dropped has taken its time
    on the wire. Raises ValueError for values outside of their ranges.

    Members
    -------
    drop : the probability that a frame is lost, 0 to 1
    duplicate : the probability that a frame arrives twice; the second copy follows the first
    reorder : the probability that a frame is late by ``reorder_by``, so that frames behind it overtake it
    corrupt : the probability that ``corrupt_bits`` bits of a frame, behind its MAC addresses, are flipped
    truncate : the probability that a frame is cut off at a random octet behind its Ethernet header
    reorder_by : seconds
    corrupt_bits : the checksums of IPv4, TCP and UDP find every single flipped bit, but miss about 1 in 32 pairs of
        flipped bits
    bad_fcs : if set, frames with flipped bits are lost, as a MAC discards frames with a bad FCS; if clear, they are
        delivered, as if the octets had changed in a switch or in memory, behind the check of the FCS
    delay : seconds from a frame's last bit on the wire to its arrival
    jitter : seconds; the delay is up to this much longer. It never changes the order of frames
    rate : bits per second; None is unlimited. A frame takes 8 bits for each octet: there is no preamble, FCS or gap
    queue : the number of frames that may wait for the rate; another frame is lost
    only : selects the frames that can meet faults; rate, queue and delay hold for all

    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    truncate: float = 0.0
    reorder_by: float = 0.002
    corrupt_bits: int = 1
    bad_fcs: bool = False
    delay: float = 0.0
    jitter: float = 0.0
    rate: float | None = None
    queue: int = 1000
    only: Callable[[bytes], bool] | None = None

    def __post_init__(self) -> None:
        for name in _PROBABILITIES:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, from 0 to 1, not {getattr(self, name)}")
        for name in ("reorder_by", "delay", "jitter", "queue"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is at least 0, not {getattr(self, name)}")
        if self.corrupt_bits < 1:
            raise ValueError(f"corrupt_bits is at least 1, not {self.corrupt_bits}")
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"rate is positive, not {self.rate}")


class Fault(NamedTuple):
    """An entry of the log: the frame's number, from 0 in the order of ``offer``; seconds; and what it met."""

    number: int
    time: float
    kind: Kind


class Arrival(NamedTuple):
    """A frame that arrives, with its number and the faults that it met."""

    number: int
    frame: bytes
    kinds: tuple[Kind, ...]


class _Fate(NamedTuple):
    """The random numbers of one frame. ``detail`` seeds the choice of bits and lengths."""

    drop: float
    duplicate: float
    reorder: float
    corrupt: float
    truncate: float
    jitter: float
    detail: int


_SPARED = _Fate(1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0)


class Direction:
    """One direction of the segment. Times are seconds of any clock that does not go back.

    Each frame that ``Faults.only`` selects takes the same number of random numbers. The n-th of them therefore meets
    the same fate in every run with this seed, whatever its length, its time, and the fates of others.

    Members
    -------
    faults : the plan; it may be exchanged at any time, and holds for the frames offered from then on
    log : an entry for each fault, in the order of their decisions
    counts : the number of faults of each kind
    offered, delivered : numbers of frames

    """

    def __init__(self, faults: Faults | None = None, seed: int | str = 0) -> None:
        self.faults = faults or Faults()
        self.log: list[Fault] = []
        self.counts: Counter[Kind] = Counter()
        self.offered = self.delivered = 0
        self._random = random.Random(seed)
        self._connected = True
        self._free = self._last = float("-inf")  # when the wire becomes free; the last arrival in order
        self._starts: deque[float] = deque()  # when frames that wait for the rate will start
        self._flying: list[tuple[float, int, Arrival]] = []  # a heap by time, then order
        self._order = count()

    @property
    def flying(self) -> int:
        """The number of frames, copies included, that have not arrived yet."""
        return len(self._flying)

    @property
    def lost(self) -> int:
        """The number of lost frames: ``delivered + flying == offered - lost + counts[Kind.DUPLICATE]``."""
        return sum(self.counts[kind] for kind in _LOSSES)

    @property
    def deadline(self) -> float | None:
        """The time of the next arrival; None if no frame is on its way."""
        return self._flying[0][0] if self._flying else None

    def offer(self, frame: bytes, now: float) -> tuple[Kind, ...]:
        """Put a frame on the wire. Returns the faults that it meets."""
        number, self.offered = self.offered, self.offered + 1
        faults = self.faults
        fate = self._draw() if faults.only is None or faults.only(frame) else _SPARED
        if not self._connected:
            return self._met(number, now, Kind.CUT)
        sent = self._transmit(frame, now)
        if sent is None:
            return self._met(number, now, Kind.OVERFLOW)
        if fate.drop < faults.drop:
            return self._met(number, now, Kind.DROP)
        if fate.corrupt < faults.corrupt and faults.bad_fcs:
            return self._met(number, now, Kind.BAD_FCS)

        frame, kinds = _damaged(frame, faults, fate)
        arrival = self._last = max(self._last, sent + faults.delay + faults.jitter * fate.jitter)
        if fate.reorder < faults.reorder:
            arrival += faults.reorder_by
            kinds.append(Kind.REORDER)
        if fate.duplicate < faults.duplicate:
            kinds.append(Kind.DUPLICATE)
        arrived = Arrival(number, frame, self._met(number, now, *kinds))
        for _ in range(1 + (Kind.DUPLICATE in kinds)):
            heapq.heappush(self._flying, (arrival, next(self._order), arrived))
        return arrived.kinds

    def due(self, now: float) -> list[bytes]:
        """Take the frames that have arrived by now, in the order of their arrival."""
        return [arrival.frame for arrival in self.arrivals(now)]

    def arrivals(self, now: float) -> list[Arrival]:
        """Take the frames that have arrived by now, as ``due``, with the faults that they met."""
        arrived = []
        while self._flying and self._flying[0][0] <= now:
            arrived.append(heapq.heappop(self._flying)[2])
        self.delivered += len(arrived)
        return arrived

    def cut(self, now: float) -> None:
        """Cut the cable: frames that are on their way are lost, and all that are offered until ``join``."""
        self._connected = False
        for _, _, arrival in sorted(self._flying):
            self._met(arrival.number, now, Kind.CUT)
        self._flying.clear()
        self._starts.clear()
        self._free = self._last = now

    def join(self) -> None:
        """Join the cable again."""
        self._connected = True

    def _draw(self) -> _Fate:
        draw = self._random.random
        return _Fate(draw(), draw(), draw(), draw(), draw(), draw(), self._random.getrandbits(64))

    def _met(self, number: int, now: float, *kinds: Kind) -> tuple[Kind, ...]:
        self.log += (Fault(number, now, kind) for kind in kinds)
        self.counts.update(kinds)
        return kinds

    def _transmit(self, frame: bytes, now: float) -> float | None:
        """When the frame's last bit is on the wire; None if the frame found the queue full."""
        while self._starts and self._starts[0] <= now:
            self._starts.popleft()
        start = max(now, self._free)
        if start > now:
            if len(self._starts) >= self.faults.queue:
                return None
            self._starts.append(start)
        self._free = start if self.faults.rate is None else start + 8 * len(frame) / self.faults.rate
        return self._free


def _damaged(frame: bytes, faults: Faults, fate: _Fate) -> tuple[bytes, list[Kind]]:
    """The frame as it arrives, and its damages. A frame that is too short for a damage does not meet it."""
    kinds: list[Kind] = []
    truncate = fate.truncate < faults.truncate and len(frame) > _HEADER
    corrupt = fate.corrupt < faults.corrupt and len(frame) > _MACS
    if not truncate and not corrupt:
        return frame, kinds
    choice = random.Random(fate.detail)
    if truncate:
        frame = frame[: choice.randrange(_HEADER, len(frame))]
        kinds.append(Kind.TRUNCATE)
    if corrupt:
        bits = range(8 * _MACS, 8 * len(frame))
        damaged = bytearray(frame)
        for bit in choice.sample(bits, min(faults.corrupt_bits, len(bits))):
            damaged[bit // 8] ^= 0x80 >> bit % 8
        frame = bytes(damaged)
        kinds.append(Kind.CORRUPT)
    return frame, kinds
