"""Boards whose SDRAM is the RNIC's memory."""

from importlib import import_module

import pytest

from open_rnic.boards import find, find_rnic
from open_rnic.boards.build import build, plan, top
from open_rnic.boards.core import Core
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.cocotb_tests.system.test_verilog_rnic import memory_is_written_and_read
from open_rnic.cocotb_tests.system.test_whole import board_and_twin
from open_rnic.host_driver.devices import names
from open_rnic.host_driver.devices.udp.board import parameters

SDR = {"colorlight_5a75b": 4, "colorlight_5a75b_r8": 8, "colorlight_i5": 8, "colorlight_i9": 8}  # MiB
DDR3 = {"versa_ecp5": 128, "ecpix5": 512, "ecpix5_45f": 512}
WITH = SDR | DDR3
RESISTORS = {"ecpix5": "SSTL15_I", "versa_ecp5": "SSTL135_I"}  # standards of pins


def design(name):
    """Return the files of a board whose memory is its SDRAM, and the SDRAM."""
    board = find(name).sized(in_sdram=True)
    return plan(board, top(board, Core.RNIC, 1, None)).files, board.ethernet.sdram


@pytest.mark.parametrize("name", shortened("other pins and chips", 1, SDR) + shortened("other pins and chips", 1, DDR3))
def test_the_controller_and_the_pins_of_the_sdram_are_in_the_design(name):
    files, chip = design(name)
    assert f"litedram_{chip.name.lower()}.v" in files
    pins = [f'LOCATE COMP "{chip.kind.resource}_0__dq__io[{n}]"' for n in range(chip.bits)]
    assert [pin for pin in pins if pin not in files["top.lpf"]] == []


@pytest.mark.parametrize("name", shortened("the same for other pins", 1, RESISTORS))
def test_the_data_pins_of_ddr3_sdram_alone_have_resistors(name):
    lines = [line for line in design(name)[0]["top.lpf"].splitlines() if "TERMINATION=75" in line]
    assert len(lines) == 16
    assert [line for line in lines if "__dq__io[" not in line or RESISTORS[name] not in line] == []


@pytest.mark.parametrize(("name", "module"), [("ecpix5", "lambdaconcept_ecpix5"), ("versa_ecp5", "lattice_versa_ecp5")])
def test_the_pins_of_ddr3_sdram_are_those_of_litex_boards(name, module):
    from litex_boards import platforms

    [theirs] = [each for each in vars(import_module(f"{platforms.__name__}.{module}"))["_io"] if each[0] == "ddram"]
    theirs = {each.name: each.constraints[0].identifiers for each in theirs[2:] if hasattr(each, "name")}
    [ours] = [each for each in find(name).platform().resources.values() if each.name == "ddr3"]
    named = {"clk": "clk_p", "clk_en": "cke", "dqs": "dqs_p", "rst": "reset_n"}
    for part in ours.ios:
        [pins] = part.ios
        names = pins.p.names if hasattr(pins, "p") else pins.names
        theirs_name = named.get(part.name, part.name if part.name in theirs else f"{part.name}_n")
        assert (theirs_name, names) == (theirs_name, theirs.pop(theirs_name))
    assert not theirs


@pytest.mark.parametrize(("name", "mebi"), WITH.items())
def test_all_of_the_sdram_is_the_memory_of_all_connections(name, mebi):
    for place in (f"{name}:sdram", f"{name}:4:sdram"):
        assert find_rnic(place).memory == mebi << 20
        assert names.parse(f"udp:sim:{place}").in_sdram
    assert find_rnic(name).memory < 1 << 20


@pytest.mark.parametrize(("name", "octets"), [("colorlight_i5", 8 << 20), ("ecpix5", 32 << 20)])
def test_a_simulation_has_as_much_of_the_sdram_as_it_can_hold(name, octets):
    chip = find_rnic(f"{name}:sdram").sdram
    assert parameters(f"{name}:4:sdram")[3:] == (str(octets), *["samples"] * (name == "ecpix5"), chip.name)


@long("a build of minutes")
async def test_a_simulated_board_with_ddr3_sdram_connects_and_its_memory_is_written_and_read():
    async with board_and_twin(name="ecpix5:sdram") as (board, twin):
        await memory_is_written_and_read(board, twin)


def test_sdram_is_named_if_the_name_behind_a_board_is_wrong():
    with pytest.raises(ValueError, match=r"^a board is BOARD\[:N\]\[:sdram\|:netlist\] with N .*, not 'ecpix5:SDRAM'$"):
        names.parse("udp:sim:ecpix5:SDRAM")


def test_a_board_without_sdram_is_refused_in_one_line(tmp_path):
    name = "arty_a7"
    with pytest.raises(ValueError, match=f"^{name} has no SDRAM that an RNIC could use$"):
        names.parse(f"udp:sim:{name}:sdram")
    with pytest.raises(ValueError, match=f"^{name} has no SDRAM that an RNIC could use$"):
        build(name, tmp_path, memory="sdram")
