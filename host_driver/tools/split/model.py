"""Predict a split's throughput, latency, host cycles, link octets and set-up time from figures alone.

An octet passes a row of stations: work of the host, crossings of the host link, work of the device, the wire, and the
same at the other end. Memory is at the host's end of the link, and the wire at the device's end. Stations of one kind
at one end share a resource: the host's cores, one direction of the link, or the device's clock.

- Throughput: messages follow each other, and the resource that takes longest for a message limits the rate.
- Half round trip: the first FPDU passes all stations, and the others follow at the rate of the slowest resource.

A host that does TCP sends packets over the link to a plain network interface. Acknowledgments are not counted, nor are
retransmissions. Each stage is a pass of its own over the octets: the model does not count what a host saves if it does
two stages in one pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL, mulpdu
from open_rnic.host_driver.tools.split.cycles import device_cycles
from open_rnic.host_driver.tools.split.profile import Device, Figure, Host, Link
from open_rnic.host_driver.tools.split.stages import (
    MPA,
    RDMA,
    RECEIVE,
    RTL,
    TCP,
    TRANSMIT,
    Direction,
    Side,
    Split,
    Stage,
    parts,
)

__all__ = [
    "LINK",
    "RATES",
    "REFERENCE",
    "SIZES",
    "WHOLE",
    "Point",
    "Prediction",
    "Setting",
    "UnknownWidthError",
    "blocks_needed",
    "figures",
    "name",
    "named",
    "predict",
    "sources",
    "splits",
]

SIZES = tuple(1 << exponent for exponent in range(21))  #: octets of a message
RATES = (1, 10, 25, 40, 100)  #: Gb/s
REFERENCE = 65536  #: octets of the messages in tables
HEADER = 14  # octets of a tagged segment's header (RFC 5041 §4.2)
_CRC = 4
_FRAME = 54  # octets of a frame besides the FPDU: TCP and IPv4 40, Ethernet 14
_WIRE = 24  # and on the wire: preamble, FCS and gap (IEEE 802.3 §4.4.2)
_CALL = 65536  # octets of FPDUs that a call of TCP takes
_WRITES, _READS = 7, 4  # register accesses to bring a connection up: docs/verilog.md
_STEADY = 64  # smallest number of ULPDUs in which the filling of the device's pipeline is negligible
_BLOCKS = {
    Stage.FENCE: ("Fence",),
    Stage.FRAMING: ("FpduFramer", "Delineator"),
    Stage.MARKER_INSERTION: ("MarkerInserter",),
    Stage.CRC_GENERATION: ("CrcAppender",),
    Stage.MARKER_REMOVAL: ("ChunkPacker",),
    Stage.CRC_CHECK: ("FpduChecker",),
    Stage.RTR_DETECTION: ("RtrDetector",),
    Stage.PLACEMENT: ("StoreAndForward", "RdmaEngine"),  # these do the copies, too
    Stage.TCP: ("NetworkPath",),
}
_AT_1_LANE = dict.fromkeys(("Delineator", "ChunkPacker", "FpduChecker"), "FpduReceiver")  # one block instead
_AROUND = ("TxModeSwitch", "RxModeSwitch", "RegisterBank", "EventQueue")  # in every device that does a stage of MPA
_TCP_LANES = 1  # the width of TCP
WHOLE = "MpaDatapath"
LINK = "link"  # host work to transfer octets over the link
WIRE = "wire"
_HOST = "host "
_ENDS = {Direction.TRANSMIT: "TX", Direction.RECEIVE: "RX"}


class UnknownWidthError(ValueError):
    """The device has no figures for a block at this width."""


@dataclass(frozen=True)
class Setting:
    """The parameters of a prediction. Both ends of the connection are the same.

    Without ``tcp``, TCP is the same in all splits, and costs nothing: its octets cross no link. ``pieces`` is the size
    of a piece of memory in octets, or 0 if each message is contiguous. ``wire`` is in Gb/s.
    ``tier`` names the host's CRC method; by default, the fastest one is used.
    """

    host: Host
    link: Link
    device: Device
    lanes: int = 2
    markers: bool = True
    crc: bool = True
    emss: int = 1460
    pieces: int = 0
    wire: float = 100.0
    cores: int = 1
    tier: str | None = None
    tcp: bool = True

    @cached_property
    def ends(self) -> dict[Any, Any]:
        """A cache of predictions for one end: many splits are the same at one of their ends."""
        return {}

    @cached_property
    def idle(self) -> frozenset[Stage]:
        """The stages that have nothing to do with these settings."""
        markers = () if self.markers else (Stage.MARKER_INSERTION, Stage.MARKER_REMOVAL)
        crc = () if self.crc else (Stage.CRC_GENERATION, Stage.CRC_CHECK)
        return frozenset((*markers, *crc, *(() if self.tcp else TCP)))

    @property
    def units(self) -> list[frozenset[Stage]]:
        """The sets of active stages of which the device can do all or none."""
        active = {*self.active(Direction.TRANSMIT), *self.active(Direction.RECEIVE)}
        blocks = self.device.lanes.get(str(self.lanes), {})  # type: ignore[call-overload]
        units = [frozenset({stage}) for stage in Stage if stage in active & MPA or stage in self.device.stages]
        units += [RDMA] * (blocks.keys() >= {*_BLOCKS[Stage.PLACEMENT]})
        units += [TCP] * (self.lanes == _TCP_LANES and self.tcp and blocks.keys() >= {*_BLOCKS[Stage.TCP]})
        return units

    def active(self, direction: Direction) -> tuple[Stage, ...]:
        """Return the stages that have something to do, in the order in which an octet passes them."""
        return self._active[direction]

    @cached_property
    def _active(self) -> dict[Direction, tuple[Stage, ...]]:
        orders = {Direction.TRANSMIT: TRANSMIT, Direction.RECEIVE: RECEIVE}
        return {each: tuple(stage for stage in order if stage not in self.idle) for each, order in orders.items()}

    def ulpdus(self, message: int) -> tuple[int, ...]:
        """Return the ULPDU lengths of a message."""
        room = mulpdu(self.emss, markers=self.markers) - HEADER
        whole, rest = divmod(message, room)
        return (room + HEADER,) * whole + ((rest + HEADER,) if rest or not whole else ())


@dataclass(frozen=True)
class Point:
    """The prediction for one split and one message size.

    ``rate`` is in octets of messages per second, one way. ``other`` is the same with an unlimited number of host cores.
    """

    size: int
    rate: float
    limit: str
    other: float
    other_limit: str
    half_round_trip: float  #: seconds
    slowest: str  #: the largest contribution to the half round trip
    cycles: dict[str, dict[str, float]]  #: host cycles for a message, by direction, then by stage or ``LINK``
    link: dict[str, float]  #: octets of a message that cross the host link, by direction

    @property
    def cycles_per_octet(self) -> float:
        """Host cycles to send one octet and to receive one."""
        return sum(self.stages.values()) / self.size

    @property
    def stages(self) -> dict[str, float]:
        """Host cycles for a message by stage, both directions together."""
        found: dict[str, float] = defaultdict(float)
        for each in self.cycles.values():
            for stage, cycles in each.items():
                found[stage] += cycles
        return dict(found)


@dataclass(frozen=True)
class Prediction:
    """The prediction for one split. ``setup`` is in seconds; ``hertz`` is the host's clock, ``clock`` the device's."""

    split: Split
    lanes: int
    markers: bool
    crc: bool
    points: tuple[Point, ...]
    luts: float
    clock: float | None
    setup: float
    hertz: float

    def at(self, size: int) -> Point:
        """Return the point for messages of this size."""
        return next(point for point in self.points if point.size == size)

    def cores(self, gigabits: float, size: int = REFERENCE) -> float | str:
        """Return the cores in use at a rate, sending and receiving, or the resource that does not reach this rate."""
        point = self.at(size)
        return point.other_limit if point.other < gigabits * 1e9 / 8 else self.worth(gigabits, size)

    def worth(self, gigabits: float, size: int = REFERENCE) -> float:
        """Return the cores that a rate needs, even if another resource does not reach this rate."""
        return gigabits * 1e9 / 8 * self.at(size).cycles_per_octet / self.hertz

    @property
    def name(self) -> str:
        """A short name for the stages on the device."""
        return name(self.split.device)


_NAMES: dict[str, frozenset[Stage]] = {
    "nothing": frozenset(),
    "CRC": frozenset({Stage.CRC_GENERATION, Stage.CRC_CHECK}),
    "markers": frozenset({Stage.MARKER_INSERTION, Stage.MARKER_REMOVAL}),
    "markers, CRC": frozenset({Stage.MARKER_INSERTION, Stage.MARKER_REMOVAL, Stage.CRC_GENERATION, Stage.CRC_CHECK}),
    "FPDUs": MPA - {Stage.FENCE, Stage.RTR_DETECTION},
    "MPA": MPA,
    "MPA, RDMA": MPA | RDMA,
    "TCP": TCP,
    "TCP, MPA": TCP | MPA,
    "TCP, MPA, RDMA": RTL,
}


_SHORT = {
    Stage.MARKER_INSERTION: "markers TX",
    Stage.CRC_GENERATION: "CRC TX",
    Stage.MARKER_REMOVAL: "markers RX",
    Stage.CRC_CHECK: "CRC RX",
    Stage.RTR_DETECTION: "RTR",
}


def name(device: frozenset[Stage]) -> str:
    """Return the name of a set of stages, or their abbreviations if the set has no name."""
    known = {stages: each for each, stages in _NAMES.items()}
    if device in known:
        return known[device]
    found = [short for short, stages in (("TCP", TCP), ("RDMA", RDMA)) if stages <= device]
    rest = device - (TCP if "TCP" in found else frozenset()) - (RDMA if "RDMA" in found else frozenset())
    return ", ".join([*found, *([known[rest]] if rest in known and rest else
                                [_SHORT.get(stage, stage) for stage in Stage if stage in rest])])  # fmt: skip


def named(setting: Setting) -> list[Split]:
    """Return the splits that have names, as far as the device can do them, and each only once with these settings."""
    active = frozenset(setting.active(Direction.TRANSMIT)) | frozenset(setting.active(Direction.RECEIVE))
    can = frozenset().union(*setting.units)
    seen: dict[frozenset[Stage], Split] = {}
    for stages in _NAMES.values():
        if stages & active <= can:
            seen.setdefault(stages & active, Split(stages))
    return list(seen.values())


def splits(setting: Setting) -> Iterator[Split]:
    """Yield all distinct splits: each active stage that the device can do, on either side."""
    active = {*setting.active(Direction.TRANSMIT), *setting.active(Direction.RECEIVE), Stage.STARTUP}
    units = setting.units
    known = {split.device & active: split for split in named(setting)}
    for count in range(len(units) + 1):
        for chosen in combinations(units, count):
            device = frozenset[Stage]().union(*chosen)
            yield known.get(device, Split(device))


def blocks_needed(lanes: int = 2, stages: Iterable[Stage] = MPA) -> tuple[str, ...]:
    """Return all blocks of RTL that a split of these stages may need at this width."""
    wanted = _blocks((stage for stage in Stage if stage in {*stages}), lanes)
    return (*wanted, *(_AROUND if MPA & {*stages} else ()))


def _blocks(stages: Iterable[Stage], lanes: int) -> list[str]:
    """Return the blocks of these stages at this width, each once."""
    found = [block for stage in stages for block in _BLOCKS.get(stage, ())]
    return list(dict.fromkeys(_AT_1_LANE.get(block, block) if lanes == 1 else block for block in found))


def figures(setting: Setting, split: Split) -> tuple[float, float | None]:
    """Return the LUTs and the clock in Hz of the device; the clock is None if the device does nothing.

    Blocks are counted as placed and routed by themselves: the sum of their LUTs, and the slowest clock. Blocks of
    stages that are idle are left out, except those that framing needs. Raises UnknownWidthError if a block has no
    figures.
    """
    if not split.device:
        return 0.0, None
    blocks = setting.device.lanes.get(str(setting.lanes))  # type: ignore[call-overload]
    if blocks is None:
        raise UnknownWidthError(f"{setting.device.title} has no figures for {setting.lanes} lanes: "
                                f"there are {', '.join(setting.device.lanes) or 'none'}")  # fmt: skip
    idle = setting.idle
    stages = split.device - idle
    if Stage.FRAMING in stages:  # the packer makes beats of octets, and the checker extracts ULPDUs from FPDUs
        stages |= idle & {Stage.MARKER_REMOVAL, Stage.CRC_CHECK}
    wanted = blocks_needed(setting.lanes, stages)
    if missing := [block for block in wanted if block not in blocks]:
        raise UnknownWidthError(f"{setting.device.title} has no figures for {missing[0]} of {setting.lanes} lanes")
    found = [*(blocks[block] for block in wanted), *(work for stage, work in setting.device.stages.items()
                                                     if Stage(stage) in split.device)]  # fmt: skip
    if not found:
        return 0.0, None
    return sum(each.luts.value for each in found), min(each.clock_hz.value for each in found)


def predict(setting: Setting, split: Split, sizes: Sequence[int] = SIZES) -> Prediction:
    """Predict this split for messages of these sizes in octets; raises UnknownWidthError."""
    luts, clock = figures(setting, split)
    ways = {direction: _way(setting, split, direction) for direction in Direction}
    points = tuple(_point(setting, ways, size, clock) for size in sizes)
    rtr = _point(setting, ways, 1, clock).half_round_trip
    device = split.device & setting.device.stages.keys()
    startup = setting.host.startup_cycles.value / setting.host.clock_hz.value
    if Stage.STARTUP in device:
        work = setting.device.stages["startup"]
        startup = work.per_connection.value / work.clock_hz.value
    crossings = 0 if Stage.STARTUP in device else 4  # Request and Reply, each at both ends
    latency = setting.link.latency_s.value
    registers = 2 * latency * _READS + _seconds(setting.link, 4) * (_READS + _WRITES) if split.device else 0.0
    setup = startup + crossings * (latency + _seconds(setting.link, 20)) + 2 * registers + rtr
    return Prediction(split, setting.lanes, setting.markers, setting.crc, points, luts, clock, setup,
                      setting.host.clock_hz.value)  # fmt: skip


@dataclass(frozen=True)
class _Station:
    """A station that octets pass, and the resource that it uses."""

    resource: str
    kind: Side | None  # None: the link
    stages: tuple[Stage, ...] = ()
    place: int = 0  # of a link crossing: the number of stages before it


def _way(setting: Setting, split: Split, direction: Direction) -> tuple[_Station, ...]:
    """Return the stations of one end, between the host's memory and the wire, which is at the device."""
    out = direction is Direction.TRANSMIT
    end = _ENDS[direction]
    active = setting.active(direction)
    row: list[_Station] = []
    side, place = (Side.HOST, 0) if out else (Side.DEVICE, 0)

    def cross(to: Side) -> None:
        row.append(_Station(f"link {end}, to the {to.value}", None, place=place))

    # Runs of stages on one side; those between them may be idle.
    runs: list[tuple[Side, list[Stage]]] = []
    for where, together in split.segments(direction):
        stages = [stage for stage in together if stage in active]
        if runs and runs[-1][0] is where:
            runs[-1][1].extend(stages)
        elif stages:
            runs.append((where, stages))
    for where, stages in runs:
        if where is not side:
            cross(where)
            side = where
        # Each part of the device is a pipeline of its own; all of the host's stages share its cores.
        for part in parts(stages) if where is Side.DEVICE else (tuple(stages),):
            reach = f": {' to '.join(dict.fromkeys((part[0], part[-1])))}" if where is Side.DEVICE else ""
            row.append(_Station(f"{where.value} {end}{reach}", where, part))
        place += len(stages)
    last = Side.DEVICE if out else Side.HOST
    if side is not last:
        cross(last)
    return tuple(row)


