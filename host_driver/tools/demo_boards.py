"""The demonstration with boards: both ends move their data by RDMA, in the board by its engine and its memory.

Each end writes a piece into the peer's memory, and announces its length in a Send (RFC 5040 §5.5 rule 10: the piece is
there when the Send is delivered). The peer answers with an empty Send when it has taken the piece.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from open_rnic.host_driver import rdma
from open_rnic.host_driver.device import Device
from open_rnic.host_driver.observer import silent
from open_rnic.host_driver.rdma import Access, Connection, Place
from open_rnic.host_driver.rdma.memory import PLACE_OCTETS
from open_rnic.host_driver.tools.demo import Endpoint, Options, Progress, Result, Source, all_sources, count
from open_rnic.rtl.registers import Role

if TYPE_CHECKING:
    from open_rnic.host_driver.rdma.connection import OpenDevice
    from open_rnic.host_driver.tools.ladder import Ladder
    from open_rnic.host_driver.transport import Tcp

__all__ = ["run"]

_PIECE = 2048  # octets of a piece, at most; a power of 2, as all pieces are
_LENGTH = 4


async def run(options: Options, ladder: Ladder, progress: Progress | None = None) -> list[Result]:
    """Run the demonstration; raises what :func:`.demo.run` raises."""
    sources = all_sources(options)
    devices: list[dict[Role, Device]] = []
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(options.network.open())

        def opener(role: Role, tcp: Tcp) -> OpenDevice:
            async def opened() -> Device:
                device = await (getattr(tcp, "open_device", None) or rdma.software)()
                devices[-1][role] = device
                return device

            return opened

        config = {role: options.config(role) for role in Role}
        listener = await stack.enter_async_context(
            await rdma.listen(
                network.host,
                options.port,
                config[Role.RESPONDER],
                device=opener(Role.RESPONDER, network.responder),
                observer=lambda: silent if devices[1:] else ladder.end(Role.RESPONDER),
                tcp=network.responder,
            )
        )

        async def accepted() -> Connection:
            return await (await listener.request()).accept()

        async def connected() -> tuple[Connection, Connection]:
            devices.append({})
            async with asyncio.TaskGroup() as group:
                accepting = group.create_task(accepted())
                connecting = group.create_task(
                    rdma.connect(
                        network.host,
                        listener.address[1],
                        config[Role.INITIATOR],
                        device=opener(Role.INITIATOR, network.initiator),
                        observer=silent if devices[1:] else ladder.end(Role.INITIATOR),
                        tcp=network.initiator,
                    )
                )
            one = await stack.enter_async_context(connecting.result())
            return one, await stack.enter_async_context(accepting.result())

        pairs = [await connected() for _ in range(options.connections)]
        rooms = [device.memory.room for both in devices for device in both.values() if device.memory is not None]
        # The connections of a board may share its memory.
        piece = min([_PIECE, *(1 << (room // 2 // len(pairs)).bit_length() - 1 for room in rooms)])
        async with asyncio.TaskGroup() as group:
            moving = [group.create_task(_transfer(*each, piece, progress))
                      for each in zip(pairs, devices, sources, strict=True)]  # fmt: skip
        return [each.result() for each in moving]


async def _transfer(
    connections: Sequence[Connection],
    devices: dict[Role, Device],
    sources: dict[Role, Source],
    piece: int,
    progress: Progress | None,
) -> Result:
    ends = [Endpoint(role) for role in Role]
    movers = [_Mover(connection, end, sources[end.role], piece, progress)
              for connection, end in zip(connections, ends, strict=True)]  # fmt: skip
    started = time.monotonic()
    cycles = {role: await device.get_wide("CYCLES") for role, device in devices.items()}
    for end, connection in zip(ends, connections, strict=True):
        end.address, end.negotiated, end.mulpdu = connection.local, connection.negotiated, connection.mulpdu
        end.due = sources[end.role].octets
        if progress:
            progress.began(end.role, sources[Role(1 - end.role)].octets)
    async with asyncio.TaskGroup() as group:
        for mover in movers:
            group.create_task(mover.move())
    seconds = time.monotonic() - started
    for end in ends:
        await count(end, devices[end.role], cycles[end.role])
    return Result(ends[Role.INITIATOR], ends[Role.RESPONDER], seconds)


class _Mover:
    """One end: it sends its data in pieces, and takes those of the peer."""

    def __init__(
        self, connection: Connection, end: Endpoint, source: Source, piece: int, progress: Progress | None
    ) -> None:
        self._connection = connection
        self._end = end
        self._source = source
        self._piece = piece
        self._progress = progress
        self._sink = bytearray(piece)
        self._region = connection.register(self._sink, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
        self._pieces = -(-source.octets // piece)  # to send
        self._taken = asyncio.Semaphore(0)  # pieces that the peer has taken
        self._peer: asyncio.Future[Place] = asyncio.get_running_loop().create_future()

    async def move(self) -> None:
        """Send and receive everything."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive())
            group.create_task(self._send())

    async def _send(self) -> None:
        connection, end = self._connection, self._end
        await connection.send(Place.of(self._region).encode())
        peer = await self._peer
        digest = hashlib.sha256()
        for message in self._source.messages():
            for at in range(0, len(message), self._piece):
                octets = message[at : at + self._piece]
                digest.update(octets)
                await connection.write(octets, peer.stag, peer.to)
                await connection.send(len(octets).to_bytes(_LENGTH, "big"))
                end.sent += len(octets)
                await self._taken.acquire()
        end.sha256_sent = digest.hexdigest()
        await connection.send(bytes(_LENGTH))  # the end

    async def _receive(self) -> None:
        connection, end = self._connection, self._end
        digest = hashlib.sha256()
        self._peer.set_result(Place.decode(bytes(await connection.receive(PLACE_OCTETS))))
        taken, peer_sends = 0, True
        while peer_sends or taken < self._pieces:
            message = bytes(await connection.receive(_LENGTH))
            if not message:
                taken += 1
                self._taken.release()
            elif octets := int.from_bytes(message, "big"):
                digest.update(self._sink[:octets])
                end.received += octets
                await connection.send(b"")
                if self._progress:
                    self._progress.moved(end.role, octets)
            else:
                peer_sends = False
        end.sha256_received = digest.hexdigest()
