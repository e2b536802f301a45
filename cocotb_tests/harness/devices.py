"""Helpers for tests of all kinds of devices."""

import asyncio
import gc
import random
from contextlib import asynccontextmanager, contextmanager

import pytest

from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.rdma import manager, memory, rping
from open_rnic.rtl.registers import Verdict

STREAM_ONLY = 0xFFFF_FFFF  # octets of stream mode: more than any test sends


@asynccontextmanager
async def closing(*ends):
    """Close these ends at once, as an end waits for its peer to close."""
    try:
        yield
    except BaseException:
        await asyncio.gather(*(end.abort() for end in ends))
        raise
    await asyncio.gather(*(end.close() for end in ends))


async def answer_pings(listener):
    """Accept a connection, answer its pings to the end, and return their number."""
    async with await (await listener.request()).accept() as connection:
        return await rping.server(connection)


async def stalled(count):
    """Wait until a number rises no more, as that of what a stalled writer has written, and return it."""
    before = None
    while (now := count()) != before:
        before = now
        await asyncio.sleep(0.3)
    return before


@contextmanager
def leaving_nothing():
    """Check that no memory stays registered, and no socket open."""
    tables = []

    class Watched(memory.StagTable):
        def __init__(self):
            super().__init__()
            tables.append(self)

    with pytest.MonkeyPatch.context() as patch:
        for module in (memory, manager):
            patch.setattr(module, "StagTable", Watched)
        yield
    assert not any(tables), "memory is still registered"
    gc.collect()  # an open socket causes a warning, and warnings are errors


def running(process):
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def stream(device):
    """Put the device into stream mode in both directions, and return it."""
    await device.set("TX_STREAM_OCTETS", STREAM_ONLY)
    await device.set("RX_STREAM_OCTETS", STREAM_ONLY)
    return device


async def collect(read, total):
    """Read packets until ``total`` octets have been received, and return the octets."""
    octets = b""
    while len(octets) < total:
        octets += await read()
    return octets


async def stream_octets(device):
    """Return the next packet of stream octets."""
    ulpdu = await device.read_ulpdu()
    assert ulpdu.verdict is Verdict.STREAM
    return ulpdu.octets


async def pass_stream_octets_both_ways(device, sizes):
    """Send random packets of these sizes in both directions of a device in stream mode: all arrive, in order."""

    async def give(write, packets):
        for each in packets:
            await write(each)

    out, back = ([random.randbytes(size) for size in sizes] for _ in range(2))
    _, _, sent, received = await asyncio.gather(
        give(device.write_ulpdu, out),
        give(device.write_mpa, back),
        collect(device.read_mpa, sum(sizes)),
        collect(lambda: stream_octets(device), sum(sizes)),
    )
    assert sent == b"".join(out)
    assert received == b"".join(back)


async def drains_when_all_ulpdus_and_events_are_read(device):
    """Check that ``drained`` waits until all ULPDUs and events are read, but not for the rest of an incomplete FPDU."""
    await device.set_fields("CONFIG", rdmap=0)
    await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
    framer = FpduFramer(markers=False, crc=True)
    ulpdus = [random.randbytes(size) for size in (300, 0, 1, 700)]
    last = framer.frame(bytes(100))
    await device.write_mpa(b"".join(map(framer.frame, ulpdus)) + last[:50])
    draining = asyncio.create_task(device.drained())
    for _ in range(3):
        await device.next_event()
    while await device.get("RX_FPDUS") < len(ulpdus):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert not draining.done()
    arrived = []
    while len(arrived) < len(ulpdus):
        arrived += await device.read_ulpdus()
    assert arrived == ulpdus
    await draining
    await device.drained()
    await device.write_mpa(last[50:] + b"\0\4abcd\0\0\0\0\0\0")  # then an FPDU with a wrong CRC
    draining = asyncio.create_task(device.drained())
    assert await device.read_ulpdus() == [bytes(100)]
    assert (await device.next_event()).cause.name == "CRC"
    await draining
