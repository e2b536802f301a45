"""What runs inside the simulation of a segment: gives beats as fast as they are taken, and counts cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.host_driver.tools.bench.simulation import task, tell

QUIET = 40  # cycles in which nothing moves, so that nothing more will: more than any latency
_PORT = "payload", "valid", "ready"


class Bench:
    """A segment, between the port that it takes from and the one that it gives to, which is always willing.

    ``came`` are the beats given since ``offer``: cycle and payload. ``began`` is the cycle of the first one taken.
    """

    def __init__(self, dut: Any, takes: str, gives: str):
        self._edge = RisingEdge(dut.clk)
        self._payload, self._valid, self._ready = (getattr(dut, f"{takes}__i__{name}") for name in _PORT)
        self._out, self._out_valid, ready = (getattr(dut, f"{gives}__o__{name}") for name in _PORT)
        ready.value = 1
        self.cycle = 0
        self.offer([])

    def offer(self, words: Sequence[int]) -> None:
        """Give these from now on."""
        self._words = iter(words)
        self._next()
        self.began = self._moved = self.cycle
        self._begun = False
        self.came: list[tuple[int, int]] = []

    def _next(self) -> None:
        word = next(self._words, None)
        self.offers = word is not None
        self._valid.value = self.offers
        if word is not None:
            self._payload.value = word

    async def step(self) -> None:
        """A cycle."""
        await self._edge
        self.cycle += 1
        if self.offers and self._ready.value:
            if not self._begun:
                self._begun, self.began = True, self.cycle
            self._moved = self.cycle
            self._next()
        if self._out_valid.value:
            self.came.append((self.cycle, self._out.value.to_unsigned()))
            self._moved = self.cycle

    async def settle(self) -> None:
        """Until nothing moves any more."""
        self._moved = self.cycle
        while self.cycle < self._moved + QUIET:
            await self.step()


async def run(dut: Any, case: dict[str, Any]) -> dict[str, Any]:
    """A case, from reset on; see :mod:`.run`."""
    dut.rst.value = 1
    for name, value in case["inputs"].items():
        getattr(dut, name).value = value
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    bench = Bench(dut, case["takes"], case["gives"])
    await bench.step()  # in which blocks take over where the stream begins
    bench.offer(case["opening"])
    await bench.settle()
    opening = [word for _, word in bench.came]
    bench.offer(case["words"])
    if case["fence"]:
        await bench.settle()
        if bench.came:
            raise RuntimeError("a beat has passed a shut fence")
        for comes in (1, 0):
            dut.fence__rtr.value = comes
            await bench.step()
        while not dut.fence__open.value:
            await bench.step()
        bench.began = bench.cycle
    await bench.settle()
    if bench.offers:
        raise RuntimeError(f"a beat was not taken in {QUIET} cycles")
    return {
        "opening": opening,
        "words": [word for _, word in bench.came],
        "cycles": bench.came[-1][0] - bench.began + 1 if bench.came else 0,
    }


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """All cases of the task."""
    Clock(dut.clk, 2, "step").start()
    asked = task()
    for name in asked["inputs"]:
        getattr(dut, name).value = 0
    tell([await run(dut, case) for case in asked["cases"]])
