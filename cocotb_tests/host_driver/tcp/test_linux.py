"""The twin against this machine's TCP, over a TAP device and a frame pipe with faults."""

import asyncio
import hashlib
import random
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface

import pytest

from open_rnic.cocotb_tests.limits import HANG
from open_rnic.host_driver import rdma
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Faults, Pipe, PortError, joined
from open_rnic.host_driver.net.tap import TapNetwork
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.transport import CHUNK_OCTETS

LINUX, TWIN = "10.9.0.1", "10.9.0.2"
PORT = 7


def run(test):
    """Run a coroutine in a limited time; skip the test if there can be no TAP device."""

    async def limited():
        async with asyncio.timeout(HANG):
            await test

    try:
        asyncio.run(limited())
    except PortError as error:
        pytest.skip(str(error))


@asynccontextmanager
async def network(faults=Faults(), seed=1, config=None, iss=None):  # noqa: B008
    """Linux and the twin at the two ends of a pipe."""
    ours, segment = joined()
    host = Host(bytes.fromhex("020000000002"), IPv4Interface(f"{TWIN}/24"))
    endpoint = Endpoint(host.address.ip, config, iss=None if iss is None else lambda *_: iss)
    async with (
        TapNetwork(f"{LINUX}/24") as linux,
        Pipe(linux.port, segment, faults, seed),
        UserTcp(ours, host, endpoint=endpoint) as twin,
    ):
        yield linux, twin


async def connected(linux, twin, *, active):
    """Both ends of a connection that the twin opens if ``active``, and Linux otherwise."""
    loop = asyncio.get_running_loop()
    if active:
        listener = linux.socket()
        listener.bind((LINUX, PORT))
        listener.listen()
        ours, (theirs, _) = await asyncio.gather(twin.connect(LINUX, PORT, HANG, None), loop.sock_accept(listener))
        listener.close()
        return ours, theirs
    waiting = await twin.listen(TWIN, PORT)
    theirs = linux.socket()
    ours, _ = await asyncio.gather(waiting.accept(), loop.sock_connect(theirs, (TWIN, PORT)))
    await waiting.close()
    return ours, theirs


async def both_ways(ours, theirs, size):
    """Transfer random octets both ways at once, until both ends have closed; compare their SHA-256."""
    loop = asyncio.get_running_loop()
    there, back = random.randbytes(size), random.randbytes(size)

    async def send():
        for at in range(0, size, 1400):
            await ours.send(there[at : at + 1400])
        ours.shut()

    async def send_from_linux():
        await loop.sock_sendall(theirs, back)
        theirs.shutdown(1)

    async def digest(receive):
        found = hashlib.sha256()
        while octets := await receive():
            found.update(octets)
        return found.digest()

    _, _, received, arrived = await asyncio.gather(
        send(), send_from_linux(), digest(ours.receive), digest(lambda: loop.sock_recv(theirs, CHUNK_OCTETS))
    )
    assert (received, arrived) == (hashlib.sha256(back).digest(), hashlib.sha256(there).digest())


PLANS = {
    "none": Faults(),
    "loss of 1 %": Faults(drop=0.01),
    "loss of 5 %": Faults(drop=0.05),
    "duplicates": Faults(duplicate=0.1),
    "reordering": Faults(reorder=0.05),
    "corruption": Faults(corrupt=0.02),
    "truncation": Faults(truncate=0.02),
    "all": Faults(drop=0.01, duplicate=0.02, reorder=0.02, corrupt=0.01, truncate=0.01, jitter=0.001),
}


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("plan", PLANS)
def test_octets_arrive_intact_both_ways_at_once(plan, active):
    async def test():
        async with network(PLANS[plan]) as (linux, twin):
            ours, theirs = await connected(linux, twin, active=active)
            await both_ways(ours, theirs, 1_000_000)
            theirs.close()

    run(test())


@pytest.mark.parametrize(
    "settings",
    [
        {"tcp_sack": 0},
        {"tcp_timestamps": 0},
        {"tcp_window_scaling": 0},
        dict.fromkeys(("tcp_sack", "tcp_timestamps"), 0),
    ],
)
def test_linux_may_lack_options(settings):
    async def test():
        async with network(Faults(drop=0.02)) as (linux, twin):
            for name, value in settings.items():
                linux.sysctl(f"net.ipv4.{name}", value)
            ours, theirs = await connected(linux, twin, active=True)
            await both_ways(ours, theirs, 500_000)
            theirs.close()

    run(test())


@pytest.mark.parametrize(
    "config", [TcpConfig(sack=False), TcpConfig(timestamps=False, scaling=False), TcpConfig(receive_ring=2000)]
)
def test_the_twin_may_lack_options(config):
    async def test():
        async with network(Faults(drop=0.02), config=config) as (linux, twin):
            ours, theirs = await connected(linux, twin, active=True)
            await both_ways(ours, theirs, 200_000)
            theirs.close()

    run(test())


@pytest.mark.parametrize("iss", [2**32 - 1, 2**32 - 100_000])
def test_sequence_numbers_wrap(iss):
    async def test():
        async with network(Faults(drop=0.01), iss=iss) as (linux, twin):
            ours, theirs = await connected(linux, twin, active=True)
            await both_ways(ours, theirs, 500_000)
            theirs.close()

    run(test())


def test_a_port_without_a_listener_refuses():
    async def test():
        async with network() as (linux, twin):
            sock = linux.socket()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.get_running_loop().sock_connect(sock, (TWIN, 9))
            sock.close()
            with pytest.raises(rdma.MpaConnectionError, match="Connection refused"):
                await twin.connect(LINUX, 9, HANG, None)

    run(test())


def test_a_thousand_connections_one_after_the_other_leave_nothing_behind():
    async def test():
        loop = asyncio.get_running_loop()
        async with network(config=TcpConfig(time_wait=1)) as (linux, twin):
            waiting = await twin.listen(TWIN, PORT)
            for _ in range(1000):
                theirs = linux.socket()
                ours, _ = await asyncio.gather(waiting.accept(), loop.sock_connect(theirs, (TWIN, PORT)))
                theirs.close()
                assert await ours.receive() == b""
                ours.close(reset=False)
            await twin.gate.until(lambda: not twin.endpoint.connections)

    run(test())
