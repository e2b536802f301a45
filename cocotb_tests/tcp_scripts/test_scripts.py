"""The twin and the program of the TCP engine do what the scripts say, and send the same segments."""

import functools

import cocotb
import pytest

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.tcp_scripts.cases import CASES
from open_rnic.cocotb_tests.tcp_scripts.runner import ISNS, Player
from open_rnic.cocotb_tests.tcp_scripts.subjects import Program, Twin
from open_rnic.host_driver.devices.sim.path import make


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_twin_does_what_the_script_says(case):
    for isns in ISNS:
        Player(case, Twin(case, isns[0]), *isns).run()


@pytest.mark.parametrize("case", [case for case in CASES if not case.needs_the_twin], ids=str)
def test_the_program_does_what_the_script_says_and_what_the_twin_does(case):
    for isns in ISNS:
        trace = Player(case, Program(case, isns[0]), *isns).run()
        assert trace == Player(case, Twin(case, isns[0]), *isns).run()


@cocotb.test()
async def plays_the_scripts(dut):
    from open_rnic.cocotb_tests.tcp_scripts.path import play_the_scripts  # nothing but a simulation can import it

    await play_the_scripts(dut)


ALL = 1 << 32  # ms


@pytest.mark.parametrize(("turn", "longest"), shortened(
    "other ISNs, and the five cases that take two thirds of all cycles", 1, [(0, 10_000), (0, ALL), (1, ALL)]
))  # fmt: skip
def test_the_path_does_what_the_scripts_say_and_what_the_twin_does(turn, longest):
    simulate(
        functools.partial(make, "4", "8192", "8192"), plays_the_scripts,
        parameters={"turn": turn, "longest": longest}, seconds=5400,
    )  # fmt: skip
