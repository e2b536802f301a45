"""The package ``open_rnic`` itself."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import open_rnic


def test_the_names_that_one_starts_with_are_those_of_their_modules():
    assert open_rnic.__version__ == version("open-rnic")
    assert sorted(open_rnic._HOMES) == open_rnic.__all__
    for name in open_rnic.__all__:
        assert getattr(open_rnic, name).__name__ == name
    assert {*open_rnic.__all__} < {*dir(open_rnic)}
    with pytest.raises(AttributeError, match="module 'open_rnic' has no attribute 'nonesuch'"):
        _ = open_rnic.nonesuch


def test_the_package_imports_no_module_before_its_names_are_used():
    code = "import open_rnic, sys; print([each for each in sys.modules if each.startswith(('open_rnic.', 'amaranth'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
