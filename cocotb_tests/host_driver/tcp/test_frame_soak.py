"""20,000 frames of the soak test of the twin (:mod:`open_rnic.cocotb_tests.frame_soak`), and tests of the soak test."""

import os
import random

import pytest

from open_rnic.cocotb_tests import frame_soak
from open_rnic.cocotb_tests.frame_soak import ROUND, batch
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.tcp.endpoint import Endpoint

SEED = int(os.environ.get("COCOTB_RANDOM_SEED") or random.SystemRandom().getrandbits(32))


@pytest.mark.parametrize("part", range(4))
def test_20000_random_and_mutated_frames_do_no_harm(part):
    outcomes, failures = batch(SEED, range(10 * part, 10 * (part + 1)))
    assert not failures, "\n".join(failures)
    assert outcomes.total() == 10 * ROUND
    assert min(outcomes[kind] for kind in ("random", "mutated", "forged")) > ROUND
    assert outcomes.total() - sum(outcomes[kind] for kind in ("random", "mutated", "forged")) < ROUND // 5


def test_a_round_is_reproducible_from_its_seed_and_number():
    assert batch(3, range(1, 3), 50) == batch(3, range(1, 3), 50)


def test_octets_that_were_not_sent_are_found(monkeypatch):
    take = Endpoint.take
    monkeypatch.setattr(Endpoint, "take", lambda *arguments: take(*arguments) + b"x")
    _, [failure] = batch(1, range(1))
    assert failure == "seed 1, round 0: AssertionError: 1 octets were delivered that were not sent"


def test_a_connection_that_delivers_no_more_is_found(monkeypatch):
    receive, taken = Host.receive, []

    def deaf(host, frame, now):
        taken.append(frame)
        if len(taken) < 60:
            receive(host, frame, now)

    monkeypatch.setattr(Host, "receive", deaf)
    _, [failure] = batch(1, range(1), 20)
    assert "a good connection delivers no more" in failure or "no connection opens any more" in failure


def test_a_round_that_hangs_is_a_failure(monkeypatch):
    def hang(host, frame, now):
        while True:
            pass

    monkeypatch.setattr(frame_soak, "HANG", 0.2)
    monkeypatch.setattr(Host, "receive", hang)
    _, [failure] = batch(1, range(1))
    assert failure == "seed 1, round 0: Hang: not finished after 0.2 s of processor time"
