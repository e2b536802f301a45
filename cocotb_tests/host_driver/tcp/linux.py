"""Linux and the twin, or TCP in RTL, as the two ends of a frame pipe: scenarios of any size.

``test_linux.py`` runs them briefly. This command runs them at length, with a line for each::

    python -m open_rnic.cocotb_tests.host_driver.tcp.linux [--octets N] [--hold SECONDS] [--connections N]
    python -m open_rnic.cocotb_tests.host_driver.tcp.linux --rtl [--octets N] [--hold SECONDS]
"""

import argparse
import asyncio
import gc
import hashlib
import random
import socket
import time
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface

from open_rnic.host_driver.devices.simulated_path import opened
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Faults, Pipe, joined
from open_rnic.host_driver.net.tap import TapNetwork
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.connection import Connection
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.engine import EngineTcp
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.tcp.states import State
from open_rnic.host_driver.transport import CHUNK_OCTETS

LINUX, TWIN = "10.9.0.1", "10.9.0.2"
MAC = bytes.fromhex("020000000002")
PORT = 7
PATIENCE = 3600.0  # seconds for a connection to open

PLANS = {
    "none": Faults(),
    "loss of 1 %": Faults(drop=0.01),
    "loss of 5 %": Faults(drop=0.05),
    "duplication": Faults(duplicate=0.1),
    "reordering": Faults(reorder=0.05),
    "corruption": Faults(corrupt=0.02),
    "truncation": Faults(truncate=0.02),
    "all": Faults(drop=0.01, duplicate=0.02, reorder=0.02, corrupt=0.01, truncate=0.01, jitter=0.001),
}


@asynccontextmanager
async def network(faults=Faults(), seed=1, config=None, iss=None, capture=None):  # noqa: B008
    """Linux and the twin at the two ends of a pipe."""
    ours, segment = joined()
    host = Host(MAC, IPv4Interface(f"{TWIN}/24"))
    endpoint = Endpoint(host.address.ip, config, iss=None if iss is None else lambda *_: iss)
    async with (
        TapNetwork(f"{LINUX}/24") as linux,
        Pipe(linux.port, segment, faults, seed, capture) as pipe,
        UserTcp(ours, host, endpoint=endpoint) as twin,
    ):
        yield linux, twin, pipe


@asynccontextmanager
async def rtl_network(faults=Faults()):  # noqa: B008
    """Linux and TCP in RTL at the two ends of a pipe."""
    address = IPv4Interface(f"{TWIN}/24")
    async with (
        opened(MAC, address) as path,
        TapNetwork(f"{LINUX}/24") as linux,
        Pipe(linux.port, path, faults, seed=1),
        EngineTcp(path, address.ip) as tcp,
    ):
        yield linux, tcp


async def connected(linux, twin, *, active, buffer=None):
    """Both ends of a connection that the twin opens if ``active``, and Linux otherwise.

    ``buffer`` is the size of Linux's receive buffer, for a connection that the twin opens.
    """
    loop = asyncio.get_running_loop()
    if active:
        with linux.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection may be in TIME-WAIT
            if buffer:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            listener.bind((LINUX, PORT))
            listener.listen()
            ours, (theirs, _) = await asyncio.gather(
                twin.connect(LINUX, PORT, PATIENCE, None), loop.sock_accept(listener)
            )
        return ours, theirs
    waiting = await twin.listen(TWIN, PORT)
    theirs = linux.socket()
    ours, _ = await asyncio.gather(waiting.accept(), loop.sock_connect(theirs, (TWIN, PORT)))
    await waiting.close()
    return ours, theirs


async def send(ours, octets):
    """Send from the twin, in packets of 1,400 octets."""
    for at in range(0, len(octets), 1400):
        await ours.send(octets[at : at + 1400])


async def send_all(ours, octets):
    """Send from the twin, and close its half."""
    await send(ours, octets)
    ours.shut()


