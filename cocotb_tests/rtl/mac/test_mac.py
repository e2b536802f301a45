# amaranth: UnusedElaboratable=no
"""The MAC at GMII, against cocotbext-eth: every frame arrives whole or is counted, both ways."""

import random
from itertools import chain

import cocotb
import pytest
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from cocotb.utils import get_sim_time

from open_rnic.cocotb_tests.harness import never, parameter
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.mac.bench import SCALE, Core, Phy, good, mac_bench, sent_well
from open_rnic.cocotb_tests.rtl.mac.frames import (
    a_stalled_core_loses_whole_frames_that_are_counted,
    all_sizes_pass,
    bad_frames_are_discarded_and_counted,
    frames_are_received,
    frames_are_transmitted,
    frames_stay_whole_when_the_mac_stops_and_starts,
    frames_without_pauses_are_transmitted_early,
    simulate_mac,
)
from open_rnic.rtl.mac.frame_fifo import FrameFifo
from open_rnic.rtl.mac.mac import EARLY, Mac
from open_rnic.rtl.mac.receiver import MacReceiver


@mac_bench()
async def line_rate_is_kept(dut):
    """Frames with the shortest gap, both ways at once: none is lost, and none is late."""
    core, phy = Core(dut, early=parameter("early")), Phy(dut)
    await core.begin()
    octets = parameter("octets")
    frames = [random.randbytes(octets) for _ in range(max(9, 20_000 // octets))]
    for frame in frames:
        core.send(frame)
        phy.source.send_nowait(good(frame))
    for frame in frames:
        assert await core.receive() == frame
        assert sent_well(await phy.sink.recv()) == frame
    await core.wait()
    core.counted(rx_frames=len(frames), tx_frames=len(frames))
    assert set(phy.gaps) == {12}


@mac_bench()
async def a_core_that_takes_nothing_gets_the_first_frames(dut):
    """512 words have room for exactly 32 frames of 16 words, or one of 379 words and 8 of 16."""
    core, phy = Core(dut, backpressure=chain([10_000], never())), Phy(dut)
    await core.begin()
    sizes = random.choice([[60] * 40, [1514] + [60] * 12, [60, 1514, 1514, 62]])
    frames = [random.randbytes(size) for size in sizes]
    room, kept = 512, []
    # Two words have left the memory, for the registers behind it.
    for frame in frames:
        words = -(-(2 + len(frame)) // 4)
        if words <= room + 2 * bool(kept):
            kept.append(frame)
            room -= words
    for frame in frames:
        phy.source.send_nowait(good(frame))
    await core.receive_all(kept)
    core.counted(rx_frames=len(kept), rx_no_room=len(frames) - len(kept))


@mac_bench()
async def a_frame_that_is_too_long_or_has_no_header_is_not_transmitted(dut):
    core, phy = Core(dut), Phy(dut)
    await core.begin()
    frames = []
    dropped = 0
    for _ in range(20):
        frames.append(random.randbytes(random.choice([14, 60, 1514])))
        core.send(frames[-1])
        for _ in range(random.randrange(3)):
            core.send(random.randbytes(random.choice([0, 1, 2, 1515, 1516, 2048, 9000])))
            dropped += 1
    for frame in frames:
        assert sent_well(await phy.sink.recv()) == frame.ljust(60, b"\0")
    await core.wait(3000)
    assert phy.sink.empty()
    core.counted(tx_frames=len(frames), tx_dropped=dropped)


@mac_bench()
async def a_mac_that_does_not_run_is_quiet_and_holds_nobody_up(dut):
    core, phy = Core(dut), Phy(dut)
    for _ in range(20):
        core.send(random.randbytes(100))
        phy.source.send_nowait(good(random.randbytes(100)))
    await core.source.drained()
    await phy.source.wait()
    await core.wait()
    assert phy.sink.empty()
    assert phy.sink.idle()
    assert core.sink.empty()
    core.counted(tx_dropped=20)
    await core.begin()
    frame = random.randbytes(100)
    core.send(frame)
    phy.source.send_nowait(good(frame))
    assert await core.receive() == sent_well(await phy.sink.recv()) == frame


@mac_bench()
async def latency_is_as_documented(dut):
    """Of the shortest frames, at a core clock of 62.5 MHz."""
    core, phy = Core(dut), Phy(dut)
    await core.begin()
    times = {"rx": [], "tx": []}

    async def passes(name, begin, end):
        await begin
        began = get_sim_time("step")
        await end
        times[name].append((get_sim_time("step") - began) / SCALE)

    for _ in range(50):
        await ClockCycles(dut.mac_rx_clk, random.randrange(30, 40))
        received = cocotb.start_soon(
            passes("rx", FallingEdge(dut.rx_octets__valid), RisingEdge(dut.rx_frames__valid))
        )
        sent = cocotb.start_soon(
            passes("tx", FallingEdge(dut.tx_frames__valid), RisingEdge(dut.tx_octets__valid))
        )
        core.send(random.randbytes(60))
        phy.source.send_nowait(good(random.randbytes(60)))
        await received
        await sent
        await phy.sink.recv()
    for name, (least, most) in LATENCY.items():
        dut._log.info("%s: %s", name, sorted(times[name]))
        assert least <= min(times[name]) <= max(times[name]) <= most, (name, sorted(times[name]))


LATENCY = {"rx": (95, 180), "tx": (70, 148)}  # ns, as in docs/mac.md
CLOCKS = {"62.5 MHz": (16, 100, -100), "50 MHz": (20, -100, 100)}
FAST_ENOUGH = {"40 MHz": (25, -100, 100), "150 MHz": (6.6, 100, -100)}  # to transmit early


@pytest.mark.parametrize("clocks", shortened("another clock of the core", 1, CLOCKS))
@pytest.mark.parametrize(
    "test",
    shortened("receive does not depend on when frames are transmitted", 2, [
        frames_are_transmitted,
        frames_stay_whole_when_the_mac_stops_and_starts,
        frames_are_received,
        bad_frames_are_discarded_and_counted,
        a_stalled_core_loses_whole_frames_that_are_counted,
    ]),
)
def test_frames_pass(test, clocks):
    run(test, clocks)


@pytest.mark.parametrize("clocks", shortened("other clocks", 1, ["150 MHz", "40 MHz", *CLOCKS]))
@pytest.mark.parametrize(
    "test",
    [
        frames_are_received,
        frames_without_pauses_are_transmitted_early,
        bad_frames_are_discarded_and_counted,
        a_stalled_core_loses_whole_frames_that_are_counted,
        frames_stay_whole_when_the_mac_stops_and_starts,
    ],
)
def test_frames_pass_early(test, clocks):
    run(test, clocks, early=EARLY)


@pytest.mark.parametrize("early", [None, EARLY])
def test_frames_of_all_sizes_pass(early):
    """More of them: ``python -m open_rnic.cocotb_tests.soaks mac``."""
    run(all_sizes_pass, "50 MHz", early=early, longest=100)


def run(test, clocks, early=None, **parameters):
    simulate_mac(test, *(CLOCKS | FAST_ENOUGH)[clocks], early, parameters)


@pytest.mark.parametrize("clocks", shortened("another clock of the core", 1, CLOCKS))
@pytest.mark.parametrize("octets", shortened("a size between both ends", 2, [61, 1514, 60]))
@pytest.mark.parametrize("early", [None, EARLY])
def test_line_rate_is_kept(early, octets, clocks):
    run(line_rate_is_kept, clocks, octets=octets, early=early)


@pytest.mark.parametrize(
    "test",
    [
        a_core_that_takes_nothing_gets_the_first_frames,
        a_frame_that_is_too_long_or_has_no_header_is_not_transmitted,
        a_mac_that_does_not_run_is_quiet_and_holds_nobody_up,
    ],
)
def test_mac(test):
    run(test, random.choice(list(CLOCKS)))


def test_latency_is_as_documented():
    run(latency_is_as_documented, "62.5 MHz")


def test_a_wrong_parameter_is_rejected():
    with pytest.raises(ValueError, match="rx_words must be at least 512, not 256"):
        Mac(rx_words=256)
    with pytest.raises(ValueError, match="early must be at least 8 words, not 7"):
        Mac(early=7)
    with pytest.raises(ValueError, match="longest must be at least 64 octets, not 63"):
        MacReceiver(63)
    with pytest.raises(ValueError, match="longest must be 2 to 8 words, not 9"):
        FrameFifo(8, longest=9)
