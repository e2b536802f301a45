"""The receiving half of a connection: window, reassembly, and the choice when to acknowledge."""

from __future__ import annotations

from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.ranges import Range, Ranges
from open_rnic.host_driver.tcp.ring import Ring

__all__ = ["Receiver"]


class Receiver:
    """The variables of RFC 9293 §3.3.1 that begin with RCV, and the octets that wait for the application.

    ``next`` is RCV.NXT. ``edge`` is the highest right edge of the window that the peer was promised; it never moves
    left, and the ring always has room up to it. Octets behind a hole wait in the ring.
    """

    def __init__(self, config: TcpConfig) -> None:
        self.next = 0
        self.edge = 0
        self.scale = 0
        self.discarded = 0  # behind the latest segment that began at RCV.NXT, and found a window of zero
        self.finished = False  # FIN has been received, and everything before it
        self.kept = Ranges(config.ranges)
        self._latest: list[int] = []  # a number in each kept range, the range that changed last first (RFC 2018 §4)
        self._fin: int | None = None  # the number of a FIN
        self._read = 0  # the application has taken everything before
        self._ring = Ring(config.receive_ring)
        self._unacknowledged = 0  # octets that arrived in order since the last acknowledgment was sent

    def begin(self, number: int, scale: int) -> None:
        """The peer's SYN has the number before ``number``; our window field is shifted by ``scale``."""
        self.next = self._read = number
        self.edge = number + self.first_window
        self.scale = scale

    @property
    def first_window(self) -> int:
        """The window field of a SYN, which is never scaled (RFC 7323 §2.2)."""
        return min(self._ring.size, 0xFFFF)

    # The window

    def window(self, mss: int) -> int:
        """Return the window field of a segment that is sent now, and promise the window.

        The edge moves only if it moves by a full segment or half the ring (RFC 9293 §3.8.6.2.2). With a shift the
        window may seem to shrink by less than a unit of the field, which RFC 7323 §2.4 allows.
        """
        possible = self._read + self._ring.size
        target = possible if possible - self.edge >= min(mss, self._ring.size // 2) else self.edge
        field = min(max(target - self.next, 0) >> self.scale, 0xFFFF)
        self.edge = max(self.edge, self.next + (field << self.scale))
        return field

    def opens(self, mss: int) -> bool:
        """Whether the window can be opened enough to announce it without waiting for the peer's next segment."""
        growth = self._read + self._ring.size - self.edge
        return growth >= max(min(2 * mss, self._ring.size // 2), 1) and self.edge - self.next <= self._ring.size // 2

    @property
    def shut(self) -> bool:
        """Whether the window is zero."""
        return self.edge <= self.next

    def acceptable(self, seq: int, length: int) -> bool:
        """Test a segment (RFC 9293 §3.10.7.4, the table of four cases)."""
        if self.shut:
            return not length and seq == self.next
        return self.next <= seq < self.edge or (length > 0 and self.next <= seq + length - 1 < self.edge)

    # Octets

    def put(self, seq: int, octets: bytes, fin: bool) -> bool:
        """Take the octets of an acceptable segment, trimmed to the window; return whether RCV.NXT has moved."""
        before = self.next
        start, end = max(seq, self.next), min(seq + len(octets), self.edge)
        if fin and seq + len(octets) < self.edge:
            self._fin = seq + len(octets)
        if start < end and (start == self.next or self._keep(start, end)):
            self._ring.write(start, octets[start - seq : end - seq])
            if start == self.next:
                self._advance(end)
        if self.next == self._fin:
            self.finished, self._fin = True, None
            self.next += 1
        return self.next != before

    def _keep(self, start: int, end: int) -> bool:
        whole = self.kept.add(start, end)
        if whole:
            self._latest = [start, *(each for each in self._latest if not whole[0] <= each < whole[1])]
        return whole is not None

    def _advance(self, end: int) -> None:
        while joined := next((each for each in self.kept if each[0] <= end < each[1]), None):
            end = joined[1]
        self._unacknowledged += end - self.next
        self.next = end
        self.kept.cut(end)
        self._latest = [each for each in self._latest if self.kept.holding(each)]

    @property
    def available(self) -> int:
        """Octets that the application can take."""
        return self.next - self.finished - self._read

    def take(self, most: int) -> bytes:
        """Return octets in order, at most ``most``."""
        octets = self._ring.read(self._read, min(most, self.available))
        self._read += len(octets)
        return octets

    # Acknowledgments

    def sack_blocks(self, most: int) -> tuple[Range, ...]:
        """Return the kept ranges, the range that changed last first (RFC 2018 §4)."""
        return tuple(block for each in self._latest[:most] if (block := self.kept.holding(each)))

    def due_at_once(self, mss: int) -> bool:
        """Whether two full segments wait for an acknowledgment (RFC 9293 §3.8.6.3)."""
        return self._unacknowledged >= 2 * mss

    @property
    def owes(self) -> bool:
        """Whether octets wait for an acknowledgment."""
        return self._unacknowledged > 0

    def acknowledged(self) -> None:
        """An acknowledgment has been sent."""
        self._unacknowledged = 0
