"""A bench that no test runs is an error, whichever tests are selected."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.harness import benches_of
from open_rnic.cocotb_tests.plugins.collected import benches_run_by, complaint

pytest_plugins = ["pytester"]
FOLDER = Path(__file__).parents[1]
CONFTEST = """\
from open_rnic.cocotb_tests.conftest import pytest_make_parametrize_id, pytest_pycollect_makemodule
"""
BENCHES = """\
import pytest
from open_rnic.cocotb_tests.harness import bench, simulate

@bench()
async def first(dut): ...

@bench()
async def second(dut): ...

def test_first():
    simulate(None, first)

"""


@pytest.fixture
def collect(pytester):
    def collected(tests, *arguments):
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_it=BENCHES + tests)
        return pytester.runpytest_inprocess("--collect-only", "-q", *arguments)

    return collected


@pytest.mark.parametrize("arguments", [[], ["-k", "first"], ["test_it.py::test_first"]], ids=len)
@pytest.mark.parametrize("tests", ["", "def test_second():\n    first, 'second'\n"], ids=["none", "string"])
def test_a_bench_that_no_test_runs_is_an_error(collect, tests, arguments):
    result = collect(tests, *arguments)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*ERROR collecting test_it.py*", "test_it.py:7: no test runs the bench second: *"])
    result.stdout.no_fnmatch_line("*bench first*")


@pytest.mark.parametrize("arguments", [[], ["-k", "first"], ["test_it.py::test_first"]], ids=len)
@pytest.mark.parametrize(
    "tests",
    [
        "def test_second():\n    simulate(None, first, second)\n",
        "def test_all():\n    simulate(None, __name__)\n",
        "def test_second():\n    helper()\ndef helper():\n    [simulate(None, each) for each in (second,)]\n",
        "BOTH = first, second\ndef test_both():\n    [simulate(None, each) for each in BOTH]\n",
        "@pytest.mark.parametrize('bench', [second])\ndef test_second(bench):\n    simulate(None, bench)\n",
    ],
    ids=["named", "all", "helper", "constant", "parameter"],
)
def test_a_bench_that_a_test_runs_is_none(collect, tests, arguments):
    result = collect(tests, *arguments)
    assert result.ret == 0


def test_a_bench_in_parameters_gives_its_name_to_the_test(collect):
    result = collect("@pytest.mark.parametrize('bench', [second])\ndef test_it(bench): ...\n")
    result.stdout.fnmatch_lines(["test_it.py::test_it[[]second[]]"])


def test_a_bench_beside_the_tests_is_run_by_a_test_of_its_folder():
    def module(path):
        return import_module(".".join(["open_rnic", *path.relative_to(FOLDER.parent).with_suffix("").parts]))

    decorated = re.compile(r"^@(\w*bench|cocotb\.test)\(", re.MULTILINE)
    others = [each for each in FOLDER.rglob("*.py") if not each.name.startswith("test_")]
    unused = []
    for path in (each for each in others if decorated.search(each.read_text())):
        modules = [vars(module(each)) for each in path.parent.glob("test_*.py")]
        tests = [value for each in modules for name, value in each.items() if name.startswith("test_")]
        parameters = [mark.args for each in tests for mark in getattr(each, "pytestmark", [])]
        run = benches_run_by([*tests, *parameters], "")
        unused += [complaint(each) for each in benches_of(module(path)) if each not in run]
    assert not unused, "\n".join(unused)
