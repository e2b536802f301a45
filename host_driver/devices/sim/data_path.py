"""A data path in a simulation: its streams, events and registers, and its RDMA engine if it has one."""

from __future__ import annotations

from open_rnic.host_driver.devices.sim.dut import Clock
from open_rnic.host_driver.devices.sim.program_memory import ProgramMemory
from open_rnic.host_driver.devices.sim.register_page import RegisterPage
from open_rnic.host_driver.devices.sim.ring_ends import Drain, Feed
from open_rnic.host_driver.devices.sim.wire import EVENT, EVENT_WINDOW, WORD, Kind, beats, frame, window
from open_rnic.rtl.registers import BY_NAME, Verdict
from open_rnic.rtl.rnic.registers import PAGE_BITS
from open_rnic.rtl.tcp.words import PIECE

__all__ = ["DataPath"]

_CONTROL = BY_NAME["CONTROL"]
_EVENT = [BY_NAME[name].address // 4 for name in ("EVENT", "EVENT_OFFSET_LO", "EVENT_OFFSET_HI")]
_STILL = 64  # clock cycles: if the receive direction has not moved for this long, it will not without new input
_DELIVERED = Verdict.GOOD, Verdict.STREAM, Verdict.CRC
_BLOCK, _SMALL_BLOCK = 1 << 14, 1 << 11  # octets of memory that are read at once


class DataPath(RegisterPage):
    """A data path alone, or that of a connection of an RNIC."""

    def __init__(self, clock: Clock, connection: int | None = None):
        control, status = clock.control, clock.status
        if connection is None:
            suffix, page, self._still = "", 0, _STILL
            super().__init__(clock, 0, lambda: clock.status["irq"] & 2)
        else:
            suffix, page, self._still = f"_{connection}", 1 + connection, _STILL + PIECE
            super().__init__(clock, page << PAGE_BITS, lambda: clock.status["rdma_irq"] >> connection & 1)
        self._page = page
        into: dict[int, str] = {Kind.ULPDU: f"tx_ulpdu{suffix}", Kind.MPA: f"rx_mpa{suffix}"}
        out: dict[int, str] = {Kind.MPA: f"tx_mpa{suffix}", Kind.ULPDU: f"rx_ulpdu{suffix}"}
        self._feeds = {kind: Feed(clock, name) for kind, name in into.items() if f"{name}_posted" in control}
        self._drains = {kind: Drain(clock, name) for kind, name in out.items() if f"{name}_freed" in control}
        self._credit: dict[int, int] = dict.fromkeys(out, window(clock.layout.lanes)) | {Kind.EVENT: EVENT_WINDOW}
        self._flush = f"flush{suffix}"
        self.memory = None
        if f"writes{suffix}_freed" in control:
            # Any frame may be the reason for another content of memory, so an RNIC reads less of it in advance.
            self.memory = ProgramMemory(clock, suffix, _BLOCK if connection is None else _SMALL_BLOCK)
        received = f"rx_mpa{suffix}_taken", f"rx_ulpdu{suffix}_written", f"writes{suffix}_written"
        self._receives = [name for name in received if name in status]
        self._received: list[int] = []
        self._since = 0  # the clock cycle since which the receive direction has been still
        self._drains_due = 0  # DRAIN requests without an answer

    @property
    def work(self) -> int:  # type: ignore[override]
        """See Peripheral."""
        return sum(feed.backlog for feed in self._feeds.values())

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """See Peripheral."""
        super().take(kind, note, octets)
        if self.memory:
            self.memory.take(kind, octets)
        match kind:
            case Kind.ULPDU | Kind.MPA:
                self._feeds[kind].add_packet(octets)
            case Kind.DRAIN:
                self._drains_due += 1
                self._since = self.clock.cycles
            case Kind.GRANT:
                self._credit[note] += WORD.unpack(octets)[0]

    async def serve(self) -> bytes:
        """See Peripheral.

        Accesses before a reset come before the beats, so that octets of the peer meet what the program has set before
        it handed them over.
        """
        out = b""
        while self.accesses and not self._resets(*self.accesses[0]):
            out += await self.answer(*self.accesses.popleft())
        out += self._move()
        out += await super().serve()
        if self._has_events:
            events = await self._events()
            await self.clock.step()
            out += self._move() + events  # ULPDUs that belong to the events come first
        return out + self._drained()

    async def pause(self) -> float | None:
        """See Peripheral."""
        return 0 if self._drains_due else None

    def report(self) -> bytes:
        """See RegisterPage. What the engine has written comes before its interrupt."""
        return (self.memory.move() if self.memory else b"") + super().report()

    async def answer(self, kind: int, address: int, octets: bytes) -> bytes:
        """See RegisterPage. A reset discards all beats on their way."""
        if not self._resets(kind, address, octets):
            return await super().answer(kind, address, octets)
        self.clock.control[self._flush] = 1
        out = b"".join(_grant(kind, feed.clear()) for kind, feed in self._feeds.items())
        for drain in self._drains.values():
            drain.clear()
        out += await super().answer(kind, address, octets)
        await self.clock.step()
        self.clock.control[self._flush] = 0
        return out

    @staticmethod
    def _resets(kind: int, address: int, octets: bytes) -> bool:
        reset = _CONTROL["reset"].mask
        return kind == Kind.SET and address == _CONTROL.address // 4 and bool(WORD.unpack(octets)[0] & reset)

    def _move(self) -> bytes:
        out = [self.report()]
        out += [_grant(kind, count) for kind, feed in self._feeds.items() if (count := feed.move())]
        for kind, drain in self._drains.items():
            if self._credit[kind] > 0:
                for verdict, octets in drain.packets():
                    if verdict in _DELIVERED:
                        out.append(frame(kind, verdict, octets))
                        self._credit[kind] -= beats(len(octets), self.clock.layout.lanes)
        return b"".join(out)

    @property
    def _has_events(self) -> int:
        return self.clock.status["irq"] >> self._page & 1

    async def _events(self) -> bytes:
        out = b""
        while self._credit[Kind.EVENT] and (word := await self.access(_EVENT[0])):
            out += frame(Kind.EVENT, 0, EVENT.pack(word, *[await self.access(address) for address in _EVENT[1:]]))
            self._credit[Kind.EVENT] -= 1
        return out

    def _drained(self) -> bytes:
        """Answer all DRAIN requests if the RTL has taken all octets of the peer, and all its results have been sent."""
        received = [self.clock.status[name] for name in self._receives]
        waits = Kind.MPA in self._feeds and self._feeds[Kind.MPA].backlog
        if received != self._received or waits or not self._drains[Kind.ULPDU].empty or self._has_events:
            self._received, self._since = received, self.clock.cycles
        if self.clock.cycles - self._since < self._still:
            return b""
        due, self._drains_due = self._drains_due, 0
        return due * frame(Kind.DRAINED)


def _grant(kind: int, count: int) -> bytes:
    return frame(Kind.GRANT, kind, WORD.pack(count))
