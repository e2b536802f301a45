"""Run splits: the host's stages in software, and the device's stages as RTL in simulation."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

from open_rnic.host_driver.devices.sim.build import Simulation, build
from open_rnic.host_driver.devices.sim.look import look
from open_rnic.host_driver.mpa.datapath import MpaDatapath
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.rtr import rtr_ulpdu
from open_rnic.host_driver.tools.bench import simulation
from open_rnic.host_driver.tools.split import segment, software
from open_rnic.host_driver.tools.split.beats import Fields, port
from open_rnic.host_driver.tools.split.cycles import device_cycles
from open_rnic.host_driver.tools.split.software import Checked, Unmarked
from open_rnic.host_driver.tools.split.stages import RTL, Direction, Side, Split, Stage, inseparable
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.registers import BY_NAME, MAX_ULPDU, Model, Role, Rtr

__all__ = ["Case", "Crossing", "DeviceRun", "Run", "SplitError", "run", "run_all"]

SECONDS = 3600.0  # time limit for a simulation
RTR = rtr_ulpdu(Rtr.WRITE)

#: The first and the last block of each stage, by their names in :mod:`.segment`.
BLOCKS = {
    Direction.TRANSMIT: {
        Stage.FENCE: ("fence", "fence"),
        Stage.FRAMING: ("framer", "framer"),
        Stage.MARKER_INSERTION: ("framed", "marked"),
        Stage.CRC_GENERATION: ("appender", "appender"),
    },
    Direction.RECEIVE: {
        Stage.MARKER_REMOVAL: ("packer", "packer"),
        Stage.FRAMING: ("delineator", "delineator"),
        Stage.CRC_CHECK: ("checker", "checker"),
        Stage.RTR_DETECTION: ("detector", "detector"),
    },
}


class SplitError(Exception):
    """The output of a split is wrong; the message names the place."""


@dataclass(frozen=True)
class Case:
    """ULPDUs to send through a split.

    The host is a responder in the peer-to-peer model; its peer sends an empty RDMA Write as the RTR (RFC 6581 §9.2).
    On transmit, the fence is closed until the RTR has arrived, and the first ULPDU waits at it. On receive, the RTR is
    the first FPDU.
    """

    split: Split
    direction: Direction
    lanes: int
    ulpdus: tuple[bytes, ...]
    markers: bool
    crc: bool

    def __post_init__(self) -> None:
        _checked(self)


@dataclass(frozen=True)
class Crossing:
    """A transfer over the host link, to the side ``to``, before the stage ``before``.

    ``octets`` counts the octets of packets and their markers, without side information such as lengths, positions and
    verdicts.
    """

    to: Side
    before: Stage
    packets: int
    octets: int


@dataclass(frozen=True)
class DeviceRun:
    """Stages that the device did, and the clock cycles that they took: see :func:`device_cycles`."""

    stages: tuple[Stage, ...]
    simulated: int
    predicted: int

    @property
    def error(self) -> float:
        """The relative error of the prediction: 0.01 means 1 % too many cycles."""
        return self.predicted / self.simulated - 1


@dataclass(frozen=True)
class Run:
    """The result of a run whose output was correct."""

    case: Case
    crossings: tuple[Crossing, ...]
    segments: tuple[DeviceRun, ...]

    @property
    def simulated(self) -> int:
        """The simulated clock cycles of all segments on the device, one after the other."""
        return sum(each.simulated for each in self.segments)

    @property
    def predicted(self) -> int:
        """The predicted clock cycles of the same segments."""
        return sum(each.predicted for each in self.segments)

    @property
    def error(self) -> float | None:
        """The relative error of the prediction: 0.01 means 1 % too many cycles. None if the device does nothing."""
        return self.predicted / self.simulated - 1 if self.segments else None


def run(split: Split, direction: Direction, *, lanes: int, ulpdus: Sequence[bytes], markers: bool, crc: bool) -> Run:
    """Run one split: see :class:`Case`. To run several splits, :func:`run_all` takes less time.

    Raises ValueError for a case that cannot be run, SplitError, BuildError or MeasurementError.
    """
    return run_all([Case(split, direction, lanes, tuple(ulpdus), markers, crc)])[0]


def run_all(cases: Iterable[Case]) -> list[Run]:
    """Run all cases. The device's stages of cases of the same direction and width are simulated together."""
    walks = [_walk(case) for case in cases]
    runs: list[Run | None] = [None] * len(walks)
    results: dict[int, Any] = dict.fromkeys(range(len(walks)))
    while results:
        asked: dict[tuple[Direction, int], list[tuple[int, Any]]] = {}
        for number, result in results.items():
            try:
                model, work = walks[number].send(result)
            except StopIteration as done:
                runs[number] = done.value
            else:
                asked.setdefault(model, []).append((number, work))
        results = {}
        for model, works in asked.items():
            built, inputs, _ = _model(*model)
            task = {"inputs": inputs, "cases": [work for _, work in works]}
            found = simulation.run(built, "open_rnic.host_driver.tools.split.testbench", task, seconds=SECONDS)
            results |= {number: each for (number, _), each in zip(works, found, strict=True)}
    return [each for each in runs if each is not None]


