"""The cable of a simulated board: a pseudo-terminal, whose octets pass a UART, and a line that may be noisy."""

from __future__ import annotations

import random
from array import array

from open_rnic.host_driver.devices.sim.dut import Clock
from open_rnic.host_driver.devices.sim.link import Link
from open_rnic.host_driver.devices.sim.peripheral import Peripheral
from open_rnic.host_driver.devices.sim.ring_ends import RingEnd, RingStart
from open_rnic.host_driver.devices.sim.wire import Kind

__all__ = ["Cable", "Noise", "Terminal"]

_WORD = 4  # octets of memory for each octet in a ring


class Terminal(Link):
    """The master of a pseudo-terminal, whose messages are octets as they come."""

    def messages(self) -> list[tuple[int, int, bytes]]:
        """See Link."""
        received = self.receive()
        octets = bytes(received)
        received.clear()
        return [(Kind.OCTETS, 0, octets)] if octets else []


class Noise:
    """A noisy line: a bit of each octet is flipped, or the octet lost or doubled, with probability ``chance``."""

    def __init__(self, seed: int, chance: float):
        self._random = random.Random(seed)
        self._chance = chance

    def __call__(self, octets: bytes) -> bytes:
        """Return the octets as they arrive at the other end of the line."""
        return b"".join(
            self._damaged(each) if self._random.random() < self._chance else bytes((each,)) for each in octets
        ) if self._chance else octets

    def _damaged(self, octet: int) -> bytes:
        return self._random.choice((bytes((octet ^ 1 << self._random.randrange(8),)), b"", bytes((octet, octet))))


class Cable(Peripheral):
    """The UART at the other end of a board's cable."""

    def __init__(self, clock: Clock, noise: Noise):
        super().__init__(clock)
        self._noise = noise
        self._to_board = RingStart(clock, "to_board", beats=_WORD)
        self._from_board = RingEnd(clock, "from_board", beats=_WORD)

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """See Peripheral."""
        self._to_board.add(array("I", list(self._noise(octets))).tobytes())

    async def serve(self) -> bytes:
        """See Peripheral."""
        assert not self.clock.status["from_board_lost"], "the ring was too short"
        self._to_board.move()
        (words,) = self._from_board.take()
        return self._noise(words[::_WORD])
