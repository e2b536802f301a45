"""Short soaks of MPA and of the twin's TCP, and tests of the soak itself. The tests of other blocks have theirs."""

import gc
import os
import random

import pytest
from msgspec.structs import replace

from open_rnic.cocotb_tests.plugins.lengths import shortened, widths
from open_rnic.cocotb_tests.soaks import __main__ as soak
from open_rnic.cocotb_tests.soaks import case
from open_rnic.cocotb_tests.soaks.case import attempt, batch
from open_rnic.cocotb_tests.soaks.fpdus import Fpdus, FpdusRtl
from open_rnic.cocotb_tests.soaks.startup import Startup
from open_rnic.cocotb_tests.soaks.tcp import Tcp
from open_rnic.host_driver.mpa.fpdu import FpduDelineator
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.rtl.lib.lanes import LANES

SEED = int(os.environ.get("COCOTB_RANDOM_SEED") or random.SystemRandom().getrandbits(32))


@pytest.fixture(autouse=True, scope="module")
def _no_garbage_of_others():
    """Cases end with a collection, which need not look at what other tests have left in this process."""
    gc.collect()
    gc.freeze()


def outcomes_of(kind, numbers, **fields):
    outcomes, failures = batch(kind, SEED, numbers, **fields)
    assert not failures, "\n".join(failures)
    return outcomes


@pytest.mark.parametrize("part", shortened("more cases", 2, range(5)))
def test_startup_frames_end_in_an_outcome_with_a_reason(part):
    outcomes = outcomes_of(Startup, range(2000 * part, 2000 * (part + 1)))
    assert outcomes.keys() == {"Established", "Rejected", "Failed"}
    assert min(outcomes.values()) > 20  # faults cause every outcome


@pytest.mark.parametrize("part", shortened("more cases", 2, range(5)))
def test_9800_fpdu_streams_deliver_exactly_the_good_ulpdus(part):
    outcomes = outcomes_of(Fpdus, range(1960 * part, 1960 * (part + 1)))
    assert 500 < outcomes["waits for more"] < 1000  # all others end with an error
    assert outcomes["CRC"] > 200


def test_a_cut_of_a_whole_fpdu_is_no_fault():
    """With this seed the first fault would cut the second of the FPDUs out, from its first octet to its last."""
    assert Fpdus.make("fpdus-4142701308-67", 67).run().total() == 1


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_200_fpdu_streams_end_in_the_rtl_as_in_the_software(lanes):
    nth = LANES.index(lanes)
    assert outcomes_of(FpdusRtl, range(nth, nth + 1), lanes=lanes) == {"same as the software": 40}


@pytest.mark.parametrize("part", shortened("more random frames", 1, range(4)))
def test_random_and_mutated_frames_do_no_harm(part):
    outcomes = outcomes_of(Tcp, range(10 * part, 10 * (part + 1)))
    kinds = [outcomes[kind] for kind in ("random", "mutated", "forged")]
    assert outcomes.total() == 5000
    assert min(kinds) > 500
    assert outcomes.total() - sum(kinds) < 100


@pytest.mark.parametrize("kind", soak.KINDS.values())
def test_a_case_is_reproducible_from_its_seed_and_number(kind):
    assert kind.make("seed", 17) == kind.make("seed", 17) != kind.make("another", 17)


def test_frames_for_the_twin_are_reproducible():
    assert Tcp("seed", 200).run() == Tcp("seed", 200).run() != Tcp("another", 200).run()


def test_a_fault_is_found_shrunk_kept_and_replayed(monkeypatch, tmp_path, capsys):
    """The fault is a delineator that accepts an FPDU with a wrong CRC."""
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    right = FpduDelineator.__init__
    monkeypatch.setattr(FpduDelineator, "__init__", lambda self, **options: right(self, **options | {"crc": False}))
    outcomes, failures = batch(Fpdus, 1, range(8))
    kept = sorted((tmp_path / "soak").iterdir())
    assert len(kept) == len(failures) == outcomes["failed"] > 0
    assert f"--replay {kept[0]}" in "".join(failures)
    assert soak.main(["--replay", str(kept[0])]) == 1
    assert "AssertionError" in capsys.readouterr().out
    monkeypatch.undo()
    assert soak.main(["--replay", str(kept[0])]) == 0


