"""TCP endpoints of boards: a board at an address, and a simulated one on a frame pipe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from open_rnic.host_driver.device import Device
from open_rnic.host_driver.devices.sim.layout import STATION
from open_rnic.host_driver.devices.udp.board import SimulatedBoard
from open_rnic.host_driver.devices.udp.datagrams import Datagrams, KernelDatagrams, TwinDatagrams
from open_rnic.host_driver.devices.udp.driver import PATH
from open_rnic.host_driver.devices.udp.rnic import LATENCY, PACE, UdpRnic
from open_rnic.host_driver.net.host import Host, local_mac
from open_rnic.host_driver.net.pipe import Faults, Pipe, Port, Switch
from open_rnic.host_driver.tcp.attached import AttachedTcp, RegisterTcp
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.rtl.tcp.config import Station

__all__ = ["Board", "opened", "simulated"]

_SIMULATED_PACE, _SIMULATED_LATENCY = 1e-4, 0.1  # seconds, as for UdpRnic.open


@dataclass(frozen=True)
class Board:
    """A simulated board: its cable, the port at the other end of it, its driver, and its TCP."""

    board: SimulatedBoard
    cable: Pipe
    port: Port
    rnic: UdpRnic
    tcp: AttachedTcp


@contextlib.asynccontextmanager
async def opened(address: IPv4Address, port: int) -> AsyncIterator[tuple[UdpRnic, AttachedTcp]]:
    """Open the board at this address, and return it with its TCP.

    Raises DeviceError if it cannot be opened, and in place of the body's cancellation if the board is lost.
    """
    way = await KernelDatagrams.open(str(address), port)
    async with _serving(way) as (rnic, tcp):
        yield rnic, tcp


@contextlib.asynccontextmanager
async def simulated(
    name: str | SimulatedBoard,
    address: IPv4Interface = STATION,
    gateway: IPv4Address | None = None,
    *,
    faults: Faults | None = None,
    seed: int = 0,
    capture: Path | None = None,
) -> AsyncIterator[Board]:
    """Open a simulated board, by its name unless it is open, with these addresses.

    A switch is at the other end of its cable, which has ``faults``. The host of the driver, a twin, is at the switch.
    """
    board = name if isinstance(name, SimulatedBoard) else await SimulatedBoard.open(name)
    switch = Switch()
    try:
        async with contextlib.AsyncExitStack() as stack:
            cable = await stack.enter_async_context(Pipe(switch.port(), board, faults, seed, capture))
            way = TwinDatagrams(await stack.enter_async_context(_host(switch, STATION)), STATION.ip)

            async def move(rnic: UdpRnic) -> None:
                """Give the board its addresses; its response comes to another host."""
                station = Station.of(local_mac(address.ip), address, gateway)
                written = [rnic.write(PATH, name, word) for name, word in station.registers.items()]
                await asyncio.sleep(0)  # the request leaves
                way.move(await stack.enter_async_context(_host(switch, address)), address.ip)
                rnic.moved()
                await asyncio.gather(*written)

            serving = _serving(way, _SIMULATED_PACE, _SIMULATED_LATENCY, move if address != STATION else None)
            rnic, tcp = await stack.enter_async_context(serving)
            board.failed = rnic.fail
            yield Board(board, cable, switch.port(), rnic, tcp)
    finally:
        await board.close()


@contextlib.asynccontextmanager
async def _serving(
    way: Datagrams,
    pace: float = PACE,
    latency: float = LATENCY,
    begin: Callable[[UdpRnic], Awaitable[None]] | None = None,
) -> AsyncIterator[tuple[UdpRnic, AttachedTcp]]:
    rnic = await UdpRnic.open(way, pace=pace, latency=latency)
    try:
        if begin is not None:
            await begin(rnic)
        address = IPv4Address(await rnic.get("ADDRESS"))
        paths: list[Device] = [*rnic.paths]
        async with (
            _watched(rnic),
            RegisterTcp(rnic, len(paths)) as registers,
            AttachedTcp(registers, address, paths) as tcp,
        ):
            yield rnic, tcp
    finally:
        await rnic.close()


@contextlib.asynccontextmanager
async def _watched(rnic: UdpRnic) -> AsyncIterator[None]:
    """Cancel the body if the RNIC fails, and then raise its failure: nothing else would end the waits for TCP."""
    body = asyncio.current_task()
    assert body is not None

    async def watch() -> None:
        await rnic.failing()
        body.cancel()

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if rnic.failure is None or body.uncancel():
            raise
        raise rnic.failure from None
    finally:
        watcher.cancel()


def _host(switch: Switch, board: IPv4Interface) -> UserTcp:
    """Return the host of a driver in the network of a board: the last address of it that the board has not."""
    network = board.network
    address = next(each for each in (network.broadcast_address - n for n in (1, 2)) if each != board.ip)
    host = IPv4Interface((address, network.prefixlen))
    return UserTcp(switch.port(), Host(local_mac(address), host))
