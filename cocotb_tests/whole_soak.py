"""A long campaign on the whole RNIC of a board in simulation: it recovers from all that happens to its connections.

    python -m open_rnic.cocotb_tests.whole_soak [--board BOARD[:CONNECTIONS]] [--connects N] [--out SECONDS] [--seed N]

The shipped driver operates a simulated board over its cable; the peer is the twin's TCP. Connections are opened and
closed by either end, as many at once as the board has; the driver is killed and started again with a connection open;
the peer forgets a connection; and the cable is pulled for a long time while RDMA is in progress. After each, RDMA works
as before.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Interface

from open_rnic.cocotb_tests.limits import HANG
from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices.sim.layout import STATION
from open_rnic.host_driver.devices.udp.board import SimulatedBoard
from open_rnic.host_driver.devices.udp.datagrams import TwinDatagrams
from open_rnic.host_driver.devices.udp.driver import MAC
from open_rnic.host_driver.devices.udp.rnic import UdpRnic
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.net.host import Host, local_mac
from open_rnic.host_driver.net.pipe import Pipe, Switch, joined
from open_rnic.host_driver.rdma import rping
from open_rnic.host_driver.tcp.attached import AttachedTcp, RegisterTcp
from open_rnic.host_driver.tcp.engine import Row
from open_rnic.host_driver.tcp.stack import UserListener, UserTcp
from open_rnic.host_driver.transport import Transport
from open_rnic.rtl.mac.registers import BY_NAME
from open_rnic.rtl.registers import Role
from open_rnic.rtl.tcp.words import Reason, State

BOARD = "colorlight_5a75b"
DRIVER, PEER = (IPv4Interface(f"10.0.0.{n}/24") for n in (3, 4))
PORT = 7
SESSIONS = 10  # how often the driver is killed
PACE, LATENCY = 1e-4, 0.1  # seconds, as for UdpRnic.open


@dataclass
class Setting:
    """A simulated board, its cable, the switch at the other end, the peer, and what has happened."""

    board: SimulatedBoard
    cable: Pipe
    switch: Switch
    boot: Callable[[], Awaitable[UserTcp]]
    peer: UserTcp
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[tuple[UdpRnic, AttachedTcp]]:
        """Start the driver. In the end, it is killed: the board does not learn of it."""
        ours, theirs = joined()
        async with AsyncExitStack() as stack:
            wire = await stack.enter_async_context(Pipe(theirs, self.switch.port()))
            host = await stack.enter_async_context(UserTcp(ours, Host(local_mac(DRIVER.ip), DRIVER)))
            rnic = await UdpRnic.open(TwinDatagrams(host, STATION.ip), pace=PACE, latency=LATENCY)
            stack.push_async_callback(rnic.close)
            registers = await stack.enter_async_context(RegisterTcp(rnic, len(rnic.paths)))
            tcp = await stack.enter_async_context(AttachedTcp(registers, STATION.ip, [*rnic.paths]))
            try:
                yield rnic, tcp
            finally:
                wire.cut()
                self.counts["driver killed"] += 1


async def until(holds: Callable[[], bool]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(HANG):
        while not holds():
            await asyncio.sleep(0.005)


async def free(tcp: AttachedTcp) -> None:
    """Wait until a connection of the board can be used; one in TIME-WAIT can."""

    def is_free(row: Row) -> bool:
        return not row.used or (row.released and (tcp.ended(row) or tcp.status(row) == State.TIME_WAIT))

    await until(lambda: any(map(is_free, tcp.rows)))


def row_of(tcp: AttachedTcp, ours: Transport) -> Row:
    """Return the row of a connection of the board."""
    ports = ours.local[1], ours.peer[1]
    return next(
        row for row, status in zip(tcp.rows, tcp.device.statuses, strict=True)
        if (status.local_port, status.peer_port) == ports
    )  # fmt: skip


async def opened(tcp: AttachedTcp, listener: UserListener) -> tuple[Transport, Transport]:
    """Let the board open a connection; return both ends."""
    await free(tcp)
    accepting = asyncio.ensure_future(listener.accept())
    async with asyncio.timeout(HANG):
        ours = await tcp.connect(*listener.address, HANG, None)
        return ours, await accepting


async def accepted(tcp: AttachedTcp, peer: UserTcp) -> tuple[Transport, Transport]:
    """Let the peer open a connection; return both ends."""
    await free(tcp)
    async with asyncio.timeout(HANG):
        listener = await tcp.listen(str(STATION.ip), PORT)
        theirs = await peer.connect(str(STATION.ip), PORT, HANG, None)
        ours = await listener.accept()
        await listener.close()
        return ours, theirs


async def connects(setting: Setting, tcp: AttachedTcp, count: int) -> None:
    """Open and close connections: either end does, in any order, with FINs or with a reset."""
    rng, counts = setting.rng, setting.counts
    listener = await setting.peer.listen(str(PEER.ip), PORT)
    left: list[tuple[Transport, Transport]] = []  # open connections
    for _ in range(count):
        if len(left) == len(tcp.rows):
            await closed(setting, tcp, left.pop(rng.randrange(len(left))))
        if rng.random() < 0.5:
            counts["opened by the board"] += 1
            left.append(await opened(tcp, listener))
        else:
            counts["opened by the peer"] += 1
            left.append(await accepted(tcp, setting.peer))
    while left:
        await closed(setting, tcp, left.pop(rng.randrange(len(left))))
    await listener.close()


async def closed(setting: Setting, tcp: AttachedTcp, ends: tuple[Transport, Transport]) -> None:
    """Close a connection: one of its ends does, and the other one follows."""
    number = setting.rng.randrange(2)
    name, reset = ("board", "peer")[number], setting.rng.random() < 0.2
    row = row_of(tcp, ends[0])
    ends[number].close(reset=reset)
    setting.counts[f"{'reset' if reset else 'closed'} by the {name}"] += 1
    if number:
        expected = Reason.RESET if reset else State.CLOSE_WAIT
        await until(lambda: tcp.status(row) == expected)
    else:
        async with asyncio.timeout(HANG):
            with contextlib.suppress(ConnectionError):
                assert await ends[1].receive() == b""
                assert not reset
    ends[1 - number].close(reset=False)


@asynccontextmanager
async def responder(setting: Setting, tcp: AttachedTcp) -> AsyncIterator[rdma.Connection]:
    """An RDMA connection of the peer to the board, which answers pings."""
    await free(tcp)
    config = Config(Role.RESPONDER, timeout=HANG)
    listening = rdma.listen(str(STATION.ip), PORT, config, device=tcp.open_device, tcp=tcp)
    async with await listening as listener:

        async def serve() -> int:
            async with await (await listener.request()).accept() as connection:
                return await rping.server(connection)

        serving = asyncio.ensure_future(serve())
        config = Config(Role.INITIATOR, timeout=HANG)
        async with await rdma.connect(str(STATION.ip), PORT, config, tcp=setting.peer) as connection:
            yield connection
        await serving


async def ping(setting: Setting, tcp: AttachedTcp) -> None:
    """Let RDMA work."""
    async with responder(setting, tcp) as connection, asyncio.timeout(HANG):
        assert await rping.client(connection, count=1, validate=True) == 1
    setting.counts["pings"] += 1


async def cable_out(setting: Setting, rnic: UdpRnic, tcp: AttachedTcp, seconds: float) -> None:
    """Pull the cable with RDMA in progress: it goes on when the cable is in again."""
    async with responder(setting, tcp) as connection:
        setting.cable.cut()
        setting.board.cable(up=False)
        pinging = asyncio.ensure_future(rping.client(connection, count=3, validate=True))
        await asyncio.sleep(seconds)
        assert not pinging.done()
        setting.board.cable(up=True)
        setting.cable.join()
        async with asyncio.timeout(HANG + 2 * seconds):
            assert await pinging == 3
    assert BY_NAME["LINK"]["changed"].get(await rnic.read(MAC, "LINK"))
    setting.counts["cable pulled"] += 1


async def peer_rebooted(setting: Setting, tcp: AttachedTcp) -> None:
    """Let the peer forget a connection: its reset ends it."""
    ours, _ = await accepted(tcp, setting.peer)
    setting.peer = await setting.boot()
    ours.shut()
    row = row_of(tcp, ours)
    await until(lambda: tcp.ended(row))
    assert tcp.status(row) == Reason.RESET
    ours.close(reset=False)
    setting.counts["peer rebooted"] += 1


async def campaign(name: str, count: int, sessions: int, out: float, seed: int) -> Counter[str]:
    """Run the campaign; return how often each thing happened. Raises AssertionError or TimeoutError if one fails."""
    board = await SimulatedBoard.open(name)
    switch = Switch()
    try:
        async with AsyncExitStack() as stack:
            cable = await stack.enter_async_context(Pipe(switch.port(), board))
            port = switch.port()

            async def boot() -> UserTcp:
                """Start the peer; another one that has its port no longer gets frames."""
                return await UserTcp(port, Host(local_mac(PEER.ip), PEER)).__aenter__()

            setting = Setting(board, cable, switch, boot, await boot(), random.Random(seed))
            for session in range(sessions):
                left: list[Transport] = []
                async with setting.driver() as (rnic, tcp):
                    await ping(setting, tcp)
                    await connects(setting, tcp, count * (session + 1) // sessions - count * session // sessions)
                    await ping(setting, tcp)
                    if session == 0:
                        await cable_out(setting, rnic, tcp, out)
                        await ping(setting, tcp)
                    await peer_rebooted(setting, tcp)
                    await ping(setting, tcp)
                    left += await accepted(tcp, setting.peer)
                # The connection was left open; it is reset when the driver starts again.
                print(f"session {session + 1} of {sessions}: {setting.counts.total():,} events", flush=True)
            async with setting.driver() as (rnic, tcp):
                try:
                    async with asyncio.timeout(HANG):
                        await left[1].receive()
                except ConnectionResetError:
                    setting.counts["reset after the driver was killed"] += 1
                await ping(setting, tcp)
                for part, counters in (("path", await rnic.discarded()), ("MAC", await rnic.counters())):
                    setting.counts.update({f"{part}: {name}": value for name, value in counters.items()})
            return setting.counts
    finally:
        await board.close()


def lost(counts: Counter[str]) -> dict[str, int]:
    """Return what was discarded of the received frames; those that were to be sent without a cable do not count."""
    frames = "MAC: RX_FRAMES"
    return {name: n for name, n in counts.items() if n and name.startswith(("path: ", "MAC: RX_")) and name != frames}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="whole_soak", description=__doc__.splitlines()[0])
    parser.add_argument("--board", default=BOARD, help="the board, or BOARD:CONNECTIONS (default: %(default)s)")
    parser.add_argument("--connects", type=int, default=10_000, help="number of connections (default: %(default)s)")
    parser.add_argument("--out", type=float, default=30, help="seconds without a cable (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random)")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"{options.board}, {options.connects} connections, seed {seed}", flush=True)
    begun = time.monotonic()
    counts = asyncio.run(campaign(options.board, options.connects, SESSIONS, options.out, seed))
    for what, count in counts.items():
        print(f"{count:12,}  {what}")
    if found := lost(counts):
        sys.exit(f"seed {seed}: received frames were discarded: {found}")
    print(f"seed {seed}: no failure in {time.monotonic() - begun:,.0f} s")


if __name__ == "__main__":
    sys.exit(main())
