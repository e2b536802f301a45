"""The two lengths of a test run: what is left out, and that it is counted."""

import subprocess
import sys

import pytest

from open_rnic.cocotb_tests.plugins.lengths import long, shortened, widths
from open_rnic.rtl.lib.lanes import LANES

CONFTEST = """
from open_rnic.cocotb_tests.plugins.deselected import *
from open_rnic.cocotb_tests.plugins.lengths import *
from open_rnic.cocotb_tests.plugins.lengths import add_option as pytest_addoption
"""
TESTS = """
import pytest
from open_rnic.cocotb_tests.plugins.lengths import long, shortened

def test_short(): pass

@long("one is enough")
def test_long(): pass

@pytest.mark.parametrize("seed", shortened("more seeds", 2, range(5)))
def test_some(seed): pass
"""


def kept(parameters):
    """The values in the short run."""
    return [each.values[0] if not each.marks else None for each in map(as_parameter, parameters)]


def as_parameter(each):
    return each if hasattr(each, "marks") else pytest.param(each)


@pytest.mark.parametrize(
    ("lanes", "short"),
    [(LANES, [1, None, 4, None, 16]), ((1, 2), [1, 2]), ((1, 2, 4), [1, None, 4]), ((2, 4, 8), [None, 4, 8])],
    ids=str,
)
def test_one_width_of_each_rtl_is_in_the_short_run(lanes, short):
    assert kept(widths(*lanes)) == short


def test_the_first_values_are_in_the_short_run_and_all_in_the_long_one():
    parameters = shortened("more seeds", 2, [(1, "a"), (2, "b"), (3, "c")])
    assert [each.values for each in parameters] == [(1, "a"), (2, "b"), (3, "c")]
    assert [bool(each.marks) for each in parameters] == [False, False, True]


def test_a_mark_has_a_reason():
    assert long("more seeds").mark.args == ("more seeds",)
    with pytest.raises(TypeError):
        long()


def run_tests(folder, *options):
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = long(reason)\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("options", "counts"), [([], "3 passed, 4 deselected"), (["--long"], "7 passed")])
def test_tests_that_are_left_out_are_counted(tmp_path, options, counts):
    done = run_tests(tmp_path, *options)
    assert counts in done.stdout.splitlines()[-1]
    assert ("\n4 tests are left to make test-long\n" in done.stdout) == (not options)


def test_workers_count_them_too(tmp_path):
    done = run_tests(tmp_path, "-n", "2")
    assert "\n4 tests are left to make test-long\n" in done.stdout
