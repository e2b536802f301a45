"""The process that simulates a device: how it starts and ends, and what is said when it ends too soon."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from pathlib import Path

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.build import BuildError, Simulation, environment
from open_rnic.host_driver.devices.sim.prepare import how

START = 600  # seconds that a simulation may take to start, however busy the machine; its end is noticed at once
_END = 5  # seconds that it may take to end by itself


class SimulationProcess:
    """A simulation that runs ``server``, a module whose test ends by itself when the program is done with it.

    The process has a folder of its own, in which its output is the file ``log``.

    Parameters
    ----------
    descriptor : a file that the process is to have open, too
    variables : the environment, beside what all simulations need
    trace : the FST file to write, of a simulation that was built with waves

    """

    def __init__(
        self,
        simulation: Simulation,
        server: str,
        descriptor: int,
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
                simulation.command(trace), cwd=self._folder, env=variables, pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def _failure(self, what: str) -> DeviceError:
        self._failed = True  # its log stays
        return DeviceError(f"the simulation {what}: see {self._log}")

    def death(self) -> DeviceError:
        """How and why it has ended while it was needed; or, if it just went silent, it ends now."""
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        said = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if "$finish" not in line]
        return self._failure(f"ended ({how(code)})" + (f": {said[-1]}" if said else ""))

    def late(self) -> DeviceError:
        """That it has not started within START seconds."""
        return self._failure(f"did not start within {START} s")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._clear()

    async def end(self) -> None:
        """Wait for its end, which the program has brought about. Its folder goes, unless it has failed. Idempotent."""
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
