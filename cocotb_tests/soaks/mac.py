"""Frames of all sizes, and many bad ones, at the Ethernet MAC in RTL, at several clocks.

cocotbext-eth sends and receives at the side of the PHY.
"""

import random
from collections import Counter

from open_rnic.cocotb_tests.rtl.mac import frames
from open_rnic.cocotb_tests.soaks.case import Case
from open_rnic.rtl.mac.mac import EARLY

BENCHES = (
    "all_sizes_pass", "frames_are_received", "bad_frames_are_discarded_and_counted",
    "a_stalled_core_loses_whole_frames_that_are_counted", "frames_stay_whole_when_the_mac_stops_and_starts",
    "frames_are_transmitted", "frames_without_pauses_are_transmitted_early",
)  # fmt: skip
CORES = (8, 16, 20)  # ns, periods of the core's clock


class Mac(Case, frozen=True, tag="mac"):
    """A bench of :mod:`.rtl.mac.frames`; the offsets of the clocks of the PHY are in millionths."""

    bench: str
    core: float
    rx_offset: int
    tx_offset: int
    early: bool
    longest: int = 1600  # octets of a frame

    COUNT, SIMULATES = 54, True

    @classmethod
    def make(cls, seed, number):
        rng = random.Random(seed)
        turn, at = divmod(number, len(BENCHES) - 1)  # each bench once at each turn; the last two are for one of both
        early = turn % 2 == 1
        name = BENCHES[at + (early and at == len(BENCHES) - 2)]
        return cls(seed, name, CORES[turn % len(CORES)], rng.randint(-100, 100), rng.randint(-100, 100), early)

    def run(self):
        frames.simulate_mac(
            getattr(frames, self.bench), self.core, self.rx_offset, self.tx_offset, EARLY if self.early else None,
            {"longest": self.longest}, seed=random.Random(self.seed).getrandbits(32), seconds=3600,
        )  # fmt: skip
        return Counter([f"{self.bench}, {'early' if self.early else 'whole frames'}"])
