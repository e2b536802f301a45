"""The data path's own ports in a simulation: four packet streams and the register bus, driven from one loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.rtl.registers import BY_NAME

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
    """The packets of a stream, the set of their verdicts, and the cycles in which each packet began and ended."""

    packets: list[bytes]
    verdicts: set[int]
    begins: list[int]
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
        await access_register(self._dut, register.address >> 2, word)

    async def move(self, given: dict[str, list[int]], wanted: dict[str, int]) -> dict[str, list[tuple[int, int]]]:
        """Offer these payloads to streams without gaps, until each stream in ``wanted`` has output that many packets.

        Returns the cycle and the payload of each transferred beat; the first beats are offered in cycle 0. Raises
        TimeoutError after four times the expected number of cycles.
        """
        moved: dict[str, list[tuple[int, int]]] = {name: [] for name in (*given, *wanted)}
        sources = [(self.streams[name], words, moved[name]) for name, words in given.items()]
        for stream, words, _ in sources:
            stream.payload.value = words[0]
            stream.valid.value = 1
        sinks = [(self.streams[name], moved[name], 1 << self.streams[name].fields["last"][0]) for name in wanted]
        left = sum(wanted.values())
        limit = 4 * max(len(words) for words in given.values()) + 4 * left + 1000
        for cycle in range(limit):
            await self._edge
            for source in tuple(sources):
                stream, words, beats = source
                if stream.ready.value:
                    beats.append((cycle, words[len(beats)]))
                    if len(beats) == len(words):
                        stream.valid.value = 0
                        sources.remove(source)
                    else:
                        stream.payload.value = words[len(beats)]
            for stream, beats, last in sinks:
                if stream.valid.value:
                    word = stream.payload.value.to_unsigned()
                    beats.append((cycle, word))
                    left -= bool(word & last)
            if not left:
                return moved
        raise TimeoutError(f"{left} packets are missing after {limit} cycles")

    def read(self, name: str, beats: Sequence[tuple[int, int]]) -> Moved:
        """Assemble packets from beats."""
        stream = self.streams[name]
        packets, verdicts, begins, ends = [], set(), [], []
        packet = b""
        for cycle, word in beats:
            if not packet:
                begins.append(cycle)
            octets = stream.get(word, "data").to_bytes(stream.width, "little")
            if not stream.get(word, "last"):
                packet += octets
                continue
            packets.append(packet + octets[: stream.get(word, "octets")])
            ends.append(cycle)
            packet = b""
            if "verdict" in stream.fields:
                verdicts.add(stream.get(word, "verdict"))
        return Moved(packets, verdicts, begins, ends)
