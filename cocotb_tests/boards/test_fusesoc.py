"""The core of boards/fusesoc: its targets run in FuseSoC, with Verilator and Icarus."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.cocotb_tests.system.test_verilog import VARIABLES, VERILATOR_BIN

CORES = Path(__file__).parents[2] / "boards" / "fusesoc"
PROGRAMS = Path(sys.executable).parent
OWN = """CAPI=2:
name: ::own:0
filesets:
  rtl:
    files: [own.v]
    file_type: verilogSource
    depend: [open-rnic]
targets:
  sim:
    filesets: [rtl]
    toplevel: own
    flow: sim
    flow_options: {tool: icarus}
"""


def fusesoc(folder, *options, core="open-rnic", path=PROGRAMS):
    """Run a core in a folder, with Verilator as ``verilator``; return the exit code and what was printed."""
    (folder / "verilator").symlink_to(VERILATOR_BIN)
    folders = os.pathsep.join(map(str, (folder, path, "/usr/bin", "/bin")))
    homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA")}
    roots = ["--cores-root", CORES, "--cores-root", folder]
    command = [PROGRAMS / "fusesoc", *roots, "run", *options, core]
    done = subprocess.run(
        command, cwd=folder, env=VARIABLES | homes | {"PATH": folders}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("target", ["lint_mpa", pytest.param("lint", marks=long("test_verilog_rnic.py lints it"))])
def test_the_verilog_has_no_errors(target, tmp_path):
    code, said = fusesoc(tmp_path, "--target", target)
    assert code == 0, said
    assert "%Warning" not in said


@pytest.mark.parametrize(
    ("core", "options", "tool"), [("open-rnic", [], "verilator"), ("own", ["--target", "sim"], "icarus")]
)
def test_the_rnic_is_what_runs_without_a_target_and_what_another_core_gets(core, options, tool, tmp_path):
    (tmp_path / "own.core").write_text(OWN)
    (tmp_path / "own.v").write_text("module own; endmodule\n")
    rnic = tmp_path / "rnic"  # in front of the real one
    rnic.write_text("#!/bin/sh\necho 'module rnic; endmodule' > open_rnic.v\n")
    rnic.chmod(0o755)
    code, said = fusesoc(tmp_path, "--setup", *options, core=core)
    assert code == 0, said
    [file] = tmp_path.rglob("*.eda.yml")
    made = yaml.safe_load(file.read_text())
    assert (made["toplevel"], made["flow_options"]) == ("rnic" if core == "open-rnic" else core, {"tool": tool})
    assert "open_rnic.v" in [Path(each["name"]).name for each in made["files"]]


@needs("iverilog")
def test_the_rnic_answers_arp_and_a_ping_in_icarus(tmp_path):
    code, said = fusesoc(tmp_path, "--target", "sim")
    assert code == 0, said
    assert "PASS: 2 frames" in said


@long("a build of its own; Icarus simulates it, too")
def test_the_rnic_answers_arp_and_a_ping_in_verilator(tmp_path):
    code, said = fusesoc(tmp_path, "--target", "sim", "--tool", "verilator")
    assert code == 0, said
    assert "PASS: 2 frames" in said


def test_a_missing_rnic_is_named(tmp_path):
    (tmp_path / "python3").symlink_to(sys.executable)
    code, said = fusesoc(tmp_path, "--target", "lint_mpa", path=tmp_path)
    assert code != 0
    assert "rnic is not in the PATH: `pip install .` in the checkout of open-rnic installs it" in said
