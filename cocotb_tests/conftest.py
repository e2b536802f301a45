"""Around every test run: functional coverage of all simulations (:mod:`.coverage`), and the plugins of :mod:`.plugins`.

``costs`` counts the processor time, ``collected`` finds benches that no test runs, ``coroutines`` runs the tests that
are coroutines, ``lengths`` leaves out the tests of the long run, ``system_packages`` those that need more than this
system has, and ``changed`` those that a change does not concern. ``deselected`` counts them.
"""

import gc
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
from cocotb.regression import TestGenerator

from open_rnic.cocotb_tests import coverage
from open_rnic.cocotb_tests.plugins import changed, collected, coroutines, costs, deselected, lengths, system_packages
from open_rnic.host_driver.builds import ledger
from open_rnic.host_driver.builds.folders import built
from open_rnic.host_driver.tools import cli

HITS = pytest.StashKey[coverage.Hits]()

# No time is too long: machines differ.
hypothesis.settings.register_profile("any", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any")


def pytest_addoption(parser):
    lengths.add_option(parser)
    changed.add_option(parser)


def pytest_configure(config):
    config.pluginmanager.register(coroutines)
    config.pluginmanager.register(system_packages)
    config.pluginmanager.register(deselected)
    config.pluginmanager.register(lengths)
    config.pluginmanager.register(changed)
    os.environ.setdefault("PYTHONHASHSEED", "0")  # as in the Makefile, for workers and programs
    if not hasattr(config, "workerinput"):  # xdist's workers write to the folder of the main process
        os.environ[coverage.VARIABLE] = tempfile.mkdtemp(prefix="open-rnic-coverage-")
        os.environ[ledger.VARIABLE] = tempfile.mkdtemp(prefix="open-rnic-ledger-")


def pytest_collection_finish():
    gc.freeze()  # tests collect garbage, which need not look at all modules and tests each time
    gc.set_threshold(50_000, 5, 5)  # most tests end before they have made so many objects


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    own, started = ledger.own(), ledger.started()
    try:
        return (yield)
    finally:
        ledger.note("test", item.nodeid, own=ledger.own() - own, started=ledger.started() - started)


def pytest_pycollect_makemodule(module_path, parent):
    return collected.Module.from_parent(parent, path=module_path)


def pytest_make_parametrize_id(val):
    return val.name if isinstance(val, TestGenerator) else None


def whole(config):
    """Whether this run includes all tests, and must therefore reach full coverage."""
    chosen = ("keyword", "markexpr", "changed", "lf", "deselect", "ignore", "ignore_glob", "collectonly", "stepwise")
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(
        config.getoption(each, default=None) for each in chosen
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    config = session.config
    if hasattr(config, "workerinput"):
        return
    spent = Path(os.environ.pop(ledger.VARIABLE))
    costs.merge(spent)
    changed.remember(costs.last())
    shutil.rmtree(spent)
    folder = Path(os.environ.pop(coverage.VARIABLE))
    config.stash[HITS] = hits = coverage.read(folder)
    shutil.rmtree(folder)
    if any(hits.values()):
        coverage.write(built("coverage") / "last.json", hits)
    if exitstatus == pytest.ExitCode.OK and whole(config) and not coverage.complete(hits):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(costs.summary(costs.add(costs.read(costs.last()))))
    hits = config.stash.get(HITS, {})
    if any(hits.values()):
        terminalreporter.section("functional coverage")
        for line in coverage.summary(hits):
            terminalreporter.write_line(line)
        if not whole(config):
            terminalreporter.write_line("Only a part of the tests ran, so coverage need not be complete.")


@pytest.fixture
def rnic(capsys, tmp_path):
    """Run a command in this process; returns the exit status, standard output, and standard error."""

    def run(*arguments: object, lines: list[str] | str = "") -> tuple[int, str, str]:
        given = tmp_path / "given"
        given.write_text(lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines))
        kept = os.dup(0)
        try:
            with given.open() as file:
                os.dup2(file.fileno(), 0)
            status = cli.run([str(each) for each in arguments])
        finally:
            os.dup2(kept, 0)
            os.close(kept)
        return status, *capsys.readouterr()

    return run
