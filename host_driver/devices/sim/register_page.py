"""A page of registers in a simulation, and its interrupt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from open_rnic.host_driver.devices.sim.dut import Clock
from open_rnic.host_driver.devices.sim.peripheral import Peripheral
from open_rnic.host_driver.devices.sim.wire import WORD, Kind, frame

__all__ = ["RegisterPage"]


class RegisterPage(Peripheral):
    """The registers from ``address`` / 4 on; ``interrupt`` says whether theirs is asserted."""

    def __init__(self, clock: Clock, address: int, interrupt: Callable[[], int]):
        super().__init__(clock)
        self.accesses: deque[tuple[int, int, bytes]] = deque()
        self._address = address
        self._interrupt = interrupt
        self._interrupt_due = False

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """See Peripheral."""
        match kind:
            case Kind.GET | Kind.SET | Kind.PUSH:
                self.accesses.append((kind, note, octets))
            case Kind.INTERRUPT:
                self._interrupt_due = True

    async def serve(self) -> bytes:
        """See Peripheral."""
        out = b""
        while self.accesses:
            out += await self.answer(*self.accesses.popleft())
        return out + self.report()

    def report(self) -> bytes:
        """Return octets to send before the value of a register: what the RTL has done until then."""
        if not (self._interrupt_due and self._interrupt()):
            return b""
        self._interrupt_due = False
        return frame(Kind.INTERRUPT)

    async def answer(self, kind: int, address: int, octets: bytes) -> bytes:
        """Carry out an access; return octets to send."""
        if kind == Kind.PUSH:
            for (word,) in WORD.iter_unpack(octets):
                await self.access(address, 1, word)
            return b""
        (value,) = WORD.unpack(octets) if kind == Kind.SET else (0,)
        result = await self.access(address, kind == Kind.SET, value)
        return self.report() + frame(Kind.VALUE, address, WORD.pack(result))

    async def access(self, address: int, write: int = 0, value: int = 0) -> int:
        """Access a register of the page, by its address / 4."""
        return await self.clock.access(self._address + address, write, value)
