"""Parts of a wide word are read: from one access, or from two if others may have written between."""

import functools
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import bench, cycles, parameter, simulate
from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with
from open_rnic.rtl.memory.ports import Split
from open_rnic.rtl.memory.wide_reads import WideReads

BITS = 128


@bench()
async def a_part_is_read_as_another_master_has_left_it(dut):
    octets, edge = 4 * parameter("lanes"), RisingEdge(dut.clk)
    wide_word = bytes(BITS // 8)

    async def give():
        while True:
            await rises_with(edge, dut.asks__valid)
            await cycles(dut, 4)
            drive(dut.given, int.from_bytes(wide_word, "little"))
            drive(dut.gives, 1)
            await edge
            drive(dut.gives, 0)

    for each in (dut.gives, dut.forget, dut.read__valid):
        drive(each, 0)
    for each in (dut.asks__ready, dut.words__ready):
        drive(each, 1)
    cocotb.start_soon(give())
    for part in (*range(BITS // 8 // octets), 0, 0):
        wide_word = random.randbytes(BITS // 8)
        drive(dut.read__payload, part)
        drive(dut.read__valid, 1)
        await rises_with(edge, dut.read__ready)
        drive(dut.read__valid, 0)
        await rises_with(edge, dut.words__valid)
        assert level(dut.words__payload).to_bytes(octets, "little") == wide_word[part * octets :][:octets]


def _reads(lanes):
    return WideReads(Split(lanes, 8, BITS), 4)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_part_is_read_as_another_master_has_left_it(lanes):
    reads = functools.partial(_reads, lanes)
    simulate(reads, a_part_is_read_as_another_master_has_left_it, parameters={"lanes": lanes})
