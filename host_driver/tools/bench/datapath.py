"""The cost of the software data path, relative to the cost of its CRCs and one copy of the data.

One round sends a message through ``host_driver.mpa.datapath``, and receives it through another data path as one chunk
of the stream. The reference is measured in the same round: ``crc32c`` of each of these FPDUs (unless CRCs are off), and
one copy of the message. All octets have just been used, like those that a socket delivers.

A repeat consists of several rounds. It keeps the shortest time of each of the three, because interruptions only add
time. The result is the minimum over all repeats; a second ratio is the median of the ratios of all repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from crc32c import crc32c

from open_rnic.host_driver.mpa.datapath import MpaDatapath
from open_rnic.host_driver.rdma.ddp import TAGGED_OCTETS
from open_rnic.rtl.registers import BY_NAME, Model, Role

WARM_UP = 128  # rounds: the number of positions between two markers at which a message can begin
ROUNDS = 20  # in a repeat
_SEGMENT = bytes.fromhex("c140 00000001 0000000000000000")  # the header of an RDMA Write (RFC 5040 §4.2)


@dataclass(frozen=True)
class Case:
    """A message of ``octets`` octets, in DDP segments of at most ``mulpdu`` octets."""

    octets: int
    mulpdu: int
    markers: bool
    crc: bool


@dataclass(frozen=True)
class Cost:
    """The cost of one message: the shortest times in seconds, and their ratios to the reference."""

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

    Raises ValueError if a ULPDU is altered on its way.
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
            raise ValueError(f"the ULPDUs received in {case} differ from those sent")

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
    """Return one end of a connection, with MPA enabled in both directions and the fence open."""
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
