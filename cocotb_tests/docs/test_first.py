"""docs/first.md: its commands, and no others, lead from an empty environment to the first success."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.tools import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first.md").read_text()
WHOLE = 7200  # seconds: installations from the network, and a bitstream
READERS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def block(language, section):
    """Return the one block of this language in a section."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.parametrize("reader", READERS)
def test_commands_of_the_page_begin_with_an_empty_environment_and_exist(reader, capsys):
    make, install, *rest = block("sh", READERS[reader]).splitlines()
    assert make == "python3 -m venv .venv"
    assert re.fullmatch(r"\.venv/bin/pip install '\.(\[\w+\])?'", install)
    for line in rest:
        for word in re.findall(r"\b(?:docs|host_driver)/\S+", line):
            assert (ROOT / word).is_file(), word
        if match := re.fullmatch(r"\.venv/bin/rnic (\w+) (.*)", line):
            assert cli.run([match[1], "--help"]) == 0
            shown = capsys.readouterr().out
            assert not [option for option in re.findall(r"--\S+", match[2]) if option not in shown]


@needs("git", "iverilog")
@long("installs the extras from the network, and builds a bitstream")
@pytest.mark.parametrize("reader", READERS)
def test_the_commands_of_the_page_lead_to_its_first_success(reader, tmp_path):
    """In a copy of the tracked files, without what this environment has: as a user who has just cloned the project."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    source, home = tmp_path / "source", tmp_path / "home"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "LANG", "LC_", "SSL_"))}
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block("sh", READERS[reader])], cwd=source,
                          env=kept | {"HOME": str(home), "PATH": system, "COLUMNS": "100"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=WHOLE, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert block("text", READERS[reader]).strip() in done.stdout
    for name in re.findall(r"--html (\S+)", block("sh", READERS[reader])):
        assert "<svg" in (source / name).read_text()
