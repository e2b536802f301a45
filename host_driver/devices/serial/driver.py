"""The program's end of the link to a board, sans-IO: it puts accesses, events and streams into requests.

Its methods take the program's accesses and packets, octets from the line, and the time. They return results, and octets
for the line. No method waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from open_rnic.host_driver.device import Event, Ulpdu
from open_rnic.host_driver.devices.serial.exchange import Exchange
from open_rnic.host_driver.devices.serial.frames import PUT_OCTETS, Part, Piece, Request, Response
from open_rnic.rtl.host_link.protocol import MARGIN, Ask, Op, Status
from open_rnic.rtl.rdma import memory_registers
from open_rnic.rtl.rdma import registers as rdma_registers
from open_rnic.rtl.registers import BY_NAME, Verdict

WINDOW = 1 << 17  # octets of a stream: if more wait for the program, no more are requested
EVENTS = 64  # if this number of events waits for the program, no more are read from the device
SOON, LATE = 0.0005, 0.02  # seconds between two requests to a board that had nothing to report
_CAUTIOUS = 64  # octets for a stream that refused octets before
_ACCESS = 7  # maximum number of octets of an operation on a register, and of its record
_MAX_LENGTH = 0xFFFF  # a longer ULPDU exceeds any maximum, and is announced with this length
_CONTROL = BY_NAME["CONTROL"]
REGISTERS = BY_NAME | rdma_registers.BY_NAME | memory_registers.BY_NAME
_EVENT = tuple(BY_NAME[name].address for name in ("EVENT", "EVENT_OFFSET_LO", "EVENT_OFFSET_HI"))


@dataclass
class Value:
    """The answer to an access: the word that was read or written."""

    access: int
    value: int


@dataclass
class Access:
    """A pending access to a register."""

    key: int
    address: int
    word: int | None  # None for a read
    resets: bool = False


class Feed:
    """A stream of packets into the device, which may accept any number of their octets at a time."""

    def __init__(self, kind: Op) -> None:
        self.kind = kind
        self.octets = 0  # octets that the device has not confirmed
        self._packets: deque[bytes] = deque()
        self._sent = (0, 0)  # the next octet to send: index of its packet, position in the packet
        self._taken = 0  # octets of the first packet that the device has accepted
        self._turn = 0
        self.careful = 0  # maximum number of octets in a request; 0: no limit

    def add(self, packet: bytes) -> None:
        """Add a packet."""
        self._packets.append(packet)
        self.octets += len(packet)

    def clear(self) -> None:
        """Forget all packets, because the device has discarded them."""
        self.__init__(self.kind)  # type: ignore[misc]

    @property
    def more(self) -> bool:
        """Whether there are octets to send."""
        return self._sent[0] < len(self._packets)

    def give(self, request: Request, room: int) -> list[Given]:
        """Put operations of up to ``room`` octets into the request; returns their descriptions."""
        room = min(room, request.room)
        allowed = self.careful or room
        given = []
        while self.more and allowed > 0 and room > PUT_OCTETS:
            nth, place = self._sent
            packet = self._packets[nth]
            count = min(len(packet) - place, room - PUT_OCTETS, allowed)
            last = place + count == len(packet)
            piece = request.put(
                self.kind,
                packet[place : place + count],
                length=min(len(packet), _MAX_LENGTH),
                last=last,
                turn=self._turn,
            )
            given.append(Given(self, piece, count, last, self._turn))
            self._sent = (nth + 1, 0) if last else (nth, place + count)
            room -= PUT_OCTETS + count
            allowed -= PUT_OCTETS + count
        return given

    def answered(self, given: Sequence[Given], short: Sequence[int]) -> bool:
        """Take the result of a request. ``short`` lists the positions from which octets were refused.

        Returns False if octets of this feed were refused.
        """
        for each in given:
            if each.turn != self._turn:  # refused, and sent again in a later request
                continue
            stop = next((place for place in short if each.piece.first <= place <= each.piece.final), None)
            if stop is None:
                self._advance(each.count, each.last)
                continue
            self._advance(stop - each.piece.first, False)
            self._sent = (0, self._taken)
            self._turn ^= 1
            self.careful = _CAUTIOUS
            return False
        if given and self.careful:
            self.careful = 2 * self.careful if self.careful < 1 << 12 else 0
        return True

    def _advance(self, count: int, last: bool) -> None:
        self._taken += count
        self.octets -= count
        if last:
            self._packets.popleft()
            self._taken = 0
            self._sent = (self._sent[0] - 1, self._sent[1])


@dataclass
class Given:
    """Octets of a feed in a request."""

    feed: Feed
    piece: Piece
    count: int
    last: bool
    turn: int


@dataclass
class Made:
    """A request without a response yet."""

    accesses: list[Access] = field(default_factory=list)
    event: bool = False
    given: list[Given] = field(default_factory=list)
    resets: bool = False
    looks: bool = False  # it asks for ULPDUs, and contains no octets of rx_mpa


class LinkDriver(ABC):
    """Makes requests of accesses, through an :class:`.Exchange`. A subclass adds all else to them.

    Attributes
    ----------
    values : results of accesses for the caller, which removes them
    curious : the program waits for results, so requests are sent even if they contain no operations

    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.values: deque[Value] = deque()
        self.curious = False
        self._accesses: deque[Access] = deque()
        self._keys = 0
        self._made: dict[int, Made] = {}
        self._interval = SOON
        self._look = 0.0  # the time of the next request, if there is nothing else to send

    def access(self, address: int, word: int | None = None, *, resets: bool = False) -> int:
        """Write ``word`` to the register at this octet address, or read it; returns the key of its Value.

        The Value follows in ``values``.
        """
        self._keys += 1
        self._accesses.append(Access(self._keys, address, word, resets))
        return self._keys

    def receive(self, octets: bytes, now: float) -> None:
        """Take octets from the line."""
        for key, answer in self.exchange.receive(octets, now):
            self._answered(self._made.pop(key), answer, now)

    def tick(self, now: float) -> None:
        """Note the time; raises LinkFailureError if the board does not answer any more."""
        self.exchange.tick(now)

    def to_send(self, now: float) -> bytes:
        """Return octets for the line."""
        while self.exchange.room and self._ask(now):
            pass
        return self.exchange.to_send()

    @property
    def deadline(self) -> float | None:
        """When :meth:`tick` and :meth:`to_send` must be called if nothing else happens; None means never."""
        waits = [self.exchange.deadline] if self.exchange.under_way else []
        if not self._made and self._looks:
            waits.append(self._look)
        return min((each for each in waits if each is not None), default=None)

    @property
    def _looks(self) -> bool:
        """Whether a request must follow at the time ``_look``."""
        return self.curious

    @abstractmethod
    def _ask(self, now: float) -> bool:
        """Send one more request if it is useful; returns whether it was sent."""

    @abstractmethod
    def _answered(self, made: Made, answer: Response, now: float) -> None:
        """Take the results of a request."""

    def _fill(self, request: Request, made: Made, room: int) -> None:
        """Put pending accesses into the request, up to the first reset."""
        while self._accesses and not self._accesses[0].resets and room > _ACCESS:
            access = self._accesses.popleft()
            if access.word is None:
                request.read(access.address)
            else:
                request.write(access.address, access.word)
            made.accesses.append(access)
            room -= _ACCESS

    def _finish(self, made: Made, values: Iterator[int]) -> None:
        """Take the results of the accesses in a request."""
        for access in made.accesses:
            self.values.append(Value(access.key, next(values) if access.word is None else access.word))

    def _send(self, request: Request, made: Made, ask: Ask, now: float) -> None:
        self._made[self.exchange.request(request, ask, now)] = made

    def _pace(self, moved: bool) -> None:
        """Look again soon if something has moved, and otherwise less and less often."""
        self._interval = SOON if moved else min(2 * self._interval, LATE)


