"""Soak test of the RDMA engine in RTL, in Verilator: random programs of both ends, compared with its twin.

:mod:`.rtl.rdma.programs` describes the programs. A program that fails is shrunk and kept; the run prints the command
that repeats it.

    python -m open_rnic.cocotb_tests.rdma_soak [--programs N] [--seed N] [--lanes N]... [--jobs N]
    python -m open_rnic.cocotb_tests.rdma_soak --replay FILE
"""

import argparse
import json
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.rtl.rdma import programs
from open_rnic.cocotb_tests.rtl.rdma.bench import engine
from open_rnic.host_driver.build_folders import built
from open_rnic.rtl.lib.lanes import LANES

STEPS = 200  # of a program, at most
BATCH = 25  # programs


def run(lanes: int, program: dict[str, Any]) -> None:
    """Run a program on an engine of this width; raises AssertionError if it and its twin differ."""
    made = engine(lanes)
    simulate(made, programs.program, parameters={"programs": [program]}, seed=program["seed"])


def soak(lanes: int, count: int, seed: int) -> str:
    """Run ``count`` programs; return an empty string, or what failed and how to repeat it."""
    path = built("soak") / f"rdma-{lanes}-{seed}.json"

    @hypothesis.seed(seed)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck),
              phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False)  # fmt: skip
    @given(programs.programs(STEPS))
    def examples(program: dict[str, Any]) -> None:
        try:
            run(lanes, program)
        except AssertionError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"lanes": lanes, "program": program}, indent=1))  # the last one is the smallest
            raise

    try:
        examples()
    except AssertionError as error:
        steps = len(json.loads(path.read_text())["program"]["steps"])
        wrong = str(error).splitlines()[-2:]
        return "\n  ".join([f"{lanes} lanes: a program of {steps} steps fails:", *wrong,
                            f"again: {sys.executable} -m {__spec__.name} --replay {path}"])  # fmt: skip
    return ""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="rdma_soak", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000, help="number of programs (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random)")
    parser.add_argument("--lanes", type=int, action="append", choices=LANES, help="a width; repeatable (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes (default: one per core)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one program that an earlier run has kept")
    options = parser.parse_args()
    if options.replay:
        kept = json.loads(options.replay.read_text())
        try:
            run(kept["lanes"], kept["program"])
        except AssertionError as error:
            print(error)
            return 1
        print("no failure")
        return 0
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    widths = options.lanes or LANES
    print(f"{options.programs:,} programs, seed {seed}, {options.jobs} processes", flush=True)
    begun = time.monotonic()
    batches = range(-(-options.programs // BATCH))
    with ProcessPoolExecutor(options.jobs) as pool:
        runs = [
            pool.submit(soak, widths[n % len(widths)], min(BATCH, options.programs - BATCH * n), seed + n)
            for n in batches
        ]
        failures = [wrong for done in as_completed(runs) if (wrong := done.result())]
    for each in failures:
        print(each)
    print(f"seed {seed}: {len(failures) or 'no'} failure(s) in {time.monotonic() - begun:,.0f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
