"""``rnic split --run``: the simulated splits, the store of results, and the table."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from dataclasses import replace

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_split import SETTING
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.tools.bench.rtl.jobs import ToolError
from open_rnic.host_driver.tools.bench.rtl.store import Store
from open_rnic.host_driver.tools.split import model, simulate
from open_rnic.host_driver.tools.split.simulate import Simulated, errors, run, summary, table, tasks
from open_rnic.host_driver.tools.split.stages import Direction


@pytest.mark.parametrize(
    ("markers", "crc", "count"), [(True, True, 30), (True, False, 14), (False, True, 14), (False, False, 6)]
)
def test_every_split_with_an_active_device_is_run(markers, crc, count):
    found = tasks([replace(SETTING, markers=markers, crc=crc)], [64, 4096])
    assert len(set(found)) == len(found) == 2 * count
    assert {sum(task.ulpdus) - 14 * len(task.ulpdus) for task in found} == {64, 4096}


class Local(Executor):
    """Runs jobs in this process, with results off by ``error``; after ``jobs`` jobs, it fails."""

    def __init__(self, jobs=1000, error=0.0):
        self.left, self.error = jobs, error

    def submit(self, job, /, wanted, read):
        future = Future()
        self.left -= 1
        if self.left < 0:
            future.set_exception(ToolError("the simulation has ended"))
        else:
            future.set_result([Simulated(task, 1000, round(1000 * (1 + self.error)), task.message) for task in wanted])
        return future


def test_results_before_an_interruption_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(simulate, "sources", lambda: "these")
    wanted = tasks([SETTING], [64, 4096])  # two directions, two sizes: four jobs
    first, second = Local(1), Local(3)
    with pytest.raises(ToolError, match="the simulation has ended"):
        asyncio.run(run(lambda: first, Store(tmp_path), wanted, lambda: None))
    found = asyncio.run(run(lambda: second, Store(tmp_path), wanted, lambda: None))
    assert second.left == 0
    assert [each.task for each in found] == wanted


def test_the_table_has_the_median_and_the_worst_error(tmp_path, monkeypatch):
    monkeypatch.setattr(simulate, "sources", lambda: "these")
    wanted = tasks([SETTING], [64, 4096])
    found = asyncio.run(run(lambda: Local(error=0.02), Store(tmp_path), wanted[:-1], lambda: None))
    found.append(Simulated(wanted[-1], 1000, 930, 0))
    assert errors(found) == pytest.approx((0.02, 0.07))
    shown = table(found)
    assert "in 60 runs: median error 2.00%, worst 7.00%" in shown.title
    assert len(shown.rows) == 30
    assert shown.rows[-1][-1] == "-7.0%"
    assert [row[:5] for row in summary(found).rows] == [
        ("transmit", "2", "30", "2.00%", "2.00%"),
        ("receive", "2", "30", "2.00%", "7.00%"),
    ]


@pytest.mark.parametrize(("markers", "crc"), shortened(
    "both values of both are in the short run", 2, [(True, True), (False, False), (True, False), (False, True)],
))  # fmt: skip
def test_the_octets_over_the_link_in_simulation_match_the_model(markers, crc):
    """Except for markers, for which the model uses their average number."""
    setting = replace(SETTING, markers=markers, crc=crc)
    wanted = tasks([setting], [5000])
    for direction in Direction:
        those = [task for task in wanted if task.direction is direction]
        for each in simulate.simulate(those, simulate.sources()):
            said = sum(
                model._octets(setting, direction, ulpdu)[station.place]
                for station in model._way(setting, each.task.split, direction)
                if station.kind is None and 0 < station.place < len(setting.active(direction))
                for ulpdu in each.task.ulpdus
            )
            assert each.link == pytest.approx(said, rel=0.005), each.task
