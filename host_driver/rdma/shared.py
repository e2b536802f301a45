"""Memory that a peer reads and writes when it likes: the private data of the Reply has its place.

``host_driver/linux/memory.c`` is such a peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from open_rnic.host_driver.rdma.engine.copied import CopiedMemory
from open_rnic.host_driver.rdma.memory import Access, DeviceBuffer, Place, ProtectionDomain

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from open_rnic.host_driver.device import Device
    from open_rnic.host_driver.rdma.connection import RdmaError
    from open_rnic.host_driver.rdma.manager import ConnectionRequest
    from open_rnic.host_driver.rdma.memory import Region

__all__ = ["memory_of", "share"]


_RIGHTS = Access.REMOTE_READ | Access.REMOTE_WRITE


def memory_of(device: Device, octets: int) -> bytearray | DeviceBuffer:
    """Return memory to share: that of the device, if it has its own; raises ValueError if that has no room."""
    return DeviceBuffer(device, octets) if isinstance(device.memory, CopiedMemory) else bytearray(octets)


async def share(request: ConnectionRequest, memory: Buffer | DeviceBuffer) -> RdmaError | None:
    """Accept a peer, which may read and write ``memory`` until it closes; returns the error that ended the connection.

    Returns None if the peer has closed in order; all that it has written is then in ``memory``. The STag is valid for
    this connection alone. A device with memory of its own works on a copy, which is this connection's: share the memory
    with one peer at a time. A :class:`.DeviceBuffer` is never copied, and several peers may have it at once. Raises the
    errors of ``ConnectionRequest.accept``, and ValueError if a DeviceBuffer is not of the device of the request.
    """
    if isinstance(memory, DeviceBuffer):

        def place(register: Callable[..., Region]) -> bytes:
            return Place.of(register(memory, _RIGHTS)).encode()

        async with await request.accept(place) as connection:
            return await connection.disconnected()
    domain = ProtectionDomain()
    with domain.register(memory, _RIGHTS) as region:
        async with await request.accept(Place.of(region).encode(), domain=domain) as connection:
            return await connection.disconnected()
