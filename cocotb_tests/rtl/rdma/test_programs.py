# amaranth: UnusedElaboratable=no
"""Random programs of both ends on the RDMA engine and on its twin: all that can be seen at rest must be equal."""

import json
import random
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.plugins.lengths import long, shortened, widths
from open_rnic.cocotb_tests.rtl.rdma import programs
from open_rnic.cocotb_tests.rtl.rdma.bench import engine
from open_rnic.cocotb_tests.soaks import __main__ as soak
from open_rnic.cocotb_tests.soaks.case import batch
from open_rnic.cocotb_tests.soaks.rdma import Rdma

LANES = [1, 2, 4, 16]


@pytest.mark.parametrize("count", shortened("more programs", 1, [4, 10]))
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_programs(lanes, count):
    _, failures = batch(Rdma, count, range(count), lanes=lanes)
    assert not failures, "\n".join(failures)


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


def test_the_soak_shrinks_a_program_that_fails(monkeypatch, tmp_path, capsys):
    def run(case):
        names = [name for name, _ in case.steps]
        if "send" in names[names.index("write") if "write" in names else len(names) :]:
            raise AssertionError("a Send behind a Write")

    monkeypatch.setattr(Rdma, "run", run)
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    _, failures = batch(Rdma, 1, range(20), lanes=4)
    assert "AssertionError: a Send behind a Write\n  again: " in failures[0]
    monkeypatch.undo()
    path = failures[0].rpartition(" ")[2]
    assert json.loads(Path(path).read_text())["steps"] == [["write", 0], ["send", 0]]
    assert soak.main(["--replay", path]) == 0
    assert capsys.readouterr().out.endswith(": same as its twin\n")
