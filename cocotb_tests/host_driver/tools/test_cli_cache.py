"""``rnic cache``, and ``make clean``."""

import re
import subprocess
from pathlib import Path

import pytest

from open_rnic.host_driver.builds.cache import KINDS, Cache
from open_rnic.host_driver.tools.cli import run

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with an entry of 2 MiB, one that is not complete, and a file of someone else."""
    monkeypatch.setenv("OPEN_RNIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    Cache("simulations").make("one", lambda entry: (entry / "top").write_bytes(bytes(2 << 20)) and None)
    Cache("proofs").keep("two", "PASS 0")
    (tmp_path / "cache" / "proofs" / "three").mkdir()
    (tmp_path / "cache" / "other").write_text("of someone else")
    return tmp_path / "cache"


def shown(capsys):
    """The first three cells of each row, and the last line."""
    out = capsys.readouterr().out
    rows = re.findall(r"│ (\S+) +│ +(\S+) │ +(\S+) │", out)
    return {kind: (entries, size) for kind, entries, size in rows}, out.splitlines()[-1]


def test_the_kinds_the_folder_and_the_limit_are_shown(folder, monkeypatch, capsys):
    monkeypatch.setenv("OPEN_RNIC_CACHE_MIB", "100")
    assert run(["cache"]) == 0
    rows, last = shown(capsys)
    assert rows.keys() == {*KINDS, "all"}
    assert (rows["simulations"], rows["proofs"], rows["all"]) == (("1", "2.0"), ("1", "0.0"), ("2", "2.0"))
    assert last == f"in {folder}, at most 100 MiB"


def test_the_cache_is_emptied_and_nothing_else_is_deleted(folder, capsys):
    assert run(["cache", "--clear"]) == 0
    assert shown(capsys)[0]["all"] == ("0", "0.0")
    assert [each.name for each in folder.iterdir()] == ["other"]
    assert run(["cache", "--clear"]) == 0


def test_make_clean_empties_the_cache_without_a_virtual_environment(folder, tmp_path):
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    subprocess.run(["make", "-s", "clean"], cwd=tmp_path, check=True)
    assert [each.name for each in folder.iterdir()] == ["other"]


def test_a_wrong_limit_and_a_wrong_folder_are_reported_in_one_line(folder, monkeypatch, capsys):
    monkeypatch.setenv("OPEN_RNIC_CACHE_MIB", "2G")
    assert run(["cache"]) == 2
    assert capsys.readouterr().err == "rnic: OPEN_RNIC_CACHE_MIB is a number of MiB, not '2G'\n"
    monkeypatch.setenv("OPEN_RNIC_CACHE", str(folder / "other"))
    assert run(["cache", "--clear"]) == 1
    assert capsys.readouterr().err == f"rnic: {folder}/other/{KINDS[0]}: Not a directory\n"
