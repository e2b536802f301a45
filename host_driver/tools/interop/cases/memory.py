"""Memory of our end, which a program in the guest reads and writes."""

from __future__ import annotations

import hashlib
from functools import partial

from open_rnic.host_driver.rdma.engine.memory import ALIGNMENT
from open_rnic.host_driver.rdma.memory import DeviceBuffer
from open_rnic.host_driver.rdma.shared import share
from open_rnic.host_driver.tools.interop.case import Case, Finding, Setting, check
from open_rnic.host_driver.tools.interop.cases.offers import printed
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.host_driver.tools.interop.qemu import Output

_OCTETS = 12_000  # which fit into the block RAM of a board
_PART = 2 << 20  # of an SDRAM
_LEAST = (4 << 20) - ALIGNMENT  # of an SDRAM; the driver leaves the first octets free
_OFFSET, _LINES = 1001, 2000
_FIRST = 1_000_000  # of 8 octets a line


async def _memory(setting: Setting) -> Finding:
    """The program reads all of it, writes into it, and tests it, each in a connection."""
    listener = await setting.listen()
    memory = bytearray(n * 7 % 251 for n in range(_OCTETS))

    async def run(command: str) -> Output:
        program = setting.run(command.format(f"memory {setting.host} {listener.address[1]}"))
        error = await share(await setting.request(listener, program), memory)
        check(error is None, f"the connection ended with {error}")
        return await program

    printed(await run("{} read 0x10 | sha256sum"), f"{hashlib.sha256(memory[0x10:]).hexdigest()}  -")
    text = "".join(f"{n}\n" for n in range(1, _LINES + 1)).encode()
    expected = bytearray(memory)
    expected[_OFFSET : _OFFSET + len(text)] = text
    output = await run(f"seq {_LINES} | {{}} write {_OFFSET}")
    check(output.status == 0, f"the program printed {' | '.join(output.lines)}")
    check(memory == expected, "the memory differs from the octets that the guest wrote")
    printed(await run("{} test"), f"all {_OCTETS} octets are as written")
    check(memory != expected, "the test has not changed the memory")
    return Finding(setting.reply, f"{_OCTETS} octets read, {len(text)} written, all tested: unchanged")


async def _sdram(setting: Setting, most: int | None) -> Finding:
    """The program tests all of it, or so many octets, writes them, and reads them back, each in a connection."""
    listener = await setting.listen()
    memory: DeviceBuffer | None = None

    async def run(command: str) -> Output:
        nonlocal memory
        program = setting.run(command.format(f"memory {setting.host} {listener.address[1]}"), 600.0)
        request = await setting.request(listener, program)
        if memory is None:
            assert request.device.memory is not None
            memory = DeviceBuffer(request.device, most or request.device.memory.space - ALIGNMENT)
        error = await share(request, memory)
        check(error is None, f"the connection ended with {error}")
        return await program

    tested = await run("{} test")
    assert memory
    octets = len(memory)
    printed(tested, f"all {octets} octets are as written")
    text = "".join(f"{n}\n" for n in range(_FIRST, _FIRST + octets // 8 + 1)).encode()[:octets]
    output = await run(f"seq {_FIRST} {10 * _FIRST} | head -c {octets} | {{}} write")
    check(output.status == 0, f"the program printed {' | '.join(output.lines)}")
    printed(await run("{} read | sha256sum"), f"{hashlib.sha256(text).hexdigest()}  -")
    return Finding(setting.reply, f"{octets} octets tested, written and read: unchanged")


def _of_sdram(name: str, extent: str, most: int | None) -> Case:
    return Case(
        name,
        f"the same with {extent} of a board's SDRAM: the program tests it, writes it, and reads it back",
        "RFC 5040 §5.5 rule 12: an RDMA Read returns the octets of an RDMA Write before it",
        partial(_sdram, most=most),
        Expected(least=(2 * (most or _LEAST), 2 * (most or _LEAST))),
        sdram=True,
        timeout=1200.0,
    )


CASES = (
    Case(
        "memory-from-guest",
        "a program in the guest reads and writes memory, with its place from the Reply",
        "RFC 5040 §5.5 rule 12: an RDMA Read returns the octets of an RDMA Write before it",
        _memory,
        Expected(least=(_OCTETS, 2 * _OCTETS)),
    ),
    _of_sdram("sdram-from-guest", "2 MiB", _PART),
    _of_sdram("sdram-all-from-guest", "all", None),
)
