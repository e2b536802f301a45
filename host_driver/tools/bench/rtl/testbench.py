"""What runs inside the simulation for :mod:`.cycles`: all streams, driven from one loop."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.bench.rtl.cycles import Load
from open_rnic.host_driver.tools.bench.simulation import task, tell
from open_rnic.rtl.registers import BY_NAME, Verdict

SETTLED = 60  # cycles after which nothing is on its way
OFFSET = 4 * 7  # of the stream, at which MPA begins: no marker is at a boundary just by chance


class Stream:
    """The ports of one packet stream."""

    def __init__(self, dut: Any, name: str, fields: dict[str, tuple[int, int]]):
        self.width = fields["data"][1] // 8
        self.fields = fields
        self.payload = getattr(dut, f"{name}__payload")
        self.valid = getattr(dut, f"{name}__valid")
        self.ready = getattr(dut, f"{name}__ready")

    def words(self, packets: Iterable[bytes]) -> list[int]:
        """The payload of every beat of these packets; a ULPDU's length is in all of its beats."""
        put = {name: lsb for name, (lsb, _) in self.fields.items()}
        words = []
        for packet in packets:
            end = max(1, -(-len(packet) // self.width)) * self.width
            extra = len(packet) << put["length"] if "length" in put else 0
            for at in range(0, end, self.width):
                beat = packet[at : at + self.width]
                last = at + self.width == end
                words.append(int.from_bytes(beat, "little") | len(beat) << put["octets"] | last << put["last"] | extra)
        return words

    def get(self, word: int, field: str) -> int:
        """A field of a payload."""
        lsb, width = self.fields[field]
        return word >> lsb & ((1 << width) - 1)


class Moved(NamedTuple):
    """What came out of a stream: its packets, their verdicts, and the cycle in which each one ended."""

    packets: list[bytes]
    verdicts: set[int]
    ends: list[int]


class Bench:
    """The data path and its four streams, all of which can be at work at once."""

    def __init__(self, dut: Any, streams: dict[str, dict[str, tuple[int, int]]]):
        self._dut = dut
        self._edge = RisingEdge(dut.clk)
        self.streams = {name: Stream(dut, name, fields) for name, fields in streams.items()}
        for name in ("tx_ulpdu", "rx_mpa"):
            self.streams[name].valid.value = 0
        for name in ("tx_mpa", "rx_ulpdu"):
            self.streams[name].ready.value = 1
        dut.bus__request.value = 0

    async def connect(self, *, markers: bool, crc: bool) -> None:
        """A new connection, in MPA mode both ways, framing alone: no RDMAP rules."""
        both = {"markers_tx": markers, "markers_rx": markers, "crc_tx": crc, "crc_rx": crc}
        await self._set("CONTROL", reset=1)
        await self._set("CONFIG", rdmap=0, **both)
        await self._set("TX_MPA_OFFSET", value=OFFSET)
        await self._set("RX_MPA_OFFSET", value=OFFSET)
        await self._set("CONTROL", tx_enable=1, rx_enable=1)
        await ClockCycles(self._dut.clk, SETTLED)

    async def _set(self, name: str, **fields: int) -> None:
        register = BY_NAME[name]
        word = register.reset
        for field, value in fields.items():
            word = word & ~register[field].mask | register[field].put(int(value))
        dut = self._dut
        dut.bus__address.value = register.address >> 2
        dut.bus__write.value = 1
        dut.bus__write_data.value = word
        dut.bus__request.value = 1
        await self._edge
        while not dut.bus__ack.value:
            await self._edge
        dut.bus__request.value = 0

    async def move(self, given: dict[str, list[int]], wanted: dict[str, int]) -> dict[str, list[tuple[int, int]]]:
        """Give these words to streams as fast as they are taken, until others have given so many packets.

        What comes out is its cycle and its word; in cycle 0 the first beats are offered. Raises TimeoutError when
        that is not over after four times the cycles that it should take.
        """
        sources = [(self.streams[name], iter(words)) for name, words in given.items()]
        for stream, words in sources:
            stream.payload.value = next(words)
            stream.valid.value = 1
        came: dict[str, list[tuple[int, int]]] = {name: [] for name in wanted}
        sinks = [(self.streams[name], came[name], 1 << self.streams[name].fields["last"][0]) for name in wanted]
        left = sum(wanted.values())
        limit = 4 * max(len(words) for words in given.values()) + 4 * left + 1000
        for cycle in range(limit):
            await self._edge
            for source in tuple(sources):
                stream, words = source
                if stream.ready.value:
                    word = next(words, None)
                    if word is None:
                        stream.valid.value = 0
                        sources.remove(source)
                    else:
                        stream.payload.value = word
            for stream, beats, last in sinks:
                if stream.valid.value:
                    word = stream.payload.value.to_unsigned()
                    beats.append((cycle, word))
                    left -= bool(word & last)
            if not left:
                return came
        raise TimeoutError(f"{left} packets have not come out after {limit} cycles")

    def read(self, name: str, beats: Sequence[tuple[int, int]]) -> Moved:
        """Packets out of beats."""
        stream = self.streams[name]
        packets, verdicts, ends = [], set(), []
        packet = b""
        for cycle, word in beats:
            octets = stream.get(word, "data").to_bytes(stream.width, "little")
            if not stream.get(word, "last"):
                packet += octets
                continue
            packets.append(packet + octets[: stream.get(word, "octets")])
            ends.append(cycle)
            packet = b""
            if "verdict" in stream.fields:
                verdicts.add(stream.get(word, "verdict"))
        return Moved(packets, verdicts, ends)


async def flow(bench: Bench, load: Load, direction: str, markers: bool, crc: bool) -> list[dict[str, Any]]:
    """Cycles of one load; a row for each direction that is at work. What comes out is compared, too."""
    await bench.connect(markers=markers, crc=crc)
    width = bench.streams["tx_mpa"].width
    warm, counted = load.repeats(width)
    lengths = load.lengths * (warm + counted + warm)
    ulpdus = [random.randbytes(each) for each in lengths]
    framer = FpduFramer(markers=markers, crc=crc, offset=OFFSET)
    fpdus = [framer.frame(each) for each in ulpdus]
    given: dict[str, list[int]] = {}
    wanted: dict[str, int] = {}
    if "TX" in direction:
        given["tx_ulpdu"] = bench.streams["tx_ulpdu"].words(ulpdus)
        wanted["tx_mpa"] = len(fpdus)
    if "RX" in direction:
        chunks = fpdus if "aligned" in direction else [b"".join(fpdus)]
        given["rx_mpa"] = bench.streams["rx_mpa"].words(chunks)
        wanted["rx_ulpdu"] = len(ulpdus)
    came = await bench.move(given, wanted)
    first, end = len(load.lengths) * warm, len(load.lengths) * (warm + counted)
    needed = sum(-(-len(each) // width) for each in fpdus[first:end])
    rows = []
    for name, beats in came.items():
        moved = bench.read(name, beats)
        if moved.packets != (fpdus if name == "tx_mpa" else ulpdus) or moved.verdicts - {Verdict.GOOD}:
            raise ValueError(f"{direction}, {load.name} octets: what came out of {name} is not what it should be")
        rows.append({
            "direction": ("TX" if name == "tx_mpa" else "RX") + " aligned" * direction.endswith("aligned"),
            "together": len(came) > 1,
            "load": load.name,
            "markers": markers,
            "crc": crc,
            "needed": needed,
            "used": moved.ends[end - 1] - moved.ends[first - 1],
        })
    return rows


async def latency(bench: Bench, direction: str, octets: int, markers: bool) -> dict[str, Any]:
    """Cycles for one ULPDU through an idle data path."""
    await bench.connect(markers=markers, crc=True)
    packet = random.randbytes(octets)
    source, sink = "tx_ulpdu", "tx_mpa"
    if direction == "RX":
        packet = FpduFramer(markers=markers, crc=True, offset=OFFSET).frame(packet)
        source, sink = "rx_mpa", "rx_ulpdu"
    came = await bench.move({source: bench.streams[source].words([packet])}, {sink: 1})
    return {"direction": direction, "octets": octets, "markers": markers, "cycles": came[sink][0][0]}


@cocotb.test()  # type: ignore[untyped-decorator]
async def measure(dut: Any) -> None:
    """All cases of the task, and latencies."""
    random.seed(1)
    Clock(dut.clk, 2, "step").start()
    asked = task()
    bench = Bench(dut, asked["streams"])
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    flows = []
    for case in asked["cases"]:
        load = case["load"]
        case["load"] = Load(load["name"], tuple(load["lengths"]), load["beats"])
        flows += await flow(bench, **case)
    beat = 4 * asked["lanes"]
    latencies = [
        await latency(bench, direction, octets, markers)
        for direction in asked["latencies"] for octets in (1, beat, 20 * beat) for markers in (False, True)
    ]  # fmt: skip
    tell({"flows": flows, "latencies": latencies})
