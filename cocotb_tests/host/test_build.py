"""Bitstreams: what can be refused before any tool runs."""

import json

import pytest

from boards.build import Result, build
from host_driver.cli import run


@pytest.mark.parametrize(("name", "lanes", "what"), [
    ("nonesuch", None, "no board is called 'nonesuch'; there are colorlight_5a75b"),
    ("colorlight_5a75b", 3, "lanes must be one of 1, 2, 4, 8, 16, not 3"),
])
def test_what_cannot_be_built_is_named(name, lanes, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        build(name, tmp_path, lanes=lanes)


def test_an_unknown_board_is_one_line(capsys):
    assert run(["build", "nonesuch"]) == 2
    assert capsys.readouterr().err == "rnic: no board is called 'nonesuch'; there are colorlight_5a75b\n"


def test_a_slow_clock_is_not_met(tmp_path):
    assert not Result(tmp_path / "top.bit", asked=25e6, reached=24.9e6, cells={}).met


def report(folder, achieved):
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps({
        "fmax": {"clk": {"achieved": achieved, "constraint": 25.0}},
        "utilization": {"TRELLIS_COMB": {"used": 6000, "available": 24288}, "EHXPLLL": {"used": 0, "available": 2}},
    }))


@pytest.mark.parametrize(("achieved", "status", "says"), [
    (78.3, 0, "clock: 78.3 MHz reached, 25.0 MHz asked"),
    (24.9, 1, "rnic: clock: 24.9 MHz reached, 25.0 MHz asked: too slow"),
])
def test_the_tools_report_is_told(achieved, status, says, tmp_path, monkeypatch, capsys):
    """What place and route wrote, with the tools left out."""
    monkeypatch.setattr("boards.build._run", lambda folder, stage: report(folder, achieved))
    assert run(["build", "colorlight_5a75b", "--lanes", "1", "--out", str(tmp_path)]) == status
    told = capsys.readouterr()
    assert says in told.out + told.err
    assert "6,000" in told.out
    assert "EHXPLLL" not in told.out


def test_a_tool_that_fails_is_named_with_its_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("boards.build._tool", lambda name: "false")
    assert run(["build", "colorlight_5a75b", "--lanes", "1", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith(f"failed with exit code 1: see {tmp_path / 'log'}\n")
