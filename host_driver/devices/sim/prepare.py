"""Builds the simulations behind devices, each one once.

The RTL is imported only where something is to be built, which is in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.build import BuildError, Simulation, build, recall, remember
from open_rnic.host_driver.extras import MissingExtraError

MAKERS = {"device": "open_rnic.host_driver.devices.sim.rings", "board": "open_rnic.host_driver.devices.sim.board"}
_log = logging.getLogger(__name__)


def find(what: str, *arguments: str, waves: bool = False) -> tuple[Path, Simulation | None]:
    """What :func:`.recall` has of a simulation: its note file, and itself if it has been built.

    ``what`` is one of MAKERS, in whose module ``make`` takes these arguments.
    """
    sources = ("open_rnic.rtl", MAKERS[what], "open_rnic.host_driver.devices.sim.layout")
    return recall(" ".join((what, *arguments)), sources, waves=waves)


async def prepare(what: str, *arguments: str, waves: bool = False) -> Simulation:
    """The same simulation, built if need be; the building ends when this is cancelled. Raises DeviceError."""
    try:
        _, simulation = find(what, *arguments, waves=waves)
    except (BuildError, MissingExtraError) as problem:
        raise _impossible(str(problem)) from None
    if simulation is not None:
        return simulation
    _tell(" ".join((what, *arguments)))
    builder = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, *(["--waves"] if waves else []), what, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        folder, problems = await builder.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(builder.pid, signal.SIGKILL)  # and its compilers
        await builder.wait()
    if builder.returncode:
        lines = problems.decode(errors="replace").strip().splitlines()
        raise _impossible(lines[-1] if builder.returncode > 0 and lines else how(builder.returncode))
    return Simulation(Path(folder.decode().strip()), waves)


@cache
def _tell(what: str) -> None:
    """Once, however many devices are opened at a time."""
    _log.info("building the simulation (%s), once: about a minute", what)


def how(code: int) -> str:
    """How a process ended that left this exit code to Python."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _impossible(why: str) -> DeviceError:
    return DeviceError(f"the simulation cannot be built: {why}")


def _made(what: str, arguments: list[str]) -> Any:
    from open_rnic.host_driver.devices.sim import board, rings

    return rings.make(*arguments) if what == "device" else board.make(*arguments)


def main(arguments: list[str]) -> None:
    """``python -m … [--waves] WHAT ARGUMENT...`` prints the folder of the simulation."""
    waves = arguments[:1] == ["--waves"]
    what, *rest = arguments[waves:]
    try:
        note, simulation = find(what, *rest, waves=waves)
        if simulation is None:
            simulation = build(_made(what, rest), waves=waves)
            remember(note, simulation)
    except BuildError as problem:
        sys.exit(str(problem))
    print(simulation.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
