"""The process that simulates a device: its start, its end, and the error if it ends too early."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.build import BuildError, Simulation, environment
from open_rnic.host_driver.devices.sim.prepare import exit_reason

START = 600  # seconds within which a simulation must start, even on a busy machine; a crash is noticed at once
_END = 5  # seconds within which it must end by itself


class SimulationProcess:
    """A simulation that runs the cocotb test of module ``server``, which ends when the program closes its end.

    The process has a folder of its own, with its output in the file ``log``. Raises DeviceError if it cannot start.

    Parameters
    ----------
    descriptors : file descriptors that the process inherits
    variables : environment variables, besides those that all simulations need
    trace : the FST file to write, for a simulation that was built with waves

    """

    def __init__(
        self,
        simulation: Simulation,
        server: str,
        descriptors: Sequence[int],
        variables: dict[str, str],
        trace: Path | None = None,
    ) -> None:
        try:
            variables = environment(server) | variables
        except BuildError as problem:
            raise DeviceError(f"the simulation cannot be started: {problem}") from None
        self._failed = False
        self._folder = Path(tempfile.mkdtemp(prefix="rnic-simulation-"))
        self._log = self._folder / "log"
        levels = {"COCOTB_LOG_LEVEL": "WARNING", "GPI_LOG_LEVEL": "WARNING"}
        variables |= levels | {"COCOTB_RESULTS_FILE": str(self._folder / "results.xml")}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                simulation.command(trace), cwd=self._folder, env=variables, pass_fds=tuple(descriptors),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def _failure(self, what: str) -> DeviceError:
        self._failed = True  # keep its log
        return DeviceError(f"the simulation {what}: see {self._log}")

    def death(self) -> DeviceError:
        """Return the error for a process that ended too early. A process that still runs is killed."""
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        said = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if "$finish" not in line]
        return self._failure(f"ended ({exit_reason(code)})" + (f": {said[-1]}" if said else ""))

    def late(self) -> DeviceError:
        """Return the error for a process that has not started within START seconds."""
        return self._failure(f"did not start within {START} s")

    def kill(self) -> None:
        """Kill the process at once."""
        self._process.kill()
        self._process.wait()
        self._clear()

    async def end(self) -> None:
        """Wait until the process ends, and delete its folder unless it failed. Idempotent."""
        for _ in range(100 * _END):
            if self._process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        else:
            self._process.kill()
            self._process.wait()
        self._clear()

    def _clear(self) -> None:
        if not self._failed:
            shutil.rmtree(self._folder, ignore_errors=True)
