"""The layouts that the RTL of a simulation and the Python beside it share, as plain data.

A layout lists its fields and their widths in bits, the least significant field first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    The fields also say what the top has. A ring ``x`` has ``x_posted`` and ``x_taken`` if it leads into the RTL, and
    ``x_freed`` and ``x_written`` if it leads out of it, with ``x_notes`` for packets. While ``flush`` is 1, the rings
    of packets are empty and their positions 0. An access to a register, or a command, begins when ``turn`` of
    ``control`` changes, and ends when ``turn`` of ``status`` has become equal. ``ticks`` counts milliseconds:
    those that are due, and those that the RTL has seen. ``active``: the RTL has something to do.
    """

    control: Mapping[str, int]
    status: Mapping[str, int]
    slices: tuple[int, int]  # clock cycles between two runs of Python, with little and with much to do
    lanes: int = 1


def of(what: str, *arguments: str) -> Layout:
    """Return the layout of a top: see ``prepare.find``."""
    match what:
        case "path":
            return path(int(arguments[0]))
        case "rnic":
            return rnic(int(arguments[0]), rdma="rdma" in arguments)
        case "whole" | "netlist":
            return WHOLE
        case "soc":
            return SOC
        case "board":
            return BOARD
    return device(int(arguments[0]), rdma=what == "rdma")


def device(lanes: int, *, rdma: bool = False) -> Layout:
    """A data path. With an RDMA engine, ``irq`` has the engine's interrupt, too."""
    control, status = _rings(("tx_ulpdu", "rx_mpa"), ("tx_mpa", "rx_ulpdu"), rdma=rdma)
    return Layout(control | {"flush": 1} | _access(8), status | _result(1 + rdma), (16, 256), lanes)


def path(connections: int) -> Layout:
    """A network path; ``turn`` is that of a command."""
    control, status = _rings(("rx_frames", "to_send"), ("tx_frames", "received"), "ticks")
    control |= {
        "flush": 1, "turn": 1, "kind": 3, "connection": 4, "ports": 32, "peer": 32, "iss": 32,
        "mac": 48, "address": 32, "prefix": 32, "gateway": 32, "accept": connections,
    }  # fmt: skip
    each = {"status": 16, "peer": 32, "ports": 32}
    status |= {"turn": 1} | {f"{name}_{at}": each[name] for at in range(connections) for name in each}
    return Layout(control, status, (64, 512))


def rnic(connections: int, *, rdma: bool = False) -> Layout:
    """An RNIC. ``irq`` has a bit for each page of registers, ``rdma_irq`` for each RDMA engine."""
    control, status = _rings(("rx_frames",), ("tx_frames",), "ticks")
    control |= _access(16)
    status |= _result(1 + connections) | ({"rdma_irq": connections} if rdma else {})
    for suffix in (f"_{at}" for at in range(connections)):
        of_path, from_path = _rings(("tx_ulpdu",), ("rx_ulpdu",), rdma=rdma, suffix=suffix)
        control |= of_path | {f"flush{suffix}": 1}
        status |= from_path
    return Layout(control, status, (64, 512))


def _rings(
    into: Sequence[str], out: Sequence[str], *ticks: str, rdma: bool = False, suffix: str = ""
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the fields of rings of packets in both words, and those of the rings of a memory port."""
    plain = ["writes", "reads"] if rdma else []
    into = [*into, "words"] if rdma else into
    control = [f"{name}{suffix}_posted" for name in into] + [f"{name}{suffix}_freed" for name in (*out, *plain)]
    status = [f"{name}{suffix}_taken" for name in into] + [f"{name}{suffix}_written" for name in (*out, *plain)]
    notes = [f"{name}{suffix}_notes" for name in out]
    return dict.fromkeys((*control, *ticks), 16), dict.fromkeys((*status, *notes, *ticks), 16)


def _access(address: int) -> dict[str, int]:
    return {"turn": 1, "write": 1, "address": address, "write_data": 32}


def _result(interrupts: int) -> dict[str, int]:
    return {"turn": 1, "irq": interrupts, "read_data": 32}


_CONTROL, _STATUS = _rings(("rx_frames",), ("tx_frames",), "ticks")
WHOLE = Layout(_CONTROL | {"up": 1}, _STATUS | {"active": 1}, (64, 1024))  # ``up``: the cable is in
SOC = Layout({**WHOLE.control, **_access(8)}, {**WHOLE.status, **_result(1)}, WHOLE.slices)  # its bus is there, too
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
