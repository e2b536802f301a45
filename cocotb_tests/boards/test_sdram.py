"""Boards whose SDRAM is the RNIC's memory."""

import pytest

from open_rnic.boards import find, find_rnic
from open_rnic.boards.build import build, plan, top
from open_rnic.boards.core import Core
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.devices import names

WITH = {"colorlight_5a75b": 4, "colorlight_5a75b_r8": 8, "colorlight_i5": 8, "colorlight_i9": 8}  # MiB


@pytest.mark.parametrize("name", shortened("other pins and chips", 1, WITH))
def test_the_controller_and_the_pins_of_the_sdram_are_in_the_design(name):
    board = find(name).sized(in_sdram=True)
    files = plan(board, top(board, Core.RNIC, 1, None)).files
    assert f"litedram_{board.ethernet.sdram.name.lower()}.v" in files
    constraints = files["top.lpf"]
    assert [f'LOCATE COMP "sdram_0__dq__io[{n}]"' in constraints for n in range(32)] == [True] * 32


@pytest.mark.parametrize(("name", "mebi"), WITH.items())
def test_all_of_the_sdram_is_the_memory_of_all_connections(name, mebi):
    for place in (f"{name}:sdram", f"{name}:4:sdram"):
        assert find_rnic(place).memory == mebi << 20
        assert names.parse(f"udp:sim:{place}").in_sdram
    assert find_rnic(name).memory < 1 << 20


@pytest.mark.parametrize("name", ["ecpix5", "versa_ecp5"])
def test_a_board_without_sdram_is_refused_in_one_line(name, tmp_path):
    with pytest.raises(ValueError, match=f"^{name} has no SDRAM that an RNIC could use$"):
        names.parse(f"udp:sim:{name}:sdram")
    with pytest.raises(ValueError, match=f"^{name} has no SDRAM that an RNIC could use$"):
        build(name, tmp_path, memory="sdram")
