"""``rnic bench sim``: it runs, its figures are plausible, and the device is faster than a driver of single beats."""

from __future__ import annotations

import json

import pytest

from open_rnic.host_driver.tools.bench.sim import AXI, LEAST, LOOP, PAIR, ULPDU, Speed, plain, table
from open_rnic.host_driver.tools.cli import run

LANES = 4  # a width that other tests build, too


def test_the_device_is_compared_with_drivers_that_work_beat_by_beat(capsys, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- rnic bench sim -->\n<!-- end of rnic bench sim -->\n")
    options = ["--lanes", str(LANES), "--rounds", "1", "--ulpdus", "200"]
    assert run(["bench", "sim", *options, "--json", "-", "--markdown", str(page)]) == 0
    speeds = {speed["what"]: speed for speed in json.loads(capsys.readouterr().out)}
    assert list(speeds) == [LOOP, AXI, LEAST, PAIR]
    for speed in speeds.values():
        assert (speed["lanes"], speed["rounds"]) == (LANES, 1)
        assert speed["octets"] % len(ULPDU) == 0
        assert 0.5 < speed["octets_per_s"] / speed["cycles_per_s"] / LANES < 4, "octets a cycle, of a lane"
    assert speeds[AXI]["device_is_times"] == pytest.approx(speeds[LOOP]["octets_per_s"] / speeds[AXI]["octets_per_s"])
    assert speeds[AXI]["device_is_times"] > 5
    assert page.read_text().count("\n| ") == 1 + 1 + 4


def test_ratios_compare_the_same_width():
    speeds = [Speed(what, lanes, 1, 1460, rate * lanes, 1000)
              for lanes in (1, 4) for what, rate in ((LOOP, 1000), (AXI, 10), (LEAST, 50), (PAIR, 500))]  # fmt: skip
    assert [each["device_is_times"] for each in plain(speeds)] == 2 * [1, 100, 20, 2]
    assert [row[-1] for row in table(speeds).rows] == 2 * ["", "100.0", "20.0", ""]


@pytest.mark.parametrize(("options", "line"), [
    (["--lanes", "5"], "--lanes must be one of 1, 2, 4, 8, 16, not 5"),
    (["--rounds", "0"], "--rounds must be at least 1, not 0"),
    (["--ulpdus", "-1"], "--ulpdus must be at least 1, not -1"),
])  # fmt: skip
def test_an_invalid_option_of_bench_sim_is_named(options, line, capsys):
    assert run(["bench", "sim", *options]) == 2
    assert capsys.readouterr().err == f"rnic: {line}\n"
