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


def tagged_segment(opcode: Opcode, stag: int, to: int, message: Message, at: int, mulpdu: int) -> Tagged:
    """Return the segment of a message for a tagged buffer from octet ``at`` on, of at most ``mulpdu`` octets."""
    end = at + mulpdu - TAGGED_OCTETS
    return Tagged(opcode, stag, (to + at) % 2**64, end >= len(message), message[at:end])


def untagged_segment(
    opcode: Opcode, qn: int, msn: int, message: Message, at: int, mulpdu: int, stag: int = 0
) -> Untagged:
    """Return the segment of a message for an untagged queue from octet ``at`` on, of at most ``mulpdu`` octets.

    ``stag`` is the Invalidate STag, 0 if the message has none.
    """
    end = at + mulpdu - UNTAGGED_OCTETS
    return Untagged(opcode, qn, msn, at, end >= len(message), message[at:end], stag)


def tagged_segments(opcode: Opcode, stag: int, to: int, message: Message, mulpdu: int) -> Iterator[bytes]:
    """Cut a message for a tagged buffer into ULPDUs of at most ``mulpdu`` octets.

    A message of no octets has one segment.
    """
    for at in range(0, len(message) or 1, mulpdu - TAGGED_OCTETS):
        yield tagged_segment(opcode, stag, to, message, at, mulpdu).encode()


def untagged_segments(
    opcode: Opcode, qn: int, msn: int, message: Message, mulpdu: int, *, stag: int = 0
) -> Iterator[bytes]:
    """Cut a message for an untagged queue into ULPDUs of at most ``mulpdu`` octets.

    A message of no octets has one segment. ``stag`` is the Invalidate STag, 0 if the message has none.
    """
    for at in range(0, len(message) or 1, mulpdu - UNTAGGED_OCTETS):
        yield untagged_segment(opcode, qn, msn, message, at, mulpdu, stag).encode()


def next_msn(msn: int) -> int:
    """Return the MSN that follows ``msn`` (RFC 5041 §4.3)."""
    return (msn + 1) % 2**32
