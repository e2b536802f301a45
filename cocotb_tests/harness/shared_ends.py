"""Drivers for a ``SharedDatapath``: the host, a model of the rings of TCP, and the wire."""

import itertools
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.triggers import Lock, RisingEdge

from open_rnic.cocotb_tests.harness import Probe, Sink
from open_rnic.cocotb_tests.harness.datapath import COUNTERS, word_of
from open_rnic.cocotb_tests.harness.rings import Rings
from open_rnic.cocotb_tests.rtl.rdma import bench
from open_rnic.host_driver.device import Event
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.rtl.mpa.stream_registers import BY_NAME as STREAM
from open_rnic.rtl.rdma.memory_registers import BY_NAME as MEMORY
from open_rnic.rtl.registers import BY_NAME, EventKind, Register, Role

__all__ = ["End", "Lost", "Shared"]

_HANG = 100_000  # cycles


class Lost:
    """The packets of a stream: for each, its connection, its first cycle, and its number of beats.

    ``of`` returns the connection of a beat, or None if the beat is not counted.
    """

    def __init__(self, dut: Any, prefix: str, of: Any = lambda beat: beat.fields["connection"]):
        self.packets: list[tuple[int, int, int]] = []
        self._of = of
        self._probe = Probe(dut, prefix)
        self._edge = RisingEdge(dut.clk)
        self.stop = cocotb.start_soon(self._run()).cancel

    async def _run(self) -> None:
        cycle = first = beats = 0
        while True:
            await self._edge
            cycle += 1
            beat = self._probe.moved()
            of = None if beat is None else self._of(beat)
            if of is None:
                continue
            first = first if beats else cycle
            beats += 1
            if beat.last:
                self.packets.append((of, first, beats))
                beats = 0

    def changes(self) -> list[int]:
        """Return the cycles that each packet, up to the first beat of another connection's, takes beyond its beats."""
        pairs = itertools.pairwise(self.packets)
        return [next_ - first - beats for (of, first, beats), (after, next_, _) in pairs if of != after]


class Shared:
    """All ports of a ``SharedDatapath``. What connection ``n`` sends goes to the ring of ``wires[n]``, if any."""

    def __init__(self, dut: Any, connections: int, size: int, wires: dict[int, int],
                 busy: Iterator[int] | None = None):  # fmt: skip
        self.dut = dut
        self.edge = RisingEdge(dut.clk)
        self.bus, self.window = Lock(), Lock()
        everything = (1 << connections) - 1
        dut.bus__request.value = dut.show.value = 0
        dut.room.value = dut.accept.value = everything
        self.rings = Rings(dut, "rings", connections, size)
        self.wires = wires
        self.sink = Sink(dut, "to_send", busy)
        self.ends = [End(self, n) for n in range(connections)]
        cocotb.start_soon(self._carry())

    async def _carry(self) -> None:
        while True:
            octets, fields = await self.sink.receive()
            end = self.ends[fields["connection"]]
            end.sent.append(octets)
            if (to := self.wires.get(end.n)) is not None:
                cocotb.start_soon(self._deliver(to, end, len(end.sent), octets))

    async def _deliver(self, to: int, end: "End", number: int, octets: bytes) -> None:
        while end.delivered != number - 1 or self.rings.room(to) < len(octets):
            await self.edge
        self.rings.deliver(to, octets)
        end.delivered = number

    async def settle(self, quiet: int = 1000) -> None:
        """Wait until nothing is in a ring, and nothing has been sent, for ``quiet`` cycles."""
        still = 0
        before: Any = None
        for _ in range(_HANG):
            await self.edge
            now = self.rings.left[:], self.sink.transfers
            still = still + 1 if now == before else 0
            before = now
            if still == quiet:
                assert self.rings.left == [len(each) for each in self.rings.octets]
                return
        raise AssertionError("octets still move")

    async def access(self, n: int, register: Register, value: int | None) -> int:
        """Write a register of connection ``n``, or read it."""
        async with self.bus:
            return await access_register(self.dut, n << 8 | register.address >> 2, value)