async def linux_sends_all(theirs, octets):
    """Send from Linux, and close its half."""
    await asyncio.get_running_loop().sock_sendall(theirs, octets)
    theirs.shutdown(socket.SHUT_WR)


async def digest(receive):
    """Return the SHA-256 of everything until the end."""
    found = hashlib.sha256()
    while octets := await receive():
        found.update(octets)
    return found.digest()


def linux_digest(theirs):
    """Return the SHA-256 of everything that Linux receives."""
    return digest(lambda: asyncio.get_running_loop().sock_recv(theirs, CHUNK_OCTETS))


def sha256(octets):
    """Return the SHA-256 of octets."""
    return hashlib.sha256(octets).digest()


async def both_ways(ours, theirs, size):
    """Transfer random octets both ways at once, until both ends have closed; compare their SHA-256."""
    there, back = random.randbytes(size), random.randbytes(size)
    _, _, received, arrived = await asyncio.gather(
        send_all(ours, there), linux_sends_all(theirs, back), digest(ours.receive), linux_digest(theirs)
    )
    assert (received, arrived) == (sha256(back), sha256(there))


async def hold_both_windows_shut(ours, theirs, seconds, size=1_000_000):
    """Send both ways, while neither end reads for these seconds; then everything arrives."""
    there, back = random.randbytes(size), random.randbytes(size)
    sending = asyncio.gather(send_all(ours, there), linux_sends_all(theirs, back))
    await asyncio.sleep(seconds)
    assert not sending.done()
    assert await asyncio.gather(digest(ours.receive), linux_digest(theirs)) == [sha256(back), sha256(there)]
    await sending


async def hold_linux_window_shut(ours, theirs, seconds, size=1_000_000):
    """Send to Linux, which reads nothing for these seconds; then everything arrives. Return the number of probes."""
    octets, sender = random.randbytes(size), ours.connection.sender
    sending = asyncio.create_task(send(ours, octets))
    await ours._tcp.gate.until(lambda: sender.shut)
    before = ours.connection.retransmissions
    await asyncio.sleep(seconds)
    assert sender.shut
    assert not sending.done()
    probes = ours.connection.retransmissions - before
    reading = asyncio.create_task(linux_digest(theirs))
    await sending
    ours.shut()
    assert await reading == sha256(octets)
    return probes


async def hold_twin_window_shut(ours, theirs, seconds, size=1_000_000):
    """Let Linux send to the twin, which takes nothing for these seconds; then everything arrives."""
    octets, receiver = random.randbytes(size), ours.connection.receiver
    sending = asyncio.create_task(linux_sends_all(theirs, octets))
    await ours._tcp.gate.until(lambda: receiver.edge == receiver.next)
    at = receiver.next
    await asyncio.sleep(seconds)
    assert (receiver.next, receiver.edge) == (at, at)
    assert await digest(ours.receive) == sha256(octets)
    await sending


async def linux_sends_with_its_window_shut(ours, theirs, size, back=200_000):
    """Linux reads nothing until all that it sends has been read; then it reads what fills its window since."""
    there, here = random.randbytes(size), random.randbytes(back)
    sending = asyncio.gather(send_all(ours, here), linux_sends_all(theirs, there))
    await asyncio.sleep(1)  # the window shuts, and is probed
    assert await digest(ours.receive) == sha256(there)
    assert await linux_digest(theirs) == sha256(here)
    await sending


async def close_twin_half_first(ours, theirs, size):
    """Close the twin's half; then Linux sends, and closes its half."""
    loop, octets = asyncio.get_running_loop(), random.randbytes(size)
    ours.shut()
    assert await loop.sock_recv(theirs, 1) == b""
    await ours._tcp.gate.until(lambda: ours.connection.state is State.FIN_WAIT_2)
    receiving = asyncio.create_task(digest(ours.receive))
    await linux_sends_all(theirs, octets)
    assert await receiving == sha256(octets)
    assert ours.connection.state is State.TIME_WAIT


