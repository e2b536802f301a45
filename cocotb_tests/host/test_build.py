"""Bitstreams: what can be refused before any tool runs."""

import pytest

from boards.build import Result, build
from host_driver.cli import run


@pytest.mark.parametrize(("name", "lanes", "what"), [
    ("nonesuch", None, "no board is called 'nonesuch'; there are colorlight_5a75b"),
    ("colorlight_5a75b", 3, "lanes must be one of 1, 2, 4, 8, 16, not 3"),
])
def test_what_cannot_be_built_is_named(name, lanes, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        build(name, tmp_path, lanes=lanes)


def test_an_unknown_board_is_one_line(capsys):
    assert run(["build", "nonesuch"]) == 2
    assert capsys.readouterr().err == "rnic: no board is called 'nonesuch'; there are colorlight_5a75b\n"


def test_a_slow_clock_is_not_met(tmp_path):
    assert not Result(tmp_path / "top.bit", asked=25e6, reached=24.9e6, cells={}).met
