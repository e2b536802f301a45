"""The Ethernet frames of a network path in a simulation, in and out."""

from __future__ import annotations

from collections.abc import Iterable

from open_rnic.host_driver.devices.sim.dut import Clock
from open_rnic.host_driver.devices.sim.peripheral import Peripheral
from open_rnic.host_driver.devices.sim.program_memory import ProgramMemory
from open_rnic.host_driver.devices.sim.ring_ends import Drain, Feed
from open_rnic.host_driver.devices.sim.wire import Kind, frame

__all__ = ["Frames"]

_PADDING = bytes(2)  # before each frame
_WAITING = 1 << 15  # words that wait for the RTL; further frames are lost, as in a network card or a switch
_CYCLES = 8  # clock cycles in which the RTL deals with a word, about


class Frames(Peripheral):
    """Frames without FCS. Each that comes may be the reason for another content of ``memories``."""

    def __init__(self, clock: Clock, memories: Iterable[ProgramMemory] = ()):
        super().__init__(clock)
        self._rx = Feed(clock, "rx_frames")
        self._tx = Drain(clock, "tx_frames")
        self._memories = list(memories)

    @property
    def work(self) -> int:  # type: ignore[override]
        """See Peripheral."""
        return _CYCLES * self._rx.backlog

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """See Peripheral."""
        if kind == Kind.FRAME and self._rx.backlog < _WAITING:
            self._rx.add_packet(*self.enter(octets, note))
            for memory in self._memories:
                memory.forget()

    async def serve(self) -> bytes:
        """See Peripheral."""
        self._rx.move()
        frames = [self.leave(octets) for _, octets in self._tx.packets()]
        return b"".join(frame(Kind.FRAME, 0, each) for each in frames if each)

    def enter(self, octets: bytes, damage: int) -> tuple[bytes, int]:
        """Return the packet of a frame, and the number beside it."""
        return _PADDING + octets, 0

    def leave(self, octets: bytes) -> bytes:
        """Return the frame of a packet, or no octets if it is lost."""
        return octets[len(_PADDING) :]
