"""Requests and their responses over a line that damages and loses octets, sans-IO.

Octets and the time go in, octets and responses come out. Each request is carried out once, and answered once,
whatever happens on the line; or :class:`LinkFailureError` says that this cannot be had.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.serial.frames import ZERO, Request, Response, response, unframe
from open_rnic.rtl.link.protocol import SEQUENCE, SIZES, VERSION, WINDOW, Ask, Status

ATTEMPTS = 20  # at a request
LATENCY = 0.1  # seconds that both ends' computers may take beside the line
SLACK = 2  # times as long as the line takes, before something is lost
_GAP = 64  # octets that the line could carry while an answer has a gap
_BACKOFF = 2  # doublings of the time for an answer, at most
_MEASURED = 256  # octets of an exchange by which the line's pace can be told


class LinkFailureError(DeviceError):
    """The link cannot go on; the message is one line without the device's name."""


class NoAnswerError(LinkFailureError):
    """A request was repeated as often as makes sense."""


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
    pace : seconds that the line takes for an octet; a line that turns out to be slower is waited for

    Attributes
    ----------
    size : octets of a frame, once the device has said so
    damaged : frames that the device dropped; ``received_damaged`` those dropped here; ``repeats`` requests sent again

    """

    def __init__(self, session: int, pace: float) -> None:
        if not 0 < session < 1 << 32:
            raise ValueError(f"a session is a number from 1 to {(1 << 32) - 1}, not {session}")
        self.size = SIZES[0]
        self.damaged = self.received_damaged = self.repeats = 0
        self._session = session
        self._base = self._pace = pace
        self._opened = False
        self._damaged: int | None = None  # as counted by the device
        self._next = 0
        self._pending: deque[_Pending] = deque()
        self._unsent = bytearray()
        self._received = bytearray()
        self._attempts = 0
        self._backoff = 0  # doublings
        self._asked = self._heard = self._answered = 0.0  # when that happened last
        self._strange = 0  # octets that came since the last answer

    @property
    def under_way(self) -> int:
        """Requests that were not answered yet."""
        return len(self._pending)

    @property
    def session_open(self) -> bool:
        """Whether the device has answered at all."""
        return self._opened

    @property
    def room(self) -> bool:
        """Whether another request may be made."""
        return len(self._pending) < (WINDOW if self._opened else 1)

    @property
    def deadline(self) -> float | None:
        """When :meth:`tick` is to be called."""
        if not self._pending:
            return None
        octets = sum(len(each.encoded) for each in self._pending if each.answer is None)
        begins = self._asked + self._patience(octets)
        # The answer begins when the request has come over the line, and then it has no gaps. What comes where nothing
        # has ever answered, or is longer than answers can be, is something else, and may never end.
        if not self._opened or self._strange > 2 * WINDOW * self.size:
            return begins
        return max(begins, self._heard + self._patience(_GAP))

    def _patience(self, octets: int) -> float:
        return (LATENCY + SLACK * self._pace * octets) * (1 << self._backoff)

    def request(self, what: Request, ask: Ask, now: float) -> int:
        """Send a request, for which there must be room; its key, which its response will have."""
        if not self.room:
            raise ValueError(f"no more than {WINDOW} requests can be under way")
        key, sequence = self._next, self._next & SEQUENCE
        self._next += 1
        encoded = what.encode(sequence, self._session, ask if self._opened else ask | Ask.OPEN)
        self._asked = now
        self._pending.append(_Pending(key, sequence, encoded, now))
        # A zero ends what may have come before; later there is nothing, but for noise.
        self._unsent += encoded if self._opened else ZERO + encoded
        return key

    def to_send(self) -> bytes:
        """Octets for the line, once."""
        octets = bytes(self._unsent)
        self._unsent.clear()
        return octets

    def receive(self, octets: bytes, now: float) -> list[tuple[int, Response]]:
        """Take octets from the line: the responses in the order of their requests, with their keys."""
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
        """Repeat what should have been answered by now; raises LinkFailureError when that makes no sense any more."""
        if self.deadline is None or now < self.deadline:
            return
        self._attempts += 1
        if self._attempts == ATTEMPTS:
            raise NoAnswerError(f"no answer to {ATTEMPTS} requests")
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
            return  # the answer to a repetition, or of a former session
        if found.status & Status.REFUSED:
            if found.status & Status.FRESH:
                raise LinkFailureError("the board has started anew, and has lost its connection")
            raise LinkFailureError("another program has taken the board")
        pending.answer = found
        self._opened = True
        self.size = found.size
        more = 0 if self._damaged is None else (found.damaged - self._damaged) & 0xFF
        if self._damaged is None or more < 128:  # an answer that was kept for a repetition has an older count
            self.damaged += more
            self._damaged = found.damaged
        total = len(pending.encoded) + len(encoded)
        if not pending.repeated:
            # As in TCP (RFC 6298 §5.7): an answer to a repeated request does not tell how long an answer takes. A line
            # that is slower than is known would be filled with repetitions.
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
