"""A pytest plugin that runs the tests of RTL on mutants: each simulation on all live mutants in its design.

An option names the plan, a JSON file, which the plugin updates::

    {"mutants": {key: number}, "killed": {key: test}, "jobs": 2, "lanes": 4,
     "own": true, "owners": {file: test of the system}, "system": [test], "fresh": false,
     "tried": number of runs, "known": number of them from the cache}

A run is that of one test on one mutant. What comes of it is kept in the user's cache, whether the mutant is killed or
survives: it follows from the design with all chosen mutants, the mutant's number in it, the text of the test and of all
that it imports, its parameters, the seed, and the versions of all packages.
"""

import functools
import json
import os
import random
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl._ir import PortDirection

from open_rnic.cocotb_tests.mutation import sites
from open_rnic.cocotb_tests.mutation.task import Task
from open_rnic.host_driver.builds import sources
from open_rnic.host_driver.builds.cache import Cache, digest

VERDICTS = Cache("mutants")
SEED = 1  # of the tests, so that a campaign is reproducible


class Mutation:
    """Replaces the functions with which :mod:`.harness` builds and runs simulations."""

    def __init__(self, plan: Path):
        from open_rnic.cocotb_tests import harness
        from open_rnic.cocotb_tests.harness import simulation
        from open_rnic.host_driver.devices.sim import build

        self._path = plan
        self._plan: dict[str, Any] = json.loads(plan.read_text())
        self._harness, self._build = harness, build
        self._known: dict[str, tuple[str, str, set[str]]] = {}
        self._task: Task
        self._test_simulate, self._environment = simulation.simulate, simulation.environment
        sites.begin(self._plan["mutants"])
        harness.simulate = self.simulate
        simulation.build = self._built
        simulation.environment = lambda module: self._environment(f"{__package__}.inside") | self._task.variable()

    @property
    def lanes(self) -> int:
        """The width of the tests to run."""
        return self._plan["lanes"]

    def simulate(self, component: Any, *benches: Any, **options: Any) -> None:
        """Replaces :func:`.harness.simulate`, and runs the test on all live mutants."""
        __tracebackhide__ = True
        mutants, killed = self._plan["mutants"], self._plan["killed"]
        due = {key for key in mutants if key not in killed and self._due(key)}
        if not due:
            return
        component = component.alone if isinstance(component, self._harness.Part) else component
        lazy = isinstance(component, functools.partial)
        name = repr(component) if lazy else f"{type(component)} {id(component)}"
        if name not in self._known:
            sites.live.clear()
            made = component() if lazy else component
            source = self._build.to_rtlil(made, name=self._build.TOP, ports=_ports(made))
            self._known[name] = type(made).__name__, source, set(sites.live)
        self._design = self._known[name]
        alive = {mutants[key]: key for key in due & self._design[2]}
        if not alive:
            return
        test = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)")
        key = self._key(test, benches, options)
        known = {} if self._plan["fresh"] else recall(key)
        unknown = sorted(alive.keys() - known.keys())
        dead = {number for number in alive if known.get(number)}
        if unknown:
            outcome = self._run(component, benches, unknown, options)
            dead.update(outcome["killed"])
            remember(key, {each: each in dead for each in unknown if each not in outcome["unsure"]})
        for number in sorted(dead):
            killed[alive[number]] = test
        self._plan["tried"] += len(alive)
        self._plan["known"] += len(alive) - len(unknown)
        print(f"{test}: {len(dead)} of {len(alive)}, {len(alive) - len(unknown)} known")
        self.save()

    def _run(self, component: Any, benches: Any, mutants: list[int], options: dict[str, Any]) -> dict[str, Any]:
        """Run the test on these mutants, and return what became of them: see :class:`.Task`."""
        __tracebackhide__ = True
        with tempfile.TemporaryDirectory() as folder:
            outcome = Path(folder) / "outcome.json"
            self._task = Task(self._harness.chosen(benches)[0], mutants, self._plan["jobs"], str(outcome))
            random.seed(SEED)
            self._test_simulate(component, *benches, **{**options, "seed": SEED, "seconds": None})
            return json.loads(outcome.read_text())

    def _key(self, test: str, benches: Any, options: dict[str, Any]) -> str:
        """Return a hash of all that the verdicts of a test on a design follow from, but the numbers of the mutants."""
        name, source, _ = self._design
        design = self._build.key(name, source, waves=options.get("waves", False))
        module, names = self._harness.chosen(benches)
        text = sources.digest([module, f"{__package__}.inside"])
        return digest(design, test.rpartition("/")[2], names, sorted(options.items()), text, SEED, *_versions())

    def _due(self, key: str) -> bool:
        """Whether this test is to be tried on this mutant, see :meth:`.Campaign.test`."""
        test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0].rpartition("/")[2]
        owner = self._plan["owners"].get(key.split(" ")[0])
        return test not in self._plan["system"] or (owner == test) == self._plan["own"]

    def save(self) -> None:
        """Write the plan."""
        self._path.write_text(json.dumps(self._plan, indent=1))

    def _built(self, component: Any, waves: bool = False) -> Any:
        name, source, _ = self._design
        return self._build.build_rtlil(name, source, waves=waves)


@functools.cache
def _versions() -> list[str]:
    return [sys.version, *sorted(f"{each.name} {each.version}" for each in distributions())]


def recall(key: str) -> dict[int, bool]:
    """Return the numbers of all mutants whose verdicts are kept under this key, and whether each was killed."""
    known: dict[int, bool] = {}
    for text in VERDICTS.texts(f"{key}-"):
        known |= {int(number): killed for number, killed in json.loads(text).items()}
    return known


def remember(key: str, verdicts: dict[int, bool]) -> None:
    """Keep verdicts for :func:`recall`, unless modules have changed while this process ran."""
    if sources.settled():
        VERDICTS.keep(f"{key}-{digest(sorted(verdicts))}", json.dumps(verdicts))


def _ports(component: Any) -> dict[str, Any]:
    """Return the ports of the component, and the selector."""
    from open_rnic.rtl.lib.ports import named_ports

    return {"mutant": (sites.selector, PortDirection.Input), **named_ports(component)}


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--mutants", type=Path, required=True, help="JSON file with the plan")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Rewrite the RTL before a conftest imports it."""
    sites.install()


def pytest_configure(config: Any) -> None:
    config.mutation = Mutation(config.option.mutants)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Select the tests that simulate, at this width; tests without a width count as 1 lane."""
    lanes = config.mutation.lanes
    items[:] = [
        each
        for each in items
        if "simulate" in each.function.__code__.co_names
        and (each.callspec.params if hasattr(each, "callspec") else {}).get("lanes", 1) == lanes
    ]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: Any) -> None:
    config.mutation.save()