def _octets(setting: Setting, direction: Direction, ulpdu: int) -> list[float]:
    """Return the octets of a segment before each active stage, and behind the last one.

    Markers that have been removed still accompany the FPDU until its CRC, which covers them, has been checked.
    """
    framed = (ulpdu + 5) & ~3
    fpdu = (framed + _CRC) * (MARKER_INTERVAL / (MARKER_INTERVAL - 4) if setting.markers else 1.0)
    payload = ulpdu - HEADER
    if direction is Direction.TRANSMIT:
        before: dict[Stage, float] = {
            Stage.COPIES: payload, Stage.PLACEMENT: payload, Stage.FENCE: ulpdu, Stage.FRAMING: ulpdu,
            Stage.MARKER_INSERTION: framed, Stage.CRC_GENERATION: fpdu - _CRC, Stage.TCP: fpdu,
        }  # fmt: skip
        last: float = fpdu + (_FRAME if setting.tcp else 0)
    else:
        before = {
            Stage.TCP: fpdu + _FRAME, Stage.MARKER_REMOVAL: fpdu, Stage.FRAMING: fpdu, Stage.CRC_CHECK: fpdu,
            Stage.RTR_DETECTION: ulpdu, Stage.PLACEMENT: ulpdu, Stage.COPIES: payload,
        }  # fmt: skip
        last = payload
    return [*(before[stage] for stage in setting.active(direction)), last]


