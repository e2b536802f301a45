"""A board in simulation behind a pseudo-terminal, which the board device opens as it opens any serial port."""

from __future__ import annotations

import asyncio
import os
import pty
import tty
from dataclasses import dataclass
from fractions import Fraction

from open_rnic.boards import find
from open_rnic.boards.board import Core
from open_rnic.host_driver.devices.serial import BAUD
from open_rnic.host_driver.devices.serial.device import BITS, SerialDevice
from open_rnic.host_driver.devices.sim.prepare import prepare
from open_rnic.host_driver.devices.sim.process import START, SimulationProcess
from open_rnic.host_driver.devices.sim.wire import Kind, frame

_CYCLES = 200_000  # clock cycles that are simulated in a second, about


@dataclass(frozen=True)
class Noise:
    """Noise on the line: a bit of each octet is flipped, or the octet lost or doubled, with probability ``chance``."""

    seed: int
    chance: float


class SimulatedBoardDevice(SerialDevice):
    """A simulation of a whole board, UART included, behind a pseudo-terminal. Open it with :meth:`open_board`."""

    process: SimulationProcess

    @classmethod
    async def open_board(cls, name: str, core: Core = Core.MPA) -> SimulatedBoardDevice:
        """Open the board of this name, with this core. The first call builds its simulation, which takes a minute.

        Raises ValueError for an unknown name or a core that does not fit, and DeviceError if the simulation cannot be
        built or started.
        """
        board = find(name)
        return await cls.open_top(board.width(core), board.period, **board.path_options(core))

    @classmethod
    async def open_top(
        cls, lanes: int, period: Fraction, size: int, noise: Noise | None = None, *, memory: int = 0
    ) -> SimulatedBoardDevice:
        """Open a board of ``lanes`` lanes, with ``period`` clock cycles per bit and frames of ``size`` octets.

        With ``memory`` octets of memory, it has an RDMA engine.
        """
        top = "board", str(lanes), str(period), str(size), *([str(memory)] if memory else [])
        simulation = await prepare(*top)
        master, slave = pty.openpty()
        tty.setraw(slave)
        with open(slave, "rb"):  # when this and the device have closed it, the simulation ends
            with open(master, "rb"):
                line = f"{noise.seed} {noise.chance}" if noise else "0 0"
                process = SimulationProcess(simulation, top, [master], noise=line)
            try:
                await _up(slave, process)
                device = cls(os.ttyname(slave), BAUD, float(BITS * period / _CYCLES), offload=bool(memory))
            except BaseException:
                process.kill()
                raise
            device.process = process
        try:
            await device._meet(BAUD)
        except BaseException:
            await device.close()
            raise
        return device

    async def close(self) -> None:
        """Release the port, and end the simulation. Idempotent."""
        await super().close()
        await self.process.end()

    def _lost(self, why: str) -> None:
        self._fail(self.process.death())


async def _up(terminal: int, process: SimulationProcess) -> None:
    """Wait for the zeros that the simulation sends first; raises DeviceError if the simulation ends before.

    Between the frames of a board's link, a zero has no meaning.
    """
    up, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(terminal, up.set)
    try:
        await asyncio.wait_for(up.wait(), START)
    except TimeoutError:
        raise process.late() from None
    finally:
        loop.remove_reader(terminal)
    if os.read(terminal, 1) != frame(Kind.HELLO)[:1]:
        raise process.death()
