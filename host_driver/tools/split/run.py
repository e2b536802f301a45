"""Run splits: the host's stages in software, and the device's stages as RTL in simulation."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import IPv4Address
from itertools import chain
from typing import Any

from amaranth.lib.data import Layout

from open_rnic.host_driver.ddp import TAGGED_OCTETS, DdpError, Opcode, Tagged, decode
from open_rnic.host_driver.devices.sim.build import Simulation, build
from open_rnic.host_driver.devices.sim.look import look
from open_rnic.host_driver.mpa.datapath import MpaDatapath
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.rtr import rtr_ulpdu
from open_rnic.host_driver.net.frames import Ethernet, EtherType, Ipv4
from open_rnic.host_driver.rdma.engine import commands
from open_rnic.host_driver.tcp.segment import PROTOCOL, Flag, Segment
from open_rnic.host_driver.tools.bench import simulation
from open_rnic.host_driver.tools.split import engines, segment, software
from open_rnic.host_driver.tools.split.beats import Fields, Packets, port
from open_rnic.host_driver.tools.split.cycles import device_cycles
from open_rnic.host_driver.tools.split.software import Checked, Unmarked
from open_rnic.host_driver.tools.split.stages import (
    RDMA,
    RTL,
    TCP,
    Direction,
    Side,
    Split,
    Stage,
    inseparable,
    parts,
)
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.mpa.settings import RtrSettings, SendSettings
from open_rnic.rtl.rdma import registers as rdma_registers
from open_rnic.rtl.rdma.registers import Right
from open_rnic.rtl.registers import BY_NAME, MAX_ULPDU, Model, Role, Rtr
from open_rnic.rtl.tcp.engine import CommandLayout
from open_rnic.rtl.tcp.words import Command

__all__ = ["Case", "Crossing", "DeviceRun", "Run", "SplitError", "run", "run_all", "write"]

SECONDS = 3600.0  # time limit for a simulation
RTR = rtr_ulpdu(Rtr.WRITE)
STAG, TO = 0x1234_5678, 0x1_0000  # of the peer's memory
_ADDRESS = 0x100  # of messages in the device's memory
_PATHS = (IPv4Address("10.0.0.1"), b"\2\0\0\0\0\0", 7000), (IPv4Address("10.0.0.2"), b"\2\0\0\0\0\1", 8000)
_ISS = 1000
_WINDOW = 8192
_FLIGHT = 3 * 1460  # octets on their way to TCP at once: what it works on, and what waits for that

#: The first and the last block of each stage, by their names in :mod:`.segment`.
BLOCKS = {
    Direction.TRANSMIT: {
        Stage.FENCE: ("fence", "fence"),
        Stage.FRAMING: ("framer", "framer"),
        Stage.MARKER_INSERTION: ("inserter", "marked"),
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
    """ULPDUs to send through a split. If the device does placement, they are those of an RDMA Write.

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
    tcp: bool = True  # whether TCP is a stage; the device does it, or the host

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


def write(lengths: Iterable[int]) -> tuple[bytes, ...]:
    """Return the ULPDUs of an RDMA Write, which have these lengths."""
    pattern = bytes(range(251)) * 262
    found, to, rest = [], TO, [length - TAGGED_OCTETS for length in lengths]
    for number, octets in enumerate(rest):
        found.append(Tagged(Opcode.RDMA_WRITE, STAG, to, number == len(rest) - 1, pattern[:octets]).encode())
        to += octets
    return tuple(found)


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
        asked: dict[tuple[str, int], list[tuple[int, Any]]] = {}
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
            task = {"inputs": inputs, "part": model[0], "cases": [work for _, work in works]}
            testbench = "testbench" if model[0] in _SEGMENTS else "engine_testbench"
            found = simulation.run(built, f"open_rnic.host_driver.tools.split.{testbench}", task, seconds=SECONDS)
            results |= {number: each for (number, _), each in zip(works, found, strict=True)}
    return [each for each in runs if each is not None]


def _checked(case: Case) -> None:
    check_lanes(case.lanes)
    if missing := sorted(stage for stage in case.split.device - RTL if stage is not Stage.STARTUP):
        raise ValueError(f"the RTL has no {missing[0]}")
    if 0 < len(RDMA & case.split.device) < len(RDMA):
        raise ValueError(f"one block does {', '.join(sorted(RDMA))}: all or none of them")
    if case.split.device & TCP and case.lanes != 1:
        raise ValueError(f"TCP in RTL has 1 lane, not {case.lanes}")
    one_block = inseparable(case.direction, case.lanes)
    if 0 < len(one_block & case.split.device) < len(one_block):
        raise ValueError(f"at {case.lanes} lane one block does {', '.join(sorted(one_block))}: all or none of them")
    for number, ulpdu in enumerate(case.ulpdus):
        if len(ulpdu) > MAX_ULPDU:
            raise ValueError(f"ULPDU {number} has {len(ulpdu)} octets; the limit of MPA is {MAX_ULPDU}")
    if not case.ulpdus:
        raise ValueError("a case needs at least one ULPDU")
    if case.split.device & RDMA:
        _message(case)


