"""The tables of all commands: no cell is truncated, on terminals of any width."""

import io
import re

import pytest
from rich.console import Console

from open_rnic.boards import BOARDS, find
from open_rnic.cocotb_tests.boards.test_build import RESULT
from open_rnic.cocotb_tests.host_driver.tools.test_split_page import report as split_report
from open_rnic.host_driver.tools.bench.connections import Many, Memory, Rate
from open_rnic.host_driver.tools.bench.datapath import Case, Cost
from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS
from open_rnic.host_driver.tools.bench.rtl.cycles import Cycles, Flow, Latency
from open_rnic.host_driver.tools.bench.rtl.report import Report
from open_rnic.host_driver.tools.bench.rtl.sweep import Case as Placed
from open_rnic.host_driver.tools.bench.rtl.sweep import Row
from open_rnic.host_driver.tools.bench.sim import AXI, LEAST, LOOP, Speed
from open_rnic.host_driver.tools.bench.sim import table as sim_table
from open_rnic.host_driver.tools.bench.table import Table, show
from open_rnic.host_driver.tools.cli import run
from open_rnic.host_driver.tools.cli.bench import _host_tables
from open_rnic.rtl.registers import MAP

WIDTHS = 60, 80, 120


def shown(tables, width, **options):
    out = io.StringIO()
    show(Console(file=out, width=width, force_terminal=False), tables, **options)
    return out.getvalue()


def host():
    cost = Cost(Case(1 << 20, 8882, True, False), 119, *[1234.5678e-6] * 3, 12.34, 12.34, 10.01, 10.01)
    left = dict.fromkeys(("tasks", "file descriptors", "connections"), 0)
    return _host_tables([cost], Rate(500, 5, 1234.5, 0.001, 0.002), Memory(1000, 4e4, 1e6, 1e6),
                        Many(1000, 3, 1024, 12.3, left))  # fmt: skip


def rtl():
    path = ("datapath.receive.delineator.octets_left", "datapath.receive.checker.verdict_pending")
    rows = [Row(Placed(block, 16, "85f", 5), (123.4e6, 234.5e6, 99.9e6), 123456, 123456, 123, path) for block in BLOCKS]
    failed = Row(Placed("TX+RX", 16, "hx8k", 5), (), failure="no room: 12,345 cells of 7,680")
    flow = [Flow(16, direction, together, load, True, True, 1000, 1234)
            for direction in ("TX", "RX") for together in (True, False) for load in ("0", "64", "1442", "mixed")]
    latency = [Latency(16, "TX", octets, behind, False, True, 12, 34)
               for octets in (1, 1442) for behind in (None, 1, 1442)]
    return Report([*rows, failed], [Cycles("TX", 16, tuple(flow), tuple(latency))]).tables()


def sim():
    return [sim_table([Speed(what, 16, 3, 10**6, 123456.7, 34567.8) for what in (LOOP, AXI, LEAST)])]


def split():
    return split_report().tables(everything=True)


def boards():
    return ["boards"], [(name, *find(name).title.split()) for name in BOARDS]


def registers():
    return ["registers"], [(each.name, *(field.name for field in each.fields)) for each in MAP]


def words(text):
    return set(re.findall(r"[^\s│┃]+", text))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("everything", [False, True], ids=["short", "whole"])
@pytest.mark.parametrize("made", [host, rtl, sim, split])
def test_no_cell_is_truncated(made, everything, width):
    tables = made()
    text = shown(tables, width, everything=everything)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for table in tables:
        for row in table.rows:
            for n, cell in enumerate(row):
                if everything or n not in table.extra:
                    assert {word for word in cell.split() if len(word) <= 20} <= words(text), cell


@pytest.mark.parametrize("made", [host, rtl, sim, split])
def test_a_short_table_fits_into_80_columns(made):
    tables = made()
    assert shown(tables, 80).count("┏") == len(tables)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("made", [boards, registers])
def test_no_cell_of_a_listing_is_truncated(made, width, monkeypatch, capsys):
    command, rows = made()
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(command) == 0
    text = capsys.readouterr().out
    table = [line for line in text.splitlines() if line[:1] in "│┃┏└┡"]
    assert table
    assert max(map(len, table)) <= width
    assert "…" not in text
    for row in rows:
        assert set(row) <= words(text), row


@pytest.mark.parametrize("width", WIDTHS)
def test_no_cell_of_a_build_is_truncated(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("open_rnic.boards.build.build", lambda *_, **__: RESULT)
    run(["build", "ulx3s"])
    text = capsys.readouterr().out
    assert {"TRELLIS_COMB", "6,000", "83,640"} <= words(text)


def test_hidden_columns_are_announced_and_can_be_shown(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["boards"]) == 0
    short = capsys.readouterr().out
    assert "LFE5U-85F-6BG381C" not in short
    assert "run with --columns to show more columns" in short
    assert run(["boards", "--columns"]) == 0
    whole = capsys.readouterr().out
    assert "LFE5U-85F-6BG381C" in whole
    assert "--columns" not in whole


@pytest.mark.parametrize("made", [boards, registers])
def test_no_line_of_a_listing_is_wider_than_80(made, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(made()[0]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_table_that_does_not_fit_is_shown_as_records():
    table = Table("wide", ("name", "long"), [("one", "x" * 50), ("two", "")], left=(0, 1))
    assert shown([table], 30).split() == ["wide", "name:", "one", "long:", "x" * 30, "x" * 20, "name:", "two"]
    assert shown([table], 80).count("┏") == 1
