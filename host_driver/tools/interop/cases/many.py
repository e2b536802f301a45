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
from open_rnic.host_driver.tools.interop.cases.programs import ended
from open_rnic.rtl.registers import Model, Role

_GO = "/go"  # a file in the guest: its programs write when it exists
_LINES = 200  # that each of them writes, of numbers with 4 digits
_OCTETS = 5 * _LINES
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
    await setting.serve(f"rm -f {_GO}; rping -s -P -a {setting.address} -p {setting.guest.service} -S {_SIZE} -V")
    listener = await setting.listen()
    memories = [bytearray(_OCTETS) for _ in range(half)]
    programs, sharing = [], []
    for first, memory in zip(_firsts(half), memories, strict=True):
        octets = f"(until [ -e {_GO} ]; do usleep 20000; done; seq {first} {first + _LINES - 1})"
        programs.append(setting.run(f"{octets} | memory {setting.host} {listener.address[1]} write"))
        request = await setting.request(listener, programs[-1])
        sharing.append(asyncio.create_task(share(request, memory)))
    await listener.close()  # which would keep a connection of the device
    # One after the other: rping lets few wait.
    ours = [await setting.connect(config, nudged=False) for config in islice(cycle(_CONFIGS), half)]

    async def ping(connection: rdma.Connection) -> None:
        async with connection:
            await rping.client(connection, count=_PINGS, size=_SIZE, validate=True)

    setting.run(f"touch {_GO}")
    await asyncio.gather(*map(ping, ours))
    errors = [error for error in await asyncio.gather(*sharing) if error]
    check(not errors, f"connections ended with {', '.join(map(str, errors))}")
    for program in programs:
        ended(await program)
    # Which program made which request is not known.
    written = sorted(hashlib.sha256(memory).hexdigest() for memory in memories)
    texts = ("".join(f"{n}\n" for n in range(first, first + _LINES)).encode() for first in _firsts(half))
    digests = sorted(hashlib.sha256(text).hexdigest() for text in texts)
    check(written == digests, f"the memories have the SHA-256 {', '.join(written)}, not {', '.join(digests)}")
    return Finding(
        setting.reply,
        f"the guest wrote {_OCTETS} octets over each of {half} connections, with the SHA-256 that they must have; "
        f"{_PINGS} pings over each of {half}",
    )


def _firsts(half: int) -> range:
    """Return the first number that each program writes."""
    return range(1000, 1000 * (half + 1), 1000)


def _case(connections: int) -> Case:
    return Case(
        f"many-{connections}",
        f"{connections} connections at once, from the guest and to it, of different models, depths and private data",
        "RFC 5040 §5: octets arrive unchanged and in order",
        partial(_many, connections=connections),
        connections=connections,
    )


CASES = (_case(16), _case(4))  # so that of one of each, software has the one that takes long in simulation
