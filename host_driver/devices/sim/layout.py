"""The layouts that the RTL of ``rings`` and the Python of ``server`` share, as plain data.

A layout lists its fields and their widths in bits, the least significant field first.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Interface
from struct import Struct

DEPTH = 512  # beats in a ring; a power of two
COUNT = 1 << 16  # positions in a ring are modulo this
TICK = 64  # clock cycles from one tick of the sample writer to the next; a power of two

# The mark of each beat from the host: the fields of the beat other than its data.
MARK = {"octets": 8, "last": 8, "length": 16}
# The note behind each packet for the host; `end` is the position at which the next packet begins.
NOTE = {"octets": 8, "verdict": 8, "end": 16}
MARK_WORD = NOTE_WORD = Struct("<BBH")

# Python writes CONTROL and reads STATUS as a whole. An access to a register begins when `turn` of CONTROL changes, and
# ends when `turn` of STATUS has become equal. While `flush` is 1, every ring is empty and its positions are 0.
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
# The rings of a memory port. The memory of a word to write has its number, and the octets of it that are written.
MEMORY_CONTROL = {"writes{}_freed": 16, "reads{}_freed": 16, "words{}_posted": 16}
MEMORY_STATUS = {"writes{}_written": 16, "reads{}_written": 16, "words{}_taken": 16}
PLACE = {"word": 32, "unused": 32, "mask": 64}
PLACE_WORD = Struct("<IxxxxQ")
NUMBER_WORD = Struct("<I")


def numbered(fields: Mapping[str, int], number: str = "") -> dict[str, int]:
    """Return fields with a number in their names."""
    return {name.format(number): width for name, width in fields.items()}


# CONTROL and STATUS of a data path with an RDMA engine; `irq` also has the engine's interrupt.
RDMA_CONTROL = CONTROL | numbered(MEMORY_CONTROL)
RDMA_STATUS = STATUS | {"irq": 2} | numbered(MEMORY_STATUS)


def path_control(connections: int) -> dict[str, int]:
    """CONTROL of a network path. A command begins when ``turn`` changes; ``ticks`` counts milliseconds."""
    return {
        **dict.fromkeys(("rx_frames_posted", "to_send_posted", "tx_frames_freed", "received_freed", "ticks"), 16),
        "flush": 1, "turn": 1, "kind": 3, "connection": 4, "ports": 32, "peer": 32, "iss": 32,
        "mac": 48, "address": 32, "prefix": 32, "gateway": 32, "accept": connections,
    }


def path_status(connections: int) -> dict[str, int]:
    """STATUS of a network path."""
    names = ("rx_frames_taken", "to_send_taken", "tx_frames_written", "tx_frames_notes", "received_written")
    each = {"status": 16, "peer": 32, "ports": 32}
    return {
        **dict.fromkeys((*names, "received_notes", "ticks"), 16),
        "turn": 1,
        **{f"{name}_{at}": width for at in range(connections) for name, width in each.items()},
    }


def rnic_control(connections: int, *, rdma: bool = False) -> dict[str, int]:
    """CONTROL of an RNIC: the rings of frames, those of each data path, and accesses to registers."""
    data_path = {"tx_ulpdu{}_posted": 16, "rx_ulpdu{}_freed": 16, "flush{}": 1} | (MEMORY_CONTROL if rdma else {})
    return {
        **dict.fromkeys(("rx_frames_posted", "tx_frames_freed", "ticks"), 16),
        "turn": 1, "write": 1, "address": 16, "write_data": 32,
        **_each(connections, data_path),
    }


def rnic_status(connections: int, *, rdma: bool = False) -> dict[str, int]:
    """STATUS of an RNIC. ``irq`` has a bit for each page of registers, ``rdma_irq`` for each RDMA engine."""
    data_path = dict.fromkeys(("tx_ulpdu{}_taken", "rx_ulpdu{}_written", "rx_ulpdu{}_notes"), 16)
    return {
        **dict.fromkeys(("rx_frames_taken", "tx_frames_written", "tx_frames_notes", "ticks"), 16),
        "turn": 1, "irq": 1 + connections, "read_data": 32, **({"rdma_irq": connections} if rdma else {}),
        **_each(connections, data_path | (MEMORY_STATUS if rdma else {})),
    }


# CONTROL and STATUS of a whole RNIC: the rings of octets at GMII, whether the cable is in, and whether anything moves.
WHOLE_CONTROL = {"rx_frames_posted": 16, "tx_frames_freed": 16, "ticks": 16, "up": 1}
WHOLE_STATUS = {"rx_frames_taken": 16, "tx_frames_written": 16, "tx_frames_notes": 16, "ticks": 16, "active": 1}
STATION = IPv4Interface("10.0.0.2/24")  # of a whole RNIC, at power-on


def _each(connections: int, fields: Mapping[str, int]) -> dict[str, int]:
    return {name: width for at in range(connections) for name, width in numbered(fields, f"_{at}").items()}


def pack(layout: Mapping[str, int], fields: Mapping[str, int]) -> int:
    """Return the word with these fields."""
    word = lsb = 0
    for name, width in layout.items():
        word |= fields[name] << lsb
        lsb += width
    return word


def unpack(layout: Mapping[str, int], word: int) -> dict[str, int]:
    """Return the fields of a word."""
    fields = {}
    for name, width in layout.items():
        fields[name] = word & ((1 << width) - 1)
        word >>= width
    return fields
