"""Drivers for an RDMA engine of many connections: each connection has a twin, and a part of the one memory."""

import random
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, Lock, RisingEdge, Timer

from open_rnic.cocotb_tests.harness import Received, Sink, Source, cycles
from open_rnic.cocotb_tests.rtl.rdma.bench import OCTETS, SIZES, Memory
from open_rnic.cocotb_tests.rtl.rdma.programs import Both, _Octets
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.host_driver.devices.sim.signals import level
from open_rnic.host_driver.rdma.engine import Twin
from open_rnic.rtl.formats.opcodes import SENDS, Opcode
from open_rnic.rtl.rdma.registers import Command
from open_rnic.rtl.registers import Rtr

__all__ = ["Connection", "SharedBench"]


def _is_send(ulpdu):
    """Whether the watcher takes it for a Send."""
    return len(ulpdu) >= 2 and not ulpdu[0] >> 7 and ulpdu[1] & 0xF in SENDS


class SharedBench:
    """Drives all ports of an ``RdmaEngine`` of many connections, and does what the watcher and the rings would.

    A ULPDU of one connection is given after one of another, in random order. A Send is given when all ULPDUs before it
    have been checked, and a buffer is posted. There is not always room for what a connection sends.
    """

    def __init__(self, dut: Any, connections: int, idle: Any, busy: Any, full: float):
        self.dut = dut
        self.connections = connections
        self.edge = RisingEdge(dut.clk)
        self.bus, self.rtrs, self.turn = Lock(), Lock(), Lock()
        dut.bus__request.value = dut.resets.value = 0
        dut.clear.value = 1
        dut.rtr__sends.value = dut.rtr__received.value = dut.rtr__answered.value = dut.rtr__connection.value = 0
        dut.sends__coming.value = dut.sends__waiting.value = 0
        dut.transmit_gate__room.value = dut.transmit_gate__opens.value = 1
        self.room = (1 << connections) - 1
        self.memory = Memory(dut, idle, busy, connections)
        self.rx, self.host_tx = Source(dut, "rx_ulpdu", idle), Source(dut, "host_tx", idle)
        self.tx, self.host_rx = Sink(dut, "tx_ulpdu", busy), Sink(dut, "host_rx", busy)
        self.ends = [Connection(self, n) for n in range(connections)]
        self.full = full
        self.close = random.getrandbits(1)
        for task in (self._clear(), self._show_room(), self._give(), self._watch(), self._fill(),
                     *(self._take(name) for name in ("tx", "host_rx"))):  # fmt: skip
            cocotb.start_soon(task)

    async def _clear(self) -> None:
        for n in range(self.connections):
            self.dut.clear.value = 1 | n << 1
            await self.edge
        self.dut.clear.value = 0

    async def _show_room(self) -> None:
        at, room = self.dut.transmit_gate__connection, self.dut.transmit_gate__room
        half, shown = FallingEdge(self.dut.clk), None
        while True:
            await half
            if shown != (shown := self.room >> level(at) & 1):
                room.value = shown

    async def _give(self) -> None:
        waiting = 0
        while True:
            ends = [end for end in self.ends if end.rx.queue]
            if not ends or self.turn.locked():
                await self.edge
                continue
            end = random.choice(ends)
            sends = _is_send(end.rx.queue[0][0])
            stays = sends and not end.unchecked and await self._blocked(end.n)
            waiting = waiting & ~(1 << end.n) | stays << end.n
            self.dut.sends__waiting.value = waiting
            if stays or end.unchecked >= (1 if sends else 3) or self.turn.locked():
                await self.edge
                continue
            async with self.turn:
                octets, fields = end.rx.queue.popleft()
                end.unchecked += 1
                if sends:
                    end.sends_coming = True
                    self._show_coming()
                before = self.rx.transfers
                self.rx.send(octets, connection=end.n, **fields)
                end.rx.transfers += 1
                if self.close:  # the next ULPDU may follow without a pause
                    while self.rx.transfers <= before and random.random() < 0.98:
                        await self.edge
                else:
                    await self.rx.drained()

    async def _blocked(self, n: int) -> bool:
        self.dut.sends__connection.value = n
        await Timer(1, "step")
        return bool(self.dut.sends__blocked.value)

    def _show_coming(self) -> None:
        self.dut.sends__coming.value = sum(end.sends_coming << end.n for end in self.ends)

    async def _watch(self) -> None:
        dut, now = self.dut, (0, 0)
        while True:
            await self.edge  # ``blocked`` knows the ULPDU a cycle later, as would a register of the watcher
            (checked, dropped), now = now, (
                level(dut.processed__checked) << level(dut.processed__checked_of),
                level(dut.processed__dropped) << level(dut.processed__dropped_of),
            )
            for end in self.ends if checked | dropped else ():
                if done := (checked >> end.n & 1) + (dropped >> end.n & 1):
                    end.unchecked -= done
                    end.sends_coming = False
                    assert end.unchecked >= 0, "more ULPDUs were checked than given"
            if checked | dropped:
                self._show_coming()

    async def _fill(self) -> None:
        while True:
            self.room = sum((end.settles or random.random() >= self.full) << end.n for end in self.ends)
            await cycles(self.dut, random.randrange(1, 60))

    async def _take(self, name: str) -> None:
        while True:
            packet = await getattr(self, name).receive()
            queue = getattr(self.ends[packet.fields["connection"]], name)
            queue.packets.append(packet)
            queue.transfers += 1

    async def reset(self, n: int) -> None:
        """Reset connection ``n``, when the engine is empty."""
        async with self.turn:
            await self.host_tx.drained()
            await self.rx.drained()
            self.dut.resets.value = 1
            await self.edge
            for _ in range(20_000):
                await self.edge
                if int(self.dut.idle.value):
                    break
            else:
                raise AssertionError("the engine does not come to rest")
            assert self.ends[n].unchecked == 0
            async with self.rtrs:
                self.dut.clear.value = 1 | n << 1
                await self.edge
                self.dut.clear.value = self.dut.resets.value = 0
            for _ in range(4):
                await self.edge


