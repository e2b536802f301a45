"""The server in the simulation process: it serves one device over the socket that it was started with.

Python runs once in many clock cycles, and each time moves all octets that have accumulated. It sleeps while nothing is
on its way; simulated time then stops.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any

import cocotb
from cocotb.handle import Immediate
from cocotb.triggers import Timer

from open_rnic.host_driver.devices.sim.dut import PERIOD, Memory, start
from open_rnic.host_driver.devices.sim.layout import CONTROL, COUNT, DEPTH, MARK_WORD, NOTE_WORD, STATUS, pack, unpack
from open_rnic.host_driver.devices.sim.wire import (
    EVENT,
    EVENT_WINDOW,
    HEADER,
    SOCKET,
    WIDTH,
    WORD,
    Kind,
    beats,
    frame,
    take_frames,
    window,
)
from open_rnic.rtl.registers import BY_NAME, Verdict

SHORT, LONG = 16, 256  # clock cycles between two runs of Python, if few or many beats move
QUIET = 64  # clock cycles: if no beat has moved for this long, none will move without new input
_CONTROL = BY_NAME["CONTROL"]

Settle = Callable[[], Awaitable[dict[str, int]]]


class Feed:
    """A flow from the socket into a ring."""

    def __init__(self, kind: int, ring: str, lanes: int):
        self.kind = kind
        self.ring = ring
        self.posted = 0
        self._beat = 4 * lanes
        self._beats = Memory(f"{cocotb.top._name}.{ring}.shared_beats", self._beat)
        self._marks = Memory(f"{cocotb.top._name}.{ring}.shared_marks", MARK_WORD.size)
        self._taken = 0
        self._waiting = bytearray()
        self._waiting_marks = bytearray()

    def add(self, octets: bytes, connection: int | None = None) -> None:
        """Queue a packet, of a connection if its stream has several."""
        count = beats(len(octets), self._beat // 4)
        self._waiting += octets
        self._waiting += bytes(count * self._beat - len(octets))
        length = min(len(octets), 0xFFFF) if connection is None else connection  # a longer ULPDU exceeds any maximum
        if count > 1:
            self._waiting_marks += MARK_WORD.pack(0, 0, length) + bytes(MARK_WORD.size * (count - 2))
        self._waiting_marks += MARK_WORD.pack(len(octets) - (count - 1) * self._beat, 1, length)

    def step(self, taken: int) -> bytes:
        """Fill the ring, from which the RTL has taken ``taken`` beats; returns octets to send."""
        self._taken = taken
        room = DEPTH - (self.posted - taken) % COUNT
        count = min(room, len(self._waiting_marks) // MARK_WORD.size)
        if not count:
            return b""
        self._beats.write(self.posted, bytes(self._waiting[: count * self._beat]))
        self._marks.write(self.posted, bytes(self._waiting_marks[: count * MARK_WORD.size]))
        del self._waiting[: count * self._beat]
        del self._waiting_marks[: count * MARK_WORD.size]
        self.posted = (self.posted + count) % COUNT
        return frame(Kind.GRANT, self.kind, WORD.pack(count))

    def clear(self) -> bytes:
        """Forget all beats that the RTL has not taken, because the ring is flushed; returns octets to send."""
        dropped = len(self._waiting_marks) // MARK_WORD.size
        self._waiting.clear()
        self._waiting_marks.clear()
        self.posted = self._taken = 0
        return frame(Kind.GRANT, self.kind, WORD.pack(dropped))

    @property
    def backlog(self) -> int:
        """Beats in the ring."""
        return (self.posted - self._taken) % COUNT

    @property
    def empty(self) -> bool:
        """Whether the RTL has taken all beats."""
        return not self.backlog and not self._waiting_marks


class Drain:
    """A flow from a ring to the socket."""

    def __init__(self, kind: int, ring: str, lanes: int, verdicts: Container[int] = (Verdict.GOOD, Verdict.STREAM)):
        self.kind = kind
        self.ring = ring
        self._verdicts = verdicts  # packets with others are discarded
        self.freed = 0
        self.credit = window(lanes)
        self._beat = 4 * lanes
        self._beats = Memory(f"{cocotb.top._name}.{ring}.shared_beats", self._beat)
        self._notes = Memory(f"{cocotb.top._name}.{ring}.shared_notes", NOTE_WORD.size)
        self._notes_read = 0
        self._partial = b""

    def step(self, written: int, notes: int) -> bytes:
        """Empty the ring if the reader's window allows it; returns octets to send."""
        count = (written - self.freed) % COUNT
        if not count or self.credit <= 0:
            return b""
        octets = self._beats.read(self.freed, count)
        start, at = self.freed, 0
        sent: list[bytes] = []
        found = (notes - self._notes_read) % COUNT
        if found:
            for valid, verdict, end in NOTE_WORD.iter_unpack(self._notes.read(self._notes_read, found)):
                # A note gives the position behind the packet; the last beat has only `valid` octets.
                after = (end - start) % COUNT * self._beat
                packet = self._partial + octets[at : after - self._beat + valid]
                self._partial, at = b"", after
                if verdict in self._verdicts:
                    sent += HEADER.pack(self.kind, verdict, len(packet)), packet
                    self.credit -= beats(len(packet), self._beat // 4)
            self._notes_read = notes
        self._partial += octets[at:]
        self.freed = written
        return b"".join(sent)

    def clear(self) -> None:
        """Forget all beats that have not been sent, because the ring is flushed."""
        self.freed = self._notes_read = 0
        self._partial = b""


class Link:
    """The socket to the program; only :meth:`wait` blocks."""

    def __init__(self, descriptor: int):
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._received = bytearray()
        self._unsent = bytearray()

    def send(self, octets: bytes) -> None:
        """Send octets; those that the socket does not accept at once are sent later."""
        self._unsent += octets
        while self._unsent:
            try:
                del self._unsent[: self._socket.send(self._unsent, socket.MSG_NOSIGNAL)]
            except BlockingIOError:
                break
            except ConnectionError:  # the next `receive` detects it, too
                self._unsent.clear()

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def wait(self, seconds: float | None = None) -> None:
        """Sleep until there are octets to receive, or until more octets can be sent, for at most ``seconds``."""
        select.select([self._socket], [self._socket] if self._unsent else [], [], seconds)

    def receive(self) -> list[tuple[int, int, bytes]] | None:
        """Return the received frames; None if the program has closed its side or ended."""
        try:
            while True:
                octets = self._socket.recv(1 << 18)
                if not octets:
                    return None
                self._received += octets
                if len(octets) < 1 << 18:
                    break
        except BlockingIOError:
            pass
        except ConnectionError:
            return None
        return list(take_frames(self._received))


class DataPath:
    """The flows of one data path over a link, and the accesses to its registers.

    ``run_access`` accesses a register: its address / 4, whether to write, and the value. ``control`` has the fields
    of the rings, and ``flush``; ``suffix`` ends the names of these fields. ``beside`` returns octets that must be sent
    before the value of a register: what the RTL has done until then.
    """

    def __init__(
        self,
        link: Link,
        feeds: Sequence[Feed],
        drains: Sequence[Drain],
        control: dict[str, int],
        run_access: Callable[[int, int, int], Awaitable[int]],
        suffix: str = "",
        beside: Callable[[], bytes] = bytes,
    ):
        self.link = link
        self.drains_due = 0  # DRAIN requests without an answer
        self._feeds = {feed.kind: feed for feed in feeds}
        self._drains = {drain.kind: drain for drain in drains}
        self._control = control
        self._flush = f"flush{suffix}"
        self._run_access = run_access
        self._beside = beside
        self._event_credit = EVENT_WINDOW
        self._accesses: deque[tuple[int, int, bytes]] = deque()

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """Take a frame of the program."""
        match kind:
            case Kind.ULPDU | Kind.MPA:
                self._feeds[kind].add(octets)
            case Kind.GET | Kind.SET | Kind.PUSH:
                self._accesses.append((kind, note, octets))
            case Kind.DRAIN:
                self.drains_due += 1
            case Kind.GRANT:
                (more,) = WORD.unpack(octets)
                if note == Kind.EVENT:
                    self._event_credit += more
                elif note in self._drains:
                    self._drains[note].credit += more

    async def serve(self, status: dict[str, int], *, irq: int, settle: Settle) -> bytes:
        """Move all beats that are ready, access registers, and read events; return octets to send.

        ``settle`` lets the clock run until no beat is left that was on its way. Accesses before a reset come before the
        beats, so that octets of the peer meet what the program has set before it handed them over.
        """
        out = b""
        while self._accesses and not self._resets(*self._accesses[0]):
            out += await self._answer(*self._accesses.popleft(), settle)
        out += self._move(status)
        while self._accesses:
            out += await self._answer(*self._accesses.popleft(), settle)
        if irq:
            events = await self._events()
            out += self._move(await settle()) + events  # ULPDUs that belong to the events come first
        return out

    @property
    def backlog(self) -> int:
        """Beats in the rings to the RTL."""
        return sum(feed.backlog for feed in self._feeds.values())

    def received_all(self, status: dict[str, int], irq: int) -> bool:
        """Whether the RTL has taken all octets from the peer, and all its results so far have been sent."""
        mpa, ulpdus = self._feeds.get(Kind.MPA), self._drains[Kind.ULPDU]
        return (mpa is None or mpa.empty) and status[f"{ulpdus.ring}_written"] == ulpdus.freed and not irq

    def drained(self) -> bytes:
        """Answer all DRAIN requests; return octets to send."""
        due, self.drains_due = self.drains_due, 0
        return due * frame(Kind.DRAINED)

    def _move(self, status: dict[str, int]) -> bytes:
        out = b""
        for feed in self._feeds.values():
            out += feed.step(status[f"{feed.ring}_taken"])
            self._control[f"{feed.ring}_posted"] = feed.posted
        for drain in self._drains.values():
            out += drain.step(status[f"{drain.ring}_written"], status[f"{drain.ring}_notes"])
            self._control[f"{drain.ring}_freed"] = drain.freed
        return out

    async def _answer(self, kind: int, address: int, octets: bytes, settle: Settle) -> bytes:
        if kind == Kind.PUSH:
            for (word,) in WORD.iter_unpack(octets):
                await self._run_access(address, 1, word)
            return b""
        (value,) = WORD.unpack(octets) if kind == Kind.SET else (0,)
        out = b""
        if self._resets(kind, address, octets):
            out = self._empty()
        result = await self._run_access(address, kind == Kind.SET, value)
        if self._control[self._flush]:
            await settle()
            self._control[self._flush] = 0
        return out + self._beside() + frame(Kind.VALUE, address, WORD.pack(result))

    @staticmethod
    def _resets(kind: int, address: int, octets: bytes) -> bool:
        reset = _CONTROL["reset"].mask
        return kind == Kind.SET and address == _CONTROL.address // 4 and bool(WORD.unpack(octets)[0] & reset)

    def _empty(self) -> bytes:
        """Discard all beats on their way, until the flush ends; return octets to send."""
        self._control[self._flush] = 1
        out = b""
        for feed in self._feeds.values():
            out += feed.clear()
            self._control[f"{feed.ring}_posted"] = 0
        for drain in self._drains.values():
            drain.clear()
            self._control[f"{drain.ring}_freed"] = 0
        return out

    async def _events(self) -> bytes:
        event, low, high = (BY_NAME[name].address // 4 for name in ("EVENT", "EVENT_OFFSET_LO", "EVENT_OFFSET_HI"))
        out = b""
        while self._event_credit and (word := await self._run_access(event, 0, 0)):
            offset = await self._run_access(low, 0, 0), await self._run_access(high, 0, 0)
            out += frame(Kind.EVENT, 0, EVENT.pack(word, *offset))
            self._event_credit -= 1
        return out


class Clock:
    """The clock of a simulation, and the words ``control`` and ``status`` at its edges."""

    def __init__(self, dut: Any, control: Mapping[str, int], status: Mapping[str, int]):
        self.control = dict.fromkeys(control, 0)
        self.status: dict[str, int] = {}  # at the end of the last step
        self._dut = dut
        self._layouts = control, status
        self._written = 0

    async def step(self, cycles: int) -> dict[str, int]:
        """Let the clock run. Begins and ends while the clock is low, away from the active edge."""
        control = pack(self._layouts[0], self.control)
        if control != self._written:
            self._dut.control.set(Immediate(control))
            self._written = control
        await Timer(cycles * PERIOD, "step")
        self.status = unpack(self._layouts[1], int(self._dut.status.value))
        return self.status

    async def access(self, address: int, write: int = 0, value: int = 0) -> int:
        """Access a register, by its address / 4."""
        turn = self.control["turn"] ^ 1
        self.control.update(turn=turn, write=write, address=address, write_data=value)
        while (status := await self.step(4))["turn"] != turn:
            pass
        return status["read_data"]


class Server:
    """The device at the other end of a link.

    Subclasses serve a device with more than the data path: ``take``, ``move`` and ``awake`` are theirs.
    """

    transmit: tuple[str, ...] = ("tx_ulpdu_taken", "tx_mpa_written", "tx_mpa_notes")
    receive: tuple[str, ...] = ("rx_mpa_taken", "rx_ulpdu_written", "rx_ulpdu_notes")

    def __init__(
        self,
        dut: Any,
        link: Link,
        lanes: int,
        control: Mapping[str, int] = CONTROL,
        status: Mapping[str, int] = STATUS,
    ):
        self._link = link
        self._clock = Clock(dut, control, status)
        feeds = Feed(Kind.ULPDU, "tx_ulpdu", lanes), Feed(Kind.MPA, "rx_mpa", lanes)
        drains = Drain(Kind.MPA, "tx_mpa", lanes), Drain(Kind.ULPDU, "rx_ulpdu", lanes)
        access = self._clock.access
        self._path = DataPath(link, feeds, drains, self._clock.control, access, beside=self.move)

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """Take a frame of the program."""
        self._path.take(kind, note, octets)

    def move(self) -> bytes:
        """Move what is ready besides the data path's beats; return octets to send."""
        return b""

    async def awake(self) -> bool:
        """Whether something moves later though no beat does now: simulated time must then go on."""
        return False

    async def run(self) -> None:
        """Serve until the program closes the socket or ends."""
        self._link.send(frame(Kind.HELLO))
        path = self._path
        status = await self._clock.step(SHORT)
        moved, awake, quiet, still = False, False, 0, 0  # still: cycles since the receive direction has moved
        while (frames := self._link.receive()) is not None:
            for each in frames:
                self.take(*each)
            before = self._state(status)
            out = self.move()
            out += await path.serve(status, irq=status["irq"] & 1, settle=lambda: self._clock.step(SHORT))
            if out:
                self._link.send(out)
            cycles = max(SHORT, min(LONG, path.backlog)) if moved else LONG if awake else SHORT
            status = await self._clock.step(cycles)
            moved = self._state(status) != before
            all_received = path.received_all(status, status["irq"] & 1)
            receives = len(self.receive)
            still = still + cycles if all_received and self._state(status)[:receives] == before[:receives] else 0
            if path.drains_due and still >= QUIET:
                self._link.send(path.drained())
            quiet = 0 if moved or out or frames else quiet + cycles
            awake = quiet >= QUIET and await self.awake()
            if quiet >= QUIET and not awake:
                self._link.wait()
                self._link.send(b"")

    def _state(self, status: dict[str, int]) -> list[int]:
        """The counters that change if a beat moves: those of receive, then those of transmit."""
        return [status[name] for name in (*self.receive, *self.transmit)]


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """Serve until the program ends. For cocotb, this is the only test in the simulation."""
    await start(dut)
    link = Link(int(os.environ[SOCKET]))
    await Server(dut, link, int(os.environ[WIDTH])).run()
    link.close()