def _checked(case: Case) -> None:
    check_lanes(case.lanes)
    if missing := sorted(stage for stage in case.split.device - RTL if stage is not Stage.STARTUP):
        raise ValueError(f"the RTL has no {missing[0]}")
    one_block = inseparable(case.direction, case.lanes)
    if 0 < len(one_block & case.split.device) < len(one_block):
        raise ValueError(f"at {case.lanes} lane one block does {', '.join(sorted(one_block))}: all or none of them")
    for number, ulpdu in enumerate(case.ulpdus):
        if len(ulpdu) > MAX_ULPDU:
            raise ValueError(f"ULPDU {number} has {len(ulpdu)} octets; the limit of MPA is {MAX_ULPDU}")
    if not case.ulpdus:
        raise ValueError("a case needs at least one ULPDU")


@cache
def _model(direction: Direction, lanes: int) -> tuple[Simulation, list[str], dict[str, Fields]]:
    """Return the simulation of all blocks of a direction, its inputs, and the payload fields of its streams."""
    make = partial(getattr(segment, direction.value), lanes)
    return build(make), *look(make, _ports)


def _ports(segment: Any) -> tuple[list[str], dict[str, Fields]]:
    ports = [("__".join(map(str, path)), member) for path, member, _ in segment.signature.flatten(segment)]
    inputs = [name for name, member in ports if member.flow.name == "In"]
    fields = {
        name.removesuffix("__payload"): {key: (field.offset, field.width) for key, field in member.shape}
        for name, member in ports
        if name.endswith("__payload")
    }
    return inputs, fields


def _walk(case: Case) -> Generator[tuple[tuple[Direction, int], dict[str, Any]], dict[str, Any], Run]:
    """Pass the octets through all stages of a case; yields each simulation that is needed, and is sent its result."""
    framer = FpduFramer(markers=case.markers, crc=case.crc)
    opening: list[Any] = []
    packets: list[Any] = list(case.ulpdus)
    if case.direction is Direction.RECEIVE:
        opening, packets = [framer.frame(RTR)], framer.frame_all(case.ulpdus)
    offset = sum(map(len, opening))  # stream position of the first packet that is counted
    crossings, segments = [], []
    for number, (side, stages) in enumerate(case.split.segments(case.direction)):
        if number:
            crossings.append(Crossing(side, stages[0], len(packets), sum(map(_size, packets))))
        if side is Side.HOST:
            opening, packets = _in_software(case, stages, opening, packets)
            continue
        first_block, last_block = _blocks(stages[0], case)[0], _blocks(stages[-1], case)[1]
        fields = _model(case.direction, case.lanes)[2]
        opened, words = port(fields[f"{first_block}__i"]).write(opening, packets)
        found = yield (
            (case.direction, case.lanes),
            {
                "inputs": _inputs(case, first_block, last_block),
                "first_block": first_block,
                "last_block": last_block,
                "opening": opened,
                "words": words,
                "fence": Stage.FENCE in stages,
            },
        )
        opening, packets = port(fields[f"{last_block}__o"]).read(found["opening"], found["words"])
        lengths = list(map(len, case.ulpdus))
        predicted = device_cycles(
            stages, case.direction, case.lanes, lengths, markers=case.markers, crc=case.crc, offset=offset
        )
        segments.append(DeviceRun(stages, found["cycles"], predicted))
    if opening + packets != _expected(case):
        raise SplitError(f"{case.direction.value}: the output behind {stages[-1]} is wrong")
    return Run(case, tuple(crossings), tuple(segments))


