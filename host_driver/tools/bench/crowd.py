"""``rnic listen`` with a crowd before it: how long a good client waits for its answer, and what the crowd costs.

The listener is a process of its own. The crowd is in this one: connections that say nothing, that send their Request
one octet a second, and that are established and say nothing more.
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
from open_rnic.host_driver.mpa.startup import ENHANCED_OCTETS, HEADER_OCTETS, EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.tools.bench.connections import SPARE_FILES, Progress
from open_rnic.host_driver.tools.bench.responder import require_files
from open_rnic.rtl.registers import Rtr

PACE = 1.0  # seconds between two octets of a slow one
REQUEST = StartupFrame(
    FrameKind.REQUEST, enhanced=EnhancedData(16, 16, True, frozenset({Rtr.WRITE})), private_data=bytes(400)
).encode()  # slow ones take minutes for it
RTR = FpduFramer(markers=False, crc=True).frame(rtr_ulpdu(Rtr.WRITE))
REPLY_OCTETS = HEADER_OCTETS + ENHANCED_OCTETS
PATIENT = rdma.Options(linger=60.0)


@dataclass(frozen=True)
class Crowd:
    """Seconds that good clients waited from their SYN to the echo of their Send, and octets of memory a connection."""

    silent: int
    slow: int
    idle: int
    alone_s: list[float]  # before the crowd
    waited_s: list[float]  # with it
    silent_octets: float  # of the listener's process, for one silent connection
    idle_octets: float  # for one established one


async def crowd(silent: int, slow: int, idle: int, clients: int, progress: Progress) -> Crowd:
    """Measure; raises ValueError when the system allows too few open files, ConnectionError when the listener ends."""
    require_files(silent + slow + idle + SPARE_FILES)
    async with _listening() as (process, port), contextlib.AsyncExitStack() as stack:
        await _good(port)  # memory once used is not seen to grow
        alone = [await _good(port) for _ in range(clients)]

        async def more(what: str, count: int, *, established: bool) -> float:
            """So many connections; what the listener has grown by for each."""
            before = _rss(process)
            for _ in range(count):
                sock = stack.enter_context(await (_established if established else _connected)(port))
                sockets.append(sock)
                progress(what, count)
            await _good(port)  # what came before has been taken
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
                await asyncio.sleep(PACE / 4)  # at all times between two octets of the slow ones
        finally:
            dripping.cancel()
        return Crowd(silent, slow, idle, alone, waited, silent_octets, idle_octets)


async def _good(port: int) -> float:
    start = perf_counter()
    async with await rdma.connect("127.0.0.1", port, options=PATIENT) as connection:
        await connection.send(b"good")
        if bytes(await connection.receive()) != b"good":
            raise ConnectionError("the listener has sent back something else")
        return perf_counter() - start


async def _connected(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def _established(port: int) -> socket.socket:
    """A connection that has had its Reply, and has sent its RTR."""
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
    """Send an octet of the Request over each connection, then wait."""
    for octet in REQUEST[:-1]:
        for sock in sockets:
            sock.send(bytes((octet,)))
        await asyncio.sleep(PACE)


@contextlib.asynccontextmanager
async def _listening() -> AsyncIterator[tuple[int, int]]:
    """``rnic listen --echo``: its process id, and its port."""
    command = "from open_rnic.host_driver.tools.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", command, "listen", "--echo", "--json", "--timeout", "3600"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # a line for each of the crowd, at the end
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
        await process.wait()  # its output is read to the end, or it would wait for that and not end
    await reading


async def _read_on(stdout: asyncio.StreamReader) -> None:
    while await stdout.read(65536):
        pass


def _rss(process: int) -> int:
    with open(f"/proc/{process}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
