# amaranth: UnusedElaboratable=no
"""The set-up of a PHY and the state of its link, against a model of MDIO."""

import random

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.cocotb_tests.harness import PERIOD, Part, bench, simulate
from open_rnic.cocotb_tests.rtl.mac.mdio import MdioPhys, Phy
from open_rnic.rtl.mac.mdio import Mdio
from open_rnic.rtl.mac.phy import PhyControl, PhySettings
from open_rnic.rtl.mac.registers import Speed

HALF = 5  # cycles, each of 40 ns for the PHYs
POLL = 6 * 65 * 2 * HALF + 100  # cycles, at most
SETTINGS = PhySettings(address=5, writes=((0x1C, 0x8C00), (9, 0x0200), (31, 0xA5C3)), reset=3, wait=5)
SEVERAL = PhySettings(address=(0, 1, 4), writes=((0x1C, 0x8C00),), reset=0, wait=0)
QUIET = PhySettings(address=0, reset=0, wait=0, gigabit=False)
ALL = (SETTINGS, SEVERAL, QUIET)
LINK_UP = 0x0024  # and auto-negotiation complete


def control(settings):
    return PhyControl(settings, HALF)


def begin(dut, phys):
    dut.tick.value = dut.restart.value = dut.access_start.value = dut.access.value = 0
    return MdioPhys(dut, phys, nanosecond=PERIOD / 40)


async def pass_tick(dut, cycles=POLL):
    dut.tick.value = 1
    await RisingEdge(dut.clk)
    dut.tick.value = 0
    await ClockCycles(dut.clk, cycles)


def link(dut):
    word = dut.link.value.to_unsigned()
    return bool(word & 1), Speed(word >> 1 & 3), bool(word >> 3)


def no_link(dut):
    return not dut.answers.value and not dut.link.value.to_unsigned()


def resolved(phy):
    """The mode of a link (IEEE 802.3 §28.2.4.1, annex 28B.3, §40.5.1.1)."""
    if not phy[0] & 1 << 12:
        return Speed((phy[0] >> 13 & 1) | (phy[0] >> 5 & 2)), bool(phy[0] & 1 << 8)
    for speed, full_duplex, ours, theirs in (
        (Speed.MBIT_1000, True, (9, 9), (10, 11)),
        (Speed.MBIT_1000, False, (9, 8), (10, 10)),
        (Speed.MBIT_100, True, (4, 8), (5, 8)),
        (Speed.MBIT_100, False, (4, 7), (5, 7)),
        (Speed.MBIT_10, True, (4, 6), (5, 6)),
    ):
        if all(phy[register] >> bit & 1 for register, bit in (ours, theirs)):
            return speed, full_duplex
    return Speed.MBIT_10, False


@bench(1_000_000)
async def a_phy_is_reset_then_set_up_then_polled(dut):
    mdio = begin(dut, {5: Phy({0: 1 << 12, 1: LINK_UP, 9: 0x0200, 10: 0x0800})})
    await RisingEdge(dut.clk)
    for tick in range(8):
        assert dut.phy_reset.value == (tick < 3)
        assert not mdio.writes
        assert not dut.mdc.value
        assert not dut.mdio_oe.value
        await pass_tick(dut, 100 if tick < 7 else 2 * POLL)
    assert mdio.writes == [(5, *each) for each in SETTINGS.writes]
    assert link(dut) == (True, Speed.MBIT_1000, True)
    assert dut.answers.value == 1
    await pass_tick(dut)
    assert len(mdio.writes) == 3  # only once
    assert {address for address, _ in mdio.reads} == {5}
    dut.restart.value = 1
    await RisingEdge(dut.clk)
    dut.restart.value = 0
    await ClockCycles(dut.clk, 10)
    assert dut.phy_reset.value == 1
    assert no_link(dut)
    for _ in range(9):
        await pass_tick(dut, 100)
    await ClockCycles(dut.clk, 2 * POLL)
    assert mdio.writes == 2 * [(5, *each) for each in SETTINGS.writes]
    assert link(dut) == (True, Speed.MBIT_1000, True)


@bench(10_000_000)
async def the_mode_of_the_link_is_that_of_both_ends(dut):
    phy = Phy()
    begin(dut, {5: phy})
    for _ in range(9):
        await pass_tick(dut, 10)
    await ClockCycles(dut.clk, 2 * POLL)
    for _ in range(30):
        for register in (4, 5, 9, 10):
            phy[register] = random.getrandbits(16) & random.getrandbits(16)
        phy[0] = random.getrandbits(16) | (random.random() < 0.8) << 12
        if phy[0] & 0x2040 == 0x2040:  # reserved
            phy[0] &= ~0x2000
        phy[1] = phy.status = random.getrandbits(16) | random.choice([0, LINK_UP])
        await pass_tick(dut)
        up = bool(phy.status & 4 and (phy.status & 0x20 or not phy[0] & 1 << 12))
        assert dut.answers.value == 1
        assert link(dut)[0] == up
        assert link(dut)[1:] == resolved(phy)


