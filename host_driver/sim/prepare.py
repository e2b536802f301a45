"""Builds the simulation of a device: ``python -m host_driver.sim.prepare LANES [waves]``."""

from __future__ import annotations

import sys
from importlib import import_module

from host_driver.sim.build import BuildError, Simulation, build, recall, remember

_NAME = "SimulatedDatapath"


def find(lanes: int, *, waves: bool) -> Simulation | None:
    """The simulation of a device, if it has been built."""
    return recall(_NAME, {"lanes": lanes}, waves=waves)[1]


def prepare(lanes: int, *, waves: bool) -> Simulation:
    """The simulation of a device, built if need be; raises BuildError."""
    note, simulation = recall(_NAME, {"lanes": lanes}, waves=waves)
    if simulation is None:
        from host_driver.sim.rings import SimulatedDatapath

        datapath = import_module("rtl.datapath").MpaDatapath(lanes)
        simulation = build(SimulatedDatapath(datapath), waves=waves)
        remember(note, simulation)
    return simulation


if __name__ == "__main__":
    try:
        prepare(int(sys.argv[1]), waves="waves" in sys.argv[2:])
    except BuildError as problem:
        sys.exit(str(problem))
