"""Runs simulations in forks of a process that has imported what they need, which takes Python half a second.

It imports the module of a simulation, too, as the next one often has the same. That process calls :func:`serve`. For
each simulation, it reads a line of JSON, and prints two: the id of the fork, and then its exit code and its seconds of
processor time.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from open_rnic.host_driver.builds import ledger
from open_rnic.host_driver.devices.sim.build import Simulation, environment

__all__ = ["Forks", "forks"]

_IMPORTED = ("pytest", "cocotb.regression", "amaranth.hdl", "amaranth.lib.wiring", "open_rnic.cocotb_tests.harness")


class Forks:
    """Such a process; it ends with this one."""

    def __init__(self) -> None:
        # cocotb looks at some variables when it is imported.
        variables = environment("") | {"PYTHONWARNINGS": "error"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"], env=variables, bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        atexit.register(self.close)

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.close)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def run(
        self, simulation: Simulation, variables: Mapping[str, str], folder: Path, waves: Path | None,
        seconds: float | None,
    ) -> int | None:  # fmt: skip
        """Run a simulation with these environment variables in a folder, with its output in :file:`log` there.

        Returns its exit code, which is negative for a signal, or None if it had to be killed after ``seconds``.
        """
        assert self._process.stdin is not None
        command = [str(simulation.library), *([str(waves)] if waves else [])]
        line = json.dumps({"command": command, "folder": str(folder), "variables": dict(variables)})
        self._process.stdin.write(line.encode() + b"\n")
        (number,) = self._answer()
        ended = select.select([self._process.stdout], [], [], seconds)[0]
        if not ended:
            os.kill(int(number), signal.SIGKILL)
        code, spent = self._answer()
        ledger.add(float(spent))
        return int(code) if ended else None

    def _answer(self) -> list[bytes]:
        """Return the words of the next line that the process prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that starts simulations has ended with {self._process.wait()}")
        return line.split()


@functools.cache
def forks() -> Forks:
    """Return the process that the simulations of this one have in common."""
    return Forks()


def _simulate(command: list[str], folder: str, variables: dict[str, str]) -> None:
    """Become a simulation."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    for name, flags, descriptors in ((os.devnull, os.O_RDONLY, [0]), ("log", os.O_WRONLY | os.O_CREAT, [1, 2])):
        opened = os.open(name, flags)
        for each in descriptors:
            os.dup2(opened, each)
        os.close(opened)
    try:
        library = ctypes.PyDLL(command[0], mode=ctypes.RTLD_GLOBAL)
        library.become_simulation(len(command), (ctypes.c_char_p * len(command))(*map(os.fsencode, command)))
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def serve() -> None:
    """Fork for each line of standard input."""
    for name in _IMPORTED:
        importlib.import_module(name)
    from cocotb.regression import RegressionManager

    RegressionManager.setup_pytest_assertion_rewriting()
    RegressionManager.setup_pytest_assertion_rewriting = lambda _: None  # forks have it already
    for line in sys.stdin.buffer:
        given = json.loads(line)
        with contextlib.suppress(Exception):  # the simulation imports it again, and says what is wrong
            importlib.import_module(given["variables"]["COCOTB_TEST_MODULES"])
        gc.freeze()  # what is imported is no garbage of the forks
        number = os.fork()
        if not number:
            _simulate(**given)
        print(number, flush=True)
        _, status, used = os.wait4(number, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)
