"""The interface between connections and TCP, whether the kernel, Python or hardware provides it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from open_rnic.host_driver.device import AttachedDevice
from open_rnic.host_driver.lib.keep_alive import KeepAlive

__all__ = ["CHUNK_OCTETS", "Address", "AttachedTransport", "Tcp", "TcpListener", "Transport"]

CHUNK_OCTETS = 65536  # at most this many octets are received at once

Address = tuple[Any, ...]  # as in the socket module: host, port, and for IPv6 two more


class Transport(Protocol):
    """A TCP connection: all that ``Connection`` needs of TCP.

    ``send`` and ``receive`` raise OSError if the connection is lost. One task at a time may be in each of them.
    """

    @property
    def local(self) -> Address:
        """The address of this end."""

    @property
    def peer(self) -> Address:
        """The peer's address."""

    @property
    def emss(self) -> int:
        """The effective maximum segment size now, in octets (RFC 5044 §4.5)."""

    async def send(self, octets: bytes) -> None:
        """Send all octets, if possible in one segment of their own; waits while there is no room."""

    async def receive(self, most: int = CHUNK_OCTETS) -> bytes:
        """Wait for octets, and return at most ``most`` of them; none at the end, if the peer has closed its half."""

    def keep_alive(self, times: KeepAlive) -> None:
        """Probe the peer from now on when it is silent."""

    def shut(self) -> None:
        """Close this end's half, behind everything sent."""

    def close(self, *, reset: bool) -> None:
        """Release the connection, with a reset if asked for."""


@runtime_checkable
class AttachedTransport(Transport, Protocol):
    """A TCP connection inside of a device, which has a data path for it: octets pass between the two, not the host."""

    async def attach(self, device: AttachedDevice) -> None:
        """Let ``device`` stand for the connection's data path."""

    async def begin(self) -> None:
        """Let octets pass. The data path has been reset before."""

    async def packets(self) -> int:
        """Return the number of packets that TCP has taken from the data path: stream-mode packets and FPDUs."""

    async def octets(self) -> int:
        """Return the number of octets that the data path has been given."""

    async def cleared(self) -> None:
        """After ``close``, wait until both ends have closed, and the data path has given up what all of them share."""

    async def finished(self) -> None:
        """Wait until the data path has been given all octets of the peer. Raises OSError if the connection is lost."""


class TcpListener(Protocol):
    """A port at which TCP connections arrive."""

    @property
    def address(self) -> Address:
        """The address of the port."""

    async def accept(self) -> Transport:
        """Wait for a connection. Raises MpaConnectionError if it cannot be taken now; it can be taken later."""

    async def close(self) -> None:
        """Listen no more. Idempotent; accepted connections stay."""


class Tcp(Protocol):
    """A TCP endpoint, which opens connections and listens."""

    async def connect(self, host: str, port: int, timeout: float, local_addr: Address | None) -> Transport:
        """Open a connection; raises MpaConnectionError, after ``timeout`` seconds for each address of the host."""

    async def listen(self, host: str, port: int) -> TcpListener:
        """Listen at a port; 0 lets the endpoint choose. Raises MpaConnectionError if the port is not available."""
