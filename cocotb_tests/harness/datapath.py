"""Drivers for a data path in simulation, and a comparison of the RTL with the software data path."""

import random
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Received, Sink, Source, cycles
from open_rnic.host_driver.device import Event, Ulpdu
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.host_driver.mpa.datapath import MpaDatapath as Software
from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL, FpduFramer
from open_rnic.rtl.registers import BY_NAME, Cause, EventKind, Verdict

STREAM_ONLY = 0xFFFF_FFFF  # octets of stream mode: more than any test sends
COUNTERS = (
    "TX_FPDUS", "TX_OCTETS_LO", "TX_OCTETS_HI", "TX_MARKERS",
    "RX_FPDUS", "RX_OCTETS_LO", "RX_OCTETS_HI", "RX_MARKERS", "RX_CRC_ERRORS",
)  # fmt: skip
_SENDS = {EventKind.TX_MPA, EventKind.FENCE_OPEN, EventKind.RTR_SENT, EventKind.RESPONSE_SENT, EventKind.TERMINATE_SENT}
_SEND_CAUSES = {Cause.TX_LENGTH, Cause.TX_MISMATCH, Cause.TX_STREAM}


def word_of(name: str, **fields: int) -> int:
    """Return a register's word with these fields; other fields have their reset values."""
    register = BY_NAME[name]
    word = register.reset
    for field, value in fields.items():
        word = (word & ~register[field].mask) | register[field].put(value)
    return word


def cut(octets: bytes, longest: int) -> Iterator[bytes]:
    """Cut ``octets`` into chunks of random lengths from 1 to ``longest``."""
    at = 0
    while at < len(octets):
        size = random.randint(1, longest)
        yield octets[at:at + size]
        at += size


def filler(offset: int, place: int) -> bytes:
    """Return a ULPDU whose FPDU begins at ``offset`` and ends ``place`` octets behind the start of a marker."""
    for octets in range(0, 1024, 4):
        framer = FpduFramer(markers=True, crc=True, offset=offset)
        framer.frame(bytes(octets))
        if framer.offset % MARKER_INTERVAL == place:
            return bytes(octets)
    raise ValueError(f"no FPDU ends {place} octets behind the start of a marker")


async def taken(sink: Sink) -> list[Received]:
    """Return all packets that the sink has received so far."""
    found = []
    while not sink.empty():
        found.append(await sink.receive())
    return found


class Datapath:
    """Drives all ports of an ``MpaDatapath``. Sources pause as ``idle`` yields, and sinks stall as ``busy`` yields."""

    def __init__(self, dut: Any, idle: Iterator[int] | None = None, busy: Iterator[int] | None = None):
        self.dut = dut
        self._edge = RisingEdge(dut.clk)
        dut.bus__request.value = 0
        self.tx_ulpdu = Source(dut, "tx_ulpdu", idle)
        self.tx_mpa = Sink(dut, "tx_mpa", busy)
        self.rx_mpa = Source(dut, "rx_mpa", idle)
        self.rx_ulpdu = Sink(dut, "rx_ulpdu", busy)

    async def get(self, name: str) -> int:
        """Read a register."""
        return await access_register(self.dut, BY_NAME[name].address >> 2)

    async def set(self, name: str, value: int) -> None:
        """Write a register."""
        await access_register(self.dut, BY_NAME[name].address >> 2, value)

    async def set_fields(self, name: str, **fields: int) -> None:
        """Write a register with these fields; other fields get their reset values."""
        await self.set(name, word_of(name, **fields))

    async def cycles(self, count: int) -> None:
        """Wait for ``count`` cycles."""
        await cycles(self.dut, count)

    async def renew(self) -> None:
        """Reset the connection, and discard everything that is still in the data path."""
        await self.set_fields("CONTROL", reset=1)
        await self.set("TX_STREAM_OCTETS", STREAM_ONLY)
        await self.set("RX_STREAM_OCTETS", STREAM_ONLY)
        self.send_ulpdu(b"end")  # completes a packet that the reset has cut off
        self.rx_mpa.send(b"end")
        await self.tx_ulpdu.drained()
        await self.rx_mpa.drained()
        await self.cycles(100)
        await taken(self.tx_mpa)
        await taken(self.rx_ulpdu)
        await self.set_fields("CONTROL", reset=1)

    async def start(self, offset: int = 0, **config: int) -> None:
        """Set CONFIG and enter MPA mode in both directions at once; by default with framing only, no RDMAP rules."""
        await self.set_fields("CONFIG", **{"rdmap": 0, **config})
        await self.set("TX_MPA_OFFSET", offset)
        await self.set("RX_MPA_OFFSET", offset)
        await self.set_fields("CONTROL", tx_enable=1, rx_enable=1)

    async def events(self) -> list[Event]:
        """Read all pending events."""
        found = []
        while word := await self.get("EVENT"):
            found.append(Event.read(word, await self.get("EVENT_OFFSET_LO"), await self.get("EVENT_OFFSET_HI")))
        return found

    def send_ulpdu(self, octets: bytes, length: int | None = None) -> None:
        """Send a ULPDU or a stream-mode packet; ``length`` is the announced length, if it differs from the real one."""
        self.tx_ulpdu.send(octets, length=len(octets) if length is None else length)


