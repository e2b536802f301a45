"""The second process of ``host_driver.tools.bench.connections``: it accepts every request and echoes every Send.

It first prints its port as a line of JSON. For each input line, it then prints the resources that it holds. It ends at
the end of its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import sys
from typing import Any

from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import Access, Connection, ProtectionDomain

ROOM = 4096  # octets of the longest Send


def held(domain: ProtectionDomain) -> dict[str, int]:
    """Count this process's resources that a connection could leak; the current task is not counted."""
    gc.collect()
    files = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    links = []
    for file in files:
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            links.append(os.readlink(file))
    return {
        "tasks": len(asyncio.all_tasks()) - 1,
        "sockets": sum(link.startswith("socket:") for link in links),
        "processes": sum(_parent(each) == os.getpid() for each in os.listdir("/proc") if each.isdecimal()),
        "regions": len(domain),
    }


def _parent(process: str) -> int | None:
    """Return the parent of a process, or None if the process has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])  # behind the name, which may contain any character
    return None


def rss() -> int:
    """Return the resident set size of this process, in octets."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def cpu() -> float:
    """Return the processor time of this process, in seconds."""
    times = os.times()
    return times.user + times.system


def require_files(count: int) -> None:
    """Raise the limit of open files to ``count``; raises ValueError if the system does not permit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ValueError(f"{count} open files are needed, but the system permits {hard}")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


async def _serve(request: rdma.ConnectionRequest, domain: ProtectionDomain) -> None:
    with contextlib.suppress(rdma.RdmaError, rdma.MpaConnectionError):
        connection: Connection = await request.accept(domain=domain)
        async with connection:
            connection.register(bytearray(256), Access.REMOTE_READ | Access.REMOTE_WRITE)
            while True:
                await connection.send(bytes(await connection.receive(ROOM)))


async def _main(files: int) -> None:
    require_files(files)
    domain, tasks = ProtectionDomain(), set[asyncio.Task[None]]()

    async def accept() -> None:
        async for request in listener:
            task = asyncio.create_task(_serve(request, domain))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def write(values: dict[str, Any]) -> None:
        print(json.dumps(values), flush=True)

    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with await rdma.listen() as listener:
        accepting = asyncio.create_task(accept())
        write({"port": listener.address[1]})
        while await commands.readline():
            write({**held(domain), "rss": rss(), "cpu": cpu()})
        accepting.cancel()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
