"""A network path in simulation: TCP in RTL, in Verilator, in a process of its own.

``host_driver.devices.sim.tcp_streams`` is at the other side of the socket.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address, IPv4Interface

from open_rnic.host_driver.devices.sim.frame_socket import FrameSocket
from open_rnic.host_driver.devices.sim.wire import COMMAND, STATION, STATUS, WORD, Kind, beats, frame
from open_rnic.host_driver.tcp.engine import EngineStatus
from open_rnic.rtl.tcp.words import Command

__all__ = ["SimulatedPath", "opened"]

_WINDOW = 4096  # beats of octets to send that wait in the simulation


@contextlib.asynccontextmanager
async def opened(
    mac: bytes, address: IPv4Interface, gateway: IPv4Address | None = None, *, connections: int = 4, ring: int = 8192
) -> AsyncIterator[SimulatedPath]:
    """Return a :class:`SimulatedPath` as an asynchronous context manager; the parameters are those of its ``open``."""
    path = await SimulatedPath.open(mac, address, gateway, connections=connections, ring=ring)
    try:
        yield path
    finally:
        await path.close()


class SimulatedPath(FrameSocket):
    """An Ethernet port (:class:`.Port`) with a TCP engine (:class:`.TcpDevice`) behind it."""

    @classmethod
    async def open(
        cls,
        mac: bytes,
        address: IPv4Interface,
        gateway: IPv4Address | None = None,
        *,
        connections: int = 4,
        ring: int = 8192,
    ) -> SimulatedPath:
        """Start a path for ``connections`` connections (1, 2, 4, 8 or 16) with rings of ``ring`` octets each way.

        The first of a kind is built, which takes a minute. Raises DeviceError if it cannot be built or started.
        """
        path = cls(connections)
        await path._begin("path", str(connections), str(ring), str(ring))
        mask = int(address.netmask)
        station = STATION.pack(int.from_bytes(mac, "big"), int(address.ip), mask, int(gateway or 0))
        path._write(frame(Kind.STATION, 0, station))
        return path

    def __init__(self, connections: int) -> None:
        super().__init__()
        self.deliver: Callable[[int, bytes], None] = lambda connection, octets: None
        self.statuses = [EngineStatus(0, IPv4Address(0), 0, 0, 0)] * connections
        self._credit = _WINDOW
        self._commands = 0

    # A TCP engine

    def command(self, command: Command, connection: int, ports: int = 0, peer: int = 0, iss: int = 0) -> int:
        """See TcpDevice."""
        self._commands = (self._commands + 1) & 0xFFFF
        self._write(frame(Kind.COMMAND, command, COMMAND.pack(connection, ports, peer, iss)))
        return self._commands

    async def send_packet(self, connection: int, octets: bytes) -> None:
        """Send a packet; waits while there is no room. Raises DeviceError if the simulation has ended."""
        await self.gate.until(lambda: self._credit > 0 or self.failure is not None)
        if self.failure:
            raise self.failure
        self._credit -= beats(len(octets), 1)
        self._write(frame(Kind.OCTETS, connection, octets))

    def accept(self, connection: int, wanted: bool) -> None:
        """Let received octets of a connection come, or stop them soon."""
        self._write(frame(Kind.ACCEPT, connection, WORD.pack(wanted)))

    def _take(self, kind: int, note: int, octets: bytes) -> None:
        match kind:
            case Kind.OCTETS:
                self.deliver(note, octets)
            case Kind.GRANT:
                self._credit += WORD.unpack(octets)[0]
            case Kind.STATUS:
                status, peer, ports, commands = STATUS.unpack(octets)
                self.statuses[note] = EngineStatus(status, IPv4Address(peer), ports >> 16, ports & 0xFFFF, commands)
