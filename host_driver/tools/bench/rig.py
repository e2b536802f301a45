"""A rig, inside a simulation, that counts cycles: payloads without gaps on the streams of a component."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from cocotb.triggers import ClockCycles, RisingEdge

PORT = "payload", "valid", "ready"


class Part(Protocol):
    """A driver of ports, which sees in each cycle whether something moves."""

    def step(self, cycle: int) -> bool:
        """Return whether something has moved in this cycle."""
        ...


class Rig:
    """The clock of a component, and the drivers of its ports. ``cycle`` is the number of cycles since the start."""

    def __init__(self, dut: Any, quiet: int):
        self._dut, self._edge, self._quiet = dut, RisingEdge(dut.clk), quiet
        self.parts: Sequence[Part] = ()
        self.cycle = 0

    async def reset(self, cycles: int) -> None:
        """Assert the reset for this number of cycles."""
        self._dut.rst.value = 1
        await ClockCycles(self._dut.clk, cycles)
        self._dut.rst.value = 0

    async def step(self) -> bool:
        """Advance by one cycle, and return whether something has moved."""
        await self._edge
        self.cycle += 1
        return sum(part.step(self.cycle) for part in self.parts) > 0  # each part takes the step

    async def settle(self, *inputs: Source) -> None:
        """Wait until nothing has moved for ``quiet`` cycles; raises RuntimeError if one of the inputs is stalled."""
        moved = self.cycle
        while self.cycle < moved + self._quiet:
            if await self.step():
                moved = self.cycle
        if any(each.offers for each in inputs):
            raise RuntimeError(f"an input beat was stalled for {self._quiet} cycles")


class Source:
    """Offers payloads on a stream. ``began`` is the cycle in which the first one was transferred."""

    def __init__(self, dut: Any, name: str, words: Iterable[int] = ()):
        self._payload, self._valid, self._ready = (getattr(dut, f"{name}__{each}") for each in PORT)
        self._words = iter(words)
        self.began: int | None = None
        self._offer()

    def _next(self) -> int | None:
        return next(self._words, None)

    def _offer(self) -> None:
        word = self._next()
        self.offers = word is not None
        self._valid.value = self.offers
        if word is not None:
            self._payload.value = word

    def step(self, cycle: int) -> bool:
        """See whether a payload has been transferred."""
        moves = self.offers and bool(self._ready.value)
        if moves:
            self.began = cycle if self.began is None else self.began
            self._offer()
        return moves


class Sink:
    """Takes payloads of a stream. ``ended`` is the cycle of the last one."""

    def __init__(self, dut: Any, name: str):
        self._payload, self._valid, ready = (getattr(dut, f"{name}__{each}") for each in PORT)
        ready.value = 1
        self.words: list[int] = []
        self.octets = 0  # at least as many have come, and at most a lane for each beat more
        self.ended = 0

    def step(self, cycle: int) -> bool:
        """See whether a payload has been transferred."""
        if not self._valid.value:
            return False
        self.words.append(self._payload.value.to_unsigned())
        self.octets = 4 * len(self.words)
        self.ended = cycle
        return True
