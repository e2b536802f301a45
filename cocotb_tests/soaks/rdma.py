"""Random programs of both ends for the RDMA engine in RTL, compared with its twin (:mod:`.rtl.rdma.programs`)."""

import random
from collections import Counter

import msgspec

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.rtl.rdma import programs
from open_rnic.cocotb_tests.rtl.rdma.bench import engine
from open_rnic.cocotb_tests.soaks.case import Case, Lanes, shrunk
from open_rnic.rtl.lib.lanes import LANES


class Rdma(Case, frozen=True, tag="rdma"):
    """A program on an engine of this width, with these chances of pauses and stalls."""

    lanes: Lanes
    setting: int
    steps: list[tuple[str, int]]
    idle: float
    busy: float

    COUNT, SIMULATES, PARTS = 1000, True, "steps"

    @classmethod
    def make(cls, seed, number):
        return cls(seed, LANES[number % len(LANES)], **programs.random_program(random.Random(seed)))

    def run(self):
        program = {name: value for name, value in msgspec.structs.asdict(self).items() if name not in ("seed", "lanes")}
        seed = random.Random(self.seed).getrandbits(32)
        simulate(engine(self.lanes), programs.program, parameters={"programs": [program]}, seed=seed)
        return Counter(["same as its twin"])

    def shrunk(self, fails):
        """Leave out steps, then octets of their numbers: the smaller a number, the simpler its choices."""
        case = super().shrunk(fails)
        for at, (_, number) in enumerate(case.steps):
            octets = number.to_bytes(32, "little")
            octets = shrunk(octets, lambda octets, case=case, at=at: fails(case.with_number(at, octets)))
            case = case.with_number(at, octets)
        for name in ("setting", "idle", "busy"):
            simpler = msgspec.structs.replace(case, **{name: 0})
            case = simpler if fails(simpler) else case
        return case

    def with_number(self, at, octets):
        steps = [*self.steps]
        steps[at] = steps[at][0], int.from_bytes(octets, "little")
        return msgspec.structs.replace(self, steps=steps)
