"""The ends of the rings of ``rings`` in the simulator's process: octets move as whole ranges of memory."""

from __future__ import annotations

import cocotb

from open_rnic.host_driver.devices.sim.dut import Clock, Memory
from open_rnic.host_driver.devices.sim.layout import COUNT, DEPTH, MARK_WORD, NOTE_WORD
from open_rnic.host_driver.devices.sim.wire import beats

__all__ = ["Drain", "Feed", "RingEnd", "RingStart"]


def _memory(ring: str, name: str, element: int) -> Memory:
    return Memory(f"{cocotb.top._name}.{ring}.shared_{name}", element)


class RingStart:
    """Where elements enter a ring that leads into the RTL. Elements for which there is no room wait before it.

    ``elements`` are the memories of the ring, with the octets of an element in each.
    """

    def __init__(self, clock: Clock, ring: str, **elements: int):
        self._clock = clock
        self._posted, self._taken = f"{ring}_posted", f"{ring}_taken"
        self._parts = [(_memory(ring, name, size), bytearray()) for name, size in elements.items()]

    def add(self, *octets: bytes) -> None:
        """Queue whole elements: their octets in each memory."""
        for (_, queue), more in zip(self._parts, octets, strict=True):
            queue += more

    def move(self) -> int:
        """Fill the ring; return the number of elements that have entered it."""
        posted = self._clock.control[self._posted]
        count = min(DEPTH - self._inside, self._waiting)
        if count:
            for memory, queue in self._parts:
                memory.write(posted, bytes(queue[: count * memory.element]))
                del queue[: count * memory.element]
            self._clock.control[self._posted] = (posted + count) % COUNT
        return count

    def clear(self) -> int:
        """Forget all elements, because the ring is flushed; return the number of those that had not entered it."""
        waiting = self._waiting
        for _, queue in self._parts:
            queue.clear()
        self._clock.control[self._posted] = 0
        return waiting

    @property
    def backlog(self) -> int:
        """Elements that the RTL has not taken."""
        return self._inside + self._waiting

    @property
    def _inside(self) -> int:
        return (self._clock.control[self._posted] - self._clock.status[self._taken]) % COUNT

    @property
    def _waiting(self) -> int:
        memory, queue = self._parts[0]
        return len(queue) // memory.element


class RingEnd:
    """Where elements leave a ring that leads out of the RTL; ``elements`` as for a :class:`RingStart`."""

    def __init__(self, clock: Clock, ring: str, **elements: int):
        self._clock = clock
        self._written, self._freed = f"{ring}_written", f"{ring}_freed"
        self._memories = [_memory(ring, name, size) for name, size in elements.items()]

    def take(self) -> list[bytes]:
        """Empty the ring; return the octets of its elements in each memory."""
        freed, written = self._clock.control[self._freed], self._clock.status[self._written]
        self._clock.control[self._freed] = written
        count = (written - freed) % COUNT
        return [memory.read(freed, count) if count else b"" for memory in self._memories]

    @property
    def empty(self) -> bool:
        """Whether everything has been taken."""
        return self._clock.control[self._freed] == self._clock.status[self._written]


class Feed(RingStart):
    """Packets that enter a ring as beats, each with a mark."""

    def __init__(self, clock: Clock, ring: str):
        self._lanes = clock.layout.lanes
        super().__init__(clock, ring, beats=4 * self._lanes, marks=MARK_WORD.size)

    def add_packet(self, octets: bytes, length: int | None = None) -> None:
        """Queue a packet, with its length, or with another number that the stream has in this place."""
        count, beat = beats(len(octets), self._lanes), 4 * self._lanes
        if length is None:
            length = min(len(octets), 0xFFFF)  # a longer ULPDU exceeds any maximum
        marks = MARK_WORD.pack(0, 0, length) + bytes(MARK_WORD.size * (count - 2)) if count > 1 else b""
        marks += MARK_WORD.pack(len(octets) - (count - 1) * beat, 1, length)
        self.add(octets.ljust(count * beat, b"\0"), marks)


class Drain(RingEnd):
    """Packets that leave a ring as beats, with a note behind each packet."""

    def __init__(self, clock: Clock, ring: str):
        self._beat = 4 * clock.layout.lanes
        super().__init__(clock, ring, beats=self._beat)
        self._notes, self._notes_written = _memory(ring, "notes", NOTE_WORD.size), f"{ring}_notes"
        self._notes_read = 0
        self._partial = b""  # of a packet whose end has not come

    def packets(self) -> list[tuple[int, bytes]]:
        """Empty the ring; return the packets whose ends have come, each with its verdict, or its connection."""
        start, at = self._clock.control[self._freed], 0
        (octets,) = self.take()
        notes = self._clock.status[self._notes_written]
        found = (notes - self._notes_read) % COUNT
        packets = []
        for valid, verdict, end in NOTE_WORD.iter_unpack(self._notes.read(self._notes_read, found) if found else b""):
            # A note gives the position behind the packet; the last beat has only `valid` octets.
            after = (end - start) % COUNT * self._beat
            packets.append((verdict, self._partial + octets[at : after - self._beat + valid]))
            self._partial, at = b"", after
        self._notes_read = notes
        self._partial += octets[at:]
        return packets

    def clear(self) -> None:
        """Forget everything, because the ring is flushed."""
        self._clock.control[self._freed] = self._notes_read = 0
        self._partial = b""
