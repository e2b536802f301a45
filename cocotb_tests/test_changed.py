"""Which tests a change concerns."""

import subprocess

import pytest

from open_rnic.cocotb_tests import changed
from open_rnic.cocotb_tests.changed import ROOT, concerned, differing
from open_rnic.cocotb_tests.system_packages import needs

FENCE, FRAMER, LOADER = (
    ROOT / "rtl" / each for each in ("mpa/tx/fence.py", "mpa/tx/framer.py", "rdma/message_loader.py")
)
TESTS = {
    "fence": ROOT / "cocotb_tests/rtl/mpa/test_fence.py",
    "pairs": ROOT / "cocotb_tests/test_lengths.py",
    "device": ROOT / "cocotb_tests/system/test_simulated.py",
}
USED = {"fence": set(), "pairs": set(), "device": {"open_rnic.host_driver.devices.sim.rings"}}


def of(*files, used=USED):
    return concerned(TESTS.items(), used, {*files})


def test_a_test_is_concerned_by_what_it_imports_and_by_the_designs_that_it_simulated():
    assert of(FENCE) == {"fence", "device"}
    assert of(FRAMER) == {"device"}
    assert of(LOADER) == of() == set()
    assert of(TESTS["pairs"]) == {"pairs"}


def test_a_test_that_never_ran_is_concerned():
    assert of(LOADER, used={"fence": set(), "pairs": set()}) == {"device"}


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
    assert changed.uses() == {}
    for kind, name, test in (("test", "a", ""), ("use", "maker", "b"), ("use", "other", "b")):
        ledger = tmp_path / "ledger"
        ledger.write_text(f'{{"kind": "{kind}", "name": "{name}", "test": "{test}"}}\n')
        changed.remember(ledger)
    assert changed.uses() == {"a": set(), "b": {"maker", "other"}}
