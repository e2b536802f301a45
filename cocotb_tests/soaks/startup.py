"""Startup frames with faults for the negotiation, in both roles and all dialects: each has an outcome with a reason."""

import random
from collections import Counter

from open_rnic.cocotb_tests.soaks.case import Case
from open_rnic.cocotb_tests.soaks.faults import mutated, pieces
from open_rnic.host_driver.mpa.negotiation import Config, Established, Failed, Negotiation, Rejected, Requested
from open_rnic.host_driver.mpa.startup_frames import (
    MAX_PRIVATE_DATA,
    NO_NEGOTIATION,
    Dialect,
    EnhancedData,
    FrameKind,
    StartupFrame,
)
from open_rnic.rtl.registers import Role, Rtr

DEPTHS = (0, 1, 16, 128, 200, NO_NEGOTIATION)


class Startup(Case, frozen=True, tag="startup"):
    """What this end receives instead of a startup frame; one case of 100 also tries a good Request."""

    role: Role
    octets: bytes

    COUNT, BATCH, PARTS = 500_000, 2000, "octets"

    @classmethod
    def make(cls, seed, number):
        rng = random.Random(seed)
        role = rng.choice(list(Role))
        frame = random_startup(rng, FrameKind.REPLY if role is Role.INITIATOR else FrameKind.REQUEST)
        return cls(seed, role, mutated(rng, frame.encode() + rng.randbytes(rng.choice([0, 30]))))

    def run(self):
        rng = random.Random(self.seed)
        config = Config(self.role, dialect=rng.choice(list(Dialect)), min_ord=rng.choice([0, 0, 9]))
        outcome = negotiate(rng, config, self.octets)
        assert isinstance(outcome, Established | Rejected | Failed), f"the negotiation ended with {outcome!r}"
        assert isinstance(outcome, Established) or outcome.what, f"{outcome!r} has no reason"
        if rng.random() < 0.01:
            check_good()
        return Counter([type(outcome).__name__])


def random_startup(rng, kind):
    """A good startup frame."""
    enhanced = None
    if rng.random() < 0.8:
        rtr = frozenset(each for each in Rtr if each and rng.random() < 0.5)
        enhanced = EnhancedData(rng.choice(DEPTHS), rng.choice(DEPTHS), rng.random() < 0.7, rtr)
    return StartupFrame(
        kind, markers=rng.random() < 0.3, crc=rng.random() < 0.5, rejected=rng.random() < 0.2,
        rev=rng.choice([1, 2, 2, 2]), enhanced=enhanced,
        private_data=rng.randbytes(rng.choice([0, 0, 5, MAX_PRIVATE_DATA - 4])),
    )  # fmt: skip


def negotiate(rng, config, octets):
    """Return the last event of a negotiation that receives these octets and then loses its connection."""
    end = Negotiation(config)
    events = end.start(0)
    for piece in pieces(rng, octets):
        while piece and end.wanted:
            assert end.wanted <= MAX_PRIVATE_DATA + 20, f"the negotiation wants {end.wanted} octets of a startup frame"
            taken, piece = piece[: end.wanted], piece[end.wanted :]
            events += end.receive(taken)
    if isinstance(events[-1] if events else None, Requested):
        events += end.accept() if rng.random() < 0.5 else end.reject()
    events += end.connection_lost("the peer closed")
    return events[-1]


def check_good():
    """Check that a good Request is accepted, so that earlier cases have left no state behind."""
    request = StartupFrame(FrameKind.REQUEST, enhanced=EnhancedData(4, 4, True, frozenset({Rtr.WRITE}))).encode()
    end = Negotiation(Config(Role.RESPONDER))
    end.start(0)
    events = end.receive(request[: end.wanted]) + end.receive(request[20:])
    assert isinstance(events[-1], Requested), "a good Request was rejected"
    assert isinstance(end.accept()[-1], Established), "a good Request could not be accepted"
