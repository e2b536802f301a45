"""Streams of octets in place of a PHY's pins."""

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, Module
from amaranth.sim import Simulator

from open_rnic.rtl.mac.octet_streams import OctetStreams


def simulated(dut, bench):
    """Run a testbench with ``mac_rx`` and ``mac_tx`` at one clock."""
    m = Module()
    m.submodules.dut = dut
    for name in ("mac_rx", "mac_tx"):
        m.domains += ClockDomain(name, reset_less=True)
        m.d.comb += ClockSignal(name).eq(ClockSignal("sync"))
    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def test_no_time_passes_while_an_octet_of_a_frame_is_late_and_a_gap_is_behind_the_last_one():
    dut = OctetStreams()
    octets = [1, None, None, 2, 3, 4, None]  # a frame of 3, one of 1
    lasts = 3, 4
    seen = []

    async def bench(ctx):
        left = list(octets)
        while left:
            octet = left[0]
            ctx.set(dut.rx_valid, octet is not None)
            ctx.set(dut.rx_data, octet or 0)
            ctx.set(dut.rx_last, octet in lasts)
            if ctx.get(dut.rx.strobe):
                seen.append(ctx.get(dut.rx.data) if ctx.get(dut.rx.valid) else None)
            if octet is None or ctx.get(dut.rx_ready):
                left.pop(0)
            await ctx.tick()

    simulated(dut, bench)
    assert seen == [1, 2, 3, None, 4, None]


@pytest.mark.parametrize("cycles", [1, 2, 4])
def test_octets_of_a_frame_follow_each_other_and_those_of_a_gap_take_their_time(cycles):
    dut = OctetStreams(cycles)
    given = [1, 2, 3, *12 * [None], 4]
    found = []

    async def bench(ctx):
        left = list(given)
        for cycle in range(100):
            octet = left[0] if left else None
            ctx.set(dut.tx.valid, octet is not None)
            ctx.set(dut.tx.data, octet or 0)
            ctx.set(dut.tx_ready, cycle % 3 != 0)
            if ctx.get(dut.tx_valid) and ctx.get(dut.tx_ready):
                found.append((cycle, ctx.get(dut.tx_data), ctx.get(dut.tx_last)))
            if ctx.get(dut.tx.strobe) and left:
                left.pop(0)
            await ctx.tick()

    simulated(dut, bench)
    assert [row[1:] for row in found] == [(1, 0), (2, 0), (3, 1), (4, 1)]
    last, following = (found[at][0] for at in (2, 3))
    assert following - last >= 11 * cycles
