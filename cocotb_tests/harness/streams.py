"""Drivers and monitors of packet streams, inside a simulation."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import Event, RisingEdge
from cocotb.utils import get_sim_time

from open_rnic.cocotb_tests.harness.benches import PERIOD, given
from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with

__all__ = ["Beat", "Beats", "Monitor", "Probe", "Rate", "Received", "Sink", "Source", "never", "pauses", "stalls"]

UNTIL_VALID = -1  # in a sink's ``backpressure``: ``ready`` is 0 until ``valid`` is 1
EVERY_BEAT_FIELDS = frozenset({"connection", "markers", "crc"})  # of what FPDUs carry along, and other streams
# Extra fields that are valid on the first beat of a packet; all others are valid on the last.
FIRST_BEAT_FIELDS = frozenset({"length", "place", "source", "destination", "source_port", "destination_port"})


def pauses(chance: float = 0.3, longest: int = 4, seed: Any = None) -> Iterator[int]:
    """Yield numbers of cycles to wait before each beat: 1 to ``longest`` with probability ``chance``, otherwise 0."""
    rng = random.Random(random.getrandbits(64) if seed is None else seed)
    while True:
        yield rng.randint(1, longest) if rng.random() < chance else 0


def stalls(chance: float = 0.3, longest: int = 4, seed: Any = None) -> Iterator[int]:
    """Yield stalls before each beat: with probability ``chance``, for 1 to ``longest`` cycles, or until ``valid`` is 1.

    Only the latter detects a block whose ``valid`` waits for ``ready``, which ``rtl.lib.stream`` forbids.
    """
    rng = random.Random(random.getrandbits(64) if seed is None else seed)
    for pause in pauses(chance, longest, rng.random()):
        yield UNTIL_VALID if pause and rng.random() < 0.5 else pause


def never() -> Iterator[int]:
    """Yield zeros: no waiting, one beat per cycle."""
    while True:
        yield 0


class Received(NamedTuple):
    """A received packet: its octets, and its extra fields."""

    octets: bytes
    fields: dict[str, int]


class _Driver:
    def __init__(self, dut: Any, prefix: str):
        self.name = prefix
        fields: dict[str, tuple[int, int]] = dict(given()["streams"][prefix])
        self.octets_per_beat = fields["data"][1] // 8
        self._octets = fields["octets"]
        self._last = fields["last"][0]
        self._extra = {
            name: (lsb, bits) for name, (lsb, bits) in fields.items() if bits and name not in ("data", "octets", "last")
        }
        self._payload = getattr(dut, f"{prefix}__payload")
        self._valid = getattr(dut, f"{prefix}__valid")
        self._ready = getattr(dut, f"{prefix}__ready")
        self._edge = RisingEdge(dut.clk)

    def beats(self, octets: int) -> int:
        """Return the number of beats in a packet of ``octets`` octets."""
        return max(1, -(-octets // self.octets_per_beat))


class Source(_Driver):
    """Sends packets on the stream whose ports begin with ``prefix``; ``idle`` yields cycles to wait before each beat.

    Everything that is not valid is driven with random values: unused octets, fields in beats in which they are not
    valid, and the payload while ``valid`` is 0.
    """

    def __init__(self, dut: Any, prefix: str, idle: Iterator[int] | None = None):
        super().__init__(dut, prefix)
        self._idle = idle or never()
        self._queue: Queue[tuple[bytes, dict[str, int]]] = Queue()
        self.transfers = 0  # beats that have been transferred
        self._waiting = 0
        self._drained = Event()
        self._rng = random.Random(random.getrandbits(64))
        drive(self._valid, 0)
        cocotb.start_soon(self._run())

    def send(self, octets: bytes, **fields: int) -> None:
        """Queue a packet; does not wait."""
        if fields.keys() != self._extra.keys():
            raise ValueError(f"{self.name} has the fields {sorted(self._extra)}, not {sorted(fields)}")
        self._waiting += 1
        self._drained.clear()
        self._queue.put_nowait((octets, fields))

    async def drained(self) -> None:
        """Wait until all queued packets have been transferred."""
        while self._waiting:
            await self._drained.wait()

    def _beats(self, octets: bytes, fields: dict[str, int]) -> Iterator[int]:
        size, (octets_lsb, octets_width) = self.octets_per_beat, self._octets
        count = self.beats(len(octets))
        for index in range(count):
            first, last = index == 0, index == count - 1
            chunk = octets[index * size : (index + 1) * size]
            word = int.from_bytes(chunk + self._rng.randbytes(size - len(chunk)), "little") | last << self._last
            word |= (len(chunk) if last else self._rng.getrandbits(octets_width)) << octets_lsb
            for name, (lsb, width) in self._extra.items():
                meant = first if name in FIRST_BEAT_FIELDS else last or name in EVERY_BEAT_FIELDS
                word |= (fields[name] if meant else self._rng.getrandbits(width)) << lsb
            yield word

    async def _run(self) -> None:
        width = len(self._payload)
        while True:
            if self._queue.empty():
                drive(self._valid, 0)
                drive(self._payload, self._rng.getrandbits(width))
                packet = await self._queue.get()
                await self._edge
            else:
                packet = self._queue.get_nowait()
            for word in self._beats(*packet):
                if pause := next(self._idle):
                    drive(self._valid, 0)
                    drive(self._payload, self._rng.getrandbits(width))
                    for _ in range(pause):
                        await self._edge
                drive(self._valid, 1)
                drive(self._payload, word)
                await rises_with(self._edge, self._ready)
                self.transfers += 1
            self._waiting -= 1
            if not self._waiting:
                self._drained.set()


class Beats:
    """Takes single beats from the stream whose ports begin with ``prefix``, whatever its payload is.

    ``backpressure`` yields the number of cycles to stall before each beat, or UNTIL_VALID: see :func:`stalls`. The
    transfer rules of ``rtl.lib.stream`` are checked: AssertionError is raised if they are violated. While ``resets`` is
    set, a reset may withdraw a beat.
    """

    def __init__(self, dut: Any, prefix: str, backpressure: Iterator[int] | None = None):
        self.name = prefix
        self._payload = getattr(dut, f"{prefix}__payload")
        self._valid = getattr(dut, f"{prefix}__valid")
        self._ready = getattr(dut, f"{prefix}__ready")
        self._edge = RisingEdge(dut.clk)
        self._pauses = backpressure or never()
        self.transfers = 0
        self.resets = False
        self._is_ready = False
        drive(self._ready, 0)

    async def take(self) -> int:
        """Wait for the next beat, and return its payload."""
        held = None
        if pause := next(self._pauses):
            drive(self._ready, 0)
            self._is_ready = False
        if pause == UNTIL_VALID:
            await rises_with(self._edge, self._valid)
            held = level(self._payload)
        for _ in range(pause):
            await self._edge
            held = self._check(held)
        if not self._is_ready:
            drive(self._ready, 1)
            self._is_ready = True
        if held is not None:
            await self._edge
            held = self._check(held)
        if held is None:  # also if a reset has withdrawn it
            await rises_with(self._edge, self._valid)
            held = level(self._payload)
        self.transfers += 1
        return held

    def _check(self, held: int | None) -> int | None:
        """Return the payload if ``valid`` is set; a payload that was ``held`` must not have changed."""
        word = level(self._payload) if level(self._valid) else None
        assert self.resets or held in (None, word), f"{self.name}: a beat was changed or withdrawn before its transfer"
        return word


class Sink(_Driver):
    """Receives packets from the stream whose ports begin with ``prefix``, and checks the rules of packet streams.

    ``backpressure`` and the other checks: see :class:`Beats`.
    """

    def __init__(self, dut: Any, prefix: str, backpressure: Iterator[int] | None = None):
        super().__init__(dut, prefix)
        self.port = Beats(dut, prefix, backpressure)
        self._packets: Queue[Received] = Queue()
        self._task = cocotb.start_soon(self._run())

    async def receive(self) -> Received:
        """Wait for the next packet, and return it."""
        return await self._packets.get()

    @property
    def transfers(self) -> int:
        """The number of beats that have been transferred."""
        return self.port.transfers

    def restart(self) -> None:
        """Forget all packets that have been received, and what has come of the next one."""
        self._task.cancel()
        self._packets = Queue()
        self._task = cocotb.start_soon(self._run())

    def empty(self) -> bool:
        """Whether no packet is waiting to be received."""
        return self._packets.empty()

    async def _run(self) -> None:
        size, (octets_lsb, octets_width) = self.octets_per_beat, self._octets
        data, octets_mask = (1 << 8 * size) - 1, (1 << octets_width) - 1
        while True:
            packet, fields, last, first = bytearray(), dict.fromkeys(self._extra, 0), 0, True
            while not last:
                word = await self.port.take()
                last = word >> self._last & 1
                count = word >> octets_lsb & octets_mask if last else size
                assert (0 if first else 1) <= count <= size, f"{self.name}: octets is {count} in a last beat"
                packet += (word & data).to_bytes(size, "little")[:count]
                for name, (lsb, width) in self._extra.items():
                    if first if name in FIRST_BEAT_FIELDS else last:
                        fields[name] = word >> lsb & ((1 << width) - 1)
                first = False
            self._packets.put_nowait(Received(bytes(packet), fields))


class Beat(NamedTuple):
    """A beat of a stream: its valid octets, whether it is the last one of a packet, and its other fields."""

    octets: bytes
    last: bool
    fields: dict[str, int]


class Probe(_Driver):
    """Observes a stream between two other parties, without driving anything."""

    def offered(self) -> bool:
        """Whether ``valid`` is set in this cycle, with or without a transfer."""
        return bool(level(self._valid))

    def moved(self) -> Beat | None:
        """Return the beat that is transferred in this cycle, if any; to be called right after a rising clock edge."""
        if not (level(self._valid) and level(self._ready)):
            return None
        word = level(self._payload)
        last = word >> self._last & 1
        lsb, width = self._octets
        count = word >> lsb & ((1 << width) - 1) if last else self.octets_per_beat
        octets = (word & ((1 << 8 * self.octets_per_beat) - 1)).to_bytes(self.octets_per_beat, "little")[:count]
        fields = {name: word >> lsb & ((1 << width) - 1) for name, (lsb, width) in self._extra.items()}
        return Beat(octets, bool(last), fields)


class Monitor(Probe):
    """Collects the packets of a stream between two other parties."""

    def __init__(self, dut: Any, prefix: str):
        super().__init__(dut, prefix)
        self._packets: Queue[Received] = Queue()
        cocotb.start_soon(self._run())

    async def receive(self) -> Received:
        """Wait for the next packet, and return it."""
        return await self._packets.get()

    async def _run(self) -> None:
        packet, first = bytearray(), {}
        while True:
            await rises_with(self._edge, self._valid)
            if beat := self.moved():
                first = first or {name: value for name, value in beat.fields.items() if name in FIRST_BEAT_FIELDS}
                packet += beat.octets
                if beat.last:
                    self._packets.put_nowait(Received(bytes(packet), beat.fields | first))
                    packet, first = bytearray(), {}


class Rate(_Driver):
    """Counts transferred beats (``moved``), and the cycles from the first to the last of them, inclusive (``used``)."""

    def __init__(self, dut: Any, prefix: str):
        super().__init__(dut, prefix)
        self.moved = self.used = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await rises_with(self._edge, self._valid)
            if level(self._ready):
                now = int(get_sim_time("ns"))
                if not self.moved:
                    began = now
                self.moved += 1
                self.used = (now - began) // PERIOD + 1

    def restart(self) -> None:
        """Restart the counts: the next beat is the first one."""
        self.moved = self.used = 0
