"""20,000 cases of the soak test (:mod:`open_rnic.cocotb_tests.soak`), and tests of the soak test itself."""

import functools
import json
import os
import random
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from open_rnic.cocotb_tests import soak
from open_rnic.cocotb_tests.datapath import SideBySide
from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.cocotb_tests.lengths import shortened, widths
from open_rnic.cocotb_tests.soak import KINDS, Case, attempt, batch, shrunk
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.host_driver.mpa.rtr import rtr_ulpdu
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import Model, Role, Rtr

SEED = int(os.environ.get("COCOTB_RANDOM_SEED") or random.SystemRandom().getrandbits(32))


def run_cases(lanes, cases):
    """Run cases in RTL of this width; raises AssertionError with the number of the first case that fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cases.json")
        path.write_text(json.dumps([each.to_json() for each in cases]))
        simulate(
            functools.partial(MpaDatapath, lanes), mutated_streams_end_as_in_the_software,
            parameters={"lanes": lanes, "cases": str(path)}, seconds=3600,
        )  # fmt: skip


@bench(cycles=100_000_000)
async def mutated_streams_end_as_in_the_software(dut):
    pair = SideBySide(dut, parameter("lanes"))
    config = {
        "role": Role.RESPONDER, "model": Model.PEER_TO_PEER, "rtr_accept": sum(kind.bit for kind in KINDS)
    }  # fmt: skip
    for number, data in enumerate(json.loads(Path(parameter("cases")).read_text())):
        case = Case.from_json(data)
        try:
            await pair.connect(markers_rx=soak.has_markers(case.seed), **config)
            random.seed(case.seed)
            longest = random.choice([3, 20, 1460, 65536])
            # The software answers a Read RTR and opens the fence at once. The RTL needs some cycles, and an error in
            # this time keeps its fence shut, so the octets behind the RTR wait until the RTL has settled.
            first = soak.rtr_octets(case)
            await pair.receive(case.octets[:first], longest)
            await pair.receive(case.octets[first:], longest)
            ulpdus, _ = soak.expected(case)
            assert (await pair.agree()).delivered == ulpdus
            if number % 10 == 9:
                await pair.connect(markers_rx=0, **config)
                framer = FpduFramer(markers=False, crc=True)
                await pair.receive(framer.frame(rtr_ulpdu(Rtr.WRITE)) + framer.frame(b"good"))
                assert (await pair.agree()).delivered == [b"good"]
        except AssertionError as error:
            raise AssertionError(f"case number {number} ({case.seed}): {error}") from None


def _all_well(report):
    assert not report.failures, "\n".join(report.failures)


@pytest.mark.parametrize("part", shortened("more cases", 2, range(5)))
def test_10000_startup_frames_end_in_an_outcome_with_a_reason(part):
    report = batch("startup", SEED, range(2000 * part, 2000 * (part + 1)))
    _all_well(report)
    assert set(report.outcomes) == {"startup: Established", "startup: Rejected", "startup: Failed"}
    assert min(report.outcomes.values()) > 20  # mutations cause every outcome


@pytest.mark.parametrize("part", shortened("more cases", 2, range(5)))
def test_9800_fpdu_streams_deliver_exactly_the_good_ulpdus(part):
    report = batch("stream", SEED, range(1960 * part, 1960 * (part + 1)))
    _all_well(report)
    assert 500 < report.outcomes["stream: waits for more"] < 1000  # all others end with an error
    assert report.outcomes["stream: CRC"] > 200


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_200_fpdu_streams_end_in_the_rtl_as_in_the_software(lanes):
    nth = LANES.index(lanes)
    _all_well(batch("rtl", SEED, range(40 * nth, 40 * (nth + 1))))


def test_a_case_is_reproducible_from_its_seed_and_number():
    for kind in ("startup", "stream", "rtl"):
        case = Case.make(kind, 5, 17)
        assert case == Case.make(kind, 5, 17) == Case.from_json(case.to_json())
        assert case != Case.make(kind, 6, 17)


def test_a_fault_is_found_shrunk_kept_and_replayed(monkeypatch, tmp_path, capsys):
    """The fault is a delineator that accepts an FPDU with a wrong CRC."""
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    right = FpduDelineator.__init__
    monkeypatch.setattr(FpduDelineator, "__init__", lambda self, **options: right(self, **options | {"crc": False}))
    report = batch("stream", 1, range(8))
    assert report.failures
    assert report.outcomes["stream: failed"] == len(report.failures)
    kept = sorted((tmp_path / "soak").iterdir())
    assert len(kept) == len(report.failures)
    assert f"--replay {kept[0]}" in "".join(report.failures)
    monkeypatch.setattr("sys.argv", ["soak", "--replay", str(kept[0])])
    assert soak.main() == 1
    assert "AssertionError" in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.setattr("sys.argv", ["soak", "--replay", str(kept[0])])
    assert soak.main() == 0


def test_a_failing_case_is_shrunk_to_the_relevant_octets():
    case = replace(Case.make("stream", 1, 1), octets=random.randbytes(100) + b"bad" + random.randbytes(900))
    assert shrunk(case, lambda each: b"bad" in each.octets).octets == b"bad"


def test_a_case_that_hangs_is_a_failure(monkeypatch):
    def hang(case):
        while True:
            pass

    monkeypatch.setattr(soak, "HANG", 0.2)
    monkeypatch.setattr(soak, "_try_stream", hang)
    ended, wrong = attempt(Case.make("stream", 1, 1))
    assert (ended, wrong) == ("failed", "Hang: not finished after 0.2 s of processor time")


def test_memory_that_grows_is_a_failure(monkeypatch):
    monkeypatch.setattr(soak, "GROWTH", -1)
    [failure] = batch("stream", 1, range(1)).failures
    assert failure == "stream 1, cases 0 to 0: memory grew by 0 MiB"


def test_a_wrong_rtl_is_found_and_its_case_is_named(monkeypatch):
    """The RTL is correct, so the test gives the software other octets."""
    cases = [Case.make("rtl", 1, number) for number in range(3)]
    cases[1] = replace(cases[1], octets=cases[1].good[:-1] + bytes([cases[1].good[-1] ^ 1]), good=cases[1].good[:20])
    with pytest.raises(AssertionError, match=r"case number 1 \(rtl 1 1\)"):
        run_cases(4, cases)


def test_a_run_on_several_processes_counts_all_cases(capsys):
    seen = []
    report = soak.soak(300, 3, 2, seen.append, simulated=0)
    _all_well(report)
    assert sum(seen) == sum(report.outcomes.values()) == 300
    assert isinstance(report.outcomes, Counter)
