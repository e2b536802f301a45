"""Stream mode, and the exact octet at which MPA mode starts: the RTL and the software side by side."""

import functools
import random

import pytest

from open_rnic.cocotb_tests.harness import bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import SideBySide
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.host_driver.device import Ulpdu
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import BY_NAME, Cause, DirectionState, EventKind, Verdict

BOTH = {"tx_enable": 1, "rx_enable": 1}


def both(dut, chance=0.2):
    return SideBySide(dut, parameter("lanes"), pauses(chance), stalls(chance))


def fpdus(*ulpdus, markers=False):
    framer = FpduFramer(markers=markers, crc=True)
    return b"".join(map(framer.frame, ulpdus))


async def state(pair, direction):
    return DirectionState(BY_NAME["STATE"][direction].get(await pair.rtl.get("STATE")))


@bench(cycles=4_000_000)  # the number of cases grows with the width, and so does each of them
async def receive_starts_at_the_exact_octet(dut):
    pair = both(dut)
    width = 4 * parameter("lanes")
    for before in [*range(1, width + 2), 2 * width - 1, 2 * width, 2 * width + 1, 532]:
        for longest in (1, width, 2000):
            markers = random.randrange(2)
            await pair.renew(markers_rx=markers)
            await pair.set("RX_STREAM_OCTETS", before)
            assert await state(pair, "rx") is DirectionState.STREAM
            octets = random.randbytes(before)
            await pair.receive(octets + fpdus(b"first", b"", bytes(70), markers=markers), longest)
            assert await state(pair, "rx") is DirectionState.WAITING
            assert (await pair.agree()).ulpdus == [Ulpdu(octets, Verdict.STREAM)]
            await pair.set("CONTROL", **BOTH)
            assert (await pair.agree()).delivered == [b"first", b"", bytes(70)], (before, longest)


@bench(cycles=500_000)
async def the_limit_can_be_raised_in_steps(dut):
    pair = both(dut)
    for private, behind in [(0, 0), (1, 1), (4, 300), (37, 2), (512, 40)]:
        for longest in (1, 30, 2000):
            await pair.renew()
            startup = random.randbytes(20 + private)
            await pair.set("RX_STREAM_OCTETS", 20)
            await pair.receive(startup + fpdus(bytes(behind), b"next"), longest)
            assert (await pair.agree()).delivered == [startup[:20]]
            await pair.set("RX_STREAM_OCTETS", 20 + private)
            assert (await pair.agree()).delivered == [startup[20:]] * (private > 0)
            await pair.set("CONTROL", **BOTH)
            assert (await pair.agree()).delivered == [bytes(behind), b"next"]


@bench()
async def receive_enabled_early_switches_after_the_last_stream_octet(dut):
    pair = both(dut)
    for before in (0, 1, 21):
        await pair.renew()
        await pair.set("RX_STREAM_OCTETS", before)
        await pair.set("CONTROL", **BOTH)
        await pair.receive(bytes(before) + fpdus(b"first"), 9)
        assert (await pair.agree()).delivered == [bytes(before)] * (before > 0) + [b"first"]


@bench(cycles=500_000)
async def transmit_starts_at_the_exact_octet(dut):
    pair = both(dut)
    width = 4 * parameter("lanes")
    for packets in ([1], [width], [width, 1], [width + 1, width - 1], [3 * width], [20, 512], [5, 0, 5]):
        await pair.renew()
        await pair.set("TX_STREAM_OCTETS", sum(packets))
        octets = [random.randbytes(each) for each in packets]
        await pair.transmit(*octets, b"one", b"", b"second")
        assert await state(pair, "tx") is DirectionState.WAITING
        assert (await pair.agree()).sent == [each for each in octets if each]
        await pair.set("CONTROL", **BOTH)
        found = await pair.agree()
        assert found.sent == [fpdus(each) for each in (b"one", b"", b"second")]


@bench()
async def an_empty_packet_is_ignored_in_stream_mode(dut):
    pair = both(dut)
    await pair.renew()
    await pair.set("TX_STREAM_OCTETS", 3)
    await pair.set("RX_STREAM_OCTETS", 3)
    await pair.transmit(b"", b"a", b"", b"bc")
    for each in (b"", b"a", b"", b"bc"):
        pair.rtl.rx_mpa.send(each)
        pair.software.receive(each)
    await pair.set("CONTROL", **BOTH)
    found = await pair.agree()
    assert (found.sent, found.delivered) == ([b"a", b"bc"], [b"abc"])


@bench(cycles=200_000)
async def a_packet_that_extends_into_mpa_mode_is_rejected_completely(dut):
    pair = both(dut)
    width = 4 * parameter("lanes")
    cases = [(0, 1, 2), (0, 20, 21), (5, 3, 4), (0, width, width + 1), (0, width, 5 * width), (0, 3, 3 * width),
             (7, 2 * width, 2 * width + 1), (0, 9, 60_000 if width > 16 else 99)]  # fmt: skip
    for before, room, length in cases:
        await pair.renew()
        await pair.set("TX_STREAM_OCTETS", before + room)
        await pair.set("CONTROL", **BOTH)
        await pair.transmit(*[bytes(before)] * (before > 0), bytes(length), b"late")
        found = await pair.agree()
        assert found.sent == [bytes(before)] * (before > 0)
        assert (found.tx_events[-1].cause, found.tx_events[-1].value) == (Cause.TX_STREAM, length - room)
        assert await state(pair, "tx") is DirectionState.STOPPED


@bench()
async def a_packet_longer_than_announced_does_not_extend_into_mpa_mode(dut):
    pair = both(dut)
    width = 4 * parameter("lanes")
    for octets, announced in ((2 * width, width), (width, width - 1)):  # a beat too many, an octet too many
        await pair.renew()
        await pair.set("TX_STREAM_OCTETS", announced)
        await pair.set("CONTROL", **BOTH)
        pair.rtl.send_ulpdu(bytes(octets), length=announced)
        await pair.rtl.cycles(200)
        assert await state(pair, "tx") is DirectionState.STOPPED
        [error] = [each for each in await pair.rtl.events() if each.kind is EventKind.ERROR]
        assert (error.cause, error.value) == (Cause.TX_STREAM, octets - announced)


@bench()
async def stream_packets_are_not_counted_as_fpdus(dut):
    wait = [0]
    pair = SideBySide(dut, parameter("lanes"), None, iter(lambda: wait[0], None))
    await pair.renew()
    wait[0] = 200  # the sink is slow
    await pair.set("TX_STREAM_OCTETS", 5)
    await pair.set("CONTROL", **BOTH)
    await pair.transmit(b"start", b"one")
    wait[0] = 0
    await pair.rtl.cycles(1000)
    found = await pair.agree()
    assert found.sent == [b"start", fpdus(b"one")]


@bench()
async def the_directions_switch_independently(dut):
    pair = both(dut)
    await pair.renew()
    await pair.set("TX_STREAM_OCTETS", 4)
    await pair.set("RX_STREAM_OCTETS", 6)
    await pair.set("CONTROL", rx_enable=1)
    await pair.receive(b"stream" + fpdus(b"first"))
    await pair.transmit(b"star", b"one")
    found = await pair.agree()
    assert (found.sent, found.delivered) == ([b"star"], [b"stream", b"first"])
    assert [each.kind for each in found.rx_events + found.tx_events] == [EventKind.RX_MPA]
    await pair.set("CONTROL", **BOTH)
    assert (await pair.agree()).sent == [fpdus(b"one")]


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_stream_mode(lanes):
    simulate(functools.partial(MpaDatapath, lanes), __name__, parameters={"lanes": lanes})
