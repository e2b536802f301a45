"""What the software data path costs, next to what its CRCs and one copy of the data cost alone.

One round sends one message through ``host_driver.mpa.datapath``, and receives it through another one as one chunk of
the stream. The reference, measured in the same round, is ``crc32c`` of each of these FPDUs (nothing without CRCs), and
one copy of the message. All octets have just been used, as those of a socket have.

A repeat is some rounds, and the least time that each of the three took in them: what interrupts the process only
adds. What is told is the least of all repeats, and as a second ratio the median over the repeats' own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from crc32c import crc32c

from open_rnic.host_driver.ddp import TAGGED_OCTETS
from open_rnic.host_driver.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import BY_NAME, Model, Role

WARM_UP = 128  # rounds: a message can begin at so many places between two markers
ROUNDS = 20  # in a repeat
_SEGMENT = bytes.fromhex("c140 00000001 0000000000000000")  # the header of an RDMA Write (RFC 5040 §4.2)


@dataclass(frozen=True)
class Case:
    """A message of so many octets, in DDP segments of at most ``mulpdu`` octets."""

    octets: int
    mulpdu: int
    markers: bool
    crc: bool


@dataclass(frozen=True)
class Cost:
    """What one message costs: the least times, in seconds, and how many times the reference that is."""

    case: Case
    fpdus: int
    reference_s: float
    tx_s: float
    rx_s: float
    tx_ratio: float
    rx_ratio: float
    tx_ratio_median: float
    rx_ratio_median: float


def measure(case: Case, repeats: int, progress: Callable[[], None] = lambda: None) -> Cost:
    """Measure one case; ``progress`` is called after each repeat.

    Raises ValueError when a ULPDU comes out changed.
    """
    message = (bytes(range(256)) * (case.octets // 256 + 1))[: case.octets]
    size = case.mulpdu - TAGGED_OCTETS
    ulpdus = [_SEGMENT + message[at : at + size] for at in range(0, case.octets or 1, size)]
    place = memoryview(bytearray(case.octets))
    sender, receiver = _data_path(case), _data_path(case)

    def one_round() -> tuple[float, float, float]:
        start = perf_counter()
        sender.transmit_all(ulpdus)
        fpdus = sender.mpa.pop_all()
        tx = perf_counter() - start

        chunk = b"".join(fpdus)
        start = perf_counter()
        receiver.receive(chunk)
        received = receiver.ulpdus.good.pop_all()
        rx = perf_counter() - start
        if received != ulpdus:
            raise ValueError(f"what was received of {case} is not what was sent")

        start = perf_counter()
        if case.crc:
            for each in fpdus:
                crc32c(each)
        place[:] = message
        return perf_counter() - start, tx, rx

    for _ in range(WARM_UP):
        one_round()
    best = []
    for _ in range(repeats):
        best.append([min(times) for times in zip(*(one_round() for _ in range(ROUNDS)), strict=True)])
        progress()
    reference, tx, rx = (min(times) for times in zip(*best, strict=True))
    medians = [median(times[way] / times[0] for times in best) for way in (1, 2)]
    return Cost(case, len(ulpdus), reference, tx, rx, tx / reference, rx / reference, *medians)


def _data_path(case: Case) -> MpaDatapath:
    """One end of a connection, where MPA is on both ways and the fence is open."""
    path = MpaDatapath(lanes=4)
    config = {
        "role": Role.INITIATOR,
        "model": Model.CLIENT_SERVER,
        "markers_tx": case.markers,
        "markers_rx": case.markers,
        "crc_tx": case.crc,
        "crc_rx": case.crc,
    }
    for register, fields in (("CONFIG", config), ("CONTROL", {"tx_enable": 1, "rx_enable": 1})):
        description = BY_NAME[register]
        word = description.reset
        for name, value in fields.items():
            word = word & ~description[name].mask | description[name].put(int(value))
        path.write(register, word)
    return path
