"""The commands of the RDMA engine as words (:class:`open_rnic.rtl.rdma.registers.Command`)."""

from __future__ import annotations

from collections.abc import Iterable

from open_rnic.rtl.rdma.registers import Command

KIND = 28  # the lowest bit of the kind in the first word
INVALIDATE = 1 << 3  # in the first word of REGION, beside the rights
ROW = 8  # the lowest bit of the low half of the STag in the first word of REGION
FENCE = 1 << 4  # in the first word of WORK, beside the Opcode
PIECES = 8  # the lowest bit of the number of pieces in the first word of WORK
MAX_PIECES = 0x3F
_WORD = 0xFFFF_FFFF


def region(stag: int, address: int, octets: int, to: int, rights: int, *, invalidate: bool = False) -> list[int]:
    """Let the peer access memory by an STag; ``rights`` are those of ``Right``."""
    flags = rights | (INVALIDATE if invalidate else 0)
    return [Command.REGION << KIND | (stag & 0xFFFF) << ROW | flags, address, octets, to & _WORD, to >> 32, stag]


def revoke(stag: int) -> list[int]:
    """End the access by an STag."""
    return [Command.REVOKE << KIND, stag]


def buffer(address: int, octets: int) -> list[int]:
    """Post a buffer for a Send."""
    return [Command.BUFFER << KIND, address, octets]


def withdraw(number: int) -> list[int]:
    """Take back the buffer that was posted as this one, from 0 on, since the engine was reset."""
    return [Command.WITHDRAW << KIND, number]


def work(
    opcode: int, octets: int, stag: int, to: int, pieces: Iterable[tuple[int, int]], *, fence: bool = False
) -> list[int]:
    """Post a message; a piece is an address and a length, or of an RDMA Read the sink's address and STag."""
    words = [word for piece in pieces for word in piece]
    if len(words) > 2 * MAX_PIECES:
        raise ValueError(f"a message has at most {MAX_PIECES} pieces, not {len(words) // 2}")
    flags = opcode | (FENCE if fence else 0) | len(words) // 2 << PIECES
    return [Command.WORK << KIND | flags, octets, stag, to & _WORD, to >> 32, *words]