def _message(case: Case) -> bytes:
    """Return the message whose segments the ULPDUs are."""
    message = b""
    for number, ulpdu in enumerate(case.ulpdus):
        try:
            found = decode(ulpdu)
        except DdpError:
            found = None
        last = number == len(case.ulpdus) - 1
        due = Tagged(Opcode.RDMA_WRITE, STAG, TO + len(message), last, found.payload if found else b"")
        if found != due:
            raise ValueError(f"ULPDU {number} is not the segment of an RDMA Write that placement needs")
        message += found.payload
    return message


_SEGMENTS = {each.value: getattr(segment, each.value) for each in Direction}
_ENGINES = {"placement": engines.Placement, "transport": engines.Transport}


@cache
def _model(part: str, lanes: int) -> tuple[Simulation, list[str], dict[str, Fields]]:
    """Return the simulation of a part of the device, its inputs, and the payload fields of its streams."""
    make = partial((_SEGMENTS | _ENGINES)[part], lanes)
    return build(make), *look(make, _ports)


def _ports(segment: Any) -> tuple[list[str], dict[str, Fields]]:
    ports = [("__".join(map(str, path)), member) for path, member, _ in segment.signature.flatten(segment)]
    inputs = [name for name, member in ports if member.flow.name == "In"]
    fields = {
        name.removesuffix("__payload"): {key: (field.offset, field.width) for key, field in member.shape}
        for name, member in ports
        if name.endswith("__payload") and isinstance(member.shape, Layout)
    }
    return inputs, fields


def _walk(case: Case) -> Generator[tuple[tuple[str, int], dict[str, Any]], dict[str, Any], Run]:
    """Pass the octets through all stages of a case; yields each simulation that is needed, and is sent its result."""
    framer = FpduFramer(markers=case.markers, crc=case.crc)
    opening: list[Any] = []
    packets: list[Any] = list(case.ulpdus)
    if case.direction is Direction.RECEIVE:
        opening, packets = [framer.frame(RTR)], framer.frame_all(case.ulpdus)
    offset = sum(map(len, opening))  # stream position of the first packet that is counted
    crossings, segments = [], []
    before = None
    for side, together in case.split.segments(case.direction):
        stages = tuple(stage for stage in together if case.tcp or stage is not Stage.TCP)
        if not stages:
            continue
        before, changed = side, before not in (None, side)
        if changed:
            crossings.append(Crossing(side, stages[0], len(packets), sum(map(_size, packets))))
        if side is Side.HOST:
            opening, packets = _in_software(case, stages, opening, packets)
            continue
        for part in parts(stages):
            if part[0] in RDMA:
                cycles = yield from _placed(case)
            elif part[0] in TCP:
                cycles = yield from _carried(case, packets)
            else:
                opening, packets, cycles = yield from _in_segment(case, part, opening, packets)
            lengths = list(map(len, case.ulpdus))
            predicted = device_cycles(
                part, case.direction, case.lanes, lengths, markers=case.markers, crc=case.crc, offset=offset
            )
            segments.append(DeviceRun(part, cycles, predicted))
    if opening + packets != _expected(case):
        raise SplitError(f"{case.direction.value}: the output behind {stages[-1]} is wrong")
    return Run(case, tuple(crossings), tuple(segments))


_Asks = Generator[tuple[tuple[str, int], dict[str, Any]], dict[str, Any], Any]


def _in_segment(case: Case, stages: tuple[Stage, ...], opening: list[Any], packets: list[Any]) -> _Asks:
    """Do stages of MPA on the device; return the output for ``opening``, for the other packets, and the cycles."""
    model = case.direction.value, case.lanes
    first_block, last_block = _blocks(stages[0], case)[0], _blocks(stages[-1], case)[1]
    fields = _model(*model)[2]
    opened, words = port(fields[f"{first_block}__i"], _carried_settings(case)).write(opening, packets)
    found = yield (
        model,
        {
            "inputs": _inputs(case, first_block, last_block),
            "first_block": first_block,
            "last_block": last_block,
            "opening": opened,
            "words": words,
            "fence": Stage.FENCE in stages,
        },
    )
    return *port(fields[f"{last_block}__o"]).read(found["opening"], found["words"]), found["cycles"]


