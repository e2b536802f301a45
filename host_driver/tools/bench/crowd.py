"""``rnic listen`` under load: how long a regular client waits for its answer, and what the other connections cost.

The listener is a process of its own. This process is the crowd: connections that send nothing, that send their Request
at one octet per second, and that are established but idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import perf_counter

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.rtr import rtr_ulpdu
from open_rnic.host_driver.mpa.startup_frames import (
    ENHANCED_OCTETS,
    HEADER_OCTETS,
    EnhancedData,
    FrameKind,
    StartupFrame,
)
from open_rnic.host_driver.tools.bench.connections import SPARE_FILES, Progress
from open_rnic.host_driver.tools.bench.responder import require_files
from open_rnic.rtl.registers import Rtr

PACE = 1.0  # seconds between two octets of a slow connection
REQUEST = StartupFrame(
    FrameKind.REQUEST, enhanced=EnhancedData(16, 16, True, frozenset({Rtr.WRITE})), private_data=bytes(400)
).encode()  # a slow connection takes minutes to send it
RTR = FpduFramer(markers=False, crc=True).frame(rtr_ulpdu(Rtr.WRITE))
REPLY_OCTETS = HEADER_OCTETS + ENHANCED_OCTETS
PATIENT = rdma.Options(linger=60.0)


@dataclass(frozen=True)
class Crowd:
    """Seconds from a regular client's SYN to the echo of its Send, and octets of memory per connection."""

    silent: int
    slow: int
    idle: int
    alone_s: list[float]  # before the crowd connects
    waited_s: list[float]  # with the crowd
    silent_octets: float  # memory of the listener's process per silent connection
    idle_octets: float  # memory of the listener's process per established connection


async def crowd(silent: int, slow: int, idle: int, clients: int, progress: Progress) -> Crowd:
    """Measure; raises ValueError if the limit of open files is too low, ConnectionError if the listener ends."""
    require_files(silent + slow + idle + SPARE_FILES)
    async with _listening() as (process, port), contextlib.AsyncExitStack() as stack:
        await _good(port)  # so that memory that the first connection needs is not counted
        alone = [await _good(port) for _ in range(clients)]

        async def more(what: str, count: int, *, established: bool) -> float:
            """Open ``count`` connections, and return the growth of the listener per connection in octets."""
            before = _rss(process)
            for _ in range(count):
                sock = stack.enter_context(await (_established if established else _connected)(port))
                sockets.append(sock)
                progress(what, count)
            await _good(port)  # the listener has accepted all connections before this one
            return (_rss(process) - before) / count if count else 0.0

        sockets: list[socket.socket] = []
        silent_octets = await more("silent", silent, established=False)
        idle_octets = await more("idle", idle, established=True)
        sockets.clear()
        await more("slow", slow, established=False)
        dripping = asyncio.create_task(_drip(sockets))
        try:
            waited = []
            for _ in range(clients):
                waited.append(await _good(port))
                progress("good clients", clients)
                await asyncio.sleep(PACE / 4)  # to hit all phases between two octets of the slow connections
        finally:
            dripping.cancel()
        return Crowd(silent, slow, idle, alone, waited, silent_octets, idle_octets)


async def _good(port: int) -> float:
    start = perf_counter()
    async with await rdma.connect("127.0.0.1", port, options=PATIENT) as connection:
        await connection.send(b"good")
        if bytes(await connection.receive()) != b"good":
            raise ConnectionError("the listener has echoed a different message")
        return perf_counter() - start


async def _connected(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def _established(port: int) -> socket.socket:
    """Open a connection that has received its Reply, and has sent its RTR."""
    sock, loop = await _connected(port), asyncio.get_running_loop()
    await loop.sock_sendall(sock, REQUEST)
    reply = b""
    while len(reply) < REPLY_OCTETS:
        octets = await loop.sock_recv(sock, REPLY_OCTETS - len(reply))
        if not octets:
            raise ConnectionError("the listener has closed a connection")
        reply += octets
    await loop.sock_sendall(sock, RTR)
    return sock


async def _drip(sockets: list[socket.socket]) -> None:
    """Send the Request over each connection, one octet at a time."""
    for octet in REQUEST[:-1]:
        for sock in sockets:
            sock.send(bytes((octet,)))
        await asyncio.sleep(PACE)


@contextlib.asynccontextmanager
async def _listening() -> AsyncIterator[tuple[int, int]]:
    """Run ``rnic listen --echo``; yields its process id and its port."""
    command = "from open_rnic.host_driver.tools.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", command, "listen", "--echo", "--json", "--timeout", "3600"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # at the end, it has a line for each connection of the crowd
    )
    assert process.stdout
    try:
        line = await process.stdout.readline()
        if not line:
            raise ConnectionError("rnic listen has ended")
        reading = asyncio.create_task(_read_on(process.stdout))
        yield process.pid, json.loads(line)["port"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()  # returns only once `reading` has read all of its output
    await reading


async def _read_on(stdout: asyncio.StreamReader) -> None:
    while await stdout.read(65536):
        pass


def _rss(process: int) -> int:
    with open(f"/proc/{process}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
