"""Memory that a peer reads and writes when it likes: the private data of the Reply has its place.

``host_driver/linux/memory.c`` is such a peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from open_rnic.host_driver.rdma.memory import Access, Place, ProtectionDomain

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from open_rnic.host_driver.rdma.connection import RdmaError
    from open_rnic.host_driver.rdma.manager import ConnectionRequest


async def share(request: ConnectionRequest, memory: Buffer) -> RdmaError | None:
    """Accept a peer, which may read and write ``memory`` until it closes; returns the error that ended the connection.

    Returns None if the peer has closed in order; all that it has written is then in ``memory``. The STag is valid for
    this connection alone. A device with memory of its own works on a copy, which is this connection's: share the memory
    with one peer at a time. Raises the errors of ``ConnectionRequest.accept``.
    """
    domain = ProtectionDomain()
    with domain.register(memory, Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
        async with await request.accept(Place.of(region).encode(), domain=domain) as connection:
            return await connection.disconnected()
