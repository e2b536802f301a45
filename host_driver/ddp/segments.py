"""Segmentation: messages cut into DDP segments (RFC 5041 §5.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from open_rnic.host_driver.ddp.headers import TAGGED_OCTETS, UNTAGGED_OCTETS, Octets, Tagged, Untagged
from open_rnic.rtl.formats.opcodes import Opcode

MAX_MESSAGE = 2**32 - 1  # octets, RFC 5041 §5.2


class Message(Protocol):
    """Octets that can be sliced, such as a memoryview; they need not be contiguous."""

    def __len__(self) -> int: ...

    def __getitem__(self, octets: slice, /) -> Octets: ...


def tagged_segments(opcode: Opcode, stag: int, to: int, message: Message, mulpdu: int) -> Iterator[bytes]:
    """Cut a message for a tagged buffer into ULPDUs of at most ``mulpdu`` octets.

    A message of no octets has one segment.
    """
    room = mulpdu - TAGGED_OCTETS
    for at in range(0, len(message) or 1, room):
        yield Tagged(opcode, stag, to + at, at + room >= len(message), message[at : at + room]).encode()


def untagged_segments(
    opcode: Opcode, qn: int, msn: int, message: Message, mulpdu: int, *, stag: int = 0
) -> Iterator[bytes]:
    """Cut a message for an untagged queue into ULPDUs of at most ``mulpdu`` octets.

    A message of no octets has one segment. ``stag`` is the Invalidate STag, 0 if the message has none.
    """
    room = mulpdu - UNTAGGED_OCTETS
    for mo in range(0, len(message) or 1, room):
        last = mo + room >= len(message)
        yield Untagged(opcode, qn, msn, mo, last, message[mo : mo + room], stag).encode()


def next_msn(msn: int) -> int:
    """Return the MSN that follows ``msn`` (RFC 5041 §4.3)."""
    return (msn + 1) % 2**32
