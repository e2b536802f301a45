"""The layouts that the RTL of a simulation and the Python beside it share, as plain data.

A layout lists its fields and their widths in bits, the least significant field first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
from struct import Struct

DEPTH = 512  # beats in a ring; a power of two
COUNT = 1 << 16  # positions in a ring are modulo this
TICK = 64  # clock cycles from one tick of the sample writer to the next; a power of two
STATION = IPv4Interface("10.0.0.2/24")  # of a whole RNIC, at power-on

# The mark of each beat from the host: the fields of the beat other than its data.
MARK = {"octets": 8, "last": 8, "length": 16}
# The note behind each packet for the host; `end` is the position at which the next packet begins.
NOTE = {"octets": 8, "verdict": 8, "end": 16}
MARK_WORD = NOTE_WORD = Struct("<BBH")
# The place of a word to write in memory: its number, and the octets of it that are written.
PLACE = {"word": 32, "unused": 32, "mask": 64}
PLACE_WORD = Struct("<IxxxxQ")
NUMBER_WORD = Struct("<I")


@dataclass(frozen=True)
class Layout:
    """The words ``control``, which Python writes, and ``status``, which it reads, each as a whole.

    The fields also tell what the top has. A ring ``x`` has ``x_posted`` and ``x_taken`` if it leads into the RTL, and
    ``x_freed`` and ``x_written`` if it leads out of it, with ``x_notes`` for packets. While ``flush`` is 1, the rings
    of packets are empty and their positions 0. An access to a register, or a command, begins when ``turn`` of
    ``control`` changes, and ends when ``turn`` of ``status`` has become equal. ``ticks`` counts milliseconds:
    those that are due, and those that the RTL has seen. ``active``: the RTL has something to do.
    """

    control: Mapping[str, int]
    status: Mapping[str, int]
    slices: tuple[int, int]  # clock cycles between two runs of Python, with little and with much to do
    lanes: int = 1


# The rings of a memory port.
_MEMORY_CONTROL = dict.fromkeys(("writes{}_freed", "reads{}_freed", "words{}_posted"), 16)
_MEMORY_STATUS = dict.fromkeys(("writes{}_written", "reads{}_written", "words{}_taken"), 16)


def of(what: str, *arguments: str) -> Layout:
    """Return the layout of a top: see ``prepare.find``."""
    match what:
        case "path":
            return path(int(arguments[0]))
        case "rnic":
            return rnic(int(arguments[0]), rdma="rdma" in arguments)
        case "whole":
            return WHOLE
        case "board":
            return BOARD
    return device(int(arguments[0]), rdma=what == "rdma")


def device(lanes: int, *, rdma: bool = False) -> Layout:
    """A data path. With an RDMA engine, ``irq`` has the engine's interrupt, too."""
    control, status = _rings(("tx_ulpdu", "rx_mpa"), ("tx_mpa", "rx_ulpdu"))
    control |= {"flush": 1} | _access(8)
    status |= _result(1 + rdma)
    if rdma:
        control |= _numbered(_MEMORY_CONTROL)
        status |= _numbered(_MEMORY_STATUS)
    return Layout(control, status, (16, 256), lanes)


def path(connections: int) -> Layout:
    """A network path; ``turn`` is that of a command."""
    control, status = _rings(("rx_frames", "to_send"), ("tx_frames", "received"), "ticks")
    control |= {
        "flush": 1, "turn": 1, "kind": 3, "connection": 4, "ports": 32, "peer": 32, "iss": 32,
        "mac": 48, "address": 32, "prefix": 32, "gateway": 32, "accept": connections,
    }  # fmt: skip
    status |= {"turn": 1} | _numbered({"status{}": 16, "peer{}": 32, "ports{}": 32}, connections)
    return Layout(control, status, (64, 512))


def rnic(connections: int, *, rdma: bool = False) -> Layout:
    """An RNIC. ``irq`` has a bit for each page of registers, ``rdma_irq`` for each RDMA engine."""
    control, status = _rings(("rx_frames",), ("tx_frames",), "ticks")
    path_control, path_status = _rings(("tx_ulpdu{}",), ("rx_ulpdu{}",))
    path_control |= {"flush{}": 1} | (_MEMORY_CONTROL if rdma else {})
    path_status |= _MEMORY_STATUS if rdma else {}
    control |= _access(16) | _numbered(path_control, connections)
    status |= _result(1 + connections) | ({"rdma_irq": connections} if rdma else {})
    return Layout(control, status | _numbered(path_status, connections), (64, 512))


def _rings(into: Iterable[str], out: Iterable[str], *ticks: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the fields of rings of packets, in both words."""
    control = *(f"{name}_posted" for name in into), *(f"{name}_freed" for name in out), *ticks
    notes = (f"{name}_{count}" for name in out for count in ("written", "notes"))
    return dict.fromkeys(control, 16), dict.fromkeys((*(f"{name}_taken" for name in into), *notes, *ticks), 16)


def _access(address: int) -> dict[str, int]:
    return {"turn": 1, "write": 1, "address": address, "write_data": 32}


def _result(interrupts: int) -> dict[str, int]:
    return {"turn": 1, "irq": interrupts, "read_data": 32}


def _numbered(fields: Mapping[str, int], connections: int | None = None) -> dict[str, int]:
    """Return fields with a number in their names, for each connection; without one if there is only one."""
    numbers = [""] if connections is None else [f"_{at}" for at in range(connections)]
    return {name.format(number): width for number in numbers for name, width in fields.items()}


_CONTROL, _STATUS = _rings(("rx_frames",), ("tx_frames",), "ticks")
WHOLE = Layout(_CONTROL | {"up": 1}, _STATUS | {"active": 1}, (256, 1024))  # ``up``: the cable is in
BOARD = Layout(
    {"to_board_posted": 16, "from_board_freed": 16},
    {"to_board_taken": 16, "from_board_written": 16, "from_board_lost": 8, "active": 1},
    (512, 512),
)


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
