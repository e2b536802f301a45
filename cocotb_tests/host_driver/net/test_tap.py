"""TAP devices and the kernel's TCP behind them."""

import asyncio
import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_pcap import fields, tshark
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import TAP, needs
from open_rnic.host_driver.net import tap
from open_rnic.host_driver.net.pipe import Faults, Pipe, PortError
from open_rnic.host_driver.net.tap import Tap, TapNetwork
from open_rnic.host_driver.tools.bench.transport import reference_transfer

IPV4 = b"\x08\x00"
ONE, OTHER = "10.9.0.1/24", "10.9.0.2/24"


async def frame_of(port, ethertype):
    """Receive a frame of this type."""
    came = asyncio.get_running_loop().create_future()

    def receive(frame):
        if frame[12:14] == ethertype and not came.done():
            came.set_result(frame)

    port.receive = receive
    return await came


@needs(TAP)
async def test_the_kernel_asks_for_the_peers_address_and_takes_the_answer():
    async with TapNetwork(ONE) as linux:
        with linux.socket(kind=socket.SOCK_DGRAM) as sender:
            sender.sendto(b"hello", ("10.9.0.2", 9))
            question = await frame_of(linux.port, b"\x08\x06")
            ours, theirs = bytes.fromhex("02000a090002"), bytes.fromhex("02000a090001")
            assert question[:12] == b"\xff" * 6 + theirs
            answer = bytes.fromhex("0001080006040002") + ours + bytes([10, 9, 0, 2]) + theirs + bytes([10, 9, 0, 1])
            linux.port.send(theirs + ours + b"\x08\x06" + answer)
            packet = await frame_of(linux.port, IPV4)
            assert packet[:12] == ours + theirs
            assert packet.endswith(b"hello")


@needs(TAP)
async def test_a_network_leaves_no_device_no_thread_and_no_file():
    files, names = os.listdir("/proc/self/fd"), socket.if_nameindex()
    for _ in range(3):
        async with TapNetwork(ONE) as linux:
            assert [name for _, name in linux.inside(socket.if_nameindex)][-1] == "rnic0"
            assert socket.if_nameindex() == names
        linux.port.close()
        linux.namespace.close()
    assert os.listdir("/proc/self/fd") == files


@needs(TAP)
async def test_programs_run_inside_of_the_network():
    async with TapNetwork(ONE, mtu=900) as linux:
        code = "import socket; print(socket.if_nameindex()[-1][1]); socket.socket().bind(('10.9.0.1', 7))"
        program = linux.inside(subprocess.Popen, [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert program.communicate(timeout=HANG) == ("rnic0\n", None)
        assert program.returncode == 0


@needs(TAP)
async def test_settings_hold_for_one_network_alone():
    def setting():
        return Path("/proc/sys/net/ipv4/tcp_sack").read_text()

    before = setting()
    async with TapNetwork(ONE) as linux:
        linux.sysctl("net.ipv4.tcp_sack", 0)
        assert linux.inside(setting) == "0\n"
    assert setting() == before


@needs(TAP)
async def test_what_the_kernel_does_not_take_is_counted():
    async with TapNetwork(ONE) as linux:
        linux.port.send(b"short")
        assert linux.port.discarded == 1
        down = linux.inside(Tap, "down0")
        async with down:
            down.send(bytes(60))
            assert down.discarded == 1


@needs(TAP)
async def test_a_name_in_use_is_an_error():
    async with TapNetwork(ONE) as linux:
        with pytest.raises(PortError, match=r"^no TAP device rnic0: it is in use by another program$"):
            linux.inside(Tap, "rnic0")
        with pytest.raises(PortError, match=r"^no TAP device lo: another kind of interface has this name$"):
            linux.inside(Tap, "lo")


@pytest.mark.parametrize("name", ["", "sixteen-octets-x"])
def test_a_name_of_a_wrong_length_is_an_error(name):
    with pytest.raises(PortError, match=r"^the name of a TAP device has 1 to 15 octets: "):
        Tap(name)


def test_a_machine_without_tap_devices_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tap, "_DEVICE", tmp_path / "tun")
    with pytest.raises(PortError, match=r"^no TAP device: .*/tun: No such file or directory; load the module tun$"):
        Tap("rnic0")


@needs(TAP)
def test_a_user_without_the_right_to_a_device_gets_an_error(monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    files = os.listdir("/proc/self/fd")
    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with pytest.raises(PortError, match=r"^no TAP device rnic0: it needs root, or a device that is yours: "):
        Tap("rnic0")
    assert os.listdir("/proc/self/fd") == files


@needs(TAP)
def test_a_user_without_the_right_to_a_network_gets_an_error():
    code = f"""
import asyncio, os
from {TapNetwork.__module__} import TapNetwork
async def main():
    async with TapNetwork("{ONE}"): pass
os.setuid(65534)
try: asyncio.run(main())
except OSError as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=True)
    assert done.stdout == "a network namespace needs root (CAP_SYS_ADMIN); unshare -rn gives it to a program\n"


@needs(TAP)
def test_linux_transfers_octets_to_linux_through_a_pipe_with_every_fault(tmp_path):
    faults = Faults(
        drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02, truncate=0.01,
        only=lambda frame: frame[12:14] == IPV4,  # ARP has no checksum: a corrupted address stays for a minute
    )  # fmt: skip
    transfer = asyncio.run(reference_transfer(2_000_000, faults, seed=1, capture=tmp_path / "linux.pcapng"))
    assert transfer.intact
    assert transfer.octets == 2_000_000
    assert transfer.goodput > 0


@needs(TAP, "tshark")
def test_frames_of_the_kernel_have_checksums_and_fit_the_mtu(tmp_path):
    capture = tmp_path / "linux.pcapng"
    transfer = asyncio.run(reference_transfer(2_000_000, Faults(drop=0.02), seed=1, capture=capture))
    assert transfer.intact
    # Linux sends a checksum of 0 as ffff, which is as good (RFC 1624 §3), and tshark calls wrong. If it looked for a
    # protocol in the random octets, it would mark lost segments as malformed.
    names = ("_ws.malformed", "ip.checksum.status", "tcp.checksum.status")
    rows = fields(capture, "tcp && tcp.checksum != 0xffff", *names, options=["-o", "tcp.desegment_tcp_streams:FALSE"])
    assert {tuple(row) for row in rows} == {("", "1", "1")}
    lengths = [int(length) for [length] in fields(capture, "frame", "frame.len")]
    assert max(lengths) == 1514
    assert tshark(capture, "-Y", "frame.comment contains dropped")


@needs(TAP)
async def test_a_connection_survives_a_cut_cable():
    loop = asyncio.get_running_loop()
    async with TapNetwork(ONE) as client, TapNetwork(OTHER) as server, Pipe(client.port, server.port) as pipe:
        with server.socket() as listener, client.socket() as ours:
            listener.bind(("10.9.0.2", 7))
            listener.listen()
            await loop.sock_connect(ours, ("10.9.0.2", 7))
            theirs, _ = await loop.sock_accept(listener)
            with theirs:
                pipe.cut()
                await loop.sock_sendall(ours, b"through")
                while not pipe.directions[0].lost:
                    await asyncio.sleep(0)
                pipe.join()
                assert await loop.sock_recv(theirs, 100) == b"through"
