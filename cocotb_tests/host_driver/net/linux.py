"""Scenarios between a ``Host`` and the Linux kernel's network stack, which face each other over a TAP device.

``test_linux.py`` runs this file as a program in a network namespace of its own: ``unshare --net python -m ... ping``.
"""

import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from ipaddress import IPv4Address, IPv4Interface

import dpkt
import pytest

from open_rnic.host_driver.net.arp import FRESH
from open_rnic.host_driver.net.frames import Discard
from open_rnic.host_driver.net.host import Host

DEVICE = "rnic0"
LINUX, OURS, FREE = map(IPv4Address, ("10.9.0.2", "10.9.0.1", "10.9.0.3"))
MAC = bytes((2, 0, 0, 0, 0, 1))
FULL = 1472  # octets of UDP or ICMP data in a packet of 1,500 octets
PATIENCE = 60.0  # seconds after which a scenario fails

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def open_tap():
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TAP | IFF_NO_PI))
    ip("address", "add", f"{LINUX}/24", "dev", DEVICE)
    ip("link", "set", DEVICE, "up")
    return tap


class Running:
    """A host that faces Linux. Inside the context, only the thread uses its methods.

    ``frames`` has all frames so far, with True for those from Linux. The host's time is ``speed`` times as fast;
    ``skip`` adds seconds to it.
    """

    def __init__(self, host, speed=1.0):
        self.host, self.speed, self.skip, self.frames = host, speed, 0.0, []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._tap = open_tap()
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stopped.set()
        self._thread.join()
        os.close(self._tap)

    def _now(self):
        return time.monotonic() * self.speed + self.skip

    def _run(self):
        wait = 0.0
        while not self._stopped.is_set():
            if select.select([self._tap], [], [], wait)[0]:
                self.frames.append((True, os.read(self._tap, 65536)))
                self.host.receive(self.frames[-1][1], self._now())
                wait = 0.0  # all frames that have arrived come before tick: a busy machine loses no answer to ARP
            else:
                self.host.tick(self._now())
                wait = 0.01
            while self.host.frames:
                self.frames.append((False, self.host.frames.popleft()))
                os.write(self._tap, self.frames[-1][1])


def new_host(address=OURS):
    return Host(MAC, IPv4Interface(f"{address}/24"))


def linux_socket(kind, protocol=0, port=0):
    connected = socket.socket(socket.AF_INET, kind, protocol)
    connected.settimeout(PATIENCE)
    connected.connect((str(OURS), port))
    return connected


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def only_multicast(host):
    """Linux announces itself with IPv6 multicast; nothing else was discarded."""
    assert set(host.counters) <= {Discard.MULTICAST}, host.counters


def ping():
    """Linux resolves our address, and gets answers to echo requests of all lengths."""
    host = new_host()
    with Running(host), linux_socket(socket.SOCK_RAW, socket.IPPROTO_ICMP) as linux:
        for sequence, octets in enumerate((0, 1, 2, 56, 57, FULL - 1, FULL)):
            echo = dpkt.icmp.ICMP.Echo(id=7, seq=sequence, data=os.urandom(octets))
            linux.send(bytes(dpkt.icmp.ICMP(data=echo)))
            reply = dpkt.ip.IP(linux.recv(65536)).icmp
            assert (reply.type, reply.code, bytes(reply.echo)) == (0, 0, bytes(echo))
            assert dpkt.in_cksum(bytes(reply)) == 0
        assert f"lladdr {MAC.hex(':')}" in ip("neighbour", "show", str(OURS))
    only_multicast(host)


def udp_echo():
    """Datagrams of all lengths pass Linux's checksums both ways."""
    host = new_host()
    host.udp[7] = lambda source, port, payload, now: host.send_udp(7, source, port, payload, now)
    with Running(host), linux_socket(socket.SOCK_DGRAM, port=7) as linux:
        for octets in (*range(60), FULL - 1, FULL):
            payload = os.urandom(octets)
            linux.send(payload)
            assert linux.recv(65536) == payload
    only_multicast(host)


def resolve():
    """Linux answers our ARP requests: it has not asked for our address before."""
    host = new_host()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as linux:
        linux.settimeout(PATIENCE)
        linux.bind(("0.0.0.0", 0))
        host.send_udp(9, LINUX, linux.getsockname()[1], b"payload", time.monotonic())
        with Running(host):
            assert linux.recvfrom(65536) == (b"payload", (str(OURS), 9))
    only_multicast(host)


def poll():
    """Linux answers the unicast poll for an old entry."""
    host = new_host()
    host.udp[7] = lambda source, port, payload, now: host.send_udp(7, source, port, payload, now)
    with Running(host) as running, linux_socket(socket.SOCK_DGRAM, port=7) as linux:
        for skip in (0.0, FRESH):
            running.skip = skip
            linux.send(b"payload")
            assert linux.recv(65536) == b"payload"
        wait_until(lambda: unicast_arp(running, False, dpkt.arp.ARP_OP_REQUEST))
        wait_until(lambda: unicast_arp(running, True, dpkt.arp.ARP_OP_REPLY))
        wait_until(lambda: host.deadline is None)
    only_multicast(host)


def unicast_arp(running, from_linux, operation):
    arps = [
        dpkt.ethernet.Ethernet(frame)
        for sender, frame in list(running.frames)
        if sender == from_linux and frame[12:14] == b"\x08\x06"
    ]
    return [each for each in arps if each.data.op == operation and not each.dst[0] & 1]


def closed_port():
    """Linux takes our port unreachable for an answer to its datagram."""
    host = new_host()
    with Running(host), linux_socket(socket.SOCK_DGRAM, port=9) as linux:
        linux.send(b"payload")
        with pytest.raises(ConnectionRefusedError):
            linux.recv(65536)
    assert host.counters[Discard.NO_PORT] == 1


def no_tcp():
    """Linux takes our protocol unreachable for an answer to its SYN."""
    host = new_host()
    with Running(host), pytest.raises(OSError, match=os.strerror(errno.ENOPROTOOPT)):
        linux_socket(socket.SOCK_STREAM, port=9)
    assert host.counters[Discard.NO_PROTOCOL] == 1


def address_in_use():
    """Linux answers our probe for its address."""
    host = new_host(LINUX)
    host.probe(time.monotonic())
    with Running(host):
        wait_until(lambda: not host.probing)
        mac = ip("-brief", "link", "show", DEVICE).split()[2]
    assert host.conflict == bytes.fromhex(mac.replace(":", ""))


def address_free():
    """Nobody answers our probe for a free address, which is then ours."""
    host = new_host(FREE)
    host.probe(time.monotonic() * 20)
    with Running(host, speed=20.0):
        wait_until(lambda: not host.probing and host.deadline is None)
    assert host.conflict is None


SCENARIOS = {
    each.__name__: each for each in (ping, udp_echo, resolve, poll, closed_port, no_tcp, address_in_use, address_free)
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
