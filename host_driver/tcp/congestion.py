"""Congestion control (RFC 5681), in octets."""

from __future__ import annotations

__all__ = ["Congestion"]


class Congestion:
    """``window`` is cwnd, ``threshold`` is ssthresh; both in octets."""

    def __init__(self, mss: int, initial_window: int) -> None:
        self._mss = mss
        self._initial = initial_window * mss
        self.window = self._initial
        self.threshold = 1 << 30
        self._credit = 0  # octets acknowledged in congestion avoidance that have not yet opened the window

    def acknowledged(self, octets: int) -> None:
        """New octets have been acknowledged, outside of recovery (RFC 5681 §3.1, counted in octets: RFC 3465)."""
        if self.window < self.threshold:
            self.window += min(octets, 2 * self._mss)
            return
        self._credit += octets
        if self._credit >= self.window:
            self._credit -= self.window
            self.window += self._mss

    def reduce(self, in_flight: int) -> None:
        """A segment was lost: halve the window (RFC 5681 §3.2 step 2).

        In flight beyond the window are the segments of limited transmit, which do not count.
        """
        self.threshold = max(min(in_flight, self.window) // 2, 2 * self._mss)
        self.window = self.threshold
        self._credit = 0

    def collapse(self, in_flight: int) -> None:
        """The retransmission timer has expired (RFC 5681 §3.1).

        If it expires again for the same segment, as much is in flight, so that the threshold is held constant.
        """
        self.threshold = max(in_flight // 2, 2 * self._mss)
        self.window = self._mss
        self._credit = 0

    def narrow(self) -> None:
        """Several SYNs were lost: the first window is one segment (RFC 5681 §3.1, RFC 6928 §2)."""
        self.window = self._mss

    def idle(self) -> None:
        """Nothing was sent for longer than the RTO: begin anew with the restart window (RFC 5681 §4.1)."""
        self.window = min(self._initial, self.window)
