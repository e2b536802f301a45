"""The core of boards/fusesoc: its targets run in FuseSoC, with Verilator and Icarus."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.cocotb_tests.system.test_verilog import VARIABLES, VERILATOR_BIN

CORES = Path(__file__).parents[2] / "boards" / "fusesoc"
PROGRAMS = Path(sys.executable).parent


def fusesoc(folder, target, *options, path=PROGRAMS):
    """Run a target in an empty folder, with Verilator as ``verilator``; return the exit code and what was printed."""
    (folder / "verilator").symlink_to(VERILATOR_BIN)
    folders = os.pathsep.join(map(str, (folder, path, "/usr/bin", "/bin")))
    homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA")}
    command = [PROGRAMS / "fusesoc", "--cores-root", CORES, "run", "--target", target, *options, "open-rnic"]
    done = subprocess.run(
        command, cwd=folder, env=VARIABLES | homes | {"PATH": folders}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("target", ["lint_mpa", pytest.param("lint", marks=long("test_verilog_rnic.py lints it"))])
def test_the_verilog_has_no_errors(target, tmp_path):
    code, said = fusesoc(tmp_path, target)
    assert code == 0, said
    assert "%Warning" not in said


@needs("iverilog")
def test_the_rnic_answers_arp_and_a_ping_in_icarus(tmp_path):
    code, said = fusesoc(tmp_path, "sim")
    assert code == 0, said
    assert "PASS: 2 frames" in said


@long("a build of its own; Icarus simulates it, too")
def test_the_rnic_answers_arp_and_a_ping_in_verilator(tmp_path):
    code, said = fusesoc(tmp_path, "sim", "--tool", "verilator")
    assert code == 0, said
    assert "PASS: 2 frames" in said


def test_a_missing_rnic_is_named(tmp_path):
    (tmp_path / "python3").symlink_to(sys.executable)
    code, said = fusesoc(tmp_path, "lint_mpa", path=tmp_path)
    assert code != 0
    assert "rnic is not in the PATH: `pip install .` in the checkout of open-rnic installs it" in said
