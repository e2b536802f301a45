"""The frame pipe between two ports of a program."""

import asyncio
import os
import time
from contextlib import asynccontextmanager

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_pcap import fields, tshark
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.net.pipe import Faults, Kind, Pipe, joined

MACS = bytes.fromhex("020000000002 020000000001")
FRAMES = [MACS + b"\x88\xb5" + at.to_bytes(2, "big") + bytes(44) for at in range(100)]  # EtherType for experiments


@asynccontextmanager
async def piped(*args, **kwargs):
    """Yield a pipe, and the ports at its ends."""
    (one, segment), (other, end) = joined(), joined()
    async with Pipe(segment, end, *args, **kwargs) as pipe:
        yield pipe, one, other


async def arrivals(port, number):
    """Receive this number of frames."""
    frames, complete = [], asyncio.Event()

    def receive(frame):
        frames.append(frame)
        if len(frames) == number:
            complete.set()

    port.receive = receive
    await complete.wait()
    return frames


async def test_frames_cross_the_pipe_both_ways():
    async with piped() as (_, one, other):
        received = asyncio.gather(arrivals(other, 100), arrivals(one, 50))
        await asyncio.sleep(0)
        for frame in FRAMES:
            one.send(frame)
        for frame in FRAMES[:50]:
            other.send(frame)
        assert await received == [FRAMES, FRAMES[:50]]


async def test_a_frame_never_arrives_within_the_call_that_sends_it():
    async with piped() as (_, one, other):
        other.receive = other.send  # an answer to each frame
        answer = asyncio.ensure_future(arrivals(one, 1))
        await asyncio.sleep(0)
        one.send(FRAMES[0])
        assert not answer.done()
        assert await answer == FRAMES[:1]


async def test_the_directions_have_plans_and_decisions_of_their_own():
    async with piped((Faults(drop=0.5), Faults(duplicate=0.5)), seed=9) as (pipe, one, other):
        for frame in FRAMES:
            one.send(frame)
            other.send(frame)
        there, back = pipe.directions
        assert set(there.counts) == {Kind.DROP}
        assert set(back.counts) == {Kind.DUPLICATE}
        assert [fault.number for fault in there.log] != [fault.number for fault in back.log]


async def test_faults_can_be_changed_while_the_pipe_runs():
    async with piped(Faults(drop=1.0)) as (pipe, one, other):
        received = asyncio.ensure_future(arrivals(other, 1))
        await asyncio.sleep(0)
        one.send(FRAMES[0])
        pipe.change(Faults())
        one.send(FRAMES[1])
        assert await received == [FRAMES[1]]


async def test_a_cut_cable_loses_everything_until_it_is_joined():
    async with piped() as (pipe, one, other):
        received = asyncio.ensure_future(arrivals(other, 1))
        await asyncio.sleep(0)
        one.send(FRAMES[0])  # on its way
        pipe.cut()
        one.send(FRAMES[1])
        pipe.join()
        one.send(FRAMES[2])
        assert await received == [FRAMES[2]]
        assert pipe.directions[0].counts == {Kind.CUT: 2}


async def test_a_frame_arrives_no_earlier_than_its_delay_and_an_earlier_deadline_is_not_missed():
    loop = asyncio.get_running_loop()
    async with piped(Faults(delay=3600.0)) as (pipe, one, other):
        received = asyncio.ensure_future(arrivals(other, 1))
        await asyncio.sleep(0)
        one.send(FRAMES[0])
        pipe.cut()
        pipe.join()
        pipe.change(Faults(delay=0.02, reorder=1.0, reorder_by=3600.0))
        one.send(FRAMES[1])  # the timer is set for this late frame
        pipe.change(Faults(delay=0.02))
        begin = loop.time()
        one.send(FRAMES[2])
        assert await received == [FRAMES[2]]
        assert loop.time() - begin >= 0.02


async def test_a_closed_pipe_leaves_no_timer_no_file_and_no_way_through(tmp_path):
    files = os.listdir("/proc/self/fd")
    async with piped(Faults(delay=0.01), capture=tmp_path / "pipe.pcapng") as (_, one, other):
        received = []
        other.receive = received.append
        one.send(FRAMES[0])
    one.send(FRAMES[1])
    await asyncio.sleep(0.05)
    assert received == []
    assert os.listdir("/proc/self/fd") == files


async def test_a_capture_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"pipe\.pcapng"):
        async with piped(capture=tmp_path / "missing" / "pipe.pcapng"):
            pass


@needs("tshark")
async def test_tshark_reads_the_capture_with_interfaces_directions_times_and_comments(tmp_path):
    capture = tmp_path / "pipe.pcapng"
    begin = time.time()
    async with piped((Faults(drop=1.0), Faults(duplicate=1.0)), capture=capture) as (_, one, other):
        received = asyncio.ensure_future(arrivals(one, 2))
        await asyncio.sleep(0)
        one.send(FRAMES[0])
        other.send(FRAMES[1])
        other.send(b"")
        await received
    names = ("frame.interface_name", "frame.packet_flags_direction", "frame.comment", "frame.len")
    rows = fields(capture, "frame", *names)
    inbound, outbound = "0x00000001", "0x00000002"
    assert rows[:5] == [
        ["one", outbound, "frame 0: dropped", "60"],
        ["other", outbound, "frame 0: duplicated", "60"],
        ["other", outbound, "frame 1: duplicated", "0"],
        ["one", inbound, "frame 0: duplicated", "60"],
        ["one", inbound, "frame 0: duplicated", "60"],
    ]
    [[interface]] = {tuple(row) for row in fields(capture, "frame.number == 1", "frame.time_epoch")}
    seconds, fraction = interface.split(".")
    assert len(fraction) == 9
    assert begin - 1 < int(seconds) <= time.time()
    assert not tshark(capture, "-Y", "_ws.malformed && frame.len > 0")
