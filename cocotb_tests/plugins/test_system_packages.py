"""A system with only what README.md asks for: tests that need more are left out, and the last line names them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from open_rnic.cocotb_tests.plugins import system_packages
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import MARK, PACKAGES, SCTP, TAP, left_out, needs

ROOT = Path(__file__).parents[2]
WITHOUT = ROOT / ".ci" / "without"
TESTS = """
from open_rnic.cocotb_tests.plugins.system_packages import needs

@needs("tshark")
def test_a_capture(): pass

@needs("tshark", "lz4.h")
def test_both(): pass

def test_others(): pass
"""


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False, **options)


def skipped(*names):
    """Return the report of a skipped test that lacks these."""
    return SimpleNamespace(user_properties=[("another", "tshark"), *((MARK, name) for name in names)])


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        ([], ""),
        ([skipped()], ""),
        ([skipped("zlib.h"), skipped()], "1 test left out: zlib.h (1): apt-get install zlib1g-dev"),
        (
            [skipped("lz4.h"), skipped("tshark"), skipped(TAP, "tshark")],
            f"3 tests left out: tshark (2), lz4.h (1), {TAP} (1): apt-get install tshark liblz4-dev",
        ),
        ([skipped(SCTP)], f"1 test left out: {SCTP} (1)"),
    ],
)
def test_the_line_counts_tests_and_names_packages(reports, line):
    assert left_out(reports) == line


def test_only_needs_that_are_known_can_be_marked():
    with pytest.raises(AssertionError, match="tsark"):
        needs("tsark")


def pytest_run(folder, *arguments, before=()):
    """Run ``TESTS`` with this project's ``conftest.py``, and return all lines that pytest writes."""
    (folder / "conftest.py").write_text("from open_rnic.cocotb_tests.conftest import *\n")
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers = {MARK}(name, ...)\n")
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *arguments, "test_it.py"]
    done = run([*before, *command], cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "workers"])
def test_tests_without_their_packages_are_left_out_and_the_run_succeeds(workers, tmp_path):
    *lines, closing, last = pytest_run(tmp_path, "-rs", *workers, before=[WITHOUT])
    reason = "tshark is missing: install the Debian package tshark; lz4.h is missing: install the Debian package"
    assert [line for line in lines if reason in line]
    assert closing == "2 tests left out: tshark (2), lz4.h (1): apt-get install tshark liblz4-dev"
    assert "1 passed, 2 skipped" in last


@needs("tshark", "lz4.h")
def test_nothing_is_said_if_nothing_is_left_out(tmp_path):
    *lines, last = pytest_run(tmp_path)
    assert not [line for line in lines if "left out" in line]
    assert "3 passed" in last


HIDDEN = f"""
"$0" -c "from {system_packages.__name__} import PACKAGES, missing; print(*filter(missing, PACKAGES))"
command -v tshark
for each in c++ make python3; do $each --version >&2 || exit 8; done
echo "#include <lz4.h>" | c++ -E -x c++ - >&2 || exit 7
"""


def test_packages_can_be_hidden_from_a_command_whose_exit_code_is_passed_on_and_nothing_is_left(tmp_path):
    done = run([WITHOUT, "sh", "-c", HIDDEN, sys.executable], env=os.environ | {"TMPDIR": str(tmp_path)})
    assert done.stdout.split() == list(PACKAGES), done.stderr
    assert ".ci/without hides lz4.h" in done.stderr
    assert (done.returncode, list(tmp_path.iterdir())) == (7, [])


@pytest.mark.parametrize(("file", "names"), [(".ci/packages", []), ("docs/testing.md", [*PACKAGES, TAP, SCTP])])
def test_all_needs_are_installed_for_ci_and_documented(file, names):
    text = (ROOT / file).read_text()
    assert not [name for name in (*names, *PACKAGES.values()) if not re.search(rf"\b{re.escape(name)}\b", text)]
