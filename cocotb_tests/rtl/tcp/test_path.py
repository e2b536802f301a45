"""The network path in RTL sends the same segments as the twin, in random traffic under faults."""

import functools

import cocotb
import pytest

from open_rnic.cocotb_tests.collisions import colliding
from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.devices.sim.network_path import make

QUIET = 1000  # cycles from a full segment that comes in to one that leaves


@cocotb.test()
async def shadows_the_twin(dut):
    from open_rnic.cocotb_tests.rtl.tcp.path import shadow_the_twin  # nothing but a simulation can import it

    await shadow_the_twin(dut)


@pytest.mark.parametrize("seed", shortened("more seeds", 1, range(3)))
def test_the_path_sends_what_the_twin_sends(seed):
    simulate(
        functools.partial(colliding, make, "4", "8192", "8192"), shadows_the_twin,
        parameters={"seed": seed, "steps": 1000, "quiet": QUIET},
    )  # fmt: skip


@pytest.mark.parametrize(("latency", "seed", "steps"), shortened(
    "a faster memory, and more steps", 1, [(50, 0, 400), (50, 0, 1000), (10, 1, 1000)]
))  # fmt: skip
def test_the_path_sends_what_the_twin_sends_with_its_rings_in_a_slow_memory(latency, seed, steps):
    simulate(
        functools.partial(make, "4", "8192", "8192", str(latency), str(seed)), shadows_the_twin,
        parameters={"seed": 1, "steps": steps, "quiet": QUIET + 10 * latency},
    )  # fmt: skip
