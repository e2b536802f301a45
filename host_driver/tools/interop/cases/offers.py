"""Our end of a connection to the guest's ``peer``: both ends advertise memory to each other, the initiator first."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import Access
from open_rnic.host_driver.tools.interop.case import Mismatch, check
from open_rnic.host_driver.tools.interop.qemu import Output
from open_rnic.rtl.registers import Role

_OFFER = struct.Struct(">QII")  # TO, STag, octets
_MAX = 4 << 20
_THEIRS = bytes(n * 7 % 256 for n in range(256)) * (_MAX // 256)  # initial contents of the guest's memory
_WORK = bytes(n * 5 % 256 for n in range(256)) * (_MAX // 256)  # contents of the guest's Sends and RDMA Writes


@dataclass(frozen=True)
class Offers:
    """The guest's memory, by STag, tagged offset and size, and our memory."""

    stag: int
    to: int
    octets: int
    ours: rdma.Region


@contextlib.asynccontextmanager
async def exchanged(connection: rdma.Connection, octets: int = 4096) -> AsyncIterator[Offers]:
    """Exchange offers. Our memory has this number of octets, all of them 0."""
    everything = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.LOCAL_WRITE
    with connection.register(bytearray(octets), everything) as ours:
        offer = _OFFER.pack(ours.to, ours.stag, octets)
        if connection.negotiated.role is Role.INITIATOR:
            await connection.send(offer)
        received = bytes(await connection.receive())
        if len(received) != _OFFER.size:
            raise Mismatch(f"the guest's offer has {len(received)} octets, not {_OFFER.size}")
        if connection.negotiated.role is Role.RESPONDER:
            await connection.send(offer)
        to, stag, size = _OFFER.unpack(received)
        yield Offers(stag, to, size, ours)


def theirs(octets: int) -> bytes:
    """Return the initial contents of the guest's memory."""
    return _THEIRS[:octets]


def work(octets: int) -> bytes:
    """Return the contents of a Send or an RDMA Write of the guest with this number of octets."""
    return _WORK[:octets]


def printed(output: Output, *lines: str) -> None:
    """Raise Mismatch unless the guest's program has printed each of these lines."""
    for line in lines:
        check(line in output.lines, f"the guest did not print {line!r} but {' | '.join(output.lines) or 'nothing'}")


def crc(octets: bytes | bytearray | memoryview) -> str:
    """Return the CRC-32 in the format of ``peer``."""
    return f"{zlib.crc32(octets):08x}"
