"""The part of :mod:`.cycles` that runs inside the simulation: all streams, driven from one loop."""

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

SETTLED = 60  # cycles after which the data path is empty
OFFSET = 4 * 7  # stream offset at which MPA begins, so that markers do not happen to be at beat boundaries


class Stream:
    """The ports of one packet stream."""

    def __init__(self, dut: Any, name: str, fields: dict[str, tuple[int, int]]):
        self.width = fields["data"][1] // 8
        self.fields = fields
        self.payload = getattr(dut, f"{name}__payload")
        self.valid = getattr(dut, f"{name}__valid")
        self.ready = getattr(dut, f"{name}__ready")

    def words(self, packets: Iterable[bytes]) -> list[int]:
        """Return the payload of every beat of these packets; each beat of a ULPDU holds the ULPDU's length."""
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
        """Return a field of a payload."""
        lsb, width = self.fields[field]
        return word >> lsb & ((1 << width) - 1)


class Moved(NamedTuple):
    """The output of a stream: packets, the set of their verdicts, and the cycle in which each packet ended."""

    packets: list[bytes]
    verdicts: set[int]
    ends: list[int]


class Bench:
    """The data path and its four streams, all of which can be active at once."""

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
        """Begin a new connection in MPA mode in both directions, with framing only: RDMAP rules are off."""
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
        """Offer these payloads to streams without gaps, until each stream in ``wanted`` has output that many packets.

        Returns the cycle and the payload of each output beat; the first beats are offered in cycle 0. Raises
        TimeoutError after four times the expected number of cycles.
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
        raise TimeoutError(f"{left} packets are missing after {limit} cycles")

    def read(self, name: str, beats: Sequence[tuple[int, int]]) -> Moved:
        """Assemble packets from beats."""
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
    """Count the cycles of one load, and compare the output; returns a row for each active direction."""
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
            raise ValueError(f"{direction}, {load.name} octets: the output of {name} is wrong")
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
    """Count the cycles of one ULPDU through an idle data path."""
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
    """Run all cases of the task, and measure latencies."""
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
