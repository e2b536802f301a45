"""Builds the simulations for devices, each of them once.

A build runs in a process of its own, which alone imports the RTL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.build import BuildError, Simulation, build, check_system, recall, remember
from open_rnic.host_driver.lib.optional_packages import MissingExtraError

MAKERS = {
    "device": "open_rnic.host_driver.devices.sim.rings",
    "rdma": "open_rnic.host_driver.devices.sim.rdma",
    "board": "open_rnic.host_driver.devices.sim.board",
    "path": "open_rnic.host_driver.devices.sim.network_path",
    "rnic": "open_rnic.host_driver.devices.sim.rnic",
    "whole": "open_rnic.host_driver.devices.sim.whole",
    "netlist": "open_rnic.host_driver.devices.sim.netlist",
}
_log = logging.getLogger(__name__)


def find(what: str, *arguments: str, waves: bool = False) -> tuple[str, Simulation | None]:
    """Return the key of a note, and the simulation, or None if it is not built: see :func:`.recall`.

    ``what`` is a key of MAKERS; ``arguments`` are those of the function ``make`` in its module.
    """
    parts = (f"{__package__}.{name}" for name in ("layout", "sdram_model", "slow_memory"))
    sources = "open_rnic.rtl", MAKERS[what], *parts
    return recall(" ".join((what, *arguments)), sources, waves=waves)


async def prepare(what: str, *arguments: str, waves: bool = False) -> Simulation:
    """Return the simulation; build it if necessary. A cancellation ends the build. Raises DeviceError if it fails."""
    try:
        _, simulation = find(what, *arguments, waves=waves)
    except (BuildError, MissingExtraError) as problem:
        raise _impossible(str(problem)) from None
    if simulation is not None:
        return simulation
    _log_once(" ".join((what, *arguments)))
    builder = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, *(["--waves"] if waves else []), what, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    try:
        folder, problems = await builder.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(builder.pid, signal.SIGKILL)  # and its compilers
        await builder.wait()
    if builder.returncode:
        lines = problems.decode(errors="replace").strip().splitlines()
        raise _impossible(lines[-1] if builder.returncode > 0 and lines else exit_reason(builder.returncode))
    return Simulation(Path(folder.decode().strip()), waves)


@cache
def _log_once(what: str) -> None:
    """Log the build once, even if several devices are opened at the same time."""
    _log.info("building the simulation (%s), once: some minutes", what)


def exit_reason(code: int) -> str:
    """Describe the end of a process: the name of its signal, or its exit status. ``code`` is Python's return code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _impossible(why: str) -> DeviceError:
    return DeviceError(f"the simulation cannot be built: {why}")


def _made(what: str, arguments: list[str]) -> Any:
    return import_module(MAKERS[what]).make(*arguments)


def main(arguments: list[str]) -> None:
    """Build a simulation and print its folder: ``python -m … [--waves] WHAT ARGUMENT...``."""
    waves = arguments[:1] == ["--waves"]
    what, *rest = arguments[waves:]
    try:
        note, simulation = find(what, *rest, waves=waves)
        if simulation is None:
            check_system(waves)  # before the elaboration, which takes long
            simulation = build(_made(what, rest), waves=waves)
            remember(note, simulation)
    except BuildError as problem:
        sys.exit(str(problem))
    print(simulation.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
