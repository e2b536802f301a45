"""What the RTL of ``rings`` and the Python of ``server`` agree on, as plain data.

A layout is its fields from bit 0 up, with their widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

DEPTH = 512  # beats in a ring; a power of two
COUNT = 1 << 16  # positions in a ring are counted modulo this

# Beside each beat on its way in: what is not data in it.
MARK = {"octets": 8, "last": 8, "length": 16}
# Behind each packet on its way out; `end` is where the next one begins.
NOTE = {"octets": 8, "verdict": 8, "end": 16}
MARK_WORD = NOTE_WORD = Struct("<BBH")

# Python writes CONTROL and reads STATUS whole. An access to a register begins when `turn` of CONTROL changes,
# and is over when `turn` of STATUS has followed. While `flush` is 1, every ring is empty and its positions are 0.
CONTROL = {
    "tx_ulpdu_posted": 16,
    "rx_mpa_posted": 16,
    "tx_mpa_freed": 16,
    "rx_ulpdu_freed": 16,
    "flush": 1,
    "turn": 1,
    "write": 1,
    "address": 8,
    "write_data": 32,
}
STATUS = {
    "tx_ulpdu_taken": 16,
    "rx_mpa_taken": 16,
    "tx_mpa_written": 16,
    "tx_mpa_notes": 16,
    "rx_ulpdu_written": 16,
    "rx_ulpdu_notes": 16,
    "turn": 1,
    "irq": 1,
    "read_data": 32,
}


def pack(layout: Mapping[str, int], fields: Mapping[str, int]) -> int:
    """The fields in one word."""
    word = lsb = 0
    for name, width in layout.items():
        word |= fields[name] << lsb
        lsb += width
    return word


def unpack(layout: Mapping[str, int], word: int) -> dict[str, int]:
    """The fields of a word."""
    fields = {}
    for name, width in layout.items():
        fields[name] = word & ((1 << width) - 1)
        word >>= width
    return fields
