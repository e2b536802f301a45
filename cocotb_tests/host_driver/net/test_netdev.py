"""The port to QEMU's ``-netdev stream``: a socket of the test's plays QEMU, and then QEMU itself joins two ports."""

import asyncio
import subprocess
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from open_rnic.cocotb_tests.host_driver.net.test_pipe import FRAMES, arrivals
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.net.netdev import QemuPort
from open_rnic.host_driver.net.pipe import PortError

PROBE = b"\xff" * 60


def framed(frame):
    return len(frame).to_bytes(4, "big") + frame


@asynccontextmanager
async def connected(path):
    """A port to which the test's socket is connected; yields it, and what the socket receives."""
    async with QemuPort(path) as port:
        reader, writer = await asyncio.open_unix_connection(path)
        await port.connected.wait()
        yield port, reader
        writer.close()


@pytest.mark.parametrize("cut", [1, 3, 63, 64, 65, 130, 10_000])
async def test_frames_are_found_however_the_stream_is_cut(tmp_path, cut):
    async with QemuPort(tmp_path / "cable") as port:
        _, writer = await asyncio.open_unix_connection(tmp_path / "cable")
        received = asyncio.ensure_future(arrivals(port, len(FRAMES)))
        octets = b"".join(map(framed, FRAMES))
        for begin, end in pairwise([*range(0, len(octets), cut), len(octets)]):
            writer.write(octets[begin:end])
            await writer.drain()
            await asyncio.sleep(0)
        assert await received == FRAMES
        writer.close()


async def test_frames_are_sent_behind_their_length(tmp_path):
    async with connected(tmp_path / "cable") as (port, reader):
        port.send(FRAMES[1])
        port.send(b"")
        assert await reader.readexactly(68) == framed(FRAMES[1]) + bytes(4)


async def test_frames_without_qemu_are_counted_and_another_qemu_can_connect(tmp_path):
    async with QemuPort(tmp_path / "cable") as port:
        port.send(FRAMES[0])
        assert port.discarded == 1
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "cable")
            await port.connected.wait()
            port.send(FRAMES[0])
            assert await reader.readexactly(64) == framed(FRAMES[0])
            writer.close()
            while port.connected.is_set():
                await asyncio.sleep(0)
        assert (port.discarded, port.error) == (1, None)


async def test_frames_that_qemu_does_not_read_are_discarded(tmp_path):
    async with connected(tmp_path / "cable") as (port, _):
        sent = 0
        while not port.discarded:
            port.send(bytes(65536))
            sent += 1
        assert sent > 16


async def test_a_second_qemu_is_refused(tmp_path):
    async with connected(tmp_path / "cable") as (port, reader):
        second, other = await asyncio.open_unix_connection(tmp_path / "cable")
        assert await second.read() == b""
        port.send(FRAMES[0])
        assert await reader.readexactly(64) == framed(FRAMES[0])
        other.close()


async def test_a_length_over_64_kib_ends_the_connection_with_an_error(tmp_path):
    async with QemuPort(tmp_path / "cable") as port:
        received = asyncio.ensure_future(arrivals(port, 2))
        reader, writer = await asyncio.open_unix_connection(tmp_path / "cable")
        writer.write(framed(bytes(65536)) + framed(FRAMES[0]) + (65537).to_bytes(4, "big"))
        assert await received == [bytes(65536), FRAMES[0]]
        assert await reader.read() == b""
        assert str(port.error) == "QEMU announced a frame of 65537 octets, over 65536"
        writer.close()


async def test_a_path_in_use_is_an_error_and_its_socket_vanishes_with_the_port(tmp_path):
    path = tmp_path / "cable"
    async with QemuPort(path) as port:
        with pytest.raises(PortError, match=f"^{path} exists: another program uses it, or has left it behind$"):
            async with QemuPort(path):
                pass
        _, writer = await asyncio.open_unix_connection(path)
        await port.connected.wait()
        writer.close()
    assert not path.exists()


@pytest.mark.parametrize("name", ["missing/cable", "x" * 200])
async def test_a_socket_that_cannot_be_made_is_an_error_of_one_line(tmp_path, name):
    with pytest.raises(PortError, match=r"^no socket for QEMU: .+: \w.+$"):
        async with QemuPort(tmp_path / name):
            pass


@needs("qemu-system-x86_64")
async def test_qemu_carries_frames_from_one_port_to_another(tmp_path):
    """A hub in QEMU joins two of its network backends; there is no guest."""
    paths = [tmp_path / "one", tmp_path / "other"]
    command = ["qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none"]
    for at, path in enumerate(paths):
        command += ["-netdev", f"stream,id=s{at},server=off,addr.type=unix,addr.path={path}"]
        command += ["-netdev", f"hubport,id=h{at},hubid=0,netdev=s{at}"]
    async with QemuPort(paths[0]) as one, QemuPort(paths[1]) as other:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as qemu:
            try:
                frames = {one: [], other: []}
                for port in frames:
                    port.receive = frames[port].append
                while not all(frames.values()):  # until QEMU has made the hub: it connects before
                    for port in frames:
                        port.send(PROBE)
                    await asyncio.sleep(0.01)
                for frame in FRAMES:
                    for port in frames:
                        port.send(frame)
                while not all(each[-1] == FRAMES[-1] for each in frames.values()):
                    await asyncio.sleep(0.01)
                for each in frames.values():
                    assert [frame for frame in each if frame != PROBE] == FRAMES
            finally:
                qemu.terminate()
                qemu.wait(HANG)
