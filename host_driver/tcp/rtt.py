"""The retransmission timeout (RFC 6298), in integers of 1 ms, as hardware computes it."""

from __future__ import annotations

__all__ = ["RttEstimator"]


class RttEstimator:
    """SRTT and RTTVAR, in eighths and quarters of a millisecond, and the RTO with its backoff.

    ``shortest`` and ``longest`` limit the RTO, in milliseconds. RFC 6298 §2.4 asks for a shortest RTO of a second;
    Linux and others take 200 ms, which delays of acknowledgments at their peers stay below.
    """

    def __init__(self, initial: int, shortest: int, longest: int) -> None:
        self._shortest = shortest
        self._longest = longest
        self._srtt8: int | None = None
        self._rttvar4 = 0
        self._base = initial
        self._backoff = 0

    @property
    def rto(self) -> int:
        """The timeout now, in milliseconds, doubled for each :meth:`back_off` (RFC 6298 §5.5)."""
        return min(self._base << self._backoff, self._longest)

    def back_off(self) -> None:
        """Double the timeout, after a retransmission by timeout, until the next measurement (RFC 6298 §5, Karn)."""
        if self.rto < self._longest:
            self._backoff += 1

    def restart(self, rto: int) -> None:
        """Begin anew with a timeout, without measurements."""
        self._base, self._backoff = rto, 0

    def measure(self, rtt: int) -> None:
        """Take a measurement, of a segment that was sent once (Karn's rule) or has timestamps (RFC 6298 §2, §3)."""
        if self._srtt8 is None:
            self._srtt8, self._rttvar4 = rtt * 8, rtt * 2
        else:
            error = rtt - (self._srtt8 >> 3)
            self._rttvar4 += abs(error) - (self._rttvar4 >> 2)
            self._srtt8 += error
        self._base = min(max((self._srtt8 >> 3) + max(1, self._rttvar4), self._shortest), self._longest)
        self._backoff = 0
