# amaranth: UnusedElaboratable=no
"""Benches of the MAC at GMII, for its tests and its soak: frames of all kinds arrive whole, or are counted."""

import random
from collections import Counter
from itertools import repeat

import cocotb
from cocotb.triggers import ClockCycles

from open_rnic.cocotb_tests.harness import Part, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.rtl.mac.bench import SIZES, Core, Phy, good, mac_bench, random_frames, sent_well
from open_rnic.rtl.mac.mac import EARLY, Mac

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


def mac(early):
    return Mac(early=early)


def simulate_mac(test, core, rx_offset, tx_offset, early, parameters, **options):
    """Run a test: ``core`` is the period of its clock in ns, the offsets of the others are in millionths."""
    parameters |= {"core": core, "rx_offset": rx_offset, "tx_offset": tx_offset, "early": early}
    simulate(Part(mac, early, (None, EARLY)), test, parameters=parameters, **options)
