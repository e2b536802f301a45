"""Drivers for a data path that connections share, and the logic around it as far as a test needs it."""

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, Lock, RisingEdge

from open_rnic.cocotb_tests.harness import Sink, Source
from open_rnic.cocotb_tests.harness.datapath import word_of
from open_rnic.host_driver.device import Event
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.rtl.registers import BY_NAME, DirectionState, EventKind

_LEFT_ALONE = 5_000  # cycles in which a connection must settle, whatever the others do


class SharedPath:
    """Drives all ports of a ``SharedMpa``: one connection after another gives a packet, in random order.

    ``sent`` and ``delivered`` have the packets of each connection. Sources pause as ``idle`` yields, and sinks stall as
    ``busy`` yields.
    """

    def __init__(self, dut: Any, connections: int, idle: Iterator[int] | None = None,
                 busy: Iterator[int] | None = None):  # fmt: skip
        self.dut = dut
        self.connections = connections
        self.edge = RisingEdge(dut.clk)
        self._bus = Lock()
        self._reports = Lock()
        dut.bus__request.value = 0
        dut.stream_event__valid.value = 0
        dut.tx_mpa.value = dut.directions__tx.value = dut.directions__rx.value = 0
        dut.room.value = (1 << connections) - 1
        dut.idle.value = 1
        self._idle, self._busy = idle, busy
        self.tx_ulpdu = Source(dut, "tx_ulpdu", idle)
        self.rx_fpdus = Source(dut, "rx_fpdus", idle)
        self.tx_fpdu = Sink(dut, "tx_fpdu", busy)
        self.rx_ulpdu = Sink(dut, "rx_ulpdu", busy)
        self.ulpdus: list[deque[tuple[bytes, int]]] = [deque() for _ in range(connections)]  # with announced lengths
        self.trains: list[deque[tuple[bytes, int]]] = [deque() for _ in range(connections)]  # with places
        self.sent: list[list[bytes]] = [[] for _ in range(connections)]
        self.delivered: list[list[bytes]] = [[] for _ in range(connections)]
        self._mpa = 0
        self._states = {name: [DirectionState.STREAM] * connections for name in ("directions__tx", "directions__rx")}
        for task in (self._give_ulpdus(), self._give_trains(), self._take_fpdus(), self._take_ulpdus(),
                     self._show_states()):  # fmt: skip
            cocotb.start_soon(task)

    async def _give_ulpdus(self) -> None:
        while True:
            n = random.randrange(self.connections)
            self.dut.passable__0__connection.value = n
            await FallingEdge(self.dut.clk)
            passable = int(self.dut.passable__0__passes.value)
            await self.edge
            if passable and self.ulpdus[n]:
                octets, length = self.ulpdus[n].popleft()
                self.tx_ulpdu.send(octets, length=length, connection=n)
                await self.tx_ulpdu.drained()

    async def _give_trains(self) -> None:
        while True:
            ready = [n for n in range(self.connections) if self.trains[n]]
            if ready:
                n = random.choice(ready)
                octets, place = self.trains[n].popleft()
                self.rx_fpdus.send(octets, place=place, connection=n)
                await self.rx_fpdus.drained()
            else:
                await self.edge

    async def _take_fpdus(self) -> None:
        while True:
            octets, fields = await self.tx_fpdu.receive()
            self.sent[fields["connection"]].append(octets)

    async def _take_ulpdus(self) -> None:
        while True:
            octets, fields = await self.rx_ulpdu.receive()
            assert fields["length"] == len(octets), fields
            self.delivered[fields["connection"]].append(octets)

    async def _access(self, n: int, name: str, value: int | None) -> int:
        async with self._bus:
            return await access_register(self.dut, n << 8 | BY_NAME[name].address >> 2, value)

    async def get(self, n: int, name: str) -> int:
        """Read a register of connection ``n``."""
        return await self._access(n, name, None)

    async def set(self, n: int, name: str, value: int) -> None:
        """Write a register of connection ``n``."""
        await self._access(n, name, value)

    async def events(self, n: int) -> list[Event]:
        """Read all pending events of connection ``n``."""
        found = []
        while word := await self.get(n, "EVENT"):
            offsets = [await self.get(n, name) for name in ("EVENT_OFFSET_LO", "EVENT_OFFSET_HI")]
            found.append(Event.read(word, *offsets))
        return found

    async def enable(self, n: int, *, tx: bool, rx: bool) -> None:
        """Let directions of connection ``n`` enter MPA mode, as logic that counts octets of stream mode would."""
        await self.set(n, "CONTROL", word_of("CONTROL", tx_enable=tx, rx_enable=rx))
        for enabled, name, kind in ((tx, "directions__tx", EventKind.TX_MPA), (rx, "directions__rx", EventKind.RX_MPA)):
            if enabled and self._states[name][n] != DirectionState.MPA:
                await self._report(n, kind)
                self._show(n, name, DirectionState.MPA)
                if name == "directions__tx":
                    self._mpa |= 1 << n
                    self.dut.tx_mpa.value = self._mpa

    async def _report(self, n: int, kind: EventKind) -> None:
        async with self._reports:
            dut = self.dut
            bits = max(1, (self.connections - 1).bit_length())
            dut.stream_event__payload.value = kind | n << len(dut.stream_event__payload) - bits
            dut.stream_event__valid.value = 1
            await self.edge
            while not dut.stream_event__ready.value:
                await self.edge
            dut.stream_event__valid.value = 0

    def _show(self, n: int, name: str, state: DirectionState) -> None:
        self._states[name][n] = state
        getattr(self.dut, name).value = self._states[name][int(self.dut.directions__connection.value)]

    async def _show_states(self) -> None:
        while True:
            await self.dut.directions__connection.value_change
            for name, states in self._states.items():
                getattr(self.dut, name).value = states[int(self.dut.directions__connection.value)]

    async def reset(self, n: int) -> None:
        """Reset connection ``n``, for which nothing waits any more, and forget its packets."""
        self.ulpdus[n].clear()
        self.trains[n].clear()
        await self.tx_ulpdu.drained()
        await self.rx_fpdus.drained()
        await self.set(n, "CONTROL", word_of("CONTROL", reset=1))
        while int(self.dut.clear.value) != (1 | n << 1):
            await self.edge
        self._mpa &= ~(1 << n)
        self.dut.tx_mpa.value = self._mpa
        for name in self._states:
            self._show(n, name, DirectionState.WAITING)
        for _ in range(4):  # what was given before has left by now
            await self.edge
        self.sent[n].clear()
        self.delivered[n].clear()

    async def until(self, condition: Any, why: Any) -> None:
        """Wait until ``condition()`` is true."""
        for _ in range(_LEFT_ALONE):
            if condition():
                return
            await self.edge
        raise AssertionError(f"after {_LEFT_ALONE} cycles: {why() if callable(why) else why}")
