"""Which tests a change concerns."""

import json
import subprocess
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins import changed
from open_rnic.cocotb_tests.plugins.changed import ROOT, TYPICAL, UNKNOWN, Known, concerned, differing, nearest
from open_rnic.cocotb_tests.plugins.system_packages import needs

FENCE, FRAMER, LOADER = (
    ROOT / "rtl" / each for each in ("mpa/tx/fence.py", "mpa/tx/framer.py", "rdma/message_loader.py")
)
TESTS = {
    "fence": ROOT / "cocotb_tests/rtl/mpa/test_fence.py",
    "pairs": ROOT / "cocotb_tests/plugins/test_lengths.py",
    "device": ROOT / "cocotb_tests/system/test_simulated.py",
}
TESTED = {"fence": Known(), "pairs": Known(), "device": Known({"open_rnic.host_driver.devices.sim.rings"})}


def of(*files, tested=TESTED):
    return concerned(TESTS.items(), tested, {*files})


def test_a_test_is_concerned_by_what_it_imports_and_by_the_designs_that_it_simulated():
    assert of(FENCE).keys() == {"fence", "device"}
    assert of(FRAMER).keys() == {"device"}
    assert of(LOADER) == of() == {}
    assert of(TESTS["pairs"]) == {"pairs": 0}


def test_a_test_of_a_block_is_nearer_to_it_than_a_test_of_all():
    found = of(FENCE)
    assert found["fence"] == 1 < found["device"]


def test_a_test_that_never_ran_may_be_concerned_and_is_the_last_unless_its_imports_are_near():
    assert of(LOADER, tested={"fence": Known(), "pairs": Known()}) == {"device": UNKNOWN}
    assert of(FENCE, tested={}) == of(FENCE) | {"pairs": UNKNOWN, "device": UNKNOWN}


def test_a_test_that_never_ran_costs_as_much_as_others_do():
    tested = {"a": Known(seconds=10), "b": Known(seconds=20)}
    assert nearest({"new": 0}, tested, 14) == set() != nearest({"new": 0}, tested, 15)
    assert nearest({"new": 0}, {}, TYPICAL) == {"new"}


@pytest.mark.parametrize(("seconds", "chosen"), [(9, ""), (10, "a"), (30, "ab"), (69, "ab"), (70, "abc")])
def test_in_a_limited_time_the_nearest_run_and_of_those_the_cheapest(seconds, chosen):
    tested = {"a": Known(seconds=10), "b": Known(seconds=20), "c": Known(seconds=40), "other": Known(seconds=1)}
    assert nearest({"c": 2, "b": 1, "a": 1}, tested, seconds) == {*chosen}


@needs("git")
def test_files_that_git_does_not_know_differ(monkeypatch, tmp_path):
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for name in ("kept", "edited"):
        (tmp_path / name).write_text(name)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    (tmp_path / "edited").write_text("otherwise")
    (tmp_path / "new").touch()
    assert differing("HEAD") == {tmp_path / "edited", tmp_path / "new"}
    with pytest.raises(ValueError, match=r"--changed nowhere: .*nowhere"):
        differing("nowhere")


def test_what_tests_have_used_is_added_up_over_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    assert changed.known() == {}
    for line in (
        {"kind": "test", "name": "a", "own": 1, "started": 2}, {"kind": "use", "name": "maker", "test": "b"},
        {"kind": "use", "name": "other", "test": "b"}, {"kind": "test", "name": "a", "own": 1, "started": 1},
    ):  # fmt: skip
        ledger = tmp_path / "ledger"
        ledger.write_text(json.dumps(line))
        changed.remember(ledger)
    assert changed.known() == {"a": Known(seconds=3), "b": Known({"maker", "other"})}


def test_another_run_can_read_what_is_known_while_it_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    ledger, write = tmp_path / "ledger", Path.write_text
    ledger.write_text(json.dumps({"kind": "test", "name": "a", "own": 1, "started": 2}))
    changed.remember(ledger)

    def half(path, text):
        write(path, text[:5])
        assert changed.known() == {"a": Known(seconds=3)}
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", half)
    changed.remember(ledger)
    assert changed.known() == {"a": Known(seconds=3)}
