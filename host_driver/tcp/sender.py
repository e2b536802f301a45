"""The sending half of a connection: the ring, loss recovery, and the choice of the next segment."""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum, auto
from itertools import chain

from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.congestion import Congestion
from open_rnic.host_driver.tcp.ranges import Range, Ranges
from open_rnic.host_driver.tcp.ring import Ring

__all__ = ["Phase", "Sender"]

DUPLICATES = 3  # DupThresh of RFC 6675, and the threshold of RFC 5681 §3.2


class Phase(Enum):
    """The state of loss recovery."""

    OPEN = auto()  # nothing is known to be lost
    FAST = auto()  # fast recovery (RFC 6675 §5, without SACK RFC 6582)
    TIMEOUT = auto()  # everything outstanding at a timeout counts as lost, and is sent again in slow start


class Sender:
    """The variables of RFC 9293 §3.3.1 that begin with SND, and the octets that are not acknowledged.

    ``una`` is SND.UNA, ``next`` is SND.NXT: everything before it has been sent at least once. ``end`` is the end of the
    octets that the user has given; the FIN has the number ``end``. Octets stay in the ring until they are acknowledged;
    retransmissions are read from it.
    """

    def __init__(self, config: TcpConfig) -> None:
        self._config = config
        self.una = self.next = self.end = 0
        self.closing = False  # a FIN is due behind the last octet
        self.window = 0  # SND.WND, scaled
        self.largest_window = 0
        self.mss = 536  # octets of data in a full segment (RFC 9293 §3.7.1); options are subtracted
        self.sacks = False  # the peer sends SACK
        self.sacked = Ranges(config.ranges)
        self.phase = Phase.OPEN
        self.congestion = Congestion(self.mss, config.initial_window)
        self._window_seq = self._window_ack = 0  # SND.WL1 and SND.WL2
        self._ring = Ring(config.send_ring)
        self._ends: list[int] = []  # of the user's packets, ascending
        self._recovery_point = 0  # recovery ends when this number is acknowledged
        self._resent = 0  # HighRxt of RFC 6675: retransmission goes on from here
        self._first_lost = 0  # the number with which fast recovery began
        self._duplicates = 0  # octets that have left the network: a full segment for each duplicate ACK

    def begin(self, number: int, mss: int) -> None:
        """The SYN has the number ``number - 1``."""
        self.una = self.next = self.end = self._resent = self._recovery_point = number
        self.mss = mss
        self.congestion = Congestion(mss, self._config.initial_window)

    # The user

    @property
    def room(self) -> int:
        """Octets that :meth:`put` takes."""
        return self._ring.size - (self.end - self.una)

    def put(self, octets: bytes) -> int:
        """Take octets, as many as there is room for, as a packet: no segment holds octets of two packets."""
        octets = octets[: self.room]
        if octets:
            self._ring.write(self.end, octets)
            self.end += len(octets)
            if len(self._ends) == self._config.packets:
                self._ends.pop()
            self._ends.append(self.end)
        return len(octets)

    @property
    def limit(self) -> int:
        """The number behind everything that is to be sent, a FIN included."""
        return self.end + self.closing

    @property
    def in_flight(self) -> int:
        """FlightSize: numbers that have been sent and not acknowledged."""
        return self.next - self.una

    # The peer

    def update_window(self, seq: int, ack: int, window: int) -> bool:
        """Take the window of a segment, and return whether it has changed.

        A segment that is older than the last is ignored (RFC 9293 §3.10.7.4).
        """
        if (self._window_seq, self._window_ack) > (seq, ack):
            return False
        changed = window != self.window
        self._window_seq, self._window_ack, self.window = seq, ack, window
        self.largest_window = max(self.largest_window, window)
        return changed

    def acknowledge(self, ack: int) -> int:
        """Take an acknowledgment of new octets; return their number."""
        octets = ack - self.una
        self.una = ack
        self._resent = max(self._resent, ack)
        self.sacked.cut(ack)
        del self._ends[: bisect_right(self._ends, ack)]
        if self.phase is Phase.FAST and not self.sacks:  # a partial acknowledgment, RFC 6582 §3.2 step 3
            self._duplicates = max(0, self._duplicates - max(0, octets - self.mss))
            self._resent = ack
        else:
            self._duplicates = 0
        if self.phase is Phase.OPEN:
            self.congestion.acknowledged(octets)
        elif ack >= self._recovery_point:
            if self.phase is Phase.FAST:
                self.congestion.window = min(self.congestion.threshold, max(self.in_flight, self.mss) + self.mss)
            self.phase = Phase.OPEN
            self._duplicates = 0
        elif self.phase is Phase.TIMEOUT:
            self.congestion.acknowledged(octets)
        return octets

    def learn(self, blocks: list[Range]) -> bool:
        """Take SACK blocks; return whether they report new octets (RFC 6675 §2, the definition of DupAck)."""
        before = [*self.sacked]
        for start, end in blocks:
            if self.una < start < end <= self.next:  # others are duplicate or forged (RFC 2883, RFC 2018 §5)
                self.sacked.add(start, end)
        return [*self.sacked] != before

    def duplicate(self) -> None:
        """Count a duplicate acknowledgment (RFC 5681 §2)."""
        self._duplicates += self.mss

    def detect_loss(self) -> bool:
        """Enter fast recovery if a segment is lost (RFC 6675 §5 step 4, RFC 6582 §3.2 step 2); return whether it is."""
        if self.phase is not Phase.OPEN:
            return False
        if self._duplicates < DUPLICATES * self.mss and not (self.sacks and self._is_lost(self.una)):
            return False
        self.phase = Phase.FAST
        self._recovery_point = self.next
        self._resent = self._first_lost = self.una
        self.congestion.reduce(self.in_flight)
        return True

    def time_out(self) -> None:
        """Take everything outstanding for lost (RFC 6298 §5.4 to §5.6, RFC 6675 §5.1)."""
        self.congestion.collapse(self.in_flight)
        self.phase = Phase.TIMEOUT
        self._recovery_point = self.next
        self._resent = self.una
        self._duplicates = 0
        self.sacked.clear()  # the peer may have discarded them (RFC 2018 §8)

    # What to send

    def _is_lost(self, number: int) -> bool:
        """IsLost of RFC 6675 §4, for a number that is not SACKed."""
        if self.phase is Phase.TIMEOUT and number < self._recovery_point:
            return True
        above = [each for each in self.sacked if each[1] > number]
        return len(above) >= DUPLICATES or sum(end - start for start, end in above) > (DUPLICATES - 1) * self.mss

    @property
    def pipe(self) -> int:
        """The octets in the network, an estimate (RFC 6675 §4; without SACK, duplicate ACKs stand for segments)."""
        if self.phase is Phase.FAST and not self.sacks:
            return max(0, self.in_flight - self._duplicates)
        octets = 0
        split = max(self.una, self._recovery_point)  # after a timeout, octets before it are lost, those behind are not
        for start, end in chain(self.sacked.gaps(self.una, split), self.sacked.gaps(split, self.next)):
            octets += max(0, min(end, self._resent) - start) if self._is_lost(start) else end - start
        return octets

    def next_segment(self) -> Range | None:
        """Return the range of the next segment, or None if nothing may be sent now."""
        allowed = self.congestion.window - self.pipe
        if self.phase is Phase.OPEN and not self.sacks:
            allowed += min(self._duplicates, 2 * self.mss)  # limited transmit (RFC 3042)
        if lost := self._next_lost():
            # The first retransmission, and one for a partial acknowledgment without SACK, wait for nothing (RFC 5681
            # §3.2 step 3, RFC 6675 §5 step 4.3, RFC 6582 §3.2 step 3).
            if self.phase is Phase.FAST and (not self.sacks or lost[0] == self._first_lost):
                return lost
            return lost if allowed >= min(self.mss, lost[1] - lost[0]) or self.pipe == 0 else None
        segment = self._next_new() or self._next_hole()
        fits = segment and (allowed >= min(self.mss, segment[1] - segment[0]) or self.pipe == 0)
        return segment if fits else None

    def _next_lost(self) -> Range | None:
        if self.phase is Phase.OPEN:
            return None
        if not self.sacks and self.phase is Phase.FAST:  # one segment for each partial acknowledgment
            return self._whole(self.una, self.next) if self._resent == self.una else None
        for start, end in self.sacked.gaps(max(self.una, self._resent), min(self.next, self._recovery_point)):
            if self._is_lost(start):
                return self._whole(start, end)
            break
        return None

    def _next_hole(self) -> Range | None:
        """In fast recovery, a hole of which it is not certain that it is lost (RFC 6675 §4, NextSeg rule 3)."""
        if self.phase is not Phase.FAST or not len(self.sacked):
            return None
        hole = next(self.sacked.gaps(max(self.una, self._resent), self.sacked.end), None)
        return self._whole(*hole) if hole else None

    def _next_new(self) -> Range | None:
        """New octets, unless the silly window avoidance holds them back (RFC 9293 §3.8.6.2.1)."""
        edge = min(self.limit, self.una + self.window)
        if self.next >= edge:
            return None
        start, end = self._whole(self.next, edge)
        whole = end - start >= self.mss or end == self._packet_end(start)
        return (start, end) if whole or 2 * (end - start) >= self.largest_window else None

    def _whole(self, start: int, end: int) -> Range:
        """The part of a range that fits in one segment: of one packet of the user, at most MSS."""
        edge = min(end, self._packet_end(start))
        stop = min(edge, start + self.mss)
        return start, stop + (stop == self.end < edge)  # the FIN is no octet of data

    def _packet_end(self, number: int) -> int:
        """The end of the packet in which a number lies. A FIN leaves with the last packet."""
        at = bisect_right(self._ends, number)
        return self._ends[at] if at + 1 < len(self._ends) else self.limit

    def sent(self, segment: Range) -> None:
        """A segment has been sent, for the first time or again."""
        start, end = segment
        if start < self.next:
            self._resent = max(self._resent, end)
        self.next = max(self.next, end)

    def octets(self, segment: Range) -> tuple[bytes, bool]:
        """Return the octets of a range, and whether the FIN is in it."""
        start, end = segment
        return self._ring.read(start, min(end, self.end) - start), end > self.end

    # Probes of the window

    @property
    def shut(self) -> bool:
        """Whether the peer's window is zero, with nothing in flight but an octet that probes it.

        A peer may shrink its window (RFC 9293 §3.8.6): what is in flight then counts as lost after a timeout.
        """
        probing = self.in_flight <= 1 or self.phase is Phase.TIMEOUT
        return not self.window and probing and self.una < self.limit

    @property
    def blocked(self) -> bool:
        """Whether octets wait for a window while nothing is in flight: the persist timer must run."""
        return self.shut or (not self.in_flight and self.next < self.limit and self.next_segment() is None)

    def probe(self) -> Range:
        """The segment that probes the window (RFC 9293 §3.8.6.1), or fills a window that is small but open."""
        return self._whole(self.next, self.una + self.window) if self.window else (self.una, self.una + 1)

    def reopened(self) -> None:
        """The window is open again, and the peer has discarded what was beyond it."""
        self.phase = Phase.TIMEOUT
        self._recovery_point, self._resent = self.next, self.una
