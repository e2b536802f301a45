"""The part that runs inside the simulation of an engine of RDMA or TCP: offers work without gaps, and counts cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import cocotb

from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.host_driver.devices.sim.signals import start_clock
from open_rnic.host_driver.tools.bench.rig import PORT, Rig, Sink, Source
from open_rnic.host_driver.tools.bench.simulation import report, task
from open_rnic.rtl.rdma.registers import BY_NAME
from open_rnic.rtl.tcp.words import State

QUIET = 2500  # cycles without any transfer after which the engine is idle: more than a segment takes in TCP
_OPENING = 200_000  # cycles within which a connection is established


class Frames(Source):
    """Offers frames, each behind the one before, but at most ``flight`` octets more than have been received."""

    def __init__(self, dut: Any, frames: Sequence[tuple[int, Sequence[int]]], flight: int, received: Sink):
        self._frames = deque(frames)
        self._flight = flight
        self._sink = received
        self._offered = 0  # octets
        super().__init__(dut, "frames")

    def _next(self) -> int | None:
        if (word := super()._next()) is None and self._frames:
            octets, words = self._frames[0]
            if self._offered + octets - self._sink.octets <= self._flight:
                self._frames.popleft()
                self._offered += octets
                self._words = iter(words)
                word = super()._next()
        return word

    def step(self, cycle: int) -> bool:
        """See Source."""
        moves = super().step(cycle)
        if not self.offers and self._frames:
            self._offer()
        return moves


class Memory:
    """Memory behind a port: a word comes in the cycle behind its address. ``began``: of the first read."""

    def __init__(self, dut: Any, lanes: int, fields: dict[str, tuple[int, int]], octets: bytes, room: int):
        self.octets = bytearray(octets.ljust(room, b"\0"))
        self.began: int | None = None
        self.ended = 0  # cycle of the last write
        self._width = 4 * lanes
        self._fields = fields
        self._write = Sink(dut, "memory__write")
        self._read = Sink(dut, "memory__read")
        self._payload, self._valid, self._ready = (getattr(dut, f"memory__words__{each}") for each in PORT)
        self._valid.value = 0
        self._words: deque[int] = deque()
        self._given = False

    def _get(self, word: int, name: str) -> int:
        lsb, width = self._fields[name]
        return word >> lsb & ((1 << width) - 1)

    def step(self, cycle: int) -> bool:
        """Write, and answer reads."""
        width, moves = self._width, False
        if self._write.step(cycle):
            word = self._write.words.pop()
            at, data = self._get(word, "address") * width, self._get(word, "data").to_bytes(width, "little")
            mask = self._get(word, "mask")
            for n in range(width):
                if mask >> n & 1:
                    self.octets[at + n] = data[n]
            self.ended, moves = cycle, True
        if self._given and self._ready.value:
            self._given, moves = False, True
        if self._read.step(cycle):
            at = self._read.words.pop() * width
            self._words.append(int.from_bytes(self.octets[at : at + width], "little"))
            self.began = cycle if self.began is None else self.began
            moves = True
        if not self._given and self._words:
            self._payload.value = self._words.popleft()
            self._given = True
        self._valid.value = self._given
        return moves


async def access(dut: Any, name: str, value: int | None = None) -> int:
    """Access a register of the RDMA engine."""
    return await access_register(dut, BY_NAME[f"RDMA_{name}"].address >> 2, value)


async def place(dut: Any, rig: Rig, case: dict[str, Any]) -> dict[str, Any]:
    """Send messages from memory as ULPDUs, or place ULPDUs in memory."""
    for name in ("bus__request", "rx_ulpdu__valid"):
        getattr(dut, name).value = 0
    memory = Memory(dut, case["lanes"], case["memory"], bytes.fromhex(case["octets"]), case["room"])
    received = Source(dut, "rx_ulpdu")
    sent = Sink(dut, "tx_ulpdu")
    while not BY_NAME["RDMA_STATUS"]["ready"].get(await access(dut, "STATUS")):
        pass
    for name, value in case["registers"]:
        await access(dut, name, value)
    if case["words"]:
        received = Source(dut, "rx_ulpdu", case["words"])
    rig.parts = memory, received, sent
    await rig.settle(received)
    begun = received.began if case["words"] else memory.began
    ended = memory.ended if case["words"] else sent.ended
    return {
        "words": sent.words,
        "octets": memory.octets.hex(),
        "cycles": 0 if begun is None or not ended else ended - begun + 1,
    }


async def carry(dut: Any, rig: Rig, case: dict[str, Any]) -> dict[str, Any]:
    """Send packets over a connection of TCP, or receive frames of it."""
    for name in ("tick", "replays", "to_send__valid", "frames__valid", "a_command__valid", "b_command__valid"):
        getattr(dut, name).value = 0
    rig.parts = [Source(dut, f"{side}_command", [case["commands"][side]]) for side in "ba"]
    for cycle in range(_OPENING):
        if all(getattr(dut, f"{side}_status").value == State.ESTABLISHED for side in "ab"):
            break
        dut.tick.value = cycle % 32 == 0  # the SYN is sent again when ARP has found the peer
        await rig.step()
    else:
        raise RuntimeError("the connection is not established")
    dut.tick.value = 0
    await rig.settle()
    dut.replays.value = bool(case["frames"])
    sent, received = Sink(dut, "sent"), Sink(dut, "received")
    given = Source(dut, "to_send", case["words"])
    if case["frames"]:
        given = Frames(dut, case["frames"], case["flight"], received)
    rig.parts = given, sent, received
    await rig.settle(given)
    assert given.began is not None
    ended = received.ended if case["frames"] else sent.ended
    return {"words": received.words, "cycles": ended - given.began + 1}


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """Run all cases of the task."""
    start_clock(dut.clk, 2)
    asked = task()
    run = place if asked["part"] == "placement" else carry
    results = []
    for case in asked["cases"]:
        rig = Rig(dut, QUIET)
        await rig.reset(4)
        results.append(await run(dut, rig, case))
    report(results)

