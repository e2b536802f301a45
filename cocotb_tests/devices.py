"""Helpers for tests of all kinds of devices."""

import asyncio
import random

from open_rnic.cocotb_tests.limits import HANG
from open_rnic.rtl.registers import Verdict

STREAM_ONLY = 0xFFFF_FFFF  # octets of stream mode: more than any test sends


def run(body, seconds=HANG):
    """Run a test with a time limit, so that a hang is a failure."""

    async def limited():
        async with asyncio.timeout(seconds):
            await body

    asyncio.run(limited())


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
