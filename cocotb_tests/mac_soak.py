"""A long campaign on the Ethernet MAC in RTL: frames of all sizes, and many bad ones, at several clocks.

    python -m open_rnic.cocotb_tests.mac_soak [--rounds N] [--seed N]

Each round passes frames of 1 to 1,600 octets both ways at once, then runs the other tests of the MAC with the same
clocks. In every second round, frames pass while they come. cocotbext-eth sends and receives at the side of the PHY.
"""

import argparse
import random
import sys
import time

from open_rnic.cocotb_tests.rtl.mac import test_mac
from open_rnic.rtl.mac.mac import EARLY

TESTS = (
    test_mac.all_sizes_pass, test_mac.frames_are_received, test_mac.bad_frames_are_discarded_and_counted,
    test_mac.a_stalled_core_loses_whole_frames_that_are_counted,
    test_mac.frames_stay_whole_when_the_mac_stops_and_starts,
)  # fmt: skip
TRANSMIT = {None: test_mac.frames_are_transmitted, EARLY: test_mac.frames_without_pauses_are_transmitted_early}
CORES = (8, 16, 20)  # ns, periods of the core's clock
LONGEST = 1600  # octets
LIMIT = 3600  # s


def soak(rounds: int, seed: int) -> None:
    """Run the campaign; raises AssertionError if a test fails."""
    rng = random.Random(f"mac {seed}")
    for number in range(rounds):
        core, early = CORES[number % len(CORES)], (None, EARLY)[number % 2]
        clocks = core, rng.randint(-100, 100), rng.randint(-100, 100)
        for test in (*TESTS, TRANSMIT[early]):
            begun = time.monotonic()
            more = {"seed": rng.getrandbits(32), "seconds": LIMIT}
            test_mac.simulate_mac(test, *clocks, early, {"longest": LONGEST}, **more)
            took = time.monotonic() - begun
            print(f"clocks {clocks}, {'early' if early else 'whole frames'}: {test.name}, {took:.0f} s", flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="mac_soak", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random)")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"{options.rounds} rounds, seed {seed}", flush=True)
    begun = time.monotonic()
    soak(options.rounds, seed)
    print(f"seed {seed}: no failure in {time.monotonic() - begun:,.0f} s")


if __name__ == "__main__":
    sys.exit(main())