async def close_linux_half_first(ours, theirs, size):
    """Close Linux's half; then the twin sends, and closes its half."""
    octets = random.randbytes(size)
    theirs.shutdown(socket.SHUT_WR)
    assert await ours.receive() == b""
    assert ours.connection.state is State.CLOSE_WAIT
    receiving = asyncio.create_task(linux_digest(theirs))
    await send_all(ours, octets)
    assert await receiving == sha256(octets)
    await ours._tcp.gate.until(lambda: ours.connection.state is State.CLOSED)


async def connections_in_turn(linux, twin, count, *, active):
    """Open and close connections, one after the other; nothing remains of them."""
    before = _living()
    for _ in range(count):
        ours, theirs = await connected(linux, twin, active=active)
        theirs.close()
        assert await ours.receive() == b""
        ours.close(reset=False)
    await twin.gate.until(lambda: not twin.endpoint.connections)
    del ours
    assert (_living(), twin.endpoint.deadline) == (before, None)


def _living():
    """The number of Connections that Python keeps."""
    gc.collect()
    return sum(isinstance(each, Connection) for each in gc.get_objects())


async def _at_length(octets, hold, connections):
    async def step(what, faults, scenario, buffer=None):
        begin = time.monotonic()
        async with network(faults) as (linux, twin, _):
            ours, theirs = await connected(linux, twin, active=True, buffer=buffer)
            with theirs:
                found = await scenario(ours, theirs)
        seconds = time.monotonic() - begin
        print(f"{what}: {seconds:.0f} s" + (f", {found} probes" if found else ""), flush=True)

    for what, faults in PLANS.items():
        await step(f"{octets:,} octets each way, faults: {what}", faults, lambda *ends: both_ways(*ends, octets))
    await step(f"Linux's window shut for {hold} s", Faults(), lambda *ends: hold_linux_window_shut(*ends, hold), 20_000)
    await step(f"the twin's window shut for {hold} s", Faults(), lambda *ends: hold_twin_window_shut(*ends, hold))
    for active in (True, False):
        begin = time.monotonic()
        async with network(config=TcpConfig(time_wait=1)) as (linux, twin, _):
            await connections_in_turn(linux, twin, connections, active=active)
        end = "the twin" if active else "Linux"
        print(f"{connections:,} connections opened by {end}: {time.monotonic() - begin:.0f} s", flush=True)


async def _rtl_at_length(octets, hold):
    scenarios = {f"{octets:,} octets each way, faults: {what}": (faults, lambda *ends: both_ways(*ends, octets))
                 for what, faults in PLANS.items()}  # fmt: skip
    scenarios[f"both windows shut for {hold} s"] = (Faults(), lambda *ends: hold_both_windows_shut(*ends, hold))
    for what, (faults, scenario) in scenarios.items():
        begin = time.monotonic()
        async with rtl_network(faults) as (linux, tcp):
            ours, theirs = await connected(linux, tcp, active=True, buffer=20_000)
            with theirs:
                await scenario(ours, theirs)
        print(f"{what}: {time.monotonic() - begin:.0f} s", flush=True)


def main():
    """Run the scenarios at length."""
    parser = argparse.ArgumentParser(prog="linux", description=__doc__.splitlines()[0])
    parser.add_argument("--rtl", action="store_true", help="TCP in RTL instead of the twin")
    parser.add_argument("--octets", type=int, help="octets each way (default: 100,000,000; RTL: 20,000,000)")
    parser.add_argument("--hold", type=float, default=60, help="seconds of a zero window (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=1000, help="connections in turn (default: %(default)s)")
    options = parser.parse_args()
    if options.rtl:
        asyncio.run(_rtl_at_length(options.octets or 20_000_000, options.hold))
    else:
        asyncio.run(_at_length(options.octets or 100_000_000, options.hold, options.connections))


if __name__ == "__main__":
    main()
