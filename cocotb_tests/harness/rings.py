"""A model of the rings of received octets, at any width: what a ``Watcher`` reads."""

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from open_rnic.cocotb_tests.harness.benches import given


class Rings:
    """Drives the ports ``PREFIX__...`` of :func:`.shown_octets`, with the timing of ``ReceiveRings``.

    A word of a ring, as wide as a beat, is read in every cycle. A packet that reaches into one word more than it has
    beats takes a cycle more. ``left`` counts the octets of each connection that have left.
    """

    def __init__(self, dut: Any, prefix: str, connections: int, size: int):
        self.size = size
        self.starts = [0] * connections
        self.octets = [bytearray() for _ in range(connections)]
        self.taken = [0] * connections
        self.left = [0] * connections
        self._dut, self._prefix = dut, prefix
        self._read, self._beat = (dict(given()["streams"][f"{prefix}__{name}"]) for name in ("reads", "o"))
        self.width = self._beat["data"][1] // 8
        self._changes = self._ended = 0
        self._begins: dict[int, int] = {}
        for name in ("available", "begins", "ended", "changes", "reads__ready", "o__valid"):
            self._port(name).value = 0
        cocotb.start_soon(self._run())

    def _port(self, name: str) -> Any:
        return getattr(self._dut, f"{self._prefix}__{name}")

    async def begin(self, n: int, start: int) -> None:
        """Connection ``n`` begins anew, with octet ``start``."""
        self._begins[n] = start
        while n in self._begins:
            await RisingEdge(self._dut.clk)

    def room(self, n: int) -> int:
        return self.size - len(self.octets[n]) + self.left[n]

    def deliver(self, n: int, octets: bytes) -> None:
        """Octets of connection ``n`` arrive, for which there must be room."""
        assert len(octets) <= self.room(n), "the ring is full"
        self.octets[n] += octets
        self._changes |= 1 << n

    def finish(self, n: int) -> None:
        """No octets follow."""
        self._ended |= 1 << n
        self._changes |= 1 << n

    async def _run(self) -> None:
        falls, rises = FallingEdge(self._dut.clk), RisingEdge(self._dut.clk)
        words: deque[tuple[int, int | None, bool, int]] = deque()  # to read: connection, beat, last, octets that leave
        stages: list[tuple[int, int | None, bool, int] | None] = [None, None, None]
        while True:
            await falls
            at = int(self._port("look_at").value)
            begins = self._begins.pop(at, None)
            self._port("begins").value = begins is not None
            self._port("available").value = len(self.octets[at]) - self.taken[at]
            advances = not (stages[2] and stages[2][1] is not None) or bool(self._port("o__ready").value)
            ready = advances and not words and begins is None
            self._port("reads__ready").value = ready
            asked = self._port("reads__payload").value.to_unsigned() if ready else 0
            await rises
            if ready and self._port("reads__valid").value:
                words.extend(self._words(at, {name: asked >> lsb & (1 << width) - 1
                                              for name, (lsb, width) in self._read.items()}))  # fmt: skip
            for n, start in [(at, begins)] if begins is not None else list(self._begins.items()):
                self._begins.pop(n, None)
                self.starts[n], self.taken[n], self.left[n] = start, 0, 0
                self.octets[n].clear()
                self._ended &= ~(1 << n)
            if advances:
                if stages[2]:
                    self.left[stages[2][0]] += stages[2][3]
                stages = [words.popleft() if words else None, *stages[:2]]
                shown = stages[2][1] if stages[2] else None
                self._port("o__valid").value = shown is not None
                if shown is not None:
                    self._port("o__payload").value = shown
            self._port("ended").value = self._ended
            self._port("changes").value, self._changes = self._changes, 0

    def _words(self, n, read):
        """The words that a read takes; the last one may have the rest of the last beat only."""
        begin, octets, width = self.taken[n] + read["offset"], read["octets"], self.width
        assert 1 <= octets <= len(self.octets[n]) - begin, f"{octets} octets behind {begin} are read"
        found = bytes(self.octets[n][begin : begin + octets])
        if not read["keeps"]:
            assert not read["offset"]
            self.taken[n] += octets
        beats = -(-octets // width)
        for k in range(-(-((self.starts[n] + begin) % width + octets) // width)):
            beat, last = None, k == beats - 1
            if k < beats:
                chunk = found[k * width : (k + 1) * width]
                data = int.from_bytes(chunk, "little")
                values = {"data": data, "octets": len(chunk), "last": last, "tag": read["tag"]}
                beat = sum(value << self._beat[name][0] for name, value in values.items())
            yield n, beat, last, octets if last and not read["keeps"] else 0