def test_a_failing_case_is_shrunk_to_the_relevant_octets():
    long = replace(Fpdus.make("seed", 1), octets=random.randbytes(100) + b"bad" + random.randbytes(900))
    assert long.shrunk(lambda each: b"bad" in each.octets).octets == b"bad"


def test_a_wrong_rtl_is_found_and_its_stream_is_kept(monkeypatch, tmp_path):
    """The RTL is correct, so the test gives the software other octets."""
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    streams = [Fpdus.make(f"stream {number}", number) for number in range(3)]
    good = streams[1].good
    streams[1] = replace(streams[1], octets=good[:-1] + bytes([good[-1] ^ 1]), good=good[:20])
    [failure] = batch(FpdusRtl, 1, range(1), lanes=4, streams=streams)[1]
    assert "streams_end_as_in_the_software: stream 1: " in failure
    kept = soak.kept(next((tmp_path / "soak").iterdir()))
    assert kept == FpdusRtl("fpdus-rtl-1-0", 4, streams[1:2])


def hang(*_):
    while True:
        pass


@pytest.mark.parametrize(("kind", "owner", "name"), [(Fpdus, Fpdus, "expected"), (Tcp, Host, "receive")])
def test_a_case_that_hangs_is_a_failure(kind, owner, name, monkeypatch):
    monkeypatch.setattr(case, "HANG", 0.2)
    monkeypatch.setattr(owner, name, hang)
    assert attempt(kind.make("seed", 1)) == ({"failed": 1}, "Hang: not finished after 0.2 s of processor time")


def test_memory_that_grows_is_a_failure(monkeypatch):
    monkeypatch.setattr(case, "GROWTH", -1)
    assert batch(Fpdus, 1, range(1))[1] == ["fpdus-1, cases 0 to 0: memory grew by 0 MiB"]


def test_octets_that_were_not_sent_are_found(monkeypatch):
    take = Endpoint.take
    monkeypatch.setattr(Endpoint, "take", lambda *arguments: take(*arguments) + b"x")
    assert attempt(Tcp("seed"))[1] == "AssertionError: octets were delivered that were not sent"


@pytest.mark.parametrize(("frames", "wrong"), [
    (5, "no connection opens any more"), (14, "a good connection does not close"),
    (23, "a good connection delivers no more"),
])  # fmt: skip
def test_hosts_that_become_deaf_are_found(frames, wrong, monkeypatch):
    receive, left = Host.receive, iter(range(frames))
    monkeypatch.setattr(Host, "receive", lambda *given: receive(*given) if next(left, None) is not None else None)
    assert attempt(Tcp("seed", 20))[1] == f"AssertionError: {wrong}"


def test_a_run_on_several_processes_counts_all_cases(capsys):
    assert soak.main(["tcp", "--count", "45", "--seed", "3", "--jobs", "2", "--set", "frames=8"]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == "tcp: 45 cases, seed 3, 2 processes"
    assert sum(int(each.split()[0]) for each in lines if "after" not in each) == 45 * 8
    assert last.startswith("tcp, seed 3: no failure(s) in ")


@pytest.mark.parametrize(("arguments", "line"), [
    (["mpa"], f"there is no kind mpa: the kinds are {', '.join(soak.KINDS)}"),
    (["--jobs", "0"], "--jobs must be at least 1, not 0"),
    (["--count", "x"], "argument --count: invalid int value: 'x'"),
    (["tcp", "--set", "lanes=1"], "--set lanes=1: a case of tcp has the fields frames"),
    (["tcp", "--set", "frames=x"], "--set frames=x: Expected `int`, got `str`"),
    (["--replay", "nowhere"], "--replay nowhere: No such file or directory"),
])  # fmt: skip
def test_bad_input_gives_one_line(arguments, line, capsys):
    with pytest.raises(SystemExit) as ended:
        soak.main(arguments)
    assert (ended.value.code, capsys.readouterr().err) == (2, f"soak: {line}\n")
