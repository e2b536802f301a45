# amaranth: UnusedElaboratable=no
"""Random programs of both ends on the RDMA engine and on its twin: all that can be seen at rest must be equal."""

import json
import random
import shlex
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings

from open_rnic.cocotb_tests import rdma_soak
from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.lengths import long, shortened, widths
from open_rnic.cocotb_tests.rtl.rdma import programs
from open_rnic.cocotb_tests.rtl.rdma.bench import engine

LANES = [1, 2, 4, 16]


@pytest.mark.parametrize("count", shortened("more programs", 1, [4, 10]))
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_programs(lanes, count):
    @settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck], database=None)
    @given(programs.programs(100))
    def examples(program):
        rdma_soak.run(lanes, program)

    examples()


@long("as many steps as all programs of test_programs have")
@pytest.mark.parametrize("lanes", LANES)
def test_a_long_program(lanes):
    rng = random.Random(lanes)
    steps = [(rng.choice(programs.STEPS), rng.getrandbits(256)) for _ in range(800)]
    program = {"setting": rng.getrandbits(64), "steps": steps, "idle": 0.2, "busy": 0.2}
    simulate(engine(lanes), programs.program, parameters={"programs": [program]}, seed=lanes)


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_every_error(lanes):
    """After a few steps, at rest and in the middle of everything."""
    rng = random.Random(lanes)
    errors = [kind + len(programs.ERRORS) * moving for kind in range(len(programs.ERRORS)) for moving in range(2)]
    some = [
        {
            "setting": rng.getrandbits(64),
            "steps": [
                *((rng.choice(("write", "send", "read", "post")), rng.getrandbits(256)) for _ in range(4)),
                ("error", error + 2 * len(programs.ERRORS) * rng.getrandbits(64)),
            ],
            "idle": 0.2,
            "busy": 0.2,
        }
        for error in errors
    ]
    simulate(engine(lanes), programs.program, parameters={"programs": some}, seed=lanes)


def test_the_soak_shrinks_a_program_that_fails(monkeypatch, tmp_path):
    def run(lanes, program):
        assert lanes == 4
        names = [name for name, _ in program["steps"]]
        if "send" in names[names.index("write") if "write" in names else len(names) :]:
            raise AssertionError("a Send behind a Write")

    monkeypatch.setattr(rdma_soak, "run", run)
    monkeypatch.setattr(rdma_soak, "built", lambda *names: tmp_path.joinpath(*names))
    first, wrong, again = rdma_soak.soak(4, 300, 1).splitlines()
    assert first == "4 lanes: a program of 2 steps fails:"
    assert wrong.strip() == "a Send behind a Write"
    kept = json.loads((tmp_path / "soak" / "rdma-4-1.json").read_text())
    assert kept["program"]["steps"] == [["write", 0], ["send", 0]]
    done = subprocess.run(shlex.split(again.partition(": ")[2]), capture_output=True, text=True, check=True)
    assert done.stdout == "no failure\n"