class End(bench.Engine):
    """A connection, as the host sees it."""

    def __init__(self, shared: Shared, n: int):
        self.shared, self.n, self.dut, self._edge = shared, n, shared.dut, shared.edge
        self.sent: list[bytes] = []  # type: ignore[assignment]
        self.delivered = 0  # packets that have reached the ring of the peer

    async def _access(self, register, value):
        return await self.shared.access(self.n, register, value)

    async def get(self, name: str) -> int:
        """Read a register of MPA."""
        return await self._access(BY_NAME[name], None)

    async def set(self, name: str, value: int) -> None:
        """Write a register of MPA."""
        await self._access(BY_NAME[name], value)

    async def put(self, address: int, octets: bytes) -> None:
        """Write whole words to the memory."""
        async with self.shared.window:
            await self._access(MEMORY["MEMORY_ADDRESS"], address)
            for at in range(0, len(octets), 4):
                await self._access(MEMORY["MEMORY_WRITE"], int.from_bytes(octets[at : at + 4], "little"))

    async def fetch(self, address: int, octets: int) -> bytes:
        """Read whole words from the memory."""
        async with self.shared.window:
            await self._access(MEMORY["MEMORY_ADDRESS"], address)
            words = [await self._access(MEMORY["MEMORY_READ"], None) for _ in range(octets // 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)

    async def write_stream(self, octets: bytes) -> None:
        """Write a packet of stream mode, or in MPA mode a short ULPDU."""
        await self._access(STREAM["STREAM_BEGIN"], len(octets))
        for at in range(0, len(octets), 4):
            await self._access(STREAM["STREAM_WORD"], int.from_bytes(octets[at : at + 4], "little"))

    async def read_stream(self, octets: int) -> bytes:
        """Read octets of stream mode, or a ULPDU that the engine has passed."""
        found, state = b"", STREAM["STREAM_STATE"]
        for _ in range(_HANG):
            word = await self._access(state, None)
            if state["waits"].get(word):
                value = await self._access(STREAM["STREAM_RECEIVED"], None)
                found += value.to_bytes(4, "little")[: state["octets"].get(word)]
                if len(found) >= octets:
                    return found
        raise AssertionError(f"{len(found)} of {octets} octets have come")

    async def configure(self, stream_octets: int, **config: int) -> None:
        """Set all up, but enable nothing."""
        await self.set("CONFIG", word_of("CONFIG", **{"role": Role.INITIATOR, "rdmap": 1, **config}))
        await self.set("TX_STREAM_OCTETS", stream_octets)
        await self.set("RX_STREAM_OCTETS", stream_octets)

    async def enter(self) -> None:
        """Enter MPA mode in both directions."""
        await self.set("CONTROL", word_of("CONTROL", tx_enable=1, rx_enable=1))

    async def events(self) -> list[Event]:
        """Take all events."""
        found = []
        while word := await self.get("EVENT"):
            found.append(Event.read(word, *[await self.get(f"EVENT_OFFSET_{half}") for half in ("LO", "HI")]))
        return found

    async def errors(self) -> list[Event]:
        """Take all events, and return the errors."""
        return [each for each in await self.events() if each.kind is EventKind.ERROR]

    async def counters(self) -> dict[str, int]:
        return {name: await self.get(name) for name in COUNTERS}

    async def until(self, what: str, condition: Any) -> None:
        """Wait until ``await condition()`` is true."""
        for _ in range(_HANG // 100):
            if await condition():
                return
            await self.cycles(100)
        states = [(await each.get("STATE"), await each.access("STATUS"), len(each.sent)) for each in self.shared.ends]
        raise AssertionError(f"connection {self.n}: {what}; STATE, STATUS and packets sent of each: {states}")