class Outcome(NamedTuple):
    """Everything that was output since the last comparison."""

    sent: list[bytes]
    ulpdus: list[Ulpdu]  # consecutive stream-mode octets are joined
    tx_events: list[Event]
    rx_events: list[Event]

    @property
    def delivered(self) -> list[bytes]:
        """The octets for the host, without their verdicts."""
        return [each.octets for each in self.ulpdus]


def _outcome(sent: list[bytes], ulpdus: list[Ulpdu], events: list[Event]) -> Outcome:
    joined: list[Ulpdu] = []
    for each in ulpdus:
        if each.verdict is Verdict.STREAM and joined and joined[-1].verdict is Verdict.STREAM:
            each = Ulpdu(joined.pop().octets + each.octets, Verdict.STREAM)  # boundaries of chunks have no meaning
        joined.append(each)
    sends = [each.kind in _SENDS or each.cause in _SEND_CAUSES for each in events]
    return Outcome(
        sent,
        joined,
        [each for each, is_tx in zip(events, sends, strict=True) if is_tx],
        [each for each, is_tx in zip(events, sends, strict=True) if not is_tx],
    )


class SideBySide:
    """The RTL and the software data path, which get the same input and must produce the same output.

    The software processes its input immediately, and the RTL needs some cycles, so each step waits until the RTL has
    settled. Events are compared separately for each direction, because their interleaving also depends on time.
    """

    def __init__(self, dut: Any, lanes: int, idle: Iterator[int] | None = None, busy: Iterator[int] | None = None):
        self.rtl = Datapath(dut, idle, busy)
        self.software = Software(lanes=lanes, event_depth=16)
        self._beats = 0  # sent on this connection

    async def renew(self, **config: int) -> None:
        """Begin a new connection in stream mode, with this CONFIG."""
        await self.rtl.renew()
        self.software = Software(lanes=self.rtl.tx_mpa.octets_per_beat // 4, event_depth=16)
        self._beats = 0
        await self.set("CONFIG", **config)

    async def connect(self, **config: int) -> None:
        """Begin a new connection in MPA mode in both directions, with this CONFIG."""
        await self.renew(**config)
        await self.set("CONTROL", tx_enable=1, rx_enable=1)

    async def set(self, register: str, value: int | None = None, /, **fields: int) -> None:
        """Write a register, as a word or by its fields."""
        word = word_of(register, **fields) if value is None else value
        await self.rtl.set(register, word)
        self.software.write(register, word)
        await self._settle(0)

    async def transmit(self, *ulpdus: bytes) -> None:
        """Send ULPDUs, or packets of stream octets."""
        for each in ulpdus:
            self.rtl.send_ulpdu(each)
            self.software.transmit(each)
        await self._settle(sum(map(self.rtl.tx_ulpdu.beats, map(len, ulpdus))))

    async def receive(self, octets: bytes, longest: int = 300) -> None:
        """Send octets of the MPA stream, in chunks of up to ``longest`` octets."""
        chunks = list(cut(octets, longest))
        for each in chunks:
            self.rtl.rx_mpa.send(each)
        self.software.receive(octets)
        await self._settle(sum(map(self.rtl.rx_mpa.beats, map(len, chunks))))

    async def _settle(self, beats: int) -> None:
        self._beats += beats
        await self.rtl.cycles(150 + 8 * self._beats)

    async def agree(self) -> Outcome:
        """Compare all output and the state of both; raises AssertionError if they differ, else returns the output."""
        rtl, software = self.rtl, self.software
        sent = [each.octets for each in await taken(rtl.tx_mpa)]
        received = await taken(rtl.rx_ulpdu)
        ulpdus = [Ulpdu(each.octets, Verdict(each.fields["verdict"])) for each in received]
        for (octets, verdict), packet in zip(ulpdus, received, strict=True):
            assert verdict is Verdict.STREAM or packet.fields["length"] == len(octets), packet
        good = [each for each in ulpdus if each.verdict in (Verdict.GOOD, Verdict.STREAM)]
        if BY_NAME["CAPABILITIES"]["store_and_forward"].get(await rtl.get("CAPABILITIES")):
            assert ulpdus == good, "a bad ULPDU was delivered"
        found = _outcome(sent, good, await rtl.events())
        expected = _outcome(
            [software.mpa.pop() for _ in range(len(software.mpa))],
            [software.ulpdus.pop() for _ in range(len(software.ulpdus))],
            list(iter(software.take_event, Event(EventKind.NONE))),
        )
        for what, mine, its in zip(Outcome._fields, found, expected, strict=True):
            for nth, (one, other) in enumerate(zip_longest(mine, its)):
                assert one == other, f"{what}, number {nth}: {one!r:.900} in RTL, {other!r:.900} in software"
        for name in ("STATE", "EVENT_STATUS", "ERROR", "ERROR_OFFSET_LO", "ERROR_OFFSET_HI", *COUNTERS):
            value = await rtl.get(name)
            assert value == software.read(name), f"{name} is {value:#x} in RTL, {software.read(name):#x} in software"
        return expected
