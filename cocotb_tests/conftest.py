"""Joins the functional coverage of all simulations of a run, and prints it at the end (:mod:`.coverage`)."""

import os
import shutil
from pathlib import Path

import pytest

from open_rnic.cocotb_tests import coverage
from open_rnic.host_driver.folders import built


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # workers write where the run that started them reads
        folder = built("coverage")
        shutil.rmtree(folder, ignore_errors=True)
        os.environ[coverage.VARIABLE] = str(folder)


def whole(config):
    """Whether this run has all tests, so that all must have been seen."""
    chosen = ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob", "collectonly", "stepwise", "maxfail")
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(
        config.getoption(each, default=None) for each in chosen
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    if not hasattr(session.config, "workerinput") and exitstatus == pytest.ExitCode.OK and whole(session.config):
        hits = coverage.read(Path(os.environ[coverage.VARIABLE]))
        if not coverage.complete(hits):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    hits = coverage.read(Path(os.environ[coverage.VARIABLE]))
    if any(hits.values()):
        terminalreporter.section("functional coverage")
        for line in coverage.summary(hits):
            terminalreporter.write_line(line)
        if not whole(config):
            terminalreporter.write_line("of a part of the tests, so what is missing fails nothing")
