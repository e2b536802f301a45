"""The server of a data path with an RDMA engine, whose memory is in the program.

The engine's writes go to the program in the order in which the engine makes them, and before the values of registers
that show them. Its reads are answered from the last block that the program has sent. A block is forgotten when
anything arrives that may be the reason for another content of memory, so that no read is answered with old octets.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import cocotb

from open_rnic.host_driver.devices.sim.dut import Memory, start
from open_rnic.host_driver.devices.sim.layout import (
    COUNT,
    DEPTH,
    NUMBER_WORD,
    PLACE_WORD,
    RDMA_CONTROL,
    RDMA_STATUS,
)
from open_rnic.host_driver.devices.sim.server import Link, Server
from open_rnic.host_driver.devices.sim.wire import PLACE, SOCKET, WIDTH, WORD, Kind, frame
from open_rnic.rtl.rdma import sample_registers, signal_registers

BLOCK = 1 << 14  # octets that are read at once
_ENGINE = 2  # the bit of the engine's interrupt
_SIGNAL = signal_registers.BY_NAME["SIGNAL_STATUS"]
_SAMPLES = sample_registers.BY_NAME["SAMPLE_STATUS"]
_BELL_TICKS = sample_registers.BY_NAME["SAMPLE_BELL_TICKS"]


class Engine:
    """An RDMA engine: its interrupt, the rings of its memory port, and the program's memory behind them.

    ``suffix`` follows the names of the rings. ``block`` octets are read at once.
    """

    def __init__(self, lanes: int, control: dict[str, int], suffix: str = "", block: int = BLOCK):
        top = cocotb.top._name
        self._beat = 4 * lanes
        self._control = control
        self._suffix = suffix
        self._most = block
        self._writes = Memory(f"{top}.writes{suffix}.shared_words", self._beat)
        self._places = Memory(f"{top}.writes{suffix}.shared_places", PLACE_WORD.size)
        self._reads = Memory(f"{top}.reads{suffix}.shared_numbers", NUMBER_WORD.size)
        self._words = Memory(f"{top}.words{suffix}.shared_words", self._beat)
        self._wanted: deque[int] = deque()  # addresses
        self._found = bytearray()  # words for which there is no room in their ring yet
        self._asked = False  # a BLOCK is due
        self._interrupt_due = False
        self.forget()

    def forget(self) -> None:
        """Forget the block: memory may have changed."""
        self._block = b""
        self._at = 0  # the address of the block's first octet

    def take(self, kind: int, octets: bytes) -> bool:
        """Take a frame of the program; returns False if it is for the data path, too."""
        match kind:
            case Kind.BLOCK:
                self._block, self._at, self._asked = octets, self._wanted[0], False
                self._find()
            case Kind.INTERRUPT:
                self._interrupt_due = True
            case _:
                if kind in (Kind.MPA, Kind.PUSH):
                    self.forget()
                return False
        return True

    def _find(self) -> None:
        """Answer reads from the block."""
        while self._wanted and 0 <= (at := self._wanted[0] - self._at) < len(self._block):
            self._found += self._block[at : at + self._beat]
            self._wanted.popleft()

    def move(self, status: dict[str, int], irq: int) -> bytes:
        """Move all words that are ready; return octets to send."""
        suffix = self._suffix
        out = self._write(status[f"writes{suffix}_written"])
        out += self._read(status[f"reads{suffix}_written"], status[f"words{suffix}_taken"])
        if self._interrupt_due and irq:
            self._interrupt_due = False
            out += frame(Kind.INTERRUPT)
        return out

    def _write(self, written: int) -> bytes:
        name = f"writes{self._suffix}_freed"
        freed = self._control[name]
        count = (written - freed) % COUNT
        if not count:
            return b""
        words = self._writes.read(freed, count)
        places = self._places.read(freed, count)
        self._control[name] = written
        out = []
        address, run = 0, bytearray()  # octets that lie behind one another
        for n, (word, mask) in enumerate(PLACE_WORD.iter_unpack(places)):
            while mask:
                start = (mask & -mask).bit_length() - 1
                octets = (~(mask >> start) & -~(mask >> start)).bit_length() - 1
                mask &= ~(((1 << octets) - 1) << start)
                at = word * self._beat + start
                if run and at != address + len(run):
                    out.append(self._written(address, run))
                    run = bytearray()
                if not run:
                    address = at
                run += words[n * self._beat + start : n * self._beat + start + octets]
        if run:
            out.append(self._written(address, run))
        return b"".join(out)

    def _written(self, address: int, octets: bytearray) -> bytes:
        if address < self._at + len(self._block) and self._at < address + len(octets):
            self.forget()
        return frame(Kind.WRITE, 0, WORD.pack(address) + octets)

    def _read(self, written: int, taken: int) -> bytes:
        name, words = f"reads{self._suffix}_freed", f"words{self._suffix}_posted"
        freed = self._control[name]
        if count := (written - freed) % COUNT:
            numbers = NUMBER_WORD.iter_unpack(self._reads.read(freed, count))
            self._wanted.extend(number * self._beat for (number,) in numbers)
            self._control[name] = written
        self._find()
        posted = self._control[words]
        count = min(DEPTH - (posted - taken) % COUNT, len(self._found) // self._beat)
        if count:
            self._words.write(posted, bytes(self._found[: count * self._beat]))
            del self._found[: count * self._beat]
            self._control[words] = (posted + count) % COUNT
        if self._asked or not self._wanted:
            return b""
        self._asked = True
        return frame(Kind.READ, 0, PLACE.pack(self._wanted[0], self._most))


class RdmaServer(Server):
    """The device at the other end of a link, with its RDMA engine."""

    receive = (*Server.receive, "writes_written")
    transmit = (*Server.transmit, "reads_written", "words_taken")

    def __init__(self, dut: Any, link: Link, lanes: int):
        super().__init__(dut, link, lanes, RDMA_CONTROL, RDMA_STATUS)
        self._engine = Engine(lanes, self._clock.control)

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """See Server."""
        if not self._engine.take(kind, octets):
            super().take(kind, note, octets)

    def move(self) -> bytes:
        """See Server."""
        return self._engine.move(self._clock.status, self._clock.status["irq"] & _ENGINE)

    async def awake(self) -> bool:
        """See Server: a sample is due, or a tick that makes the sample writer send what waits."""
        state = await self._clock.access(_SIGNAL.address // 4)
        if _SIGNAL["runs"].get(state) and not _SIGNAL["stalls"].get(state):
            return True
        state = await self._clock.access(_SAMPLES.address // 4)
        waits = _SAMPLES["pending"].get(state) and not _SAMPLES["blocked"].get(state)
        return bool(waits and await self._clock.access(_BELL_TICKS.address // 4))


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """Serve until the program ends. For cocotb, this is the only test in the simulation."""
    await start(dut)
    link = Link(int(os.environ[SOCKET]))
    await RdmaServer(dut, link, int(os.environ[WIDTH])).run()
    link.close()
