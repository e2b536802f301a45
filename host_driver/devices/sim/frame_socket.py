"""The program's end of a socket to a simulation that has an Ethernet port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.build import Simulation
from open_rnic.host_driver.devices.sim.prepare import prepare
from open_rnic.host_driver.devices.sim.process import START, SimulationProcess
from open_rnic.host_driver.devices.sim.wire import Kind, frame, take_frames
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.net.pipe import discard

__all__ = ["FrameSocket"]


class FrameSocket(asyncio.Protocol):
    """An Ethernet port (:class:`.Port`) in a simulation. A subclass gets all other messages by ``_take``.

    ``gate`` looks when a message has arrived; ``failure`` says why the simulation has ended.
    """

    def __init__(self) -> None:
        self.receive: Callable[[bytes], None] = discard
        self.gate = Gate()
        self.failure: DeviceError | None = None
        self._up = False
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._process: SimulationProcess | None = None

    async def _begin(self, *top: str, others: int = 0) -> list[socket.socket]:
        """Start the simulation of a top: see :func:`.prepare`. Return as many sockets to it as ``others`` says.

        If it does not come up, end it, and raise DeviceError.
        """
        simulation = await self._prepare(*top)
        process, (ours, *sockets) = SimulationProcess.joined(simulation, top, 1 + others)
        self._process = process
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
            async with asyncio.timeout(START):
                await self.gate.until(lambda: self._up or self.failure is not None)
        except TimeoutError:
            self.failure = process.late()
        if self.failure:
            for each in sockets:
                each.close()
            await self.close()
            raise self.failure
        return sockets

    async def _prepare(self, *top: str) -> Simulation:
        return await prepare(*top)

    def _take(self, kind: int, note: int, octets: bytes) -> None:
        """Take a message that is no frame."""

    def send(self, given: bytes) -> None:
        """Give a frame to the port."""
        self._write(frame(Kind.FRAME, 0, given))

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
        for kind, note, octets in take_frames(self._received):
            match kind:
                case Kind.HELLO:
                    self._up = True
                case Kind.FRAME:
                    self.receive(octets)
                case _:
                    self._take(kind, note, octets)
        self.gate.look()

    @property
    def _closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _end(self) -> None:
        """The simulation has ended, or has been closed."""
        if self._process and self.failure is None and not self._closed:
            self.failure = self._process.death()
        self.gate.look()

    def _write(self, octets: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(octets)
