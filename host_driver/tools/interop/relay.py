"""A relay between the two ends that cuts, joins, delays or corrupts the octets that it passes on.

Startup frames are never joined with FPDUs: RFC 6581 §4.3 assumes that a startup frame has a segment of its own, and siw
requires it. They can be cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from open_rnic.host_driver.mpa.startup_frames import FrameKind, StartupDecoder, StartupError

CHUNK = 65536
PAUSE = 0.2  # seconds for which ``Treatment.pause`` stops a stream
HELD = 0.02  # seconds for which octets are held to be joined with later ones
PACED = 200  # number of pieces in each direction that are sent at intervals, so that TCP does not join them again
PACE = 0.002  # seconds between these pieces


@dataclass
class Treatment:
    """The treatment of one direction's octets, for one connection.

    ``cut`` cuts the octets into pieces of random length up to this value, each in a segment of its own; lengths are
    multiples of ``step``. ``join`` holds octets until this number has arrived, or none has arrived for HELD seconds.
    ``corrupt`` flips one bit in the octet at this offset after the startup frame. ``pause`` stops the stream for PAUSE
    seconds at this offset.

    ``cuts`` counts the cuts, and ``joins`` the pieces of at least ``join`` octets.
    """

    cut: int = 0
    step: int = 1
    join: int = 0
    corrupt: int | None = None
    pause: int | None = None
    cuts: int = 0
    joins: int = 0

    def spoil(self, octets: bytes, offset: int) -> bytes:
        """Return the octets, which begin at this offset of the MPA stream, with the bit flipped if it is in them."""
        if self.corrupt is None or not 0 <= (at := self.corrupt - offset) < len(octets):
            return octets
        return octets[:at] + bytes([octets[at] ^ 0x10]) + octets[at + 1 :]

    def pieces(self, octets: bytes, chance: random.Random) -> Iterator[bytes]:
        """Return the octets in pieces."""
        while self.cut and octets:
            size = self.step * chance.randint(1, max(1, self.cut // self.step))
            yield octets[:size]
            octets = octets[size:]
            self.cuts += bool(octets)
        if octets:
            yield octets


@contextlib.asynccontextmanager
async def relay(
    port: int, forth: Treatment | None = None, back: Treatment | None = None, *, seed: int = 0
) -> AsyncIterator[int]:
    """Relay connections to ``port`` of this machine's loopback; returns the port that accepts them.

    ``forth`` applies to the octets of the initiator, and ``back`` to those of the responder.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve(initiator: socket.socket) -> None:
        loop, responder = asyncio.get_running_loop(), socket.socket()
        responder.setblocking(False)
        with initiator, responder:
            for sock in (initiator, responder):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError, StartupError):
                await loop.sock_connect(responder, ("127.0.0.1", port))
                await asyncio.gather(
                    _carry(initiator, responder, FrameKind.REQUEST, forth or Treatment(), random.Random(seed)),
                    _carry(responder, initiator, FrameKind.REPLY, back or Treatment(), random.Random(seed + 1)),
                )

    async def accept(listener: socket.socket) -> None:
        while True:
            initiator, _ = await asyncio.get_running_loop().sock_accept(listener)
            task = asyncio.create_task(serve(initiator))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        tasks.add(asyncio.create_task(accept(listener)))
        try:
            yield listener.getsockname()[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(
    source: socket.socket, sink: socket.socket, kind: FrameKind, treatment: Treatment, chance: random.Random
) -> None:
    """Relay one direction to its end; raises OSError if either side has been reset."""
    loop, startup = asyncio.get_running_loop(), StartupDecoder(kind)

    async def give(octets: bytes) -> None:
        for piece in treatment.pieces(octets, chance):
            await loop.sock_sendall(sink, piece)
            if treatment.cut:
                await asyncio.sleep(PACE if treatment.cuts < PACED else 0)

    offset, held = 0, b""
    while True:
        # A timeout must not cancel the call: octets that arrive in the same moment would be lost.
        receiving = asyncio.ensure_future(loop.sock_recv(source, CHUNK))
        try:
            while held and not (await asyncio.wait((receiving,), timeout=HELD))[0]:
                await give(held)
                held = b""
            octets = await receiving
        finally:
            receiving.cancel()
        if not octets:
            break
        while octets and startup.missing:
            taken, octets = octets[: startup.missing], octets[startup.missing :]
            startup.feed(taken)
            await give(taken)
        held += treatment.spoil(octets, offset)
        offset += len(octets)
        if treatment.pause is not None and 0 < (behind := offset - treatment.pause) < len(octets):
            await give(held[:-behind])
            await asyncio.sleep(PAUSE)
            held = held[-behind:]
        if len(held) >= treatment.join:
            treatment.joins += bool(treatment.join)
            await give(held)
            held = b""
    await give(held)
    sink.shutdown(socket.SHUT_WR)
