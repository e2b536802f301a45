"""The benches of a simulation: the side inside, with its clock, its parameters and the ports that a bench sees."""

import functools
import inspect
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import cocotb
from cocotb.triggers import RisingEdge, SimTimeoutError, Timer, with_timeout

from open_rnic.cocotb_tests import coverage
from open_rnic.host_driver.devices.sim.signals import start_clock

__all__ = ["PERIOD", "Within", "bench", "cycles", "given", "parameter", "seen"]

PERIOD = 10  # ns


@functools.cache
def given() -> dict[str, Any]:
    """Return the parameters, streams and settings that :func:`.simulate` gives to the simulation."""
    return json.loads(os.environ["BENCH"])


def parameter(name: str) -> Any:
    """Return an entry of the ``parameters`` of :func:`simulate`."""
    return given()["parameters"][name]


class Within:
    """The ports whose names begin with ``prefix``, under the rest of their names; all others under their own."""

    def __init__(self, dut: Any, prefix: str):
        self._dut, self._prefix = dut, prefix

    def __getattr__(self, name: str) -> Any:
        inside = getattr(self._dut, self._prefix + name, None)
        found = getattr(self._dut, name) if inside is None else inside
        setattr(self, name, found)  # so that it is not looked up again
        return found

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def seen(dut: Any) -> Any:
    """Return the ports that a bench sees: those of its :class:`Part`, or all."""
    part = given()["part"]
    return Within(dut, part) if part else dut


def bench(cycles: int = 100_000, **options: Any) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Mark a coroutine function as a cocotb test that starts after reset, and fails if it takes more than ``cycles``.

    ``options`` are passed to ``cocotb.test``.
    """

    def mark(body: Callable[..., Awaitable[None]]) -> Any:
        async def run(dut: Any, **arguments: Any) -> None:
            dut = seen(dut)
            if hasattr(dut, "clk"):
                start_clock(dut.clk, PERIOD)
                dut.rst.value = 1
                await RisingEdge(dut.clk)
                await RisingEdge(dut.clk)
                dut.rst.value = 0
            finish = _collect(dut)
            try:
                await with_timeout(cocotb.start_soon(body(dut, **arguments)), cycles * PERIOD, "ns")
            except SimTimeoutError:
                raise AssertionError(f"not finished after {cycles} cycles") from None
            finish()

        functools.update_wrapper(run, body)
        run.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
        return cocotb.test(**options)(run)

    return mark


def _collect(dut: Any) -> Callable[[], None]:
    """Start to collect functional coverage if it is enabled; returns a function that ends the collection."""
    folder = coverage.folder()
    if folder is None or not given()["collects"]:
        return lambda: None
    from open_rnic.cocotb_tests.coverage.collector import Collector

    collector = Collector(dut)
    cocotb.start_soon(collector.run())

    def finish() -> None:
        collector.close()
        coverage.write(folder / f"{uuid4().hex}.json", coverage.numbers(collector.seen))

    return finish


async def cycles(dut: Any, count: int) -> None:
    """Wait for ``count`` rising clock edges, without looking at each; begins right after one of them."""
    if count > 0:
        await Timer(count * PERIOD - PERIOD // 2, "ns")
        await RisingEdge(dut.clk)
