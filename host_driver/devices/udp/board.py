"""A whole RNIC in simulation, from its MAC inwards, as an Ethernet port: in Verilator, in a process of its own.

``host_driver.devices.sim.whole_server`` is the other side of the socket.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from open_rnic.boards import find
from open_rnic.boards.board import Core
from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.path_wire import Damage, Kind
from open_rnic.host_driver.devices.sim.prepare import prepare
from open_rnic.host_driver.devices.sim.process import START, SimulationProcess
from open_rnic.host_driver.devices.sim.wire import SOCKET, frame, take_frames
from open_rnic.host_driver.net.pipe import discard
from open_rnic.host_driver.waiting import Gate

__all__ = ["SimulatedBoard", "connections", "parameters"]

_SERVER = "open_rnic.host_driver.devices.sim.whole_server"


def parameters(name: str) -> tuple[str, ...]:
    """Return the parameters of the simulation of BOARD[:CONNECTIONS]; raises ValueError for an unsuitable board."""
    name, _, connections = name.partition(":")
    board = find(name)
    board.check(Core.RNIC)
    ethernet = board.ethernet
    return connections or str(ethernet.connections), str(ethernet.ring), str(ethernet.memory)


def connections(name: str) -> int:
    """Return the number of connections of a board; raises what ``parameters`` raises."""
    return int(parameters(name)[0])


class SimulatedBoard(asyncio.Protocol):
    """An Ethernet port (:class:`.Port`) of a board. Open it with :meth:`open`."""

    @classmethod
    async def open(cls, name: str) -> SimulatedBoard:
        """Start the board with this name, or with BOARD:CONNECTIONS. The first of a kind is built, which takes minutes.

        Raises ValueError for a board that is unknown or has no Ethernet, and DeviceError if it cannot be built or
        started.
        """
        simulation = await prepare("whole", *parameters(name))
        board = cls()
        ours, theirs = socket.socketpair()
        with theirs:
            board._process = SimulationProcess(
                simulation, _SERVER, [theirs.fileno()], {SOCKET: str(theirs.fileno())}
            )
        try:
            await asyncio.get_running_loop().create_connection(lambda: board, sock=ours)
            async with asyncio.timeout(START):
                await board._gate.until(lambda: board._up or board.failure is not None)
        except TimeoutError:
            board.failure = board._process.late()
        if board.failure:
            await board.close()
            raise board.failure
        return board

    def __init__(self) -> None:
        self.receive: Callable[[bytes], None] = discard
        self.failure: DeviceError | None = None
        self.failed: Callable[[DeviceError], None] = lambda failure: None
        self._gate = Gate()
        self._up = False
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._process: SimulationProcess | None = None

    def send(self, given: bytes, damage: Damage = Damage.NONE) -> None:
        """Give a frame to the board's MAC, which may be damaged on its last metre."""
        self._write(frame(Kind.FRAME, damage, given))

    def cable(self, *, up: bool) -> None:
        """Put the cable in, or pull it: the PHY then reports that the link is down."""
        self._write(frame(Kind.CABLE, up))

    async def close(self) -> None:
        """End the simulation. Idempotent."""
        if self._transport:
            self._transport.close()
        if self._process:
            await self._process.end()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._end()

    def eof_received(self) -> None:  # noqa: D102
        self._end()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        self._received += data
        for kind, _, octets in take_frames(self._received):
            match kind:
                case Kind.HELLO:
                    self._up = True
                    self._gate.look()
                case Kind.FRAME:
                    self.receive(octets)

    def _end(self) -> None:
        if self._process and self.failure is None and not (self._transport and self._transport.is_closing()):
            self.failure = self._process.death()
            self.failed(self.failure)
        self._gate.look()

    def _write(self, octets: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(octets)
