"""The part that runs inside the simulation of a segment: offers beats without gaps, and counts cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.host_driver.devices.sim.signals import start_clock
from open_rnic.host_driver.tools.bench.simulation import report, task

QUIET = 40  # cycles without any transfer after which the segment is empty: more than the latency of any block
_PORT = "payload", "valid", "ready"


class Bench:
    """A segment, between the port where beats enter and the port where they leave, whose ``ready`` is always set.

    ``received`` holds the cycle and the payload of each output beat since ``offer``. ``began`` is the cycle in which
    the first input beat was transferred.
    """

    def __init__(self, dut: Any, first_block: str, last_block: str):
        self._edge = RisingEdge(dut.clk)
        self._payload, self._valid, self._ready = (getattr(dut, f"{first_block}__i__{name}") for name in _PORT)
        self._out, self._out_valid, ready = (getattr(dut, f"{last_block}__o__{name}") for name in _PORT)
        ready.value = 1
        self.cycle = 0
        self.offer([])

    def offer(self, words: Sequence[int]) -> None:
        """Offer these payloads from now on."""
        self._words = iter(words)
        self._next()
        self.began = self._moved = self.cycle
        self._begun = False
        self.received: list[tuple[int, int]] = []

    def _next(self) -> None:
        word = next(self._words, None)
        self.offers = word is not None
        self._valid.value = self.offers
        if word is not None:
            self._payload.value = word

    async def step(self) -> None:
        """Advance by one cycle."""
        await self._edge
        self.cycle += 1
        if self.offers and self._ready.value:
            if not self._begun:
                self._begun, self.began = True, self.cycle
            self._moved = self.cycle
            self._next()
        if self._out_valid.value:
            self.received.append((self.cycle, self._out.value.to_unsigned()))
            self._moved = self.cycle

    async def settle(self) -> None:
        """Wait until beats no longer move."""
        self._moved = self.cycle
        while self.cycle < self._moved + QUIET:
            await self.step()


async def run(dut: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Run a case, starting with a reset; see :mod:`.run`."""
    dut.rst.value = 1
    for name, value in case["inputs"].items():
        getattr(dut, name).value = value
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    bench = Bench(dut, case["first_block"], case["last_block"])
    await bench.step()  # the blocks take over the stream offset in this cycle
    bench.offer(case["opening"])
    await bench.settle()
    opening = [word for _, word in bench.received]
    bench.offer(case["words"])
    if case["fence"]:
        await bench.settle()
        if bench.received:
            raise RuntimeError("a beat has passed the closed fence")
        for comes in (1, 0):
            dut.fence__rtr.value = comes
            await bench.step()
        while not dut.fence__open.value:
            await bench.step()
        bench.began = bench.cycle
    await bench.settle()
    if bench.offers:
            raise RuntimeError(f"an input beat was stalled for {QUIET} cycles")
    return {
        "opening": opening,
        "words": [word for _, word in bench.received],
        "cycles": bench.received[-1][0] - bench.began + 1 if bench.received else 0,
    }


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """Run all cases of the task."""
    start_clock(dut.clk, 2)
    asked = task()
    for name in asked["inputs"]:
        getattr(dut, name).value = 0
    report([await run(dut, case) for case in asked["cases"]])