def _placed(case: Case) -> _Asks:
    """Send the message from the device's memory, or place its segments there; return the cycles."""
    model = "placement", case.lanes
    fields = _model(*model)[2]
    out, message = case.direction is Direction.TRANSMIT, _message(case)
    begin, end = _ADDRESS, _ADDRESS + len(message)
    limits, control = (rdma_registers.BY_NAME[f"RDMA_{name}"] for name in ("LIMITS", "CONTROL"))
    command = commands.region(STAG, begin, len(message), TO, Right.REMOTE_WRITE)
    if out:
        command = commands.work(Opcode.RDMA_WRITE, len(message), STAG, TO, [(begin, len(message))] if message else [])
    found = yield (
        model,
        {
            "lanes": case.lanes,
            "memory": fields["memory__write"],
            "octets": (bytes(begin) + message if out else b"").hex(),
            "room": end + 64,
            "registers": [
                ("LIMITS", limits["mulpdu"].put(max(map(len, case.ulpdus)))),
                ("CONTROL", control["enable"].put(1)),
                *(("COMMAND", word) for word in command),
            ],
            "words": [] if out else Packets(fields["rx_ulpdu"]).write([], case.ulpdus)[1],
        },
    )
    memory = bytes.fromhex(found["octets"])
    if out and Packets(fields["tx_ulpdu"]).read([], found["words"])[1] != list(case.ulpdus):
        raise SplitError("transmit: the ULPDUs of the RDMA engine are wrong")
    if not out and memory != bytes(begin) + message + bytes(len(memory) - end):
        raise SplitError("receive: the RDMA engine has not placed the message, or more than that")
    return found["cycles"]


def _carried(case: Case, packets: list[Any]) -> _Asks:
    """Carry packets over a connection of TCP, which the device does at one end; return that end's cycles."""
    model = "transport", case.lanes
    fields = _model(*model)[2]
    (here, mac, source), (there, other_mac, destination) = _PATHS
    listening = {"kind": Command.LISTEN_AT, "ports": destination << 16, "address": 0, "iss": _ISS}
    opens = {"kind": Command.OPEN, "ports": source << 16 | destination, "address": int(there), "iss": _ISS}
    work: dict[str, Any] = {
        "commands": {
            side: CommandLayout(1).const({"connection": 0} | command).as_value().value
            for side, command in (("a", opens), ("b", listening))
        },
        "flight": _FLIGHT,
        "words": [],
        "frames": [],
    }
    if case.direction is Direction.TRANSMIT:
        work["words"] = Packets(fields["to_send"]).write([], packets)[1]
    else:
        at = _ISS + 1
        for packet in packets:
            data = Segment(source=source, destination=destination, seq=at, ack=_ISS + 1, window=_WINDOW,
                           flags=Flag.ACK, payload=packet)  # fmt: skip
            octets = Ipv4(here, there, PROTOCOL, data.encode(here, there)).encode()
            frame = Ethernet(other_mac, mac, EtherType.IPV4, octets).encode().ljust(60, b"\0")
            work["frames"].append((len(packet), Packets(fields["frames"]).write([], [bytes(2) + frame])[1]))
            at += len(packet)
    found = yield model, work
    if b"".join(Packets(fields["received"]).read([], found["words"])[1]) != b"".join(packets):
        raise SplitError(f"{case.direction.value}: the octets that TCP has delivered are wrong")
    return found["cycles"]


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


def _carried_settings(case: Case) -> dict[str, int]:
    """Return the settings that each beat carries along on transmit."""
    return {"markers": case.markers, "crc": case.crc} if case.direction is Direction.TRANSMIT else {}


def _inputs(case: Case, first_block: str, last_block: str) -> dict[str, int]:
    """Return the values of the device's inputs other than streams."""
    responder = {"role": Role.RESPONDER, "model": Model.PEER_TO_PEER}
    names = ["fence", "framer", "inserter", "marked", "appender"]
    inputs: dict[str, dict[str, int]] = {
        "fence": {
            "settings": SendSettings.const(responder | _carried_settings(case)).as_bits(),
            "mpa": 1,
            "maximum": MAX_ULPDU,
        },
    }
    if case.direction is Direction.RECEIVE:
        names = ["packer", "delineator", "checker", "detector"]
        inputs = {
            "packer": {"markers": case.markers},
            "delineator": {"maximum": MAX_ULPDU},
            "checker": {"enable": case.crc},
            "detector": {"settings": RtrSettings.const(responder | {"rtr_accept": 7}).as_bits()},
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
