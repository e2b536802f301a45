"""The memory of an RDMA engine in a simulation, which is in the program.

The engine's writes go to the program in the order in which the engine makes them, and before the values of registers
that show them. Its reads are answered from the last block that the program has sent. A block is forgotten when
anything arrives that may be the reason for another content of memory, so that no read is answered with old octets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from open_rnic.host_driver.devices.sim.dut import Clock
from open_rnic.host_driver.devices.sim.layout import NUMBER_WORD, PLACE_WORD
from open_rnic.host_driver.devices.sim.ring_ends import RingEnd, RingStart
from open_rnic.host_driver.devices.sim.wire import PLACE, WORD, Kind, frame

__all__ = ["ProgramMemory"]


class ProgramMemory:
    """The rings of an engine's memory port, whose names end in ``suffix``. ``block`` octets are read at once."""

    def __init__(self, clock: Clock, suffix: str, block: int):
        self._beat = 4 * clock.layout.lanes
        self._most = block
        self._writes = RingEnd(clock, f"writes{suffix}", beats=self._beat, places=PLACE_WORD.size)
        self._reads = RingEnd(clock, f"reads{suffix}", beats=NUMBER_WORD.size)
        self._words = RingStart(clock, f"words{suffix}", beats=self._beat)
        self._wanted: deque[int] = deque()  # addresses
        self._asked = False  # a BLOCK is due
        self.forget()

    def forget(self) -> None:
        """Forget the block: memory may have changed."""
        self._block = b""
        self._at = 0  # the address of the block's first octet

    def take(self, kind: int, octets: bytes) -> None:
        """Take a message of the program."""
        match kind:
            case Kind.BLOCK:
                self._block, self._at, self._asked = octets, self._wanted[0], False
                self._find()
            case Kind.MPA | Kind.PUSH:
                self.forget()

    def move(self) -> bytes:
        """Move all words that are ready; return octets to send."""
        out = b""
        for address, octets in self._runs(*self._writes.take()):
            if address < self._at + len(self._block) and self._at < address + len(octets):
                self.forget()
            out += frame(Kind.WRITE, 0, WORD.pack(address) + octets)
        self._wanted.extend(number * self._beat for (number,) in NUMBER_WORD.iter_unpack(*self._reads.take()))
        self._find()
        self._words.move()
        if self._wanted and not self._asked:
            self._asked = True
            out += frame(Kind.READ, 0, PLACE.pack(self._wanted[0], self._most))
        return out

    def _find(self) -> None:
        """Answer reads from the block."""
        while self._wanted and 0 <= (at := self._wanted[0] - self._at) < len(self._block):
            self._words.add(self._block[at : at + self._beat])
            self._wanted.popleft()

    def _runs(self, words: bytes, places: bytes) -> Iterator[tuple[int, bytearray]]:
        """Yield the octets that are written, with their addresses; those that lie behind one another, in one."""
        address, run = 0, bytearray()
        for n, (word, mask) in enumerate(PLACE_WORD.iter_unpack(places)):
            while mask:
                start = (mask & -mask).bit_length() - 1
                octets = (~(mask >> start) & -~(mask >> start)).bit_length() - 1
                mask &= ~(((1 << octets) - 1) << start)
                at = word * self._beat + start
                if run and at != address + len(run):
                    yield address, run
                    run = bytearray()
                if not run:
                    address = at
                run += words[n * self._beat + start : n * self._beat + start + octets]
        if run:
            yield address, run
