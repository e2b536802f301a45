"""A board in simulation behind a pseudo-terminal, which the board device opens as it opens any serial port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path

from host_driver.device import DeviceError
from host_driver.serial.device import BITS, SerialDevice
from host_driver.sim.build import Simulation, environment

_CYCLES = 200_000  # that a second of simulation has, about
_END = 5  # seconds that a simulation may take to end by itself


@dataclass(frozen=True)
class Noise:
    """On the line: each octet, either way, is flipped, lost or doubled with this chance."""

    seed: int
    chance: float


class BoardSimulation:
    """The process that simulates a board, and ends when ``port``, its pseudo-terminal, has been opened and closed."""

    def __init__(self, simulation: Simulation, noise: Noise | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rnic-board-"))
        self.log = self._folder / "log"
        master, self._slave = pty.openpty()
        self.port = os.ttyname(self._slave)
        with open(master, "rb", closefd=True), open(self.log, "wb") as log:
            variables = environment("host_driver.sim.board_server") | {
                "RNIC_SIMULATION_TERMINAL": str(master),
                "COCOTB_RESULTS_FILE": str(self._folder / "results.xml"),
                "COCOTB_LOG_LEVEL": "WARNING",
                **({} if noise is None else {"RNIC_SIMULATION_NOISE": f"{noise.seed} {noise.chance}"}),
            }
            self.process = subprocess.Popen(
                simulation.command(), cwd=self._folder, env=variables, pass_fds=(master,),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def opened(self) -> None:
        """The port is open now, or never will be: from now on its end is the simulation's."""
        with contextlib.suppress(OSError):
            os.close(self._slave)

    async def end(self) -> None:
        """Wait for the end of the process, whose port has been closed."""
        for _ in range(100 * _END):
            if self.process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        else:
            self.process.kill()
            self.process.wait()
        if self.process.returncode == 0:
            shutil.rmtree(self._folder, ignore_errors=True)


class SimulatedBoardDevice(SerialDevice):
    """A board whose other end of the cable is a simulation of its whole top, UART and all. Use :meth:`open_board`."""

    simulation: BoardSimulation | None = None

    @classmethod
    async def open_board(cls, name: str) -> SimulatedBoardDevice:
        """The board of this name; the first time it is built, which takes a minute.

        Raises ValueError when there is none, and DeviceError when the simulation cannot be built or started.
        """
        board = import_module("boards").find(name)
        return await cls.open_top(board.lanes, board.period, board.size)

    @classmethod
    async def open_top(
        cls, lanes: int, period: Fraction, size: int, noise: Noise | None = None
    ) -> SimulatedBoardDevice:
        """A board of so many lanes, with ``period`` clock cycles in a bit, and frames of ``size`` octets."""
        simulation = BoardSimulation(await built(lanes, period, size), noise)
        try:
            device = cls(simulation.port, 3_000_000, float(BITS * period / _CYCLES))
        except BaseException:
            simulation.opened()
            await simulation.end()
            raise
        device.simulation = simulation
        simulation.opened()
        try:
            await device._meet(3_000_000)
        except BaseException:
            await device.close()
            raise
        return device

    async def close(self) -> None:
        """As of any board; the simulation ends with it."""
        await super().close()
        if self.simulation is not None:
            await self.simulation.end()


async def built(lanes: int, period: Fraction, size: int) -> Simulation:
    """The simulation of a top; in a process of its own, as it takes long."""
    arguments = [sys.executable, "-m", "host_driver.sim.board", str(lanes), str(period), str(size)]
    builder = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        out, problems = await builder.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            builder.kill()
        await builder.wait()
        raise
    if builder.returncode:
        last = (problems.decode().strip() or f"exit code {builder.returncode}").splitlines()[-1]
        raise DeviceError(f"the simulated board cannot be built: {last}")
    return Simulation(Path(out.decode().strip()), waves=False)