def _expected(case: Case) -> list[bytes]:
    """Return the output of the complete software data path."""
    if case.direction is Direction.RECEIVE:
        return list(case.ulpdus)
    path = MpaDatapath(lanes=case.lanes)
    config = BY_NAME["CONFIG"]
    wanted = {"role": Role.RESPONDER, "model": Model.PEER_TO_PEER, "rtr_accept": 7, "rdmap": 0,
              "markers_tx": case.markers, "crc_tx": case.crc, "markers_rx": 0}  # fmt: skip
    word = config.reset
    for name, value in wanted.items():
        word = word & ~config[name].mask | config[name].put(int(value))
    path.write("CONFIG", word)
    path.write("CONTROL", BY_NAME["CONTROL"]["tx_enable"].mask | BY_NAME["CONTROL"]["rx_enable"].mask)
    path.transmit_all(case.ulpdus)
    path.receive(FpduFramer(markers=False, crc=True).frame(RTR))
    return path.mpa.pop_all()


def _size(packet: bytes | Unmarked | Checked) -> int:
    match packet:
        case Unmarked():
            return packet.size
        case Checked():
            return len(packet.ulpdu)
    return len(packet)


def _blocks(stage: Stage, case: Case) -> tuple[str, str]:
    """Return the first and the last block of a stage."""
    if stage in inseparable(case.direction, case.lanes):
        return "receiver", "receiver"
    return BLOCKS[case.direction][stage]


def _inputs(case: Case, first_block: str, last_block: str) -> dict[str, int]:
    """Return the values of the device's inputs other than streams."""
    responder = {"role": Role.RESPONDER, "model": Model.PEER_TO_PEER}
    names = ["fence", "framer", "framed", "inserter", "marked", "appender"]
    inputs: dict[str, dict[str, int]] = {
        "fence": responder | {"mpa": 1, "maximum": MAX_ULPDU},
        "inserter": {"enable": case.markers},
        "appender": {"enable": case.crc},
    }
    if case.direction is Direction.RECEIVE:
        names = ["packer", "delineator", "checker", "detector"]
        inputs = {
            "packer": {"markers": case.markers},
            "delineator": {"maximum": MAX_ULPDU},
            "checker": {"enable": case.crc},
            "detector": responder | {"rtr_accept": 7},
        }
        if inseparable(case.direction, case.lanes):
            names = ["receiver", "detector"]
            inputs["receiver"] = inputs.pop("packer") | inputs.pop("delineator") | inputs.pop("checker")
    values = {f"{block}__{name}": int(value) for block, each in inputs.items() for name, value in each.items()}
    return values | {"first": names.index(first_block), "last": names.index(last_block)}


def _in_software(
    case: Case, stages: Sequence[Stage], opening: list[Any], packets: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Do the host's stages; return the output for ``opening``, and for the other packets."""
    works: dict[Stage, Any] = {
        Stage.FENCE: partial(software.fence, received=[RTR]),
        Stage.FRAMING: software.frame if case.direction is Direction.TRANSMIT else software.delineate,
        Stage.MARKER_INSERTION: software.insert_markers if case.markers else iter,
        Stage.CRC_GENERATION: partial(software.append_crcs, crc=case.crc),
        Stage.MARKER_REMOVAL: partial(software.remove_markers, markers=case.markers),
        Stage.CRC_CHECK: partial(software.check, crc=case.crc),
        Stage.RTR_DETECTION: software.detect_rtr,
    }
    flow: Iterable[Any] = chain(opening, packets)
    first = 0 if Stage.RTR_DETECTION in stages else len(opening)
    for stage in stages:
        if stage in works:
            flow = works[stage](flow)
    done = list(flow)
    return done[:first], done[first:]