class _Given:
    """ULPDUs that wait to be given."""

    def __init__(self, shared, n):
        self.shared, self.n = shared, n
        self.queue: deque[tuple[bytes, dict[str, int]]] = deque()
        self.transfers = 0

    def send(self, octets, **fields):
        self.queue.append((octets, fields))

    async def drained(self):
        while self.queue:
            await self.shared.edge
        async with self.shared.turn:
            await self.shared.rx.drained()


class _Taken:
    """ULPDUs that have come."""

    def __init__(self):
        self.packets: deque[Received] = deque()
        self.transfers = 0

    def empty(self):
        return not self.packets

    async def receive(self):
        return self.packets.popleft()

    def restart(self):
        self.packets.clear()


class _HostSends:
    def __init__(self, shared, n):
        self.shared, self.n = shared, n
        self.transfers = 0

    def send(self, octets, **fields):
        cocotb.start_soon(self._send(octets, fields))

    async def _send(self, octets, fields):
        async with self.shared.turn:
            self.shared.host_tx.send(octets, connection=self.n, **fields)
            await self.shared.host_tx.drained()
            self.transfers += 1


class _Part:
    """The part of memory of a connection."""

    def __init__(self, memory, n):
        self._memory, self._n, self._base = memory, n, n * OCTETS

    @property
    def octets(self):
        return self._memory.octets[self._base : self._base + OCTETS]

    @property
    def transfers(self):
        return self._memory.parts[self._n]

    def put(self, address, octets):
        self._memory.put(self._base + address, octets)

    def get(self, address, octets):
        return self._memory.get(self._base + address, octets)


class Connection(Both):
    """A connection of the RTL, and its twin."""

    def __init__(self, shared: SharedBench, n: int):
        self.shared, self.n, self.dut, self._edge = shared, n, shared.dut, shared.edge
        self.memory = _Part(shared.memory, n)
        self.rx, self.tx, self.host_rx = _Given(shared, n), _Taken(), _Taken()
        self.host_tx = _HostSends(shared, n)
        self.sent, self.passed, self.given_up, self.gives_up = [], [], [], False
        self.unchecked = 0
        self.sends_coming = self.settles = False
        self.rtr_sends = Rtr.NONE
        self._command: list[int] = []
        self.copy = _Octets(self.memory.octets)
        self.twin = Twin(self.copy, **SIZES)
        self.coming, self.from_host, self.finished, self._only = deque(), [], 0, ""

    def interrupt(self):
        return bool(int(self.dut.irq.value) >> self.n & 1)

    async def settle(self, quiet: int = 60, most: int = 400_000) -> None:
        self.settles = True  # there is room now
        await super().settle(quiet + 400 * self.shared.connections, most)
        self.settles = False

    async def _access(self, register, value):
        if register.name == "COMMAND" and value is not None:
            value = self._moved(value)
        async with self.shared.bus:
            self.dut.rtr__sends.value = self.rtr_sends
            return await access_register(self.dut, self.n << 8 | register.address >> 2 & 0xFF, value)

    def _moved(self, word: int) -> int:
        """Return a word of a command with addresses of this connection's part of memory."""
        self._command.append(word)
        first, at = self._command[0], len(self._command) - 1
        kind, pieces = Command(first >> 28), first >> 8 & 0x3F
        words = {Command.WORK: 4 + 2 * pieces, Command.REGION: 5, Command.BUFFER: 2}.get(kind, 1)
        is_address = {
            Command.REGION: at == 1,
            Command.BUFFER: at == 1,
            Command.WORK: at >= 5 and at % 2 == 1 and first & 0xF != Opcode.RDMA_READ_REQUEST,
        }.get(kind, False)
        if at == words:
            self._command.clear()
        return word + self.n * OCTETS if is_address else word

    async def rtrs(self, received, sent):
        self.rtr_sends = sent
        self.twin.engine.rtr_sent(sent)
        if received is not Rtr.NONE:
            self.twin.engine.rtr_received(received, 18)
            await self._pulse(self.dut.rtr__received, received)

    async def _pulse(self, signal, value):
        async with self.shared.rtrs:
            self.dut.rtr__connection.value = self.n
            await super()._pulse(signal, value)

    async def reset(self):
        await self.shared.reset(self.n)
        self._command.clear()
        self.given_up.clear()
