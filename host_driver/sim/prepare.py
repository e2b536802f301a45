"""Builds the simulation of a device."""

from __future__ import annotations

import sys
from importlib import import_module

from host_driver.sim.build import BuildError, Simulation, build, recall, remember

_SOURCES = ("rtl", "host_driver.sim.rings", "host_driver.sim.layout")


def find(lanes: int, *, waves: bool) -> Simulation | None:
    """The simulation of a device, if it has been built."""
    return recall(f"device {lanes}", _SOURCES, waves=waves)[1]


def prepare(lanes: int, *, waves: bool) -> Simulation:
    """The simulation of a device, built if need be; raises BuildError."""
    note, simulation = recall(f"device {lanes}", _SOURCES, waves=waves)
    if simulation is None:
        from host_driver.sim.rings import SimulatedDatapath

        datapath = import_module("rtl.datapath").MpaDatapath(lanes)
        simulation = build(SimulatedDatapath(datapath), waves=waves)
        remember(note, simulation)
    return simulation


def main() -> None:
    """``python -m host_driver.sim.prepare LANES [waves]`` prints the folder of the simulation."""
    try:
        print(prepare(int(sys.argv[1]), waves="waves" in sys.argv[2:]).folder)
    except BuildError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
