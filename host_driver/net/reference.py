"""Linux TCP against itself through a frame pipe: the reference for the goodput of other stacks."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from open_rnic.host_driver.net.pipe import Faults, Pipe
from open_rnic.host_driver.net.tap import TapNetwork

__all__ = ["Transfer", "reference_transfer"]

_ADDRESSES = "10.9.0.1", "10.9.0.2"
_PORT = 7
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Transfer:
    """A finished transfer.

    Members
    -------
    octets : as many as were sent
    seconds : from the first SYN to the last octet at the receiver
    intact : whether the receiver has the sender's octets, compared by SHA-256

    """

    octets: int
    seconds: float
    intact: bool

    @property
    def goodput(self) -> float:
        """Octets per second."""
        return self.octets / self.seconds


async def reference_transfer(
    octets: int,
    faults: Faults | tuple[Faults, Faults],
    seed: int = 0,
    capture: Path | None = None,
    congestion: str = "cubic",
) -> Transfer:
    """Transfer random octets from one kernel stack to another through a pipe.

    Both stacks are this machine's, in namespaces of their own; the sender is at the pipe's port ``one``. The arguments
    up to ``capture`` are those of ``Pipe``. ``congestion`` is the kernel's algorithm of congestion control, such as
    ``reno``; it is chosen here because the machine's default decides the goodput under loss. Raises PortError (see
    ``TapNetwork``), or OSError if TCP gives up or the kernel has no such algorithm.
    """
    loop = asyncio.get_running_loop()
    data = random.Random(seed).randbytes(octets)
    async with AsyncExitStack() as stack:
        sender, receiver = [await stack.enter_async_context(TapNetwork(f"{each}/24")) for each in _ADDRESSES]
        await stack.enter_async_context(Pipe(sender.port, receiver.port, faults, seed, capture))
        listener = stack.enter_context(receiver.socket())
        listener.bind((_ADDRESSES[1], _PORT))
        listener.listen()
        outgoing = stack.enter_context(sender.socket())
        outgoing.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())

        async def send() -> None:
            await loop.sock_connect(outgoing, (_ADDRESSES[1], _PORT))
            await loop.sock_sendall(outgoing, data)
            outgoing.shutdown(socket.SHUT_WR)

        async def receive() -> bytes:
            incoming = stack.enter_context((await loop.sock_accept(listener))[0])
            digest = hashlib.sha256()
            while chunk := await loop.sock_recv(incoming, _CHUNK):
                digest.update(chunk)
            return digest.digest()

        begin = loop.time()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            received = tasks.create_task(receive())
        return Transfer(octets, loop.time() - begin, received.result() == hashlib.sha256(data).digest())
