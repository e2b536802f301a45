"""Goodput of TCP stacks through a frame pipe: the twin's, and Linux with itself as the reference."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Interface
from pathlib import Path

from open_rnic.host_driver.net.host import Host, local_mac
from open_rnic.host_driver.net.pipe import Faults, Pipe, Port, joined
from open_rnic.host_driver.net.tap import TapNetwork
from open_rnic.host_driver.sockets import BACKLOG, KernelListener, TcpSocket
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.transport import Address, Tcp

__all__ = ["REFERENCE", "WAYS", "Goodput", "Stack", "Transfer", "Way", "compare", "reference_transfer", "transfer"]

_ADDRESSES = "10.9.0.1", "10.9.0.2"
_PORT = 7
_PACKET = 45 * 1448  # octets of a call of send: the twin sends each packet in segments of its own
_PATIENCE = 600.0  # seconds for the handshake


class Stack(StrEnum):
    """A TCP implementation at an end of the pipe."""

    LINUX = "Linux"
    TWIN = "the twin"


Way = tuple[Stack, Stack]  # sender and receiver

REFERENCE: Way = (Stack.LINUX, Stack.LINUX)
WAYS: tuple[Way, ...] = (
    REFERENCE,
    (Stack.TWIN, Stack.LINUX),
    (Stack.LINUX, Stack.TWIN),
    (Stack.TWIN, Stack.TWIN),
)


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


@dataclass(frozen=True)
class Goodput:
    """The transfers of one way, one for each seed, and their goodput divided by Linux's for the same seed."""

    way: Way
    transfers: list[Transfer]
    ratios: list[float]


class _LinuxTcp:
    """The kernel's TCP in a network namespace as a :class:`.Tcp`."""

    def __init__(self, network: TapNetwork, congestion: str) -> None:
        self._network, self._congestion = network, congestion

    async def connect(self, host: str, port: int, timeout: float, local_addr: Address | None) -> TcpSocket:
        sock = self._network.socket()
        try:
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion.encode())
            except FileNotFoundError:
                raise ValueError(f"this kernel has no congestion control {self._congestion!r}") from None
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
        return TcpSocket(sock, (host, port))

    async def listen(self, host: str, port: int) -> KernelListener:
        sock = self._network.socket()
        sock.bind((host, port))
        sock.listen(BACKLOG)
        return KernelListener(sock)


@contextlib.asynccontextmanager
async def _opened(stack: Stack, address: str, congestion: str) -> AsyncIterator[tuple[Tcp, Port]]:
    """A stack with this address, and the port of its cable."""
    if stack is Stack.LINUX:
        async with TapNetwork(f"{address}/24") as network:
            yield _LinuxTcp(network, congestion), network.port
    else:
        ours, cable = joined()
        interface = IPv4Interface(f"{address}/24")
        async with UserTcp(ours, Host(local_mac(interface.ip), interface)) as twin:
            yield twin, cable


async def transfer(
    way: Way,
    octets: int,
    faults: Faults | tuple[Faults, Faults],
    seed: int = 0,
    capture: Path | None = None,
    congestion: str = "cubic",
) -> Transfer:
    """Transfer random octets from one stack to another through a pipe.

    Linux is this machine's stack, in a network namespace; the sender is at the pipe's port ``one``. The arguments from
    ``faults`` to ``capture`` are those of ``Pipe``. ``congestion`` is the kernel's algorithm of congestion control,
    such as ``reno``; it is chosen here because the machine's default decides the goodput under loss. Raises PortError
    (see ``TapNetwork``), OSError if TCP gives up, ValueError if the kernel has no such algorithm.
    """
    loop = asyncio.get_running_loop()
    data = random.Random(seed).randbytes(octets)
    async with AsyncExitStack() as stack:
        (sender, one), (receiver, other) = [
            await stack.enter_async_context(_opened(each, address, congestion))
            for each, address in zip(way, _ADDRESSES, strict=True)
        ]
        await stack.enter_async_context(Pipe(one, other, faults, seed, capture))
        listener = await receiver.listen(_ADDRESSES[1], _PORT)
        stack.push_async_callback(listener.close)

        async def send() -> None:
            outgoing = await sender.connect(_ADDRESSES[1], _PORT, _PATIENCE, None)
            stack.callback(outgoing.close, reset=False)
            for at in range(0, octets, _PACKET):
                await outgoing.send(data[at : at + _PACKET])
            outgoing.shut()

        async def receive() -> bytes:
            incoming = await listener.accept()
            stack.callback(incoming.close, reset=False)
            digest = hashlib.sha256()
            while chunk := await incoming.receive():
                digest.update(chunk)
            return digest.digest()

        begin = loop.time()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(send())
                received = tasks.create_task(receive())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return Transfer(octets, loop.time() - begin, received.result() == hashlib.sha256(data).digest())


async def compare(
    octets: int, faults: Faults, seeds: Sequence[int], congestion: str, progress: Callable[[], None]
) -> list[Goodput]:
    """Transfer every way through the same pipe, once for each seed. Raises what :func:`transfer` raises."""
    found: dict[Way, list[Transfer]] = {way: [] for way in WAYS}
    for seed in seeds:
        for way, transfers in found.items():
            transfers.append(await transfer(way, octets, faults, seed, congestion=congestion))
            progress()
    return [
        Goodput(
            way,
            transfers,
            [ours.goodput / linux.goodput for ours, linux in zip(transfers, found[REFERENCE], strict=True)],
        )
        for way, transfers in found.items()
    ]


async def reference_transfer(
    octets: int,
    faults: Faults | tuple[Faults, Faults],
    seed: int = 0,
    capture: Path | None = None,
    congestion: str = "cubic",
) -> Transfer:
    """See :func:`transfer`, from Linux to Linux."""
    return await transfer(REFERENCE, octets, faults, seed, capture, congestion)