@bench(1_000_000)
async def a_phy_that_does_not_answer_is_set_up_when_it_does(dut):
    phys = {}
    mdio = begin(dut, phys)
    for _ in range(12):
        await pass_tick(dut, POLL // 4)
    await pass_tick(dut)
    assert no_link(dut)
    assert len(mdio.writes) > 3  # it is tried again and again
    mdio.writes.clear()
    phys[5] = Phy({0: 1 << 12, 1: LINK_UP, 4: 0x0140, 5: 0x0140})
    await pass_tick(dut, 2 * POLL)
    await pass_tick(dut, 2 * POLL)
    assert mdio.writes[-3:] == [(5, *each) for each in SETTINGS.writes]
    assert dut.answers.value == 1
    assert link(dut) == (True, Speed.MBIT_100, True)
    phys[5].lose_link()
    await pass_tick(dut)
    assert not link(dut)[0]
    await pass_tick(dut)
    assert link(dut)[0]
    del phys[5]
    await pass_tick(dut)
    assert no_link(dut)


@bench(1_000_000)
async def a_slow_phy_that_must_not_be_reset_is_only_read(dut):
    mdio = begin(dut, {0: Phy({0: 1 << 12, 1: LINK_UP, 4: 0x01E0, 5: 0x0060})})
    resets = 0

    async def watch():
        nonlocal resets
        while True:
            await RisingEdge(dut.clk)
            resets += int(dut.phy_reset.value)

    cocotb.start_soon(watch())
    for _ in range(3):
        await pass_tick(dut)
    assert link(dut) == (True, Speed.MBIT_10, True)
    assert not resets
    assert not mdio.writes
    assert {register for _, register in mdio.reads} == {0, 1, 4, 5}


@bench(2_000_000)
async def of_several_addresses_the_first_with_a_link_is_used(dut):
    linked = {0: 1 << 12, 1: LINK_UP, 4: 0x01E0, 5: 0x01E0}
    phys = {1: Phy({0: 1 << 12}), 4: Phy(linked)}  # none at 0, and no link at 1
    mdio = begin(dut, phys)

    async def settle():
        for _ in range(5):
            await pass_tick(dut, 2 * POLL)

    await settle()
    assert dut.address.value == 4
    assert link(dut) == (True, Speed.MBIT_100, True)
    assert (4, 0x1C, 0x8C00) in mdio.writes
    mdio.writes.clear()
    mdio.reads.clear()
    await settle()
    assert not mdio.writes
    assert {address for address, _ in mdio.reads} == {4}
    phys[4] = Phy({0: 1 << 12})
    await settle()
    assert not link(dut)[0]
    phys[1] = Phy(linked)
    await settle()
    assert dut.address.value == 1
    assert link(dut) == (True, Speed.MBIT_100, True)


@bench(1_000_000)
async def the_host_reads_and_writes_any_register(dut):
    phys = {address: Phy(enumerate(random.getrandbits(16) for _ in range(32))) for address in (0, 5, 31)}
    mdio = begin(dut, phys)

    async def access(address, register, word=None):
        dut.access.value = (word or 0) | register << 16 | address << 21 | (word is not None) << 26
        dut.access_start.value = 1
        await RisingEdge(dut.clk)
        dut.access_start.value = 0
        await RisingEdge(dut.clk)
        while dut.access_pending.value:
            await RisingEdge(dut.clk)

    for tick in range(9):
        await pass_tick(dut, 10 if tick < 8 else random.randrange(POLL))
    for _ in range(10):
        mdio.writes.clear()
        address, register, word = random.choice([0, 5, 31]), random.randrange(2, 32), random.getrandbits(16)
        await access(address, register, word)
        assert (address, register, word) in mdio.writes
        await access(address, register)
        assert dut.access_answered.value
        assert dut.access_read.value == word
        await access(7, register)
        assert not dut.access_answered.value
        await pass_tick(dut, random.randrange(POLL))


@pytest.mark.parametrize(
    "test",
    [
        a_phy_is_reset_then_set_up_then_polled,
        the_mode_of_the_link_is_that_of_both_ends,
        a_phy_that_does_not_answer_is_set_up_when_it_does,
        the_host_reads_and_writes_any_register,
    ],
)
def test_phy(test):
    simulate(Part(control, SETTINGS, ALL), test)


def test_a_slow_phy_that_must_not_be_reset_is_only_read():
    simulate(Part(control, QUIET, ALL), a_slow_phy_that_must_not_be_reset_is_only_read)


def test_of_several_addresses_the_first_with_a_link_is_used():
    simulate(Part(control, SEVERAL, ALL), of_several_addresses_the_first_with_a_link_is_used)


def test_wrong_settings_are_rejected():
    with pytest.raises(ValueError, match="the address of a PHY is 0 to 31, not -1"):
        PhySettings(address=(0, -1))
    with pytest.raises(ValueError, match="a PHY has an address"):
        PhySettings(address=())
    with pytest.raises(ValueError, match="the address of a PHY is 0 to 31, not 32"):
        PhySettings(address=32)
    with pytest.raises(ValueError, match="a register of 0 to 31 and 16 bits, not 32, 0"):
        PhySettings(writes=((32, 0),))
    with pytest.raises(ValueError, match="wait is 0 to 4095 ms, not 5000"):
        PhySettings(wait=5000)
    with pytest.raises(ValueError, match="half must be at least 3 cycles, not 2"):
        Mdio(2)
