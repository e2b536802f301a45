"""A guest in QEMU as the peer at the other end of a cable.

QEMU connects to the port's socket with these options, and the guest has a network card at the cable's other end::

    -netdev stream,id=cable,server=off,addr.type=unix,addr.path=PATH
    -device virtio-net-pci,netdev=cable,mac=02:00:00:00:00:01
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from open_rnic.host_driver.net.pipe import PortError, discard

__all__ = ["QemuPort"]

_LENGTH = 4  # octets of the length before each frame, big-endian
_LONGEST = 65536
_ROOM = 1 << 20  # octets that may wait for QEMU to read them


class QemuPort:
    """A port over the socket of QEMU's ``-netdev stream``, as an asynchronous context manager.

    It listens on a Unix socket, which vanishes at the end. One QEMU at a time can connect; after it has ended, another
    can. Raises PortError if the socket cannot be made, or if the path exists.

    Parameters
    ----------
    path : of the socket

    Members
    -------
    connected : an event that is set while QEMU is connected
    discarded : number of frames that could not be sent: no QEMU, or it does not read
    error : why the last connection was given up; None if QEMU closed it

    """

    def __init__(self, path: Path) -> None:
        self.receive: Callable[[bytes], None] = discard
        self.connected = asyncio.Event()
        self.discarded = 0
        self.error: PortError | None = None
        self._path = path
        self._transport: asyncio.Transport | None = None

    def send(self, frame: bytes) -> None:
        """Give a frame to the guest."""
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() > _ROOM or len(frame) > _LONGEST:
            self.discarded += 1
        else:
            transport.write(len(frame).to_bytes(_LENGTH, "big") + frame)

    async def __aenter__(self) -> QemuPort:
        if self._path.exists():  # asyncio would replace a socket, even one that another program uses
            raise PortError(f"{self._path} exists: another program uses it, or has left it behind")
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Stream(self), self._path)
        except OSError as error:
            raise PortError(f"no socket for QEMU: {self._path}: {error.strerror or error}") from None
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        if self._transport is not None:
            self._transport.abort()
        while self._transport is not None:  # until the loop has closed it
            await asyncio.sleep(0)
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    def _opened(self, transport: asyncio.Transport) -> bool:
        """Take a connection, unless there is one."""
        if self._transport is not None:
            return False
        self._transport, self.error = transport, None
        self.connected.set()
        return True

    def _closed(self, transport: asyncio.Transport) -> None:
        if transport is self._transport:
            self._transport = None
            self.connected.clear()


class _Stream(asyncio.Protocol):
    """A connection of QEMU's: finds the frames in the octets that arrive."""

    _transport: asyncio.Transport

    def __init__(self, port: QemuPort) -> None:
        self._port = port
        self._octets = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._port._opened(transport):
            transport.abort()

    def connection_lost(self, exception: Exception | None) -> None:
        self._port._closed(self._transport)

    def data_received(self, octets: bytes) -> None:
        self._octets += octets
        at = 0
        while len(self._octets) - at >= _LENGTH:
            length = int.from_bytes(self._octets[at : at + _LENGTH], "big")
            if length > _LONGEST:
                self._port.error = PortError(f"QEMU announced a frame of {length} octets, over {_LONGEST}")
                self._transport.abort()
                return
            end = at + _LENGTH + length
            if len(self._octets) < end:
                break
            self._port.receive(bytes(self._octets[at + _LENGTH : end]))
            at = end
        del self._octets[:at]
