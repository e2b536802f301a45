"""The sums of a ledger of processor time."""

import json

from open_rnic.cocotb_tests.plugins import costs
from open_rnic.host_driver.builds import ledger

LINES = [
    {"kind": "test", "name": "cocotb_tests/a.py::one", "test": "", "own": 5, "started": 20},
    {"kind": "test", "name": "cocotb_tests/b.py::two", "test": "", "own": 1, "started": 0},
    {"kind": "elaboration", "name": "Fence", "test": "cocotb_tests/a.py::one", "python": 2},
    {"kind": "build", "name": "Fence-0", "test": "cocotb_tests/a.py::one", "yosys": 1, "verilator": 2, "compiler": 3},
    {"kind": "simulation", "name": "Fence-0", "test": "cocotb_tests/a.py::one", "model": 4},
    {"kind": "use", "name": "open_rnic.rtl.mpa.tx.fence", "test": "cocotb_tests/a.py::one"},
]


def test_each_second_is_in_one_part():
    parts = costs.add(LINES).parts
    assert parts == {
        "elaboration": 2, "yosys": 1, "verilator": 2, "compiler": 3, "model": 4, "programs": 10, "python": 4
    }  # fmt: skip
    assert parts.keys() == costs.PARTS.keys()


def test_tables_have_the_costliest_first():
    head, rows = list(costs.tables(costs.add(LINES)))[1]
    assert dict(zip(head, rows[0], strict=True)) == {
        "file": "cocotb_tests/a.py", "tests": "1", "s": "25", "builds": "1", "s of builds": "6"
    }  # fmt: skip
    assert costs.summary(costs.add(LINES)) == "26 s of processor time, 6 s of it for 1 builds of simulations"


def test_a_page_gets_the_tables(tmp_path, capsys):
    page, file = tmp_path / "page.md", tmp_path / "ledger"
    page.write_text("before\n<!-- costs -->\nold\n<!-- end of costs -->\nbehind\n")
    file.write_text("".join(json.dumps(each) + "\n" for each in LINES))
    assert costs.main([str(file), "--markdown", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- costs -->\n| part | s |\n|---|--:|\n")
    assert "| all | 26 |" in text
    assert "old" not in text
    page.write_text("a page without a place\n")
    assert costs.main([str(file), "--markdown", str(page)]) == 1
    assert "has no place for tables, from <!-- costs -->" in capsys.readouterr().err


def test_a_missing_ledger_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    assert costs.main([]) == 1
    assert "last.jsonl does not exist: run the tests first" in capsys.readouterr().err


def test_programs_write_only_if_they_are_asked_to(monkeypatch, tmp_path):
    monkeypatch.delenv(ledger.VARIABLE)
    ledger.note("build", "Fence-0", compiler=1)
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path))
    ledger.note("build", "Fence-0", compiler=1.23456)
    [file] = tmp_path.iterdir()
    [line] = costs.read(file)
    assert (line["kind"], line["name"], line["compiler"]) == ("build", "Fence-0", 1.235)
    assert line["test"].endswith("::test_programs_write_only_if_they_are_asked_to")
