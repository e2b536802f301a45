# amaranth: UnusedElaboratable=no
"""Random programs of both ends on the RDMA engine and on its twin: all that can be seen at rest must be equal."""

import random

import pytest
from hypothesis import HealthCheck, given, settings

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.rtl.rdma import programs
from open_rnic.cocotb_tests.rtl.rdma.bench import engine

LANES = [1, 2, 4, 16]


def run(lanes, program):
    simulate(
        engine(lanes, **programs.SIZES), programs.__name__, parameters={"program": program}, seed=program["seed"]
    )


@pytest.mark.parametrize("lanes", LANES)
def test_programs(lanes):
    @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(programs.PROGRAMS)
    def examples(program):
        run(lanes, program)

    examples()


@pytest.mark.parametrize("lanes", LANES)
def test_a_long_program(lanes):
    rng = random.Random(lanes)
    steps = [(rng.choice(programs.STEPS), rng.getrandbits(256)) for _ in range(800)]
    run(lanes, {"setting": rng.getrandbits(64), "steps": steps, "idle": 0.2, "busy": 0.2, "seed": lanes})
