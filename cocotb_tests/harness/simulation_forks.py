"""Runs simulations in forks of a process that has imported what they need.

It imports the module of a simulation, too, as the next one often has the same.
"""

import contextlib
import ctypes
import functools
import gc
import importlib
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from open_rnic.cocotb_tests.harness import forks
from open_rnic.host_driver.devices.sim.build import Simulation, environment

__all__ = ["run"]

_IMPORTED = ("pytest", "cocotb.regression", "amaranth.hdl", "amaranth.lib.wiring", "open_rnic.cocotb_tests.harness")


@functools.cache
def _forks() -> forks.Forks:
    # cocotb looks at some variables when it is imported.
    return forks.Forks(__name__, environment("") | {"PYTHONWARNINGS": "error"})


def run(
    simulation: Simulation, variables: Mapping[str, str], folder: Path, waves: Path | None, seconds: float | None
) -> int | None:
    """Run a simulation with these environment variables in a folder, with its output in :file:`log` there.

    Returns its exit code, which is negative for a signal, or None if it had to be killed after ``seconds``.
    """
    command = [str(simulation.library), *([str(waves)] if waves else [])]
    fork = forks.Fork(_forks(), {"command": command, "folder": str(folder), "variables": dict(variables)})
    code = fork.wait(seconds)
    if code is None:
        fork.kill()
    return code


def serve(descriptor: int) -> None:
    """Fork for each simulation."""
    for name in _IMPORTED:
        importlib.import_module(name)
    from cocotb.regression import RegressionManager

    RegressionManager.setup_pytest_assertion_rewriting()
    RegressionManager.setup_pytest_assertion_rewriting = lambda _: None  # forks have it already
    forks.serve(descriptor, _run, _prepare)


def _prepare(words: dict[str, Any]) -> None:
    with contextlib.suppress(BaseException):  # the simulation imports it again, and says what is wrong
        importlib.import_module(words["variables"]["COCOTB_TEST_MODULES"])
    gc.freeze()  # what is imported is no garbage of the forks


def _run(_: list[int], command: list[str], folder: str, variables: dict[str, str]) -> None:
    """Become a simulation."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    log = os.open("log", os.O_WRONLY | os.O_CREAT)
    for each in (1, 2):
        os.dup2(log, each)
    os.close(log)
    try:
        library = ctypes.PyDLL(command[0], mode=ctypes.RTLD_GLOBAL)
        library.become_simulation(len(command), (ctypes.c_char_p * len(command))(*map(os.fsencode, command)))
    except BaseException:
        traceback.print_exc()
    os._exit(1)
