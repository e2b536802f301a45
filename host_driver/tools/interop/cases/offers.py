"""What our end does opposite the guest's ``peer``: both offer memory, the initiator first."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import Access
from open_rnic.host_driver.tools.interop.case import Mismatch, check
from open_rnic.host_driver.tools.interop.guest import Output
from open_rnic.rtl.registers import Role

_OFFER = struct.Struct(">QII")  # TO, STag, octets
_MAX = 4 << 20
_THEIRS = bytes(n * 7 % 256 for n in range(256)) * (_MAX // 256)  # what is in the guest's memory
_WORK = bytes(n * 5 % 256 for n in range(256)) * (_MAX // 256)  # what the guest sends and writes


@dataclass(frozen=True)
class Offers:
    """Where the guest's memory is, and ours."""

    stag: int
    to: int
    octets: int
    ours: rdma.Region


@contextlib.asynccontextmanager
async def exchanged(connection: rdma.Connection, octets: int = 65536) -> AsyncIterator[Offers]:
    """Exchange offers; ours is of so many octets, which are 0."""
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
    """The first octets of the guest's memory, as they are at first."""
    return _THEIRS[:octets]


def work(octets: int) -> bytes:
    """What the guest sends or writes with so many octets."""
    return _WORK[:octets]


def printed(output: Output, *lines: str) -> None:
    """See that the guest's program printed each of these lines; raises Mismatch."""
    for line in lines:
        check(line in output.lines, f"the guest did not print {line!r} but {' | '.join(output.lines) or 'nothing'}")


def crc(octets: bytes | bytearray | memoryview) -> str:
    """As ``peer`` prints it."""
    return f"{zlib.crc32(octets):08x}"
