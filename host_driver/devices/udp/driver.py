"""The program's end of the link to a whole RNIC, sans-IO: registers of pages, and what the RNIC has to report.

A *look* reads the registers that say what is pending. It is part of a request if the program waits for something, and
then also finds events and received octets, which are read at once. Looks are numbered, so that a task that waits for an
interrupt is not woken by one from before it began to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from open_rnic.host_driver.device import Event, Ulpdu
from open_rnic.host_driver.devices.serial.driver import EVENTS, LinkDriver, Made
from open_rnic.host_driver.devices.serial.exchange import Exchange, LinkFailureError
from open_rnic.host_driver.devices.serial.frames import Request, Response
from open_rnic.rtl import registers
from open_rnic.rtl.host_link.protocol import MARGIN, Ask, Status
from open_rnic.rtl.mac import registers as mac_registers
from open_rnic.rtl.mpa import stream_registers
from open_rnic.rtl.rdma import memory_registers, sample_registers, signal_registers
from open_rnic.rtl.rdma import registers as rdma_registers
from open_rnic.rtl.registers import BY_NAME, Register, Verdict
from open_rnic.rtl.rnic import registers as rnic_registers
from open_rnic.rtl.tcp import registers as path_registers

__all__ = ["MAC", "PATH", "RNIC", "DataPath", "Page", "RnicDriver", "failure_of", "joined", "page_of"]

_PAGE = 1 << 10  # octets
_WORD = 4
_EACH = "RNIC_EVENTS", "RNIC_ENGINES", "RNIC_STREAMS"  # with a bit for each connection
_EVENT = "EVENT", "EVENT_OFFSET_LO", "EVENT_OFFSET_HI"
_STATE = stream_registers.BY_NAME["STREAM_STATE"]
_PENDING = rnic_registers.BY_NAME["RNIC_PENDING"]
_FAILURES = {  # by the fields of RNIC_PENDING
    "rings": "the memory of TCP's rings has failed",
    "sdram": "the SDRAM does not return what is written to it: the training of its reads has failed",
}
_RESET = BY_NAME["CONTROL"]["reset"].mask
_OPERATION = 7  # octets of an operation on a register, at most
_LEAST, _MOST = 4, 16  # words of a stream that are read at once


@dataclass(frozen=True)
class Page:
    """A page of registers, by their names."""

    number: int
    registers: dict[str, Register] = field(repr=False, compare=False)

    def address(self, register: str) -> int:
        """Return the octet address of a register; raises ValueError for an unknown name."""
        found = self.registers.get(register)
        if found is None:
            raise ValueError(f"no register is called {register}")
        return self.number * _PAGE + found.address


_OF_CONNECTION = {
    name: register
    for page in (registers, rdma_registers, memory_registers, stream_registers, sample_registers, signal_registers)
    for name, register in page.BY_NAME.items()
}
PATH = Page(0, path_registers.BY_NAME)
RNIC = Page(rnic_registers.RNIC_PAGE, rnic_registers.BY_NAME)
MAC = Page(rnic_registers.MAC_PAGE, mac_registers.BY_NAME)


def joined(words: Iterable[int]) -> int:
    """Return the bits of all connections, of which each word has 32."""
    return sum(word << at * registers.WORD for at, word in enumerate(words))


def failure_of(pending: int) -> str | None:
    """Return what has failed for good, from the value of RNIC_PENDING; None if nothing has."""
    return next((text for name, text in _FAILURES.items() if _PENDING[name].get(pending)), None)


def page_of(connection: int) -> Page:
    """Return the page of a connection."""
    return Page(1 + connection, _OF_CONNECTION)


@dataclass
class DataPath:
    """The driver's part of a data path.

    Attributes
    ----------
    ulpdus, events : results for the caller, which removes them
    rejected : the last ULPDU with a bad CRC
    octets : octets that were handed over, and have not been written yet
    quiet : the number of successive looks that have found nothing
    waiting : tasks that wait for the RDMA engine's interrupt

    """

    page: Page
    ulpdus: deque[Ulpdu] = field(default_factory=deque)
    events: deque[Event] = field(default_factory=deque)
    rejected: bytes = b""
    octets: int = 0
    quiet: int = 0
    waiting: int = 0
    packets: deque[bytes] = field(default_factory=deque)
    place: int = -1  # octets of the first packet that have been written; -1: it has not begun
    asks_room: bool = False  # STREAM_STATE is being read for the packets
    reads_events: bool = False
    reads_words: int = 0  # words that are being read
    burst: int = _LEAST
    partial: bytearray = field(default_factory=bytearray)
    state: int = 0  # the last STREAM_STATE
    resets: int = 0  # resets under way
    ignores: int = 0  # looks up to this number were made before the last reset


class RnicDriver(LinkDriver):
    """Operates an RNIC. ``open`` must be called once its number of connections is known.

    Attributes
    ----------
    looks : number of the last look that was sent
    path_seen, engines_seen : the numbers of the last looks that found an interrupt pending

    """

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.paths: list[DataPath] = []
        self.looks = 0
        self.path_seen = 0
        self.engines_seen: list[int] = []
        self._looks_at: tuple[str, ...] = ()
        self._answered_looks = 0
        self._then: dict[int, Callable[[int], None]] = {}  # what to do with the values of accesses of the driver itself
        self._flagged = False  # the last response said that something is pending
        self._looking: deque[int] = deque()  # looks under way

    def open(self, connections: int) -> None:
        """Begin to serve this number of connections."""
        self.paths = [DataPath(page_of(n)) for n in range(connections)]
        self.engines_seen = [0] * connections
        self._looks_at = "RNIC_PENDING", *(word for name in _EACH for word in registers.words_of(name, connections))

    # --- for the program

    def read(self, page: Page, register: str) -> int:
        """Read a register; returns the key of its Value, which follows in ``values``."""
        return self.access(page.address(register))

    def write(self, page: Page, register: str, word: int) -> int:
        """Write a register; returns the key of its Value. A reset of a data path discards everything on its way."""
        key = self.access(page.address(register), word)
        if register == "CONTROL" and word & _RESET:
            for path in (each for each in self.paths if each.page == page):
                path.resets += 1
                self._then[key] = partial(self._reset, path)
        return key

    def give(self, path: DataPath, packet: bytes) -> None:
        """Hand over a ULPDU, or a packet of stream octets."""
        path.packets.append(packet)
        path.octets += len(packet)
        self._feed(path)

    def attend(self, now: float) -> None:
        """Look as soon as possible: the program has begun to wait."""
        self._look = min(self._look, now)

    # --- requests

    def _ask(self, now: float) -> bool:
        looks = self.curious and not self._looking and now >= self._look
        if not (self._accesses or looks):
            return False
        request, made = Request(self.exchange.size), Made()
        # The response is at most as long as a request, and has the look behind the accesses.
        room = min(request.room, self.exchange.size - 2 * MARGIN) - _OPERATION * len(self._looks_at)
        self._fill(request, made, room)
        if looks:
            self.looks += 1
            self._looking.append(self.looks)
            made.looks = True
            for name in self._looks_at:
                request.read(RNIC.address(name))
        self._send(request, made, Ask(0), now)
        return True

    def _answered(self, made: Made, answer: Response, now: float) -> None:
        values = iter(answer.values)
        results = len(self.values)
        self._finish(made, values)
        for value in [self.values[at] for at in range(results, len(self.values))]:
            if then := self._then.pop(value.access, None):
                then(value.value)
        flagged = bool(answer.status & (Status.EVENT | Status.INTERRUPT))
        if made.looks:
            found = self._looked(self._looking.popleft(), [next(values) for _ in self._looks_at])
            self._pace(found or bool(made.accesses))
            self._look = now + self._interval
        elif made.accesses or (flagged and not self._flagged):
            self._pace(True)
            self._look = min(self._look, now + self._interval)
        self._flagged = flagged

    def _looked(self, number: int, values: list[int]) -> bool:
        """Take the results of a look; returns whether anything was found. Raises LinkFailureError."""
        pending, *words = values
        each = len(words) // len(_EACH)
        events, engines, streams = (joined(words[at : at + each]) for at in range(0, len(words), each))
        if failure := failure_of(pending):
            raise LinkFailureError(failure)
        path_pending = _PENDING["path"].get(pending)
        if path_pending:
            self.path_seen = number
        for n, path in enumerate(self.paths):
            if number <= path.ignores:
                continue
            if engines >> n & 1:
                self.engines_seen[n] = number
            if events >> n & 1:
                self._read_events(path)
            if streams >> n & 1 and not path.reads_words:
                self._read_words(path)
            found = (events | streams) >> n & 1
            path.quiet = 0 if found or path.reads_events or path.reads_words else path.quiet + 1
        # The MAC's interrupt stays pending, as nobody waits for it, and so may that of an engine.
        engines &= sum(bool(path.waiting) << n for n, path in enumerate(self.paths))
        return bool(path_pending | events | engines | streams)

    def _own(self, page: Page, register: str, then: Callable[[int], None]) -> None:
        """Read a register, and do something with its value."""
        self._then[self.access(page.address(register))] = then

    def _put(self, path: DataPath, register: str, word: int) -> None:
        self.access(path.page.address(register), word)

    def _reset(self, path: DataPath, _: int) -> None:
        """Forget all results from before a reset, and all packets handed over before."""
        path.resets -= 1
        path.ignores = self.looks
        for each in (path.ulpdus, path.events, path.packets, path.partial):
            each.clear()
        path.octets, path.place, path.burst, path.quiet = 0, -1, _LEAST, 0

    # --- events

    def _read_events(self, path: DataPath) -> None:
        if path.reads_events or len(path.events) >= EVENTS:
            return
        path.reads_events = True
        words: list[int] = []

        def took(word: int) -> None:
            words.append(word)
            if len(words) == len(_EVENT):
                path.reads_events = False
                if words[0]:  # 0 if the program has read the register itself
                    path.events.append(Event.read(*words))
                    self._read_events(path)

        for name in _EVENT:
            self._own(path.page, name, took)

    # --- streams

    def _read_words(self, path: DataPath) -> None:
        """Read some words of the stream; a word is read behind the STREAM_STATE that shows it."""

        def state(value: int) -> None:
            path.state = value

        def word(value: int) -> None:
            path.reads_words -= 1
            waits = bool(_STATE["waits"].get(path.state))
            if waits:
                self._word(path, value, path.state)
            if not path.reads_words:
                path.burst = min(2 * path.burst, _MOST) if waits else _LEAST
                if waits:
                    self._read_words(path)

        path.reads_words = path.burst
        for _ in range(path.burst):
            self._own(path.page, "STREAM_STATE", state)
            self._own(path.page, "STREAM_RECEIVED", word)

    @staticmethod
    def _word(path: DataPath, word: int, state: int) -> None:
        path.partial += word.to_bytes(_WORD, "little")[: _STATE["octets"].get(state)]
        if _STATE["last"].get(state):
            verdict = Verdict(_STATE["verdict"].get(state))
            octets = bytes(path.partial)
            path.partial.clear()
            if verdict in (Verdict.GOOD, Verdict.STREAM):
                path.ulpdus.append(Ulpdu(octets, verdict))
            elif verdict is Verdict.CRC:
                path.rejected = octets

    def _feed(self, path: DataPath) -> None:
        """Ask for room, if there are packets to write."""
        if path.packets and not path.asks_room and not path.resets:
            path.asks_room = True
            self._own(path.page, "STREAM_STATE", lambda state: self._give(path, _STATE["room"].get(state)))

    def _give(self, path: DataPath, room: int) -> None:
        """Write words of packets for which there is room."""
        path.asks_room = False
        while path.packets and room and not path.resets:
            packet = path.packets[0]
            if path.place < 0:
                self._put(path, "STREAM_BEGIN", len(packet))
                path.place = 0
                room -= not packet
            while path.place < len(packet) and room:
                octets = packet[path.place : path.place + _WORD]
                self._put(path, "STREAM_WORD", int.from_bytes(octets, "little"))
                path.place += len(octets)
                path.octets -= len(octets)
                room -= 1
            if path.place == len(packet):
                path.packets.popleft()
                path.place = -1
        self._feed(path)
