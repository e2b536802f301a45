# amaranth: UnusedElaboratable=no
"""The MAC at GMII, against cocotbext-eth: every frame arrives whole or is counted, both ways."""

import random
from collections import Counter
from itertools import chain, repeat

import cocotb
import pytest
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from cocotb.utils import get_sim_time

from open_rnic.cocotb_tests.harness import Part, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.lengths import shortened
from open_rnic.cocotb_tests.rtl.mac.bench import SCALE, SIZES, Core, Phy, good, mac_bench, random_frames, sent_well
from open_rnic.rtl.mac.frame_fifo import FrameFifo
from open_rnic.rtl.mac.mac import EARLY, Mac
from open_rnic.rtl.mac.receiver import MacReceiver

RECEIVED = [size for size in SIZES if size >= 60]


@mac_bench()
async def frames_are_received(dut):
    early = parameter("early")
    core, phy = Core(dut, backpressure=None if early else stalls(0.2), early=early), Phy(dut)
    await core.begin()
    frames = random_frames(RECEIVED)
    for frame in frames:
        await phy.send(good(frame), gap=random.choice([1, 2, 8, 12, 40]))
    await core.receive_all(frames)
    core.counted(rx_frames=len(frames))


@mac_bench()
async def frames_are_transmitted(dut):
    core, phy = Core(dut, idle=pauses(0.2)), Phy(dut)
    await core.begin()
    frames = random_frames()
    for frame in frames:
        core.send(frame)
    for frame in frames:
        assert sent_well(await phy.sink.recv()) == frame.ljust(60, b"\0")
    await core.wait()
    core.counted(tx_frames=len(frames))
    assert min(phy.gaps) >= 12


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


