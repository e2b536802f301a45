"""The user's cache, and the keys of simulations: what is found, what is made again, and what is deleted."""

import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from open_rnic.host_driver.builds import cache, sources
from open_rnic.host_driver.builds.cache import Cache
from open_rnic.host_driver.builds.folders import built

ROOT = Path(__file__).parents[3]
HOUR = 3600


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("OPEN_RNIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def simulations():
    return Cache("simulations")


def kib(octets):
    """A function that fills an entry with so many KiB."""
    return lambda entry: (entry / "top").write_bytes(bytes(octets << 10)) and None


def age(entry, seconds):
    """Let the last use of an entry have been so long ago."""
    then = time.time() - seconds
    os.utime(entry / "done", (then, then))


# --- entries


def test_an_entry_is_found_once_it_is_made(simulations):
    assert simulations.find("key") is None
    entry = simulations.make("key", kib(1))
    assert simulations.find("key") == entry
    assert list(cache.entries()) == [entry]
    assert Cache("proofs").find("key") is None


def test_an_entry_is_made_once_and_nobody_finds_it_before_it_is_complete(simulations):
    made, begun, go_on = [], threading.Event(), threading.Event()

    def fill(entry):
        made.append(entry)
        begun.set()
        go_on.wait(10)

    with ThreadPoolExecutor(4) as pool:
        entries = [pool.submit(simulations.make, "key", fill) for _ in range(4)]
        begun.wait(10)
        assert simulations.find("key") is None
        go_on.set()
        assert {each.result() for each in entries} == set(made)
    assert len(made) == 1


def test_an_entry_is_made_once_by_several_processes(simulations, tmp_path):
    program = """
        import sys, time
        from open_rnic.host_driver.builds.cache import Cache
        def fill(entry):
            time.sleep(0.5)
            print("made")
        Cache("simulations").make("key", fill)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert "".join(each.communicate()[0] for each in running) == "made\n"
    assert [each.returncode for each in running] == [0, 0, 0]


def test_a_failure_leaves_no_entry_but_its_files_until_the_next_attempt(simulations):
    def fail(entry):
        (entry / "build.log").write_text("why")
        (entry / "cpp").mkdir()
        raise RuntimeError(str(entry))

    with pytest.raises(RuntimeError) as failure:
        simulations.make("key", fail)
    folder = Path(str(failure.value))
    assert (folder / "build.log").read_text() == "why"
    assert simulations.find("key") is None
    assert not list(cache.entries())
    simulations.make("key", kib(1))
    assert {each.name for each in folder.iterdir()} == {"lock", "top", "done"}


def test_a_text_is_kept_under_its_key():
    proofs = Cache("proofs")
    assert proofs.text("key-1") is None
    proofs.keep("key-1", "PASS")
    proofs.keep("key-2", "FAIL")
    proofs.keep("yek-1", "PASS")
    assert proofs.text("key-1") == "PASS"
    assert sorted(proofs.texts("key-")) == ["FAIL", "PASS"]


# --- the limit


def test_the_entries_used_longest_ago_are_evicted_down_to_the_limit(simulations, monkeypatch):
    monkeypatch.setenv("OPEN_RNIC_CACHE_MIB", "1")
    for name, hours in (("a", 3), ("b", 5), ("c", 4)):
        age(simulations.make(name, kib(300)), hours * HOUR)
    simulations.find("b")  # a use
    simulations.make("d", kib(300))
    assert {each.name for each in cache.entries()} == {"a", "b", "d"}


def test_an_entry_used_within_the_last_hour_is_not_evicted(simulations, monkeypatch):
    monkeypatch.setenv("OPEN_RNIC_CACHE_MIB", "1")
    age(simulations.make("a", kib(900)), HOUR - 60)
    simulations.make("b", kib(900))
    assert {each.name for each in cache.entries()} == {"a", "b"}
    age(simulations.find("a"), HOUR + 60)
    simulations.make("c", kib(900))
    assert {each.name for each in cache.entries()} == {"b", "c"}


def test_a_limit_that_is_not_a_number_is_reported_before_the_work(simulations, monkeypatch):
    monkeypatch.setenv("OPEN_RNIC_CACHE_MIB", "-1")
    with pytest.raises(ValueError, match=r"^OPEN_RNIC_CACHE_MIB is a number of MiB, not '-1'$"):
        simulations.make("key", lambda entry: pytest.fail("made"))


def test_a_build_reports_it_in_one_line(tmp_path):
    program = "from open_rnic.host_driver.devices.sim.prepare import main; main(['device', '1'])"
    variables = os.environ | {"OPEN_RNIC_CACHE_MIB": "2G", "OPEN_RNIC_CACHE": str(tmp_path)}  # where nothing is built
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "OPEN_RNIC_CACHE_MIB is a number of MiB, not '2G'\n")


def test_only_entries_are_cleared(simulations, root):
    simulations.make("key", kib(1))
    (root / "simulations" / "incomplete").mkdir()
    (root / "bench").mkdir()
    cache.clear()
    assert [each.name for each in root.iterdir()] == ["bench"]
    cache.clear()


def test_results_of_an_installation_do_not_lie_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("OPEN_RNIC_CACHE")
    monkeypatch.delenv("OPEN_RNIC_BUILD", raising=False)
    monkeypatch.setattr("open_rnic.host_driver.builds.folders.__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    assert not built("simulations").is_relative_to(cache.root())


# --- what a module needs


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with three modules in two packages; the module ``outside`` imports one of them."""
    files = {
        "rtl/__init__.py": "",
        "rtl/lib/__init__.py": "from open_rnic.rtl import base",
        "rtl/base.py": "import json",
        "rtl/lib/queue.py": "",
        "rtl/lib/other.py": "",
        "rtl/top.py": "def make():\n    from open_rnic.rtl.lib.queue import Queue\n",
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "outside.py").write_text("import open_rnic.rtl.top\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sources, "_ROOT", tmp_path / "project")
    for each in (sources._file, sources.imported):
        each.cache_clear()
    yield tmp_path / "project"
    for each in (sources._file, sources.imported):
        each.cache_clear()


def test_all_imports_count_and_those_of_packages_too(project):
    needed = ["outside", "open_rnic.rtl", "open_rnic.rtl.base", "open_rnic.rtl.lib", "open_rnic.rtl.lib.queue",
              "open_rnic.rtl.top"]  # fmt: skip
    assert list(sources.needed(["outside"])) == sorted(needed)
    with pytest.raises(ValueError, match="there is no file of the module no_module"):
        sources.needed(["no_module"])


@pytest.mark.parametrize(
    ("file", "counts"),
    [("rtl/lib/queue.py", True), ("rtl/lib/__init__.py", True), ("rtl/base.json", True), ("../outside.py", True),
     ("rtl/lib/other.py", False)],
)  # fmt: skip
def test_a_changed_text_changes_the_hash(project, file, counts):
    before = sources.digest(["outside"])
    with (project / file).open("a") as changed:
        changed.write("# a comment\n")
    assert (sources.digest(["outside"]) != before) is counts


def test_a_module_that_changes_after_it_was_imported_is_noticed(tmp_path):
    copy(tmp_path)
    program = """
        from pathlib import Path
        from open_rnic.host_driver.builds import folders, sources
        print(sources.settled())
        file = Path(folders.__file__)
        file.write_text(file.read_text() + "# a comment")
        print(sources.settled())
    """
    assert elsewhere(tmp_path, program) == ["True", "False"]


# --- keys of simulations

KEYS = r"""
    from open_rnic.host_driver.devices.sim.build import key, recall
    print(key("Top", "module \\top"))
    print(recall("a queue", ["open_rnic.rtl.lib.stream"], waves=False)[0])
"""


def copy(folder):
    """Copy the project into ``folder``, as another checkout."""
    for name in ("rtl", "host_driver"):
        shutil.copytree(ROOT / name, folder / "open_rnic" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "host_driver" / "start" / "__init__.py", folder / "open_rnic")


def elsewhere(folder, program, **variables):
    """The lines that a program prints that imports the project from ``folder``."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    variables = os.environ | {"PYTHONPATH": str(folder)} | variables
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()


def test_keys_depend_on_the_text_of_modules_and_on_no_place(tmp_path):
    copy(tmp_path)
    places = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "OPEN_RNIC_BUILD", "OPEN_RNIC_CACHE")}
    key, note = elsewhere("", KEYS)
    assert elsewhere(tmp_path, KEYS, **places) == [key, note]
    with (tmp_path / "open_rnic/rtl/lib/stream.py").open("a") as file:
        file.write("# a comment\n")
    same, other = elsewhere(tmp_path, KEYS)
    assert (same == key, other == note) == (True, False)
    changed = elsewhere("", KEYS.replace("module", "attribute \\\\keep 1\\nmodule"))
    assert (changed[0] == key, changed[1] == note) == (False, True)
