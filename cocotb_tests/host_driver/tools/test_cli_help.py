"""Help at every width, manual pages, completion in shells, and ``rnic doctor``."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_cli_program import rnic
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.tools import cli, doctor
from open_rnic.host_driver.tools.cli.help import WIDTH

PROGRAM = cli.commands()
COMMANDS = {
    (), *((name,) for name in PROGRAM.commands),
    *((group, name) for group in ("bench", "interop") for name in PROGRAM.commands[group].commands),
}  # fmt: skip


def text(command, monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert cli.run([*command, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", sorted(COMMANDS), ids=" ".join)
def test_help_cuts_no_name_and_stays_within_the_terminal(command, width, monkeypatch, capsys):
    lines = text(command, monkeypatch, capsys, width).splitlines()
    assert max(map(len, lines)) <= min(width, WIDTH)
    assert not [line for line in lines[1:] if "…" in line or line.endswith("...")]  # line 0 has [ARGS]...


def test_the_first_screen_lists_every_command_under_its_purpose(monkeypatch, capsys):
    out = text((), monkeypatch, capsys, 80)
    groups = dict(re.findall(r"^(\w+):\n((?:  .*\n)+)", out, re.MULTILINE))
    assert list(groups) == ["Connect", "Boards", "Verify", "Study", "Machine", "Options"]
    del groups["Options"]
    assert sorted(re.findall(r"^  (\w+)", "".join(groups.values()), re.MULTILINE)) == sorted(PROGRAM.commands)


def test_the_first_screen_has_a_line_for_each_command(monkeypatch, capsys):
    out = text((), monkeypatch, capsys, 80).partition("Options:")[0]
    assert len(re.findall(r"^  +\w.*\.$", out, re.MULTILINE)) == 1 + len(PROGRAM.commands)  # 1: what rnic is
    assert not re.findall(r"^ {4}.*", out, re.MULTILINE)


@pytest.mark.parametrize("command", [(), ("bench",), ("interop",)], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(command, monkeypatch, capsys):
    wanted = text(command, monkeypatch, capsys, 80)
    assert cli.run(command) == 2
    assert capsys.readouterr() == (wanted, "")


def test_the_shell_completes_commands():
    shell = {"_RNIC_COMPLETE": "complete_bash", "COMP_WORDS": "rnic lis", "COMP_CWORD": "1"}
    status, out, _ = rnic(env=os.environ | shell)
    assert (status, out.split()) == (0, ["listen"])


def test_the_shell_is_taught_to_complete(tmp_path):
    status, out, _ = rnic("--install-completion", "bash", env=os.environ | {"HOME": str(tmp_path)})
    assert (status, "completion installed" in out) == (0, True)
    assert "_RNIC_COMPLETE" in (tmp_path / ".bash_completions" / "rnic.sh").read_text()


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manual") / "man1"
    assert cli.run(["man", str(folder)]) == 0
    return folder


def test_every_command_has_a_manual_page(manual):
    assert {path.name for path in manual.iterdir()} == {f"{'-'.join(('rnic', *words))}.1" for words in COMMANDS}


@pytest.mark.parametrize("command", sorted(COMMANDS), ids=" ".join)
def test_a_manual_page_has_all_that_help_shows(command, manual, monkeypatch, capsys):
    page = (manual / f"{'-'.join(('rnic', *command))}.1").read_text()
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".BR"}
    shown = text(command, monkeypatch, capsys, WIDTH).replace("Usage: ", "")
    headings = re.findall(r"^\w+:$", shown, re.MULTILINE)
    words = {word for word in shown.split() if f"{word}" not in headings}
    read = page.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    assert not {word for word in words if word.rstrip(".") not in read}


@needs("mandoc")
def test_manual_pages_are_correct(manual):
    pages = sorted(map(str, manual.iterdir()))
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True,
                          timeout=HANG, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without programs, networks, TAP devices and extras."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "_TUN", tmp_path / "tun")
    monkeypatch.setattr(doctor, "_UDEV", (tmp_path / "rules.d",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setitem(sys.modules, "find_libpython", None)
    monkeypatch.setattr("open_rnic.host_driver.devices.udp.finding.interfaces", dict)
    monkeypatch.setattr("open_rnic.host_driver.lib.optional_packages._installed", lambda module: False)


def test_the_doctor_says_how_to_get_what_is_missing(bare, capsys):
    assert cli.run(["doctor", "--json"]) == 0
    found = {each["part"]: each for each in json.loads(capsys.readouterr().out)}
    for part in ("extra sim", "extra boards", "extra bench", "c++", "openFPGALoader", "libpython", "udev rules",
                 "networks", "TAP devices"):  # fmt: skip
        assert not found[part]["there"], part
        assert found[part]["remedy"], part
    assert "pip install '.[sim]'" in found["extra sim"]["remedy"]
    assert "openfpgaloader" in found["openFPGALoader"]["remedy"]


def test_the_doctor_finds_the_udev_rules_of_a_package(bare, tmp_path, capsys):
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "99-openfpgaloader.rules").touch()
    assert cli.run(["doctor", "udev rules"]) == 0
    assert "99-openfpgaloader.rules" in capsys.readouterr().out


def test_the_doctor_finds_what_is_there(capsys):
    assert cli.run(["doctor", "extra sim", "c++"]) == 0
    assert f"ok       c++: {shutil.which('c++')}" in capsys.readouterr().out


def test_a_missing_part_that_was_asked_for_is_an_error(bare, capsys):
    assert cli.run(["doctor", "c++", "tshark", "c++"]) == 1
    assert capsys.readouterr().err == "rnic: c++ and tshark are missing\n"
    assert cli.run(["doctor", "nothing"]) == 2
    assert "'nothing' is not a part; there are extra sim," in capsys.readouterr().err
