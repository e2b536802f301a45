"""The cells of the parts of a board's top."""

import pytest

from open_rnic.boards.build import NAME
from open_rnic.boards.part_sizes import PARTS, Size, measure, part_of, sizes
from open_rnic.cocotb_tests.boards.designs import whole
from open_rnic.cocotb_tests.plugins.lengths import long


@pytest.mark.parametrize(("module", "part"), [
    ("", "clocks, pins"),
    ("pll", "clocks, pins"),
    ("rnic.port.mac.rx_fifo", "MAC, RGMII, clock crossing"),
    ("rnic.core.rnic.path.net.sender", "ARP, IPv4, ICMP, UDP"),
    ("rnic.core.rnic.path.engine", "TCP"),
    ("rnic.core.rnic.datapath.watcher", "MPA"),
    ("rnic.core.rnic.datapath_0.path.mpa", "MPA"),
    ("rnic.core.rnic.datapath_0.path.engine.sender", "RDMA engine"),
    ("rnic.core.rnic.datapath.memory", "memory, its port"),
    ("rnic.core.uart", "link (UART and UDP)"),
])  # fmt: skip
def test_a_module_belongs_to_a_part(module, part):
    assert part_of(module) == part


def test_the_cells_of_the_modules_of_a_part_are_added_up():
    found = sizes({
        r"\top": {"num_cells_by_type": {"LUT4": 1, "top.rnic": 1}},
        r"\top.rnic.port": {"num_cells_by_type": {"LUT4": 10, "CCU2C": 2, "TRELLIS_FF": 7}},
        r"\top.rnic.port.mac": {"num_cells_by_type": {"TRELLIS_DPR16X4": 3, "DP16KD": 1}},
    })
    assert found["MAC, RGMII, clock crossing"] == Size(luts=32, registers=7, block_rams=1)
    assert sum(size.luts for size in found.values()) == 33


@pytest.mark.parametrize("connections", [
    1, pytest.param(4, marks=long("a larger design; the names of its modules are in test_a_module_belongs_to_a_part")),
])  # fmt: skip
def test_every_part_has_modules(connections):
    lines = whole("colorlight_5a75b", connections)[f"{NAME}.il"].splitlines()
    names = [line.removeprefix(rf"module \{NAME}").removeprefix(".") for line in lines if line.startswith("module ")]
    assert {part_of(name) for name in names} == set(PARTS)


def test_a_board_without_an_ecp5_or_ethernet_is_refused():
    with pytest.raises(ValueError, match="arty_a7 has no ECP5"):
        measure("arty_a7", 1)
    with pytest.raises(ValueError, match="ulx3s has no Ethernet"):
        measure("ulx3s", 1)
