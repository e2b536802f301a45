"""The documentation: commands and examples work, their output is as shown, and links are valid."""

import functools
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiStreamFrame

from open_rnic.cocotb_tests.harness import bench, simulate
from open_rnic.cocotb_tests.mpa.axi import MpaAxi
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.cocotb_tests.system.test_axi_rdma import Device
from open_rnic.host_driver.devices.sim.look import look
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools import verilog as writer
from open_rnic.rtl.mpa.axi import AxiMpaDatapath
from open_rnic.rtl.rdma.axi import AxiRdmaDatapath

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN = ROOT / "docs" / "examples" / "own_testbench.py"
EXAMPLES = sorted({*OWN.parent.glob("*.py")} - {OWN})
VERILOG = (ROOT / "docs" / "verilog.md").read_text()


def blocks(language, text):
    """Return the fenced code blocks of this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_existing_files(page):
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_the_file_that_their_text_names(page):
    links = re.findall(r"\[`?([\w/-]+\.\w+)`?\]\(([^)#]+)", page.read_text())
    assert not [text for text, link in links if not f"/{(page.parent / link).resolve()}".endswith(f"/{text}")]


@pytest.mark.parametrize("command", sorted({
    command.strip()
    for page in PAGES for command in re.findall(r"\brnic ([a-z][^`\n#]*udp:sim:[a-z][^`\n#]*)", page.read_text())
}))  # fmt: skip
def test_a_documented_command_with_a_simulated_board_is_accepted(command, monkeypatch):
    """The command gets as far as its work, which is not done here."""
    begun = []

    def begin(work, **_options):
        begun.append(work)
        work.close()
        raise typer.Exit

    words = shlex.split(command)
    module = importlib.import_module(f"open_rnic.host_driver.tools.cli.{words[0]}")
    monkeypatch.setattr(module, "interruptible", begin)
    assert look(functools.partial(cli.run, words), int) == 0
    assert begun


@pytest.mark.parametrize(("page", "file"), [("mpa", "registers.md"), ("tcp", "tcp-registers.md"),
                                             ("mac", "mac-registers.md"),
                                             ("rdma", "rdma-registers.md"), ("samples", "sample-registers.md"),
                                             ("signal", "signal-registers.md"), ("rnic", "rnic-registers.md"),
                                             ("streams", "stream-registers.md")])
def test_the_register_reference_is_up_to_date(page, file, capsys):
    assert cli.run(["registers", "--page", page, "--markdown"]) == 0
    assert (ROOT / "docs" / file).read_text() == capsys.readouterr().out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_prints_the_documented_output(example, tmp_path):
    [page] = [page.read_text() for page in PAGES if example.read_text() in blocks("python", page.read_text())]
    is_test = example.name.startswith("test_")
    command = [sys.executable, "-W", "error", *(["-m", "pytest"] if is_test else []), str(example)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if not is_test:
        assert done.stdout in blocks("text", page)


@needs("iverilog")
def test_the_example_of_a_testbench_of_ones_own_passes(tmp_path):
    assert any(OWN.read_text() in blocks("python", page.read_text()) for page in PAGES)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run([sys.executable, OWN], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True,
                          text=True, timeout=HANG, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TESTS=2 PASS=2" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["read"], 2, "the following arguments are required: host, port"),
        (["read", "127.0.0.1"], 2, "the following arguments are required: port"),
        (["read", "127.0.0.1", "65536"], 2, "argument port: invalid port value: '65536'"),
        (["serve", "x"], 2, "argument port: invalid port value: 'x'"),
        (["read", "127.0.0.1", "1"], 1, "read: cannot connect to 127.0.0.1 port 1: Connection refused"),
        (["--slow", "x"], 2, "argument --slow: invalid float value: 'x'"),
    ],
)
def test_the_example_of_samples_reports_bad_input_in_one_line(arguments, status, what):
    command = [sys.executable, str(ROOT / "docs" / "examples" / "samples.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert what in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_template_and_the_tables_name_all_ports_of_the_verilog(tmp_path, monkeypatch):
    ports = {}

    def module(component, name, _options):
        ports[name] = {*writer.ports(component)}
        return ""

    # The function itself elaborates, which takes long, and fails unless the Verilog has these ports: test_verilog.py.
    monkeypatch.setattr(writer, "module", module)
    for options in ([], ["--with", "rdma"]):
        command = ["verilog", "--lanes", "1", *options, "-o", str(tmp_path / "file")]
        assert look(functools.partial(cli.run, command), int) == 0
    [template] = blocks("verilog", VERILOG)
    assert set(re.findall(r"\.(\w+)\(", template)) == ports["mpa_datapath"]
    base, _, rdma = VERILOG.partition("\n## With RDMA\n")
    rows = "".join(re.findall(r"^\|(.+?)\|", base, re.MULTILINE))
    assert set(re.findall(r"`([sm]_axi\w+[a-z]|clk|rst|irq)`", rows)) == ports["mpa_datapath"]
    rows = "".join(re.findall(r"^\|(.+?)\|", rdma.partition("\n## ")[0], re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == ports["rdma_datapath"] - ports["mpa_datapath"]


async def follow(listing, clk, registers, sources, sinks, memory=None):
    """Do what each line of ``listing`` says, in order."""
    for line in listing.splitlines():
        match line.partition("#")[0].split():
            case "write", address, word:
                await registers.write_dword(int(address, 16), int(word, 16))
            case "read", address, word:
                await ClockCycles(clk, 100)
                assert await registers.read_dword(int(address, 16)) == int(word, 16), line
            case "wait", address, word:
                while await registers.read_dword(int(address, 16)) != int(word, 16):
                    pass
            case "give", port, octets:
                packet = bytes.fromhex(octets)
                await sources[port].send(AxiStreamFrame(packet, tuser=len(packet)))
            case "take", port, octets:
                came = b""
                while len(came) < len(octets) // 2:
                    came += bytes((await sinks[port].recv()).tdata)
                assert came.hex() == octets, line
            case "put", address, octets:
                memory.write(int(address, 16), bytes.fromhex(octets))
            case "show", address, octets:
                await ClockCycles(clk, 100)
                assert memory.read(int(address, 16), len(octets) // 2).hex() == octets, line
            case _:
                raise AssertionError(f"not a line of a listing: {line}")


@bench(cycles=5000)
async def the_listing_brings_a_connection_up(dut):
    axi = MpaAxi(dut)
    sources = {"s_axis_mpa": axi.mpa_in, "s_axis_ulpdu": axi.ulpdu_in}
    sinks = {"m_axis_mpa": axi.mpa_out, "m_axis_ulpdu": axi.ulpdu_out}
    listing, _of_rdma = blocks("text", VERILOG)
    await follow(listing, dut.clk, axi.registers, sources, sinks)


def test_the_listing_brings_a_connection_up():
    simulate(functools.partial(AxiMpaDatapath, 4), the_listing_brings_a_connection_up)


@bench(cycles=20_000)
async def the_listing_drives_the_rdma_engine(dut):
    device = Device(dut, False)
    _of_mpa, listing = blocks("text", VERILOG)
    sources, sinks = {"s_axis_mpa": device.mpa_in}, {"m_axis_mpa": device.mpa_out}
    await follow(listing, dut.clk, device.lite, sources, sinks, device.ram)


def test_the_listing_drives_the_rdma_engine():
    simulate(functools.partial(AxiRdmaDatapath, 4), the_listing_drives_the_rdma_engine)
