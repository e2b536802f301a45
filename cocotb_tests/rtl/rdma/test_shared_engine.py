# amaranth: UnusedElaboratable=no
"""An engine of many connections: each connection does what its own twin does, whatever the others do."""

import functools
import random

import pytest
from cocotb.triggers import ClockCycles, gather

from open_rnic.cocotb_tests.harness import bench, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.rdma import programs
from open_rnic.cocotb_tests.rtl.rdma.bench import SIZES
from open_rnic.cocotb_tests.rtl.rdma.shared_bench import SharedBench
from open_rnic.rtl.rdma.engine import RdmaEngine


async def live(end, lives):
    runs = programs.Program(end)
    runs.messages = end.n << 20  # other octets than those of the other connections
    for k, each in enumerate(lives):
        if k:
            if not runs.ended:
                await runs._catch_up()
            await end.restart()
        await runs.run(each["setting"], each["steps"])


@bench(cycles=3_000_000)
async def each_connection_is_its_twin(dut):
    idle, busy = parameter("idle"), parameter("busy")
    lives = parameter("lives")
    shared = SharedBench(dut, len(lives), pauses(idle) if idle else never(), stalls(busy) if busy else never(),
                         parameter("full"))  # fmt: skip
    await ClockCycles(dut.clk, 20)  # the engine clears what it has in memory
    await gather(*(live(end, some) for end, some in zip(shared.ends, lives, strict=True)))


def program(rng, steps):
    names = [rng.choice(programs.STEPS) for _ in range(rng.randint(1, steps))]
    names += rng.choices(programs.ENDS, k=rng.randrange(4))
    return {"setting": rng.getrandbits(64), "steps": [(name, rng.getrandbits(256)) for name in names]}


RUNS = [(4, 1, 0), (2, 4, 1)]  # of the short run
RUNS += [(2, 1, 0), (2, 1, 1), (2, 1, 2), (2, 2, 0)]
RUNS += [(4, 1, 1), (4, 1, 2), (4, 2, 0), (4, 4, 1), (16, 1, 2), (16, 2, 0), (16, 4, 1)]
LIVES = {2: (5, 30), 4: (4, 20), 16: (3, 10)}  # of each connection, and the most steps of each


@pytest.mark.parametrize(("connections", "lanes", "seed"), shortened("more seeds, and each width with each", 2, RUNS))
def test_each_connection_is_its_twin(connections, lanes, seed):
    lives, steps = LIVES[connections]
    rng = random.Random(100 * connections + seed)
    given = {
        "lives": [[program(rng, steps) for _ in range(lives)] for _ in range(connections)],
        "idle": programs.CHANCES[seed % 3], "busy": programs.CHANCES[seed % 3], "full": rng.choice((0, 0.2, 0.5)),
    }  # fmt: skip
    engine = functools.partial(RdmaEngine, lanes, **SIZES, connections=connections)
    simulate(engine, __name__, parameters=given, seed=seed)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="connections must be a power of 2 from 1 to 64, not 3"):
        RdmaEngine(connections=3)
    with pytest.raises(ValueError, match="an engine of many connections has no port for logic beside it"):
        RdmaEngine(connections=2, fabric=True)
