"""Runs simulations from pytest: the side outside."""

import functools
import importlib
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cocotb.regression import TestGenerator

from open_rnic.cocotb_tests.harness import simulation_forks
from open_rnic.cocotb_tests.plugins.lengths import beside
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.host_driver.builds import ledger
from open_rnic.host_driver.builds.folders import built
from open_rnic.host_driver.devices.sim.build import build, environment
from open_rnic.host_driver.devices.sim.look import look
from open_rnic.rtl.lib.lanes import LANES

__all__ = ["Part", "at_width", "benches_of", "chosen", "problems_of", "simulate"]


@dataclass(frozen=True)
class Part:
    """A block in a simulation that has others beside it, which is faster to build than one simulation for each.

    ``make(key)`` makes the block for each of ``keys``, such as numbers of lanes; the part is that of ``key``. A bench
    sees the ports of the part alone, under their own names, with ``clk`` and ``rst``.
    """

    make: Callable[[Any], Any]
    key: Any
    keys: tuple[Any, ...]

    @property
    def name(self) -> str:
        """What the names of the ports begin with."""
        return f"part_{self.keys.index(self.key)}"

    @property
    def alone(self) -> functools.partial[Any]:
        """The maker of the block without the others."""
        return functools.partial(self.make, self.key)

    @property
    def together(self) -> functools.partial[Any]:
        """The maker of all blocks."""
        return functools.partial(_beside, self.make, self.keys)


def _beside(make: Callable[[Any], Any], keys: tuple[Any, ...]) -> Any:
    from open_rnic.cocotb_tests.rtl.together import Together  # not in simulations, which need no Amaranth

    return Together(**{Part(make, key, keys).name: make(key) for key in keys})


def at_width(make: Callable[[int], Any], lanes: int, among: Sequence[int] = LANES) -> Part:
    """Return the block ``make(lanes)`` beside those of the other widths ``among`` that the same run has."""
    return Part(make, lanes, beside(lanes, among))


def simulate(
    component: Any,
    *benches: Any,
    parameters: dict[str, Any] | None = None,
    seed: int | None = None,
    waves: bool = False,
    collects: bool = False,
    seconds: float | None = HANG,
) -> None:
    """Run benches of one module on an Amaranth component; raise AssertionError unless all of them run and pass.

    ``component`` may also be a ``functools.partial`` that makes the component; it is called only if there is no build
    of the component yet; or it is a :class:`Part`. ``__name__`` instead of benches means all of that module. Inside
    the simulation, :func:`parameter` returns the ``parameters``. ``seed``, or else the environment variable
    COCOTB_RANDOM_SEED, repeats a run; every failure reports its seed. After a failure the working folder is kept, with
    the log and, if ``waves`` is set, an FST file. ``collects`` enables functional coverage of an ``MpaDatapath``
    (:mod:`.coverage`), which increases the run time by half. ``seconds`` limits the wall time, to end a simulation in
    which time does not advance; :func:`bench` limits the number of cycles.
    """
    __tracebackhide__ = True
    test_module, names = chosen(benches)
    part = f"{component.name}__" if isinstance(component, Part) else ""
    component = component.together if isinstance(component, Part) else component
    simulation = build(component, waves=waves)
    streams = look(component, _streams) if isinstance(component, functools.partial) else _streams(component)
    streams = {name.removeprefix(part): each for name, each in streams.items() if name.startswith(part)}
    # One folder per test, so that old results of failed tests do not accumulate.
    test = os.environ.get("PYTEST_CURRENT_TEST", test_module).rpartition("/")[2].removesuffix(" (call)")
    if "PYTEST_CURRENT_TEST" not in os.environ:
        test += f"-{os.getpid()}"  # programs outside pytest may run several at once
    folder = built("tests") / re.sub(r"[^\w.-]+", "-", test)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if seed is None:
        seed = int(os.environ.get("COCOTB_RANDOM_SEED") or random.SystemRandom().getrandbits(32))
    variables = environment(test_module) | {
        "COCOTB_RESULTS_FILE": str(folder / "results.xml"),
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_TEST_FILTER": rf"^{re.escape(test_module)}\.({'|'.join(map(re.escape, names))})(/|$)",
        "COCOTB_TESTCASE": "",
        "PYTHONWARNINGS": "error",
        "BENCH": json.dumps({
            "parameters": parameters or {}, "streams": streams, "collects": collects, "part": part
        }),
    }
    began = ledger.started()
    code = simulation_forks.run(simulation, variables, folder, folder / "waves.fst" if waves else None, seconds)
    ledger.note("simulation", simulation.folder.name, model=ledger.started() - began)
    problems = problems_of(folder / "results.xml", names)
    if code is None:
        problems.append(f"not finished after {seconds} s")
    elif code:
        problems.append(f"exit code {code}")
    if problems:
        tail = (folder / "log").read_text(errors="replace")[-6000:]
        raise AssertionError("\n".join([tail, *problems, f"seed {seed}, log in {folder}"]))
    if not waves:
        shutil.rmtree(folder)


def benches_of(module: Any) -> list[Any]:
    """Return the benches that a module defines."""
    found = (each for each in vars(module).values() if isinstance(each, TestGenerator))
    return [each for each in found if each.module == module.__name__]


def chosen(benches: tuple[Any, ...]) -> tuple[str, list[str]]:
    """Return the module, as the simulation imports it, and the names of the ``benches`` of :func:`simulate`."""
    if len(benches) == 1 and isinstance(benches[0], str):
        benches = tuple(benches_of(importlib.import_module(benches[0])))
    modules = {each.module for each in benches}
    if len(modules) != 1:
        raise ValueError(f"benches of one module are needed, not of {sorted(modules) or 'none'}")
    (module,) = modules
    if module == "__main__":
        module = sys.modules[module].__spec__.name  # type: ignore[union-attr]
    return module, [each.name for each in benches]


def _streams(component: Any) -> dict[str, dict[str, tuple[int, int]]]:
    """Return the fields of each packet stream among the ports: their least significant bits and widths."""
    return {
        "__".join(map(str, path[:-1])): {key: (field.offset, field.width) for key, field in member.shape}
        for path, member, _ in component.signature.flatten(component)
        if path[-1] == "payload" and hasattr(member.shape, "members")
    }


def problems_of(results: Path, benches: Iterable[str] = ()) -> list[str]:
    """Return a line for each bench that failed, and for each of ``benches`` that did not run."""
    if not results.is_file():
        return ["the simulation left no results"]
    cases = list(ElementTree.parse(results).iter("testcase"))
    failures = [
        f"{case.get('name')}: {each.get('message') or each.get('error_msg') or each.tag}"
        for case in cases
        for each in case
        if each.tag in ("failure", "error")
    ]
    # A bench with parameters has a case for each of their values: "name/parameter=value".
    ran = {str(case.get("name")).partition("/")[0] for case in cases if case.find("skipped") is None}
    return failures + [f"the bench {each} did not run" for each in benches if each not in ran]
