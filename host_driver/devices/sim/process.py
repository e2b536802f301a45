"""The process that simulates a device: its start, its end, and the error if it ends too early."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.build import BuildError, Simulation, environment
from open_rnic.host_driver.devices.sim.prepare import exit_reason
from open_rnic.host_driver.devices.sim.wire import ENDS, NOISE, TOP

START = 600  # seconds within which a simulation must start, even on a busy machine; a crash is noticed at once
_END = 5  # seconds within which it must end by itself


class SimulationProcess:
    """A simulation that runs the server, which ends when the program closes its first end.

    The process has a folder of its own, with its output in the file ``log``. Raises DeviceError if it cannot start.

    Parameters
    ----------
    simulation : the simulation of ``top``
    top : the arguments of ``prepare``
    descriptors : file descriptors that the process inherits: sockets, or a pseudo-terminal
    noise : that of the pseudo-terminal: see ``wire``
    trace : the FST file to write, for a simulation that was built with waves

    """

    def __init__(
        self,
        simulation: Simulation,
        top: Sequence[str],
        descriptors: Sequence[int],
        *,
        noise: str = "0 0",
        trace: Path | None = None,
    ) -> None:
        try:
            variables = environment(f"{__package__}.server")
        except BuildError as problem:
            raise DeviceError(f"the simulation cannot be started: {problem}") from None
        self._failed = False
        self._folder = Path(tempfile.mkdtemp(prefix="rnic-simulation-"))
        self._log = self._folder / "log"
        variables |= {
            "COCOTB_LOG_LEVEL": "WARNING", "GPI_LOG_LEVEL": "WARNING",
            "COCOTB_REWRITE_ASSERTION_FILES": "",  # which takes a fifth of the start, and tests nothing here
            "COCOTB_RESULTS_FILE": str(self._folder / "results.xml"),
            TOP: " ".join(top), ENDS: " ".join(map(str, descriptors)), NOISE: noise,
        }  # fmt: skip
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                simulation.command(trace), cwd=self._folder, env=variables, pass_fds=tuple(descriptors),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @classmethod
    def joined(
        cls, simulation: Simulation, top: Sequence[str], count: int = 1, trace: Path | None = None
    ) -> tuple[SimulationProcess, list[socket.socket]]:
        """Return a process, and this program's ends of so many sockets to it.

        Only the process has the other ends open, and only this program these, so each notices when the other ends.
        """
        pairs = [socket.socketpair() for _ in range(count)]
        try:
            process = cls(simulation, top, [theirs.fileno() for _, theirs in pairs], trace=trace)
        finally:
            for _, theirs in pairs:
                theirs.close()
        return process, [ours for ours, _ in pairs]

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