class Driver(LinkDriver):
    """Operates a board with one data path.

    Attributes
    ----------
    ulpdus, mpa, events : results for the caller, which removes them
    interrupted : whether the RDMA engine requested an interrupt when the last response was made

    """

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.ulpdus: deque[Ulpdu] = deque()
        self.mpa: deque[bytes] = deque()
        self.events: deque[Event] = deque()
        self.ulpdu_octets = self.mpa_octets = 0  # octets in ulpdus and mpa, including incomplete packets
        self.interrupted = False
        self.tx_ulpdu, self.rx_mpa = Feed(Op.ULPDU), Feed(Op.MPA)
        self._partial_ulpdu, self._partial_mpa = bytearray(), bytearray()
        self._event_waits = False
        self._busy = False  # the last response contained many octets, so more may be ready
        self._stuck = False  # the last request had octets refused, and transferred nothing
        self._idle_looks = 0  # consecutive responses to `looks` requests without a ULPDU or an event

    # --- for the program

    def read(self, register: str) -> int:
        """Read a register; returns the key of its Value, which follows in ``values``."""
        return self.access(REGISTERS[register].address)

    def write(self, register: str, word: int) -> int:
        """Write a register; returns the key of its Value. A reset discards everything on its way."""
        resets = register == "CONTROL" and bool(word & _CONTROL["reset"].mask)
        return self.access(REGISTERS[register].address, word, resets=resets)

    def take_ulpdu(self) -> Ulpdu:
        """Remove and return the first entry of ``ulpdus``."""
        ulpdu = self.ulpdus.popleft()
        self.ulpdu_octets -= len(ulpdu.octets)
        return ulpdu

    def take_mpa(self) -> bytes:
        """Remove and return the first entry of ``mpa``."""
        octets = self.mpa.popleft()
        self.mpa_octets -= len(octets)
        return octets

    @property
    def drained(self) -> bool:
        """Whether the board has taken all octets of ``rx_mpa``, and the program all results of them.

        The board processes octets within a few hundred clock cycles; two requests and their responses take many
        thousands.
        """
        return self._idle_looks >= 2 and not (self.rx_mpa.octets or self.ulpdus or self.events)

    # --- for the line

    @property
    def _looks(self) -> bool:
        return self.curious or self.tx_ulpdu.more or self.rx_mpa.more

    def _ask(self, now: float) -> bool:
        """Send one more request if it is useful; returns whether it was sent."""
        if any(each.resets for each in self._made.values()):
            return False
        request, made = Request(self.exchange.size), Made()
        if self._accesses and self._accesses[0].resets:
            if self._made:
                return False
            access = self._accesses.popleft()
            assert access.word is not None
            request.clear()
            request.write(access.address, access.word)
            request.clear()
            made.accesses.append(access)
            made.resets = True
            self._send(request, made, Ask(0), now)
            return True
        # The response is at most as long as a request, and must also have room for the records.
        room = (self.exchange.size - 4 * MARGIN) // 2
        self._fill(request, made, room)
        if self._event_waits and len(self.events) < EVENTS and not any(each.event for each in self._made.values()):
            for address in _EVENT:
                request.read(address)
            made.event = True
        if not self._stuck or now >= self._look:
            # The response may be as long as the request. Half of it is reserved for octets from the device.
            both = self.tx_ulpdu.more and self.rx_mpa.more
            for feed in (self.tx_ulpdu, self.rx_mpa):
                made.given += feed.give(request, request.room // (2 if both and feed is self.tx_ulpdu else 1))
        if request.empty:
            # No operations: send an empty request only after a response with many octets, or when the next one is due.
            limit = 2 if self._busy else 1
            if len(self._made) >= limit or not (self._busy or (self.curious and now >= self._look)):
                return False
        ask = Ask(0)
        if self.ulpdu_octets < WINDOW:
            ask |= Ask.ULPDU
        if self.mpa_octets < WINDOW:
            ask |= Ask.MPA
        if request.empty and not ask and not self.curious:
            return False
        made.looks = bool(ask & Ask.ULPDU) and not any(each.feed is self.rx_mpa for each in made.given)
        self._send(request, made, ask, now)
        return True

    def _answered(self, made: Made, answer: Response, now: float) -> None:
        values = iter(answer.values)
        self._finish(made, values)
        if made.event:
            self._event(*(next(values) for _ in _EVENT))
        self._event_waits = bool(answer.status & Status.EVENT)
        self.interrupted = bool(answer.status & Status.INTERRUPT)
        if made.resets:
            self._reset()
            return
        idle = made.looks and not (answer.ulpdu or self._event_waits or made.event)
        self._idle_looks = self._idle_looks + 1 if idle else 0
        octets = 0
        for part in answer.ulpdu:
            octets += len(part.octets)
            self._ulpdu(part)
        for part in answer.mpa:
            octets += len(part.octets)
            self._mpa(part)
        moved = bool(octets or made.accesses or made.event)
        refused = False
        for feed in (self.tx_ulpdu, self.rx_mpa):
            given = [each for each in made.given if each.feed is feed]
            before = feed.octets
            refused |= not feed.answered(given, answer.short)
            moved |= feed.octets != before or (any(each.last for each in given) and not refused)
        self._busy = octets >= self.exchange.size // 4
        self._stuck = refused and not moved
        self._pace(moved)
        self._look = now + (0 if octets else self._interval)

    def _reset(self) -> None:
        self.tx_ulpdu.clear()
        self.rx_mpa.clear()
        self.ulpdus.clear()
        self.mpa.clear()
        self.events.clear()
        self._partial_ulpdu.clear()
        self._partial_mpa.clear()
        self.ulpdu_octets = self.mpa_octets = 0
        self._busy = self._stuck = False
        self._idle_looks = 0

    def _event(self, word: int, low: int, high: int) -> None:
        if word:  # 0 if the program has read the register itself
            self.events.append(Event.read(word, low, high))

    def _ulpdu(self, part: Part) -> None:
        self._partial_ulpdu += part.octets
        self.ulpdu_octets += len(part.octets)
        if part.last:
            # A bad ULPDU is not delivered; an event reports it.
            if part.verdict in (Verdict.GOOD, Verdict.STREAM):
                self.ulpdus.append(Ulpdu(bytes(self._partial_ulpdu), part.verdict))
            else:
                self.ulpdu_octets -= len(self._partial_ulpdu)
            self._partial_ulpdu.clear()

    def _mpa(self, part: Part) -> None:
        self._partial_mpa += part.octets
        self.mpa_octets += len(part.octets)
        if part.last:
            self.mpa.append(bytes(self._partial_mpa))
            self._partial_mpa.clear()
