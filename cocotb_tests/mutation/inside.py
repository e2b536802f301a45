"""Inside a simulation with mutants: run all tests of the process on each mutant, in a fork for each.

cocotb imports this module instead of the tests, which are imported here. :func:`.harness.bench` is wrapped: the first
test of the process first forks without a mutant, to measure how long each test takes, and then for each mutant. A fork
ends at the first test that fails, or when a test has taken four times as many cycles as without a mutant. The parent
runs no test itself; it records which forks failed.
"""

import atexit
import functools
import importlib
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import cocotb
from cocotb.regression import Test, TestGenerator
from cocotb.triggers import RisingEdge, with_timeout
from cocotb.utils import get_sim_time

from open_rnic.cocotb_tests import harness
from open_rnic.cocotb_tests.harness.simulation import problems_of
from open_rnic.cocotb_tests.mutation.task import KILLED, Task

_MODULE = Task.read().module  # raises where there is no task: in the process that forks simulations
SECONDS = 600  # limit of processor time, for a fork in which time does not advance
_bench = harness.bench
_number: int | None = None  # the mutant of this fork; None before the fork
_cycles: dict[str, float] = {}  # cycles that each test takes without a mutant


def _fork(number: int) -> int:
    numbers = random.getstate()
    process = os.fork()
    if not process:
        random.setstate(numbers)  # Python seeds the generator of a fork anew
        global _number
        _number = number
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        atexit.register(os._exit, 0)  # otherwise the simulator waits for threads of the parent
        os.environ["COCOTB_RESULTS_FILE"] = "results.xml" if number == 0 else f"results-{number}.xml"
        if number:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
    return process


def _failed(number: int, status: int) -> bool:
    """Whether the fork of this mutant has failed; a fork without an error must also have good test results."""
    results = Path(f"results-{number}.xml")
    failed = status != 0 or bool(problems_of(results))
    results.unlink(missing_ok=True)
    return failed


def _branch() -> None:
    """Fork for each mutant; returns once in each fork, and never in the parent."""
    task = Task.read()
    baseline = _fork(0)
    if not baseline:
        return
    if os.waitpid(baseline, 0)[1] or problems_of(Path("results.xml")):
        os._exit(2)
    _cycles.update(json.loads(Path("cycles.json").read_text()))
    waiting, running, killed, unsure = list(task.mutants), {}, [], []
    while waiting or running:
        while waiting and len(running) < task.jobs:
            number = waiting.pop(0)
            process = _fork(number)
            if not process:
                return
            running[process] = number
        process, status = os.wait()
        number = running.pop(process)
        if _failed(number, status):
            killed.append(number)
            if os.WIFSIGNALED(status):
                unsure.append(number)
    Path(task.outcome).write_text(json.dumps({"killed": sorted(killed), "unsure": unsure}))
    os._exit(0)


async def _reset(dut: Any) -> None:
    """Reset again as :func:`.harness.bench` does, now with the mutant, which may be one of a reset value."""
    dut.mutant.value = _number
    if hasattr(dut, "clk"):
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.rst.value = 0


def bench(cycles: int = 100_000, **options: Any) -> Any:
    """A replacement for :func:`.harness.bench`."""

    def mark(body: Any) -> Any:
        @functools.wraps(body)
        async def on_a_mutant(dut: Any, **arguments: Any) -> None:
            if _number is None:
                _branch()
            try:
                await _reset(dut)
                start, limit = get_sim_time("ns"), _cycles.get(body.__name__)
                task = cocotb.start_soon(body(dut, **arguments))
                await (with_timeout(task, limit, "ns") if limit else task)
            except BaseException:
                if _number:
                    os._exit(KILLED)
                raise
            if _number == 0:
                _cycles[body.__name__] = 4 * (get_sim_time("ns") - start) + 1000 * harness.PERIOD
                Path("cycles.json").write_text(json.dumps(_cycles))

        return _bench(cycles, **options)(on_a_mutant)

    return mark


harness.bench = bench
# cocotb collects the tests of this module, and rejects a module without tests.
_tests = vars(importlib.import_module(_MODULE))
globals().update({name: each for name, each in _tests.items() if isinstance(each, Test | TestGenerator)})