@mac_bench(1_000_000)
async def all_sizes_pass(dut):
    """Frames of all these sizes, without FCS, both ways at once: each arrives, or is counted for its size."""
    early = parameter("early")
    core, phy = Core(dut, idle=None if early else pauses(0.05), early=early), Phy(dut)
    await core.begin()
    sizes = list(range(1, parameter("longest") + 1))
    random.shuffle(sizes)
    expected = Counter()

    async def transmit():
        for size in sizes:
            frame = random.randbytes(size)
            core.send(frame)
            words = -(-(2 + size) // 4)
            if size > 1514 or words == 1:
                expected["tx_dropped"] += 1
                if early is None or words == 1:
                    continue
                frame = frame[:1514]  # the rest is cut off
            expected["tx_frames"] += 1
            assert sent_well(await phy.sink.recv()) == frame.ljust(60, b"\0")
        await core.source.drained()

    async def receive():
        for size in sizes:
            frame = random.randbytes(size)
            phy.source.ifg = random.choice([1, 8, 12, 12, 12, 50])
            phy.source.send_nowait(good(frame))
            if 60 <= size <= 1518:
                expected["rx_frames"] += 1
                assert await core.receive() == frame
            else:
                expected["rx_runt" if size < 60 else "rx_oversize"] += 1
        await phy.source.wait()

    other = cocotb.start_soon(transmit())
    await receive()
    await other
    await core.wait(200)
    core.counted(**expected)


def spoiled(octets):
    """Return a frame that must be discarded, and the count that must increase."""
    kind = random.choice(["rx_fcs", "rx_error", "rx_runt", "rx_oversize"])
    frame = good(octets)
    match kind:
        case "rx_fcs" if len(octets) > 60 and random.random() < 0.5:  # the end is missing
            del frame.data[random.randrange(8 + 64, len(frame.data)) :]
        case "rx_fcs":  # a bit is wrong, anywhere behind SFD
            frame.data[random.randrange(8, len(frame.data))] ^= 1 << random.randrange(8)
        case "rx_error":  # anywhere, also in the preamble, and in frames that are bad besides
            if random.random() < 0.3:
                del frame.data[random.randrange(9, len(frame.data)) :]
            frame.error = [0] * len(frame.data)
            frame.error[random.randrange(len(frame.data))] = 1
        case "rx_runt":  # good or bad FCS; or no SFD
            frame = good(random.randbytes(random.randrange(60)))
            if random.random() < 0.5:
                del frame.data[random.randrange(1, len(frame.data)) :]
        case "rx_oversize":
            frame = good(random.randbytes(random.choice([1519] * 5 + [1520, 1600, 9000])))
            if random.random() < 0.5:
                frame.data[-1] ^= 1
    return frame, kind


@mac_bench()
async def bad_frames_are_discarded_and_counted(dut):
    early = parameter("early")
    core, phy = Core(dut, backpressure=None if early else stalls(0.1), early=early), Phy(dut)
    await core.begin()
    expected, frames = Counter(), []
    for _ in range(80):
        octets = random.randbytes(random.choice([60, 61, 62, 63, 64, 200, random.randrange(60, 400)]))
        frame, kind = spoiled(octets) if random.random() < 0.6 else (good(octets), "rx_frames")
        if kind == "rx_frames":
            frames.append(octets)
            frame.data[:7] = b"\x55" * random.randrange(8)  # a PHY may shorten the preamble
        expected[kind] += 1
        await phy.send(frame, gap=random.choice([1, 12]))
    await phy.source.wait()
    await core.receive_all(frames)
    core.counted(**expected)


@mac_bench()
async def a_stalled_core_loses_whole_frames_that_are_counted(dut):
    """The core stalls so that frames are lost at any of their words; each frame arrives whole, or is counted."""
    stalling = True
    pauses_of_core = (stalling and random.choice([0, 0, 0, 3, 200]) for _ in repeat(0))
    core, phy = Core(dut, backpressure=pauses_of_core, early=parameter("early")), Phy(dut)
    await core.begin()
    frames = [random.randbytes(random.choice([60, 61, 300, 1514])) for _ in range(80)]
    for frame in frames:
        phy.source.send_nowait(good(frame))
    await phy.source.wait()
    await ClockCycles(dut.mac_rx_clk, 20)
    stalling = False
    await core.wait(2000)
    lost = frames.copy()
    arrived = 0
    remaining = iter(frames)
    while not core.sink.empty():
        frame = await core.receive()
        assert frame in remaining, "a frame arrived that was not sent, or not in order"  # consumes those before it
        lost.remove(frame)
        arrived += 1
    assert len(lost) > 5
    core.counted(rx_frames=arrived, rx_no_room=len(lost))


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
async def frames_without_pauses_are_transmitted_early(dut):
    """All sizes, back to back and apart: none runs out of octets. A frame that is too long is cut off."""
    core, phy = Core(dut, early=parameter("early")), Phy(dut)
    await core.begin()
    expected = []
    cut = 0
    for frame in random_frames():
        core.send(frame)
        expected.append(frame.ljust(60, b"\0"))
        if random.random() < 0.1:
            await core.wait(random.randrange(2000))
        if random.random() < 0.05:
            frame = random.randbytes(random.choice([1515, 1516, 2048]))
            core.send(frame)
            expected.append(frame[:1514])
            cut += 1
    for frame in expected:
        assert sent_well(await phy.sink.recv()) == frame
    await core.wait(3000)
    assert phy.sink.empty()
    core.counted(tx_frames=len(expected), tx_dropped=cut)


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


@mac_bench(30_000)
async def frames_stay_whole_when_the_mac_stops_and_starts(dut):
    """In the midst of traffic: the core sees whole frames only, and after each start all goes on as before."""
    if (early := parameter("early")) is None:
        core = Core(dut, idle=pauses(0.1), backpressure=stalls(0.2))
    else:
        core = Core(dut, early=early)
    phy = Phy(dut)
    sent = []

    async def traffic():
        while True:
            frame = random.randbytes(random.choice([60, 100, 1514]))
            sent.append(frame)
            core.send(frame)
            await phy.source.send(good(frame))
            await core.source.drained()
            await phy.source.wait()

    task = cocotb.start_soon(traffic())
    long = round(40_000 / parameter("core"))  # cycles in 40 us, enough for some frames
    for _ in range(30):
        await core.begin()
        await core.wait(random.choice([1, 2, 3, 10, long, random.randrange(long)]))
        await core.end()
        await core.wait(random.choice([0, 1, 2, 3, 5, 8, 20, 500]))
    task.cancel()
    await core.begin()
    await core.source.drained()
    await phy.source.wait()
    await core.wait(long)
    remaining = iter(sent)
    while not core.sink.empty():
        assert await core.receive() in remaining
    whole = 0
    remaining = iter(sent)
    while not phy.sink.empty():
        received = await phy.sink.recv()
        if len(received.data) > 16 and received.check_fcs():  # others were cut off
            assert bytes(received.get_payload()) in remaining
            whole += 1
    assert whole > 3
    errors = {name: core.counts[f"rx_{name}"] for name in ("error", "oversize", "runt", "fcs", "no_room")}
    assert not any(errors.values()), errors
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
    """More of them: ``python -m open_rnic.cocotb_tests.mac_soak``."""
    run(all_sizes_pass, "50 MHz", early=early, longest=100)


def mac(early):
    return Mac(early=early)


def run(test, clocks, early=None, **parameters):
    simulate_mac(test, *(CLOCKS | FAST_ENOUGH)[clocks], early, parameters)


def simulate_mac(test, core, rx_offset, tx_offset, early, parameters, **options):
    """Run a test: ``core`` is the period of its clock in ns, the offsets of the others are in millionths."""
    parameters |= {"core": core, "rx_offset": rx_offset, "tx_offset": tx_offset, "early": early}
    simulate(Part(mac, early, (None, EARLY)), test, parameters=parameters, **options)


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
