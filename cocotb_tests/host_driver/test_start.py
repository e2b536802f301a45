"""The package ``open_rnic`` itself."""

import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import open_rnic
from open_rnic.cocotb_tests.plugins.limits import HANG

ROOT = Path(__file__).parents[2]


def test_the_names_that_one_starts_with_are_those_of_their_modules():
    assert open_rnic.__version__ == version("open-rnic")
    assert sorted(open_rnic._HOMES) == open_rnic.__all__
    for name in open_rnic.__all__:
        assert getattr(open_rnic, name).__name__ == name
    assert {*open_rnic.__all__} < {*dir(open_rnic)}
    with pytest.raises(AttributeError, match="module 'open_rnic' has no attribute 'nonesuch'"):
        _ = open_rnic.nonesuch


def test_a_type_checker_in_any_folder_finds_the_package(tmp_path):
    """In the environment of `make setup`; --follow-imports=skip: without reading it."""
    imports = "from open_rnic import connect", "from open_rnic.cocotb_tests.mpa import MpaSource"
    (tmp_path / "user.py").write_text("\n".join(imports))
    options = "--strict", "--follow-imports=skip", "--cache-dir", str(tmp_path / "cache")
    command = [sys.executable, "-m", "mypy", *options, "--python-executable", sys.executable, "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG)
    assert done.stdout == "Success: no issues found in 1 source file\n"


def test_python_takes_the_package_from_the_checkout():
    code = "import open_rnic.rtl; print(open_rnic.__file__, open_rnic.rtl.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG)
    assert done.stdout.split() == [str(ROOT / "host_driver/start/__init__.py"), str(ROOT / "rtl/__init__.py")]


def test_the_package_imports_no_module_before_its_names_are_used():
    code = "import open_rnic, sys; print([each for each in sys.modules if each.startswith(('open_rnic.', 'amaranth'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


NAMED = set(re.findall(r"open_rnic(?:\.[a-z_]+)*", (ROOT / "docs" / "api.md").read_text()))
OTHERS = {"open_rnic.connect", "open_rnic.host_driver.devices.open_device",  # functions
          "open_rnic.cocotb_tests", "open_rnic.host_driver"}  # folders of which only parts are public  # fmt: skip


@pytest.mark.parametrize("name", sorted(NAMED - OTHERS))
def test_a_public_module_lists_its_names(name):
    module = import_module(name)
    assert module.__all__
    assert {*module.__all__} <= {*dir(module)}