def _seconds(link: Link, octets: float) -> float:
    transactions = -(-octets // link.transaction_octets.value)
    return (octets + transactions * link.overhead_octets.value) * 8 / link.bits_per_second.value


def _stage_cycles(setting: Setting, direction: Direction, stage: Stage, octets: float, message: int) -> float:
    """Return the host's clock cycles for one stage and one FPDU."""
    host = setting.host
    match stage:
        case Stage.COPIES:
            cached = message <= host.copies.cache_octets.value
            each = host.copies.per_octet if cached else host.copies.per_octet_from_memory
            return host.copies.per_fpdu.value + each.value * octets
        case Stage.PLACEMENT:
            out = direction is Direction.TRANSMIT
            placement = host.placement_transmit if out else host.placement_receive
            payload = octets if out else octets - HEADER
            more = max(-(-payload // setting.pieces) - 1, 0) if setting.pieces else 0
            return placement.per_fpdu.value + placement.per_piece.value * more
        case Stage.CRC_GENERATION | Stage.CRC_CHECK:
            tiers = [host.crc[setting.tier]] if setting.tier else host.crc.values()
            return min(each.per_fpdu.value + each.per_octet.value * octets for each in tiers)
        case Stage.TCP:
            calls = host.tcp_transmit if direction is Direction.TRANSMIT else host.tcp_receive
            room = mulpdu(setting.emss, markers=setting.markers) - HEADER
            together = max(min(-(-message // room), int(_CALL // octets)), 1)  # FPDUs of a message in a call
            return calls.per_octet.value * octets + calls.per_call.value / together
        case Stage.FRAMING:
            cost = host.framing_transmit if direction is Direction.TRANSMIT else host.framing_receive
        case _:
            cost = getattr(host, stage.value.replace("-", "_"))
    return float(cost.per_fpdu.value + cost.per_octet.value * octets)


@lru_cache(maxsize=65536)
def _device_cycles(
    stages: tuple[Stage, ...], direction: Direction, lanes: int, ulpdus: tuple[int, ...], markers: bool, crc: bool
) -> int:
    return device_cycles(stages, direction, lanes, ulpdus, markers=markers, crc=crc)


def _rtl_cycles(setting: Setting, direction: Direction, stages: tuple[Stage, ...], ulpdus: tuple[int, ...]) -> float:
    """Return the device's clock cycles for these segments, back to back."""
    return float(_device_cycles(stages, direction, setting.lanes, ulpdus, setting.markers, setting.crc))


@dataclass(frozen=True)
class _End:
    """One end and one message size: seconds by resource, for the first FPDU, the whole message, and in steady state."""

    first: dict[str, float]
    whole: dict[str, float]
    pace: dict[str, float]
    cycles: dict[str, float]  # of the host
    link: float  # octets
    latency: float


def _end(setting: Setting, direction: Direction, row: tuple[_Station, ...], message: int, clock: float | None) -> _End:
    ulpdus = setting.ulpdus(message)
    kinds = {length: ulpdus.count(length) for length in dict.fromkeys(ulpdus)}
    octets = {length: _octets(setting, direction, length) for length in kinds}
    active = setting.active(direction)
    hertz = setting.host.clock_hz.value
    host = f"{_HOST}{_ENDS[direction]}"
    first, whole, pace, cycles = (defaultdict[str, float](float) for _ in range(4))
    link = 0.0

    def spend(resource: str, length: int, seconds: float) -> None:
        first[resource] += seconds if length == ulpdus[0] else 0.0
        whole[resource] += kinds[length] * seconds
        pace[resource] += kinds[length] * seconds

    for station in row:
        if station.kind is Side.DEVICE:
            assert clock is not None
            one, all_ = (_rtl_cycles(setting, direction, station.stages, each) / clock for each in (ulpdus[:1], ulpdus))
            first[station.resource] = one
            whole[station.resource] = all_
            more = -(
                -_STEADY // len(ulpdus)
            )  # further messages; none if the message has enough FPDUs to hide the start of the pipeline
            if len(ulpdus) < _STEADY:
                many = _rtl_cycles(setting, direction, station.stages, ulpdus * (1 + more)) / clock
                pace[station.resource] = (many - all_) / more
            else:
                pace[station.resource] = all_
            continue
        for length, count in kinds.items():
            if station.kind is Side.HOST:
                for stage in station.stages:
                    each = _stage_cycles(setting, direction, stage, octets[length][active.index(stage)], message)
                    cycles[stage.value] += count * each
                    spend(host, length, each / hertz)
            else:
                over = octets[length][station.place]
                link += count * over
                cycles[LINK] += count * setting.link.host_s_per_transfer.value * hertz
                spend(host, length, setting.link.host_s_per_transfer.value)
                spend(station.resource, length, _seconds(setting.link, over))
    if direction is Direction.TRANSMIT:  # the wire counts only once
        for length in kinds:
            on_wire = octets[length][-1] + (0 if setting.tcp else _FRAME) + _WIRE
            spend(WIRE, length, on_wire * 8 / (setting.wire * 1e9))
    crossings = sum(station.kind is None for station in row)
    return _End(first, whole, pace, cycles, link, crossings * setting.link.latency_s.value)


def _point(setting: Setting, ways: dict[Direction, tuple[_Station, ...]], message: int, clock: float | None) -> Point:
    ends = {}
    for direction, row in ways.items():
        key = direction, row, message, clock
        if key not in setting.ends:
            setting.ends[key] = _end(setting, direction, row, message, clock)
        ends[direction] = setting.ends[key]
    out, into = ends[Direction.TRANSMIT], ends[Direction.RECEIVE]
    first, whole, pace = ({**getattr(out, each), **getattr(into, each)} for each in ("first", "whole", "pace"))
    for resource in pace:
        if resource.startswith(_HOST):
            pace[resource] /= setting.cores
    slowest = max(pace, key=lambda each: pace[each])
    others = {resource: seconds for resource, seconds in pace.items() if not resource.startswith(_HOST)}
    other = max(others, key=lambda each: others[each])
    latency = out.latency + into.latency
    parts = whole | {"link latency": latency}
    return Point(
        size=message,
        rate=message / pace[slowest],
        limit=_limit(slowest, ends),
        other=message / pace[other],
        other_limit=other,
        half_round_trip=latency + sum(first.values()) + max(whole[each] - first[each] for each in whole),
        slowest=max(parts, key=lambda each: parts[each]),
        cycles={direction.value: dict(end.cycles) for direction, end in ends.items()},
        link={direction.value: end.link for direction, end in ends.items()},
    )


def _limit(resource: str, ends: dict[Direction, _End]) -> str:
    """Return the resource, and for a host also the stage that takes most of its time."""
    for direction, end in ends.items():
        if resource == f"{_HOST}{_ENDS[direction]}":
            return f"{resource}: {max(end.cycles, key=lambda each: end.cycles[each])}"
    return resource


def sources(setting: Setting) -> list[tuple[str, Figure]]:
    """Return every figure of the prediction, with its source."""
    import msgspec

    found: list[tuple[str, Figure]] = []

    def visit(where: str, plain: object) -> None:
        if isinstance(plain, dict):
            if plain.keys() == {"value", "source"}:
                found.append((where, Figure(plain["value"], plain["source"])))
            else:
                for key, value in plain.items():
                    visit(f"{where} {key}".strip(), value)

    for profile in (setting.host, setting.link, setting.device):
        visit("", msgspec.to_builtins(profile))
    return found
