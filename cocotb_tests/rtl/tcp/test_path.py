"""The network path in RTL sends the same segments as the twin, in random traffic under faults."""

import functools

import pytest

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.host_driver.devices.sim.path import make


@pytest.mark.parametrize("seed", range(3))
def test_the_path_sends_what_the_twin_sends(seed):
    simulate(
        functools.partial(make, "4", "8192", "8192"), "open_rnic.cocotb_tests.rtl.tcp.path",
        parameters={"seed": seed, "steps": 1000},
    )  # fmt: skip


@pytest.mark.parametrize(("latency", "seed"), [(50, 0), (10, 1)])
def test_the_path_sends_what_the_twin_sends_with_its_rings_in_a_slow_memory(latency, seed):
    simulate(
        functools.partial(make, "4", "8192", "8192", str(latency), str(seed)), "open_rnic.cocotb_tests.rtl.tcp.path",
        parameters={"seed": 1, "steps": 1000},
    )  # fmt: skip
