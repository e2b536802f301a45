"""Datagrams to a board: by this machine's UDP, or by that of a twin on a frame pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Protocol, cast

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.serial.frames import ZERO
from open_rnic.host_driver.tcp.ports import EPHEMERAL
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.rtl.host_link.protocol import LINK_PORT

__all__ = ["Datagrams", "KernelDatagrams", "TwinDatagrams", "datagrams"]


class Datagrams(Protocol):
    """A way to a board.

    Members
    -------
    place : the board's name in messages
    receive : called with the octets of each datagram from the board; the owner sets it
    trouble : the last error of the way, for messages

    """

    place: str
    receive: Callable[[bytes], None]
    trouble: str

    def send(self, octets: bytes) -> None:
        """Send a datagram. Never blocks; a datagram that cannot be sent is lost."""

    def close(self) -> None:
        """Release the way. Idempotent."""


def datagrams(octets: bytes) -> list[bytes]:
    """Cut octets for the line into datagrams, each a whole frame behind a zero, which ends what came before."""
    return [ZERO + frame + ZERO for frame in octets.split(ZERO) if frame]


class KernelDatagrams(asyncio.DatagramProtocol):
    """UDP of this machine. Open it with :meth:`open`."""

    @classmethod
    async def open(cls, address: str, port: int = LINK_PORT) -> KernelDatagrams:
        """Open a way to this board; raises DeviceError if there is none."""
        way = cls(f"{address} port {port}")
        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(lambda: way, remote_addr=(address, port))
        except OSError as error:
            raise DeviceError(f"{way.place}: {error.strerror or error}") from None
        return way

    def __init__(self, place: str) -> None:
        self.place = place
        self.trouble = ""
        self.receive: Callable[[bytes], None] = lambda octets: None
        self._transport: asyncio.DatagramTransport | None = None

    def send(self, octets: bytes) -> None:
        """See Datagrams."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(octets)

    def close(self) -> None:
        """See Datagrams."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """For asyncio."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        """For asyncio."""
        self.receive(data)

    def error_received(self, exc: Exception) -> None:
        """For asyncio. The board may come back, so this is only the reason if it never answers."""
        self.trouble = exc.strerror or str(exc) if isinstance(exc, OSError) else str(exc)


class TwinDatagrams:
    """UDP of a twin, whose host is in the board's network."""

    def __init__(self, twin: UserTcp, address: IPv4Address, port: int = LINK_PORT) -> None:
        self.trouble = ""
        self.receive: Callable[[bytes], None] = lambda octets: None
        self._peer_port = port
        self.move(twin, address)

    def move(self, twin: UserTcp, address: IPv4Address) -> None:
        """Go on from another twin, to another address of the board."""
        self.place = f"{address} port {self._peer_port}"
        self._twin, self._address = twin, address
        self._port = next(each for each in EPHEMERAL if each not in twin.host.udp)
        twin.host.udp[self._port] = self._received

    def send(self, octets: bytes) -> None:
        """See Datagrams."""
        loop = asyncio.get_running_loop()
        try:
            self._twin.host.send_udp(self._port, self._address, self._peer_port, octets, loop.time())
        except OSError as error:
            self.trouble = str(error)
        self._twin.flush()

    def close(self) -> None:
        """See Datagrams."""
        self._twin.host.udp.pop(self._port, None)

    def _received(self, source: IPv4Address, port: int, payload: bytes, now: float) -> None:
        self.receive(payload)
