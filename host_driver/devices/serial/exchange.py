"""Requests and their responses over a line that damages and loses octets, sans-IO.

It takes octets and the time, and returns octets and responses. Each request is executed and answered exactly once,
even if frames are lost or damaged; if that is impossible, :class:`LinkFailureError` is raised.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.serial.frames import ZERO, Request, Response, response, unframe
from open_rnic.rtl.host_link.protocol import SEQUENCE, SIZES, VERSION, WINDOW, Ask, Status

ATTEMPTS = 20  # unless the user changes it
LATENCY = 0.1  # of a USB adapter and the system
SLACK = 2  # a frame counts as lost after this many times its time on the line
_GAP = 64  # the longest gap in an answer, in octet times of the line
_BACKOFF = 2  # maximum number of doublings of the time for an answer
_MEASURED = 256  # an exchange of at least this number of octets measures the pace of the line


class LinkFailureError(DeviceError):
    """The link cannot continue; the message is one line without the device's name."""


class NoAnswerError(LinkFailureError):
    """A request was sent as often as it may be without an answer."""


@dataclass
class _Pending:
    key: int
    sequence: int
    encoded: bytes
    sent: float
    repeated: bool = False
    answer: Response | None = None


class Exchange:
    """One session with a device.

    Parameters
    ----------
    session : a number that no earlier session had; not 0
    pace : the expected time of an octet on the line in seconds; a slower line is detected, and its timeouts extended
    latency : seconds that both ends may take, in addition to the time on the line

    Attributes
    ----------
    attempts : maximum number of transmissions of a request
    size : octets of a frame, as the device reports it
    damaged : frames that the device dropped; ``received_damaged``: frames dropped here
    repeats : requests sent again

    """

    def __init__(self, session: int, pace: float, latency: float = LATENCY) -> None:
        if not 0 < session < 1 << 32:
            raise ValueError(f"a session is a number from 1 to {(1 << 32) - 1}, not {session}")
        self.attempts = ATTEMPTS
        self.size = SIZES[0]
        self.damaged = self.received_damaged = self.repeats = 0
        self._session = session
        self._base = self._pace = pace
        self._latency = latency
        self._opened = False
        self._damaged: int | None = None  # the device's count
        self._next = 0
        self._pending: deque[_Pending] = deque()
        self._unsent = bytearray()
        self._received = bytearray()
        self._attempts = 0
        self._backoff = 0  # doublings
        self._asked = self._heard = self._answered = 0.0  # the times of the last request, octets and answer
        self._strange = 0  # octets received since the last answer

    @property
    def under_way(self) -> int:
        """The number of requests without an answer yet."""
        return len(self._pending)

    @property
    def session_open(self) -> bool:
        """Whether the device has answered at least once."""
        return self._opened

    @property
    def room(self) -> bool:
        """Whether another request may be made."""
        return len(self._pending) < (WINDOW if self._opened else 1)

    @property
    def deadline(self) -> float | None:
        """When :meth:`tick` must be called; None means never."""
        if not self._pending:
            return None
        octets = sum(len(each.encoded) for each in self._pending if each.answer is None)
        begins = self._asked + self._patience(octets)
        # An answer begins after its request has arrived, and has no gaps. Octets on a line that has never answered,
        # or more octets than answers can have, are noise, which may never end.
        if not self._opened or self._strange > 2 * WINDOW * self.size:
            return begins
        return max(begins, self._heard + self._patience(_GAP))

    def _patience(self, octets: int) -> float:
        return (self._latency + SLACK * self._pace * octets) * (1 << self._backoff)

    def request(self, what: Request, ask: Ask, now: float) -> int:
        """Send a request, for which there must be room; returns the key of its response."""
        if not self.room:
            raise ValueError(f"no more than {WINDOW} requests can be under way")
        key, sequence = self._next, self._next & SEQUENCE
        self._next += 1
        encoded = what.encode(sequence, self._session, ask if self._opened else ask | Ask.OPEN)
        self._asked = now
        self._pending.append(_Pending(key, sequence, encoded, now))
        # A zero terminates octets that the device may have received before the session.
        self._unsent += encoded if self._opened else ZERO + encoded
        return key

    def to_send(self) -> bytes:
        """Return the octets for the line, once."""
        octets = bytes(self._unsent)
        self._unsent.clear()
        return octets

    def receive(self, octets: bytes, now: float) -> list[tuple[int, Response]]:
        """Take octets from the line; returns the responses in the order of their requests, with their keys."""
        self._heard = now
        self._strange += len(octets)
        self._received += octets
        *frames, self._received = self._received.split(ZERO)
        for each in frames:
            if each:
                self._take(bytes(each), now)
        limit = 2 * max(self.size, SIZES[-1])
        if len(self._received) > limit:  # noise that has no zeros
            del self._received[:-limit]
        answered = []
        while self._pending and (answer := self._pending[0].answer):
            answered.append((self._pending.popleft().key, answer))
            self._attempts = 0
        return answered

    def tick(self, now: float) -> None:
        """Repeat requests whose answers are late; raises LinkFailureError after the last attempt."""
        if self.deadline is None or now < self.deadline:
            return
        self._attempts += 1
        if self._attempts >= self.attempts:
            raise NoAnswerError(f"no answer to {self._attempts} requests")
        self._asked = now
        self._backoff = min(self._backoff + 1, _BACKOFF)
        self._unsent += ZERO
        for each in self._pending:
            if each.answer is None:
                self._repeat(each)

    def _repeat(self, pending: _Pending) -> None:
        pending.repeated = True
        self.repeats += 1
        self._unsent += pending.encoded

    def _take(self, encoded: bytes, now: float) -> None:
        if any(encoded + ZERO == each.encoded for each in self._pending):
            raise LinkFailureError("what is sent comes back: are its wires joined, or is it another device's port?")
        octets = unframe(encoded)
        found = None if octets is None else response(octets)
        if found is None:
            self.received_damaged += 1
            return
        if found.version != VERSION:
            raise LinkFailureError(f"the board speaks version {found.version} of the link, this program {VERSION}")
        pending = next((each for each in self._pending if each.sequence == found.sequence and not each.answer), None)
        if pending is None or found.session != self._session:
            return  # the answer to a repetition, or to a former session
        if found.status & Status.REFUSED:
            if found.status & Status.FRESH:
                raise LinkFailureError("the board has started anew, and has lost its connection")
            raise LinkFailureError("another program or host has taken the board")
        pending.answer = found
        self._opened = True
        self.size = found.size
        more = 0 if self._damaged is None else (found.damaged - self._damaged) & 0xFF
        if self._damaged is None or more < 128:  # an answer that the device kept for a repetition has an older count
            self.damaged += more
            self._damaged = found.damaged
        total = len(pending.encoded) + len(encoded)
        if not pending.repeated:
            # An answer to a repeated request does not show how long an answer takes, as in TCP (RFC 6298 §3). A line
            # that is slower than the assumed pace would be filled with repetitions.
            self._backoff = 0
        if not pending.repeated and total >= _MEASURED:
            measured = (now - max(pending.sent, self._answered)) / total
            self._pace = max(self._base, measured, (3 * self._pace + measured) / 4)
        self._answered = now
        self._strange = 0
        for before in self._pending:
            if before is pending:
                break
            if before.answer is None and not before.repeated:
                # The device answers in order: this one's answer is lost.
                self._unsent += ZERO
                self._repeat(before)
