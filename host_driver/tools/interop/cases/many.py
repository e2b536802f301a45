"""Several connections at once: half of them from the guest, half of them to it."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from itertools import cycle, islice

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import rping
from open_rnic.host_driver.rdma.shared import share
from open_rnic.host_driver.tools.interop.case import Case, Finding, Setting, check
from open_rnic.host_driver.tools.interop.qemu import Output
from open_rnic.rtl.registers import Model, Role

_OCTETS = 1000  # of each memory that a program in the guest reads
_PINGS, _SIZE = 10, 250
_CONFIGS = (
    Config(Role.INITIATOR, ird=1, ord=1),
    Config(Role.INITIATOR, ird=1, ord=1, model=Model.CLIENT_SERVER),
    Config(Role.INITIATOR, ird=4, ord=2, private_data=bytes(range(64))),
    Config(Role.INITIATOR, ird=2, ord=4, model=Model.CLIENT_SERVER, private_data=b"a"),
)


async def _many(setting: Setting, connections: int) -> Finding:
    """All connections are open before the first one moves data."""
    half = connections // 2
    await setting.serve(f"rping -s -P -a {setting.address} -p {setting.guest.service} -S {_SIZE} -V")
    listener = await setting.listen()
    programs, requests = [], []
    for _ in range(half):
        programs.append(setting.run(f"memory {setting.host} {listener.address[1]} read | sha256sum"))
        requests.append(await setting.request(listener, programs[-1]))
    await listener.close()  # which would keep a connection of the device
    memories = [bytes([n]) + bytes(n * k % 251 for k in range(1, _OCTETS)) for n in range(1, half + 1)]
    ours = [await setting.connect(config) for config in islice(cycle(_CONFIGS), half)]

    async def ping(connection: rdma.Connection) -> None:
        async with connection:
            await rping.client(connection, count=_PINGS, size=_SIZE, validate=True)

    async def read(request: rdma.ConnectionRequest, memory: bytes, program: asyncio.Task[Output]) -> str:
        error = await share(request, bytearray(memory))
        check(error is None, f"a connection ended with {error}")
        return (await program).lines[-1]

    async with asyncio.TaskGroup() as group:
        for connection in ours:
            group.create_task(ping(connection))
        reading = [group.create_task(read(*each)) for each in zip(requests, memories, programs, strict=True)]
    # Which program made which request is not known.
    digests = sorted(hashlib.sha256(memory).hexdigest() for memory in memories)
    told = sorted(task.result().split()[0] for task in reading)
    check(told == digests, f"the guest's programs printed {', '.join(told)}, not {', '.join(digests)}")
    return Finding(
        setting.reply,
        f"{half} memories of {_OCTETS} octets read, each with the same SHA-256; {half} times {_PINGS} pings",
    )


def _case(connections: int) -> Case:
    return Case(
        f"many-{connections}",
        f"{connections} connections at once, from the guest and to it, of different models, depths and private data",
        "RFC 5040 §5: octets arrive unchanged and in order",
        partial(_many, connections=connections),
        connections=connections,
    )


CASES = (_case(4), _case(16))
