"""Connections with the software device: the rate at which they are made, the memory they need, and what they leak.

The initiators are in this process, and the responders in another one (``host_driver.tools.bench.responder``), connected
by TCP over loopback. All connections are enhanced and peer-to-peer (RFC 6581), and count as established once the RTR
has been sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import Access, Connection, ProtectionDomain
from open_rnic.host_driver.tools.bench.responder import ROOM, allow_files, cpu, held, rss

AT_A_TIME = 16  # connections that are opened concurrently
SPARE_FILES = 64  # open files in addition to one for each connection
MESSAGES = 4  # Sends in each direction of every connection
LEFT = ("tasks", "sockets", "processes", "regions")  # resources that must all be freed at the end
SETTLED = 5.0  # seconds within which the responders must have freed their resources

Progress = Callable[[str, int], None]  # called after each step, with its name and the total number of such steps


@dataclass(frozen=True)
class Rate:
    """Connections established per second, and the processor time of a connection until it is closed; medians."""

    connections: int
    repeats: int
    per_second: float
    initiator_cpu_s: float
    responder_cpu_s: float


@dataclass(frozen=True)
class Memory:
    """Octets per idle connection: ``allocated`` by Python; the RSS figures are the growth of the processes.

    Neither includes the kernel's socket buffers. Those of the responder include a posted buffer of ``ROOM`` octets.
    """

    connections: int
    allocated_octets: float
    initiator_rss_octets: float
    responder_rss_octets: float


@dataclass(frozen=True)
class Many:
    """Connections open at once, the Sends exchanged over all of them, and the resources leaked by both processes."""

    connections: int
    messages: int
    octets: int
    exchange_s: float
    left: dict[str, int]


class Responder:
    """The process of the responders."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self._process = process

    async def ask(self) -> dict[str, Any]:
        """Return the resources that it holds now."""
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        return await _line(self._process)


@contextlib.asynccontextmanager
async def responder(connections: int) -> AsyncIterator[Responder]:
    """Start the process of the responders, and end it with the context."""
    files = connections + SPARE_FILES
    allow_files(files)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "open_rnic.host_driver.tools.bench.responder", str(files)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Responder(process, (await _line(process))["port"])
    finally:
        assert process.stdin
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), SETTLED)
        except TimeoutError:
            process.kill()
            await process.wait()


async def rate(other: Responder, connections: int, repeats: int, progress: Progress) -> Rate:
    """Open connections as fast as possible, and close them. The first repeat is a warm-up that is not counted."""
    rates, initiator_cpu, responder_cpu = [], [], []
    for nth in range(1 + repeats):
        before, before_there, start = cpu(), (await other.ask())["cpu"], perf_counter()
        opened = await _open(other, connections, None, lambda: progress("established", connections * (1 + repeats)))
        rates.append(connections / (perf_counter() - start))
        await _together(each.close() for each in opened)
        initiator_cpu.append((cpu() - before) / connections)
        responder_cpu.append(((await other.ask())["cpu"] - before_there) / connections)
        if nth == 0:
            for figures in (rates, initiator_cpu, responder_cpu):
                figures.clear()
    return Rate(connections, repeats, median(rates), median(initiator_cpu), median(responder_cpu))


async def many(other: Responder, connections: int, octets: int, progress: Progress) -> tuple[Memory, Many]:
    """Hold connections open, exchange messages over all of them, close them, and look for leaked resources.

    Raises ValueError if a message comes back altered, or if ``octets`` exceeds ROOM.
    """
    if not 0 < octets <= ROOM:
        raise ValueError(f"a message has 1 to {ROOM} octets, not {octets}")
    domain = ProtectionDomain()
    before, before_there = held(domain), await other.ask()

    rss_before = rss()
    opened = await _open(other, connections, domain, lambda: progress("opened", connections))
    idle_there = await other.ask()
    gc.collect()
    initiator_rss = (rss() - rss_before) / connections

    async def exchange(connection: Connection, number: int) -> None:
        for nth in range(MESSAGES):
            message = (f"{number}/{nth} ".encode() * octets)[:octets]
            answer = asyncio.ensure_future(connection.receive(octets))
            await connection.send(message)
            if bytes(await answer) != message:
                raise ValueError(f"connection {number} has received an altered echo of its message {nth}")
        progress("exchanged messages", connections)

    start = perf_counter()
    await _together(exchange(each, number) for number, each in enumerate(opened))
    seconds = perf_counter() - start
    await _together(each.close() for each in opened)
    opened.clear()
    left = {name: count - before[name] for name, count in held(domain).items()}
    left_there = await _settled(other, before_there)

    tracemalloc.start()
    try:
        opened = await _open(other, connections, domain, lambda: progress("opened again", connections))
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0] / connections
        await _together(each.close() for each in opened)
    finally:
        tracemalloc.stop()
    return (
        Memory(connections, allocated, initiator_rss, (idle_there["rss"] - before_there["rss"]) / connections),
        Many(
            connections,
            MESSAGES,
            octets,
            seconds,
            {name: left[name] + left_there[name] for name in left},
        ),
    )


async def _open(
    other: Responder, connections: int, domain: ProtectionDomain | None, progress: Callable[[], None]
) -> list[Connection]:
    """Open connections; each registers a region if ``domain`` is not None."""
    opened: list[Connection] = []
    numbers = iter(range(connections))

    async def some() -> None:
        for _ in numbers:
            connection = await rdma.connect("127.0.0.1", other.port, domain=domain)
            opened.append(connection)
            if domain is not None:
                connection.register(bytearray(256), Access.REMOTE_READ | Access.REMOTE_WRITE)
            progress()

    try:
        await _together(some() for _ in range(AT_A_TIME))
    except BaseException:
        await _together(each.abort() for each in opened)
        raise
    return opened


async def _together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as errors:  # all are of the same kind: report the first
        raise errors.exceptions[0] from None


async def _settled(other: Responder, before: dict[str, Any]) -> dict[str, int]:
    """Return what the other process holds in excess of ``before``, as soon as that is nothing or time is up."""
    end = perf_counter() + SETTLED
    while True:
        now = await other.ask()
        left = {name: now[name] - before[name] for name in LEFT}
        if not any(left.values()) or perf_counter() > end:
            return left
        await asyncio.sleep(0.05)


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout
    line = await process.stdout.readline()
    if not line:
        raise ConnectionError("the responders' process has ended")
    answer: dict[str, Any] = json.loads(line)
    return answer
