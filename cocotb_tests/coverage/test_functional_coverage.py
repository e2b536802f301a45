"""Functional coverage: combinations are counted, merged and reported, and a run without full coverage fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from open_rnic.cocotb_tests import coverage
from open_rnic.cocotb_tests.coverage import CROSSES, FENCE, RECEIVE, Cross, complete, summary, table
from open_rnic.cocotb_tests.plugins.lengths import shortened

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
SMALL = Cross(
    "small", "things", {"colour": ("red", "green"), "size": (1, 2, 3)},
    (("no green thing is large", lambda **at: at["colour"] == "green" and at["size"] == 3),),
)  # fmt: skip
ALL = {name: set(cross.possible.values()) for name, cross in CROSSES.items()}


def test_each_combination_is_possible_or_has_a_reason():
    assert len(SMALL.bins) == 6
    assert len(SMALL.possible) == 5
    assert SMALL.impossible == {"no green thing is large": 1}
    assert {each: SMALL.number(each) for each in SMALL.possible} == SMALL.possible
    assert len(set(SMALL.possible.values())) == 5
    for cross in CROSSES.values():
        assert sum(cross.impossible.values()) + len(cross.possible) == len(cross.bins)
        assert set(cross.impossible) == {why for why, _ in cross.without}  # every reason applies to some combination


def test_missing_combinations_are_reported():
    seen = {SMALL.number(each) for each in SMALL.possible if each[0] == "green"}
    assert SMALL.missing(seen) == ["colour red, size 1", "colour red, size 2", "colour red, size 3"]


def test_an_impossible_combination_that_occurs_is_an_error():
    with pytest.raises(ValueError, match="small: colour green, size 3 was seen, but no green thing is large"):
        SMALL.number(("green", 3))
    with pytest.raises(KeyError):
        SMALL.number(("blue", 1))


def test_a_single_missing_combination_is_incomplete_and_named():
    assert complete(ALL)
    assert not any("missing" in line for line in summary(ALL))
    for cross in (RECEIVE, FENCE):
        words, seventh = [*cross.possible.items()][7]
        less = ALL | {cross.name: ALL[cross.name] - {seventh}}
        assert not complete(less)
        [line] = [line for line in summary(less) if "missing" in line]
        assert all(str(value) in line for value in words)


@pytest.mark.parametrize(("text", "reason"), [("# A page", "has no place for tables"), (None, "No such file")])
def test_a_page_that_cannot_take_the_tables_is_named(text, reason, monkeypatch, tmp_path, capsys):
    page = tmp_path / "page.md"
    if text:
        page.write_text(text)
    monkeypatch.setattr(coverage, "read", lambda folder: ALL)
    monkeypatch.setattr(sys, "argv", ["coverage", str(page)])
    assert coverage.main() == 1
    error = capsys.readouterr().err
    assert reason in error
    assert str(page) in error


def test_the_page_has_the_table_of_a_complete_run():
    table_of_page = PAGE.read_text().partition("<!-- coverage -->\n")[2].partition("<!-- end of coverage -->")[0]
    assert table_of_page.splitlines() == list(table(ALL)), "make coverage"


@pytest.mark.parametrize(
    ("seen", "arguments", "status"),
    shortened(
        "another way to choose tests",
        3,
        [("all", [], 0), ("less", [], 1), ("less", ["test_it.py"], 0), ("less", ["-k", "first"], 0)],
    ),
)
def test_a_complete_run_fails_if_a_combination_is_missing(seen, arguments, status, tmp_path):
    workers = [] if arguments else ["-n", "2"]
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    (tmp_path / "conftest.py").write_text("from open_rnic.cocotb_tests.conftest import *\n")
    fence = "ALL['fence']" if seen == "all" else "{max(ALL['fence'])}"
    (tmp_path / "test_it.py").write_text(
        "from open_rnic.cocotb_tests import coverage\n"
        "from open_rnic.cocotb_tests.coverage.test_functional_coverage import ALL\n"
        "def leave(name, hits): coverage.write(coverage.folder() / name, hits)\n"
        "def test_first(): leave('1.json', {name: hits for name, hits in ALL.items() if name != 'fence'})\n"
        f"def test_second(): leave('2.json', {{'fence': {fence}}})\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *workers, *arguments],
        cwd=tmp_path, env=os.environ | {"OPEN_RNIC_BUILD": str(tmp_path / "build")}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert "functional coverage" in done.stdout
    assert ("missing: lanes 1" in done.stdout) is (seen == "less")
    assert ("coverage need not be complete" in done.stdout) is bool(arguments)
    assert (tmp_path / "build" / "coverage" / "last.json").is_file()
