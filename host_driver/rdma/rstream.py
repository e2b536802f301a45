"""The protocols of librdmacm's rstream and riostream, which measure rsockets.

After an exchange of 16 octets, the client transfers ``count`` times ``size`` octets, then the server as many, for a
number of iterations. rstream sends them as a stream. riostream writes them to the peer's mapped memory. Their last
octet marks the arrival of all: it is 0 for the first turn, and one more for each of the others.

To verify the data, rstream expects octets that count modulo 256 in the whole stream; riostream expects that in the last
transfer of each turn, apart from its last octet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from open_rnic.host_driver.rdma.rsocket import Rsocket

PORT = 7471
BUFFER = 1 << 19  # octets: rstream and riostream use larger buffers than other rsockets
MAX_SIZE = 1 << 30  # octets of a transfer
_SYNC = 16  # octets
_COUNTING = bytes(range(256))
_NOTHING = 0xFF  # the last octet of the memory before the first turn


class RstreamError(Exception):
    """The peer sent wrong data, or ended too early."""


@dataclass(frozen=True)
class Settings:
    """The parameters of a test; both ends need the same."""

    size: int = 1000  # octets of a transfer
    count: int = 1000  # transfers in a turn
    iterations: int = 1
    verify: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "count", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.size > MAX_SIZE:
            raise ValueError(f"size must be at most {MAX_SIZE}, not {self.size}")


class Results(NamedTuple):
    """The octets in both directions, and their time."""

    settings: Settings
    seconds: float

    @property
    def octets(self) -> int:
        """The octets in both directions."""
        return 2 * self.settings.size * self.settings.count * self.settings.iterations

    def __str__(self) -> str:
        transfers = 2 * self.settings.count * self.settings.iterations
        rate, each = self.octets / self.seconds / 1e6, 1e6 * self.seconds / transfers
        return f"{self.octets} octets in {self.seconds:.2f} s, {rate:.2f} MB/s, {each:.2f} µs per transfer"


class _Counting:
    """Octets that count modulo 256."""

    def __init__(self) -> None:
        self._at = 0

    def next(self, octets: int) -> bytes:
        first, self._at = self._at, (self._at + octets) % 256
        return (_COUNTING * ((first + octets) // 256 + 1))[first : first + octets]


async def stream(rsocket: Rsocket, settings: Settings, *, leads: bool) -> Results:
    """Run rstream's test; ``leads`` is whether this end is the client. Raises RstreamError and errors of rsockets."""
    ours, theirs = _Counting(), _Counting()

    async def turn(sends: bool, size: int, count: int) -> None:
        for _ in range(count):
            if sends:
                await rsocket.send(ours.next(size))
            elif await rsocket.recv_exactly(size) != theirs.next(size) and settings.verify:
                raise RstreamError(f"wrong data in a transfer of {size} octets")

    for sends in (leads, not leads):
        await turn(sends, _SYNC, 1)
    began = time.perf_counter()
    for _ in range(settings.iterations):
        for sends in (leads, not leads):
            await turn(sends, settings.size, settings.count)
    return Results(settings, time.perf_counter() - began)


async def mapped(rsocket: Rsocket, settings: Settings, *, leads: bool) -> Results:
    """Run riostream's test; ``leads`` is whether this end is the client. Raises RstreamError and errors of rsockets.

    The rsocket has room for a map of the peer.
    """
    size, last = settings.size, settings.size - 1
    memory, source = bytearray(size), bytearray(size)
    memory[last] = source[last] = _NOTHING
    ours, theirs = _Counting(), _Counting()

    async def write(number: int) -> None:
        for _ in range(settings.count - 1):
            await rsocket.write_at(source, 0)
        source[:last] = ours.next(last)
        source[last] = number & 0xFF
        await rsocket.write_at(source, 0)

    async def wait(number: int) -> None:
        await rsocket.connection.until(lambda: memory[last] == number & 0xFF)
        if memory[:last] != theirs.next(last) and settings.verify:
            raise RstreamError(f"wrong data in a transfer of {size} octets")

    number = await rsocket.map(memory, 0)
    for sends in (leads, not leads):
        await (rsocket.send(bytes(_SYNC)) if sends else rsocket.recv_exactly(_SYNC))
    began = time.perf_counter()
    for turn in range(2 * settings.iterations):
        await (write(turn) if leads == (turn % 2 == 0) else wait(turn))
    seconds = time.perf_counter() - began
    rsocket.unmap(number)
    return Results(settings, seconds)
