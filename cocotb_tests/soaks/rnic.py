"""The whole RNIC of a board in simulation, with the shipped driver: it recovers from all that happens to connections.

The driver operates the board over its cable; the peer is the twin's TCP. Connections are opened and closed by either
end, as many at once as the board has; the driver is killed and started again with a connection open; the peer forgets
a connection; and the cable is pulled for a long time while RDMA is in progress. After each, RDMA works as before.
"""

import asyncio
import contextlib
import random
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Interface

from open_rnic.cocotb_tests.harness.devices import answer_pings
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.soaks.case import Case
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
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.rtl.mac.registers import BY_NAME
from open_rnic.rtl.registers import Role
from open_rnic.rtl.tcp.words import Reason, State

DRIVER, PEER = (IPv4Interface(f"10.0.0.{n}/24") for n in (3, 4))
PORT = 7
PACE, LATENCY = 1e-4, 0.1  # seconds, as for UdpRnic.open


class Rnic(Case, frozen=True, tag="rnic"):
    """Connections of a board, or of BOARD:CONNECTIONS, in sessions of its driver; ``out``: seconds without a cable."""

    board: str = "colorlight_5a75b"
    connections: int = 1000
    sessions: int = 2
    out: float = 30

    COUNT, SIMULATES = 10, True

    def run(self):
        """Run the case; frames that were to be sent without a cable may be lost, received ones may not."""
        counts = asyncio.run(asyncio.wait_for(self._run(), HANG + self.connections + self.sessions * self.out))
        ways = ("path: ", "MAC: RX_")
        lost = {name: n for name, n in counts.items() if n and name.startswith(ways) and name != "MAC: RX_FRAMES"}
        assert not lost, f"received frames were discarded: {lost}"
        return counts

    async def _run(self):
        board = await SimulatedBoard.open(self.board)
        switch = Switch()
        try:
            async with Pipe(switch.port(), board) as cable:
                network = Network(board, cable, switch, random.Random(self.seed))
                await network.boot_peer()
                for session in range(self.sessions):
                    async with network.driver() as (rnic, tcp):
                        await network.ping(tcp)
                        count = self.connections // self.sessions + (session < self.connections % self.sessions)
                        await network.connects(tcp, count)
                        await network.ping(tcp)
                        if session == 0:
                            await network.cable_out(rnic, tcp, self.out)
                            await network.ping(tcp)
                        await network.peer_rebooted(tcp)
                        await network.ping(tcp)
                        left = await network.accepted(tcp)
                    # The connection was left open; it is reset when the driver starts again.
                async with network.driver() as (rnic, tcp):
                    try:
                        await left[1].receive()
                    except ConnectionResetError:
                        network.counts["reset after the driver was killed"] += 1
                    await network.ping(tcp)
                    for part, counters in (("path", await rnic.discarded()), ("MAC", await rnic.counters())):
                        network.counts.update({f"{part}: {name}": value for name, value in counters.items()})
                return network.counts
        finally:
            await board.close()


class Network:
    """A simulated board, its cable, the switch at the other end, the peer, and what has happened."""

    def __init__(self, board, cable, switch, rng):
        self.board, self.cable, self.switch, self.rng = board, cable, switch, rng
        self.port = switch.port()
        self.counts = Counter()

    async def boot_peer(self):
        """Start the peer; another one that has its port no longer gets frames."""
        self.peer = await UserTcp(self.port, Host(local_mac(PEER.ip), PEER)).__aenter__()

    @asynccontextmanager
    async def driver(self):
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

    async def opened(self, tcp, listener):
        """Let the board open a connection; return both ends."""
        await free(tcp)
        accepting = asyncio.ensure_future(listener.accept())
        return await tcp.connect(*listener.address, HANG, None), await accepting

    async def accepted(self, tcp):
        """Let the peer open a connection; return both ends."""
        await free(tcp)
        listener = await tcp.listen(str(STATION.ip), PORT)
        theirs = await self.peer.connect(*listener.address, HANG, None)
        ours = await listener.accept()
        await listener.close()
        return ours, theirs

    async def connects(self, tcp, count):
        """Open and close connections: either end does, in any order, with FINs or with a reset."""
        listener = await self.peer.listen(str(PEER.ip), PORT)
        left = []  # open connections
        for _ in range(count):
            if len(left) == len(tcp.rows):
                await self.closed(tcp, left.pop(self.rng.randrange(len(left))))
            ours = self.rng.random() < 0.5
            self.counts[f"opened by the {'board' if ours else 'peer'}"] += 1
            left.append(await (self.opened(tcp, listener) if ours else self.accepted(tcp)))
        while left:
            await self.closed(tcp, left.pop(self.rng.randrange(len(left))))
        await listener.close()

    async def closed(self, tcp, ends):
        """Close a connection: one of its ends does, and the other one follows."""
        number, reset = self.rng.randrange(2), self.rng.random() < 0.2
        row = ends[0]._row
        ends[number].close(reset=reset)
        self.counts[f"{'reset' if reset else 'closed'} by the {('board', 'peer')[number]}"] += 1
        if number:
            expected = Reason.RESET if reset else State.CLOSE_WAIT
            await until(lambda: tcp.status(row) == expected)
        else:
            with contextlib.suppress(ConnectionError):
                assert await ends[1].receive() == b""
                assert not reset
        ends[1 - number].close(reset=False)

    @asynccontextmanager
    async def responder(self, tcp):
        """An RDMA connection of the peer to the board, which answers pings."""
        await free(tcp)
        config = Config(Role.RESPONDER, timeout=HANG)
        listening = rdma.listen(str(STATION.ip), PORT, config, device=tcp.open_device, tcp=tcp)
        async with await listening as listener:
            serving = asyncio.ensure_future(answer_pings(listener))
            config = Config(Role.INITIATOR, timeout=HANG)
            async with await rdma.connect(str(STATION.ip), PORT, config, tcp=self.peer) as connection:
                yield connection
            await serving

    async def ping(self, tcp):
        """Let RDMA work."""
        async with self.responder(tcp) as connection:
            assert await rping.client(connection, count=1, validate=True) == 1
        self.counts["pings"] += 1

    async def cable_out(self, rnic, tcp, seconds):
        """Pull the cable with RDMA in progress: it goes on when the cable is in again."""
        async with self.responder(tcp) as connection:
            self.cable.cut()
            self.board.cable(up=False)
            pinging = asyncio.ensure_future(rping.client(connection, count=3, validate=True))
            await asyncio.sleep(seconds)
            assert not pinging.done()
            self.board.cable(up=True)
            self.cable.join()
            assert await pinging == 3
        assert BY_NAME["LINK"]["changed"].get(await rnic.read(MAC, "LINK"))
        self.counts["cable pulled"] += 1

    async def peer_rebooted(self, tcp):
        """Let the peer forget a connection: its reset ends it."""
        ours, _ = await self.accepted(tcp)
        await self.boot_peer()
        ours.shut()
        row = ours._row
        await until(lambda: tcp.ended(row))
        assert tcp.status(row) == Reason.RESET
        ours.close(reset=False)
        self.counts["peer rebooted"] += 1


async def until(holds):
    """Wait until this holds."""
    while not holds():
        await asyncio.sleep(0.005)


async def free(tcp):
    """Wait until a connection of the board can be used; one in TIME-WAIT can."""

    def is_free(row):
        return not row.used or (row.released and (tcp.ended(row) or tcp.status(row) == State.TIME_WAIT))

    await until(lambda: any(map(is_free, tcp.rows)))
