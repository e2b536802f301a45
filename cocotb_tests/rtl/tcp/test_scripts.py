"""TCP's path in RTL does what the scripts say, and sends the same segments as the twin."""

import functools

import cocotb
import pytest

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.devices.sim.network_path import make


@cocotb.test()
async def plays_the_scripts(dut):
    from open_rnic.cocotb_tests.tcp_scripts.path import play_the_scripts  # nothing but a simulation can import it

    await play_the_scripts(dut)


ALL = 1 << 32  # ms


@pytest.mark.parametrize(("turn", "longest"), shortened(
    "other ISNs, and the nine cases that take two thirds of all cycles", 1, [(0, 10_000), (0, ALL), (1, ALL)]
))  # fmt: skip
def test_the_path_does_what_the_scripts_say_and_what_the_twin_does(turn, longest):
    simulate(
        functools.partial(make, "4", "8192", "8192"), plays_the_scripts,
        parameters={"turn": turn, "longest": longest},
    )  # fmt: skip
