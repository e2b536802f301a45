"""TCP in a device that has data paths for its connections: all of it through registers (``rtl.tcp.registers``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Interface
from typing import Protocol, Self, cast

from open_rnic.host_driver.device import AttachedDevice, Device, DeviceError
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.tcp.engine import EngineConnection, EngineStatus, EngineTcp, Row
from open_rnic.rtl.registers import WORD, words_of
from open_rnic.rtl.tcp.config import Station
from open_rnic.rtl.tcp.registers import BY_NAME
from open_rnic.rtl.tcp.words import Command, State

__all__ = ["AttachedTcp", "PathRegisters", "RegisterTcp"]

_PATIENCE = 1.0  # seconds for the last commands
_STATUS, _COMMAND = BY_NAME["STATUS"], BY_NAME["COMMAND"]
_BOTH_CLOSED = State.CLOSING | State.LAST_ACK | State.TIME_WAIT


class PathRegisters(Protocol):
    """The registers of a network path, by their names. Accesses take effect in the order in which they begin."""

    async def get(self, register: str) -> int:
        """Return the 32-bit value of a register."""

    async def set(self, register: str, value: int) -> None:
        """Write a register."""

    async def interrupt(self) -> None:
        """Wait until CHANGED is not 0."""


class RegisterTcp:
    """A :class:`.TcpDevice` whose octets stay in the device: an asynchronous context manager."""

    def __init__(self, registers: PathRegisters, connections: int) -> None:
        self.statuses = [EngineStatus(0, IPv4Address(0), 0, 0, 0)] * connections
        self.gate = Gate()
        self.deliver: Callable[[int, bytes], None] = lambda connection, octets: None
        self._registers = registers
        self._given = self._done = 0  # commands, modulo 2**16
        self._commands: asyncio.Queue[tuple[Command, int, int, int, int]] = asyncio.Queue()
        self._accepts = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(work()) for work in (self._carry_out, self._follow)]
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._commands.join(), _PATIENCE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def station(self, mac: bytes, address: IPv4Interface, gateway: IPv4Address | None) -> None:
        """Set the addresses of the path."""
        for name, word in Station.of(mac, address, gateway).registers.items():
            await self._registers.set(name, word)

    def command(self, command: Command, connection: int, ports: int = 0, peer: int = 0, iss: int = 0) -> int:
        """See TcpDevice."""
        self._given = (self._given + 1) & 0xFFFF
        self._commands.put_nowait((command, connection, ports, peer, iss))
        return self._given

    async def send_packet(self, connection: int, octets: bytes) -> None:
        """See TcpDevice; only the end passes through the host."""
        assert not octets
        self.command(Command.CLOSE, connection)

    def accept(self, connection: int, wanted: bool) -> None:
        """See TcpDevice. Octets pass when a connection has been attached, not before."""

    async def let_pass(self, connection: int, wanted: bool) -> None:
        """Let octets pass to the data path, or stop them."""
        self._accepts = self._accepts & ~(1 << connection) | wanted << connection
        word = connection // WORD
        accepts = self._accepts >> word * WORD & ((1 << WORD) - 1)
        await self._registers.set(words_of("ACCEPT", len(self.statuses))[word], accepts)
        await self._show(connection)

    async def counter(self, name: str, connection: int) -> int:
        """Return the register ``name`` of a connection."""
        return (await self._shown(connection, name))[0]

    async def _carry_out(self) -> None:
        registers = self._registers
        pending = _COMMAND["pending"]
        while True:
            command, connection, ports, peer, iss = await self._commands.get()
            if command in (Command.LISTEN_AT, Command.OPEN):
                await self.let_pass(connection, False)
            word = _COMMAND["kind"].put(command) | _COMMAND["connection"].put(connection) | _COMMAND["go"].put(1)
            words = {"COMMAND_PORTS": ports, "COMMAND_ADDRESS": peer, "COMMAND_ISS": iss, "COMMAND": word}
            await asyncio.gather(*(registers.set(name, value) for name, value in words.items()))
            while pending.get(await registers.get("COMMAND")):
                pass
            self._done = (self._done + 1) & 0xFFFF
            await self._show(connection)
            self._commands.task_done()

    async def _follow(self) -> None:
        """Follow the changes of connections."""
        while True:
            await self._registers.interrupt()
            for word, name in enumerate(words_of("CHANGED", len(self.statuses))):
                changed = await self._registers.get(name)
                await self._registers.set(name, changed)
                for bit in range(WORD):
                    if changed >> bit & 1:
                        await self._show(word * WORD + bit)

    async def _shown(self, connection: int, *names: str) -> list[int]:
        """Return registers that show the connection of register CONNECTION.

        The accesses begin one behind the other, with no other task's between them, and none is waited for.
        """
        chosen = self._registers.set("CONNECTION", connection)
        _, *values = await asyncio.gather(chosen, *map(self._registers.get, names))
        return cast("list[int]", values)

    async def _show(self, connection: int) -> None:
        done, accepted = self._done, self._accepts >> connection & 1
        status, peer, ports = await self._shown(connection, "STATUS", "PEER", "PORTS")
        address = IPv4Address(peer)
        self.statuses[connection] = EngineStatus(
            _STATUS["status"].get(status), address, ports >> 16, ports & 0xFFFF, done
        )
        if _STATUS["finished"].get(status) and accepted:
            self.deliver(connection, b"")
        self.gate.look()


class AttachedTcp(EngineTcp):
    """The TCP of a device that has the data path ``paths[n]`` for its connection n."""

    def __init__(self, device: RegisterTcp, address: IPv4Address, paths: Sequence[Device]) -> None:
        super().__init__(device, address)
        self.registers = device
        self.paths = paths

    async def open_device(self) -> Device:
        """Open a device for one connection, with an RDMA engine if the data paths have engines."""
        return AttachedDevice(self.paths[0])

    def connection(self, row: Row) -> AttachedConnection:
        """Return the connection of a row that has been opened."""
        return AttachedConnection(self, row)


class AttachedConnection(EngineConnection):
    """A connection of :class:`AttachedTcp` as an :class:`.AttachedTransport`."""

    def __init__(self, tcp: AttachedTcp, row: Row) -> None:
        super().__init__(tcp, row)
        self._registers = tcp.registers
        self._path = tcp.paths[row.number]
        self._cleared = asyncio.Event()

    async def attach(self, device: AttachedDevice) -> None:
        """See AttachedTransport."""
        await self._registers.let_pass(self._row.number, False)
        device.attach(self._path)

    async def begin(self) -> None:
        """See AttachedTransport."""
        await self._registers.let_pass(self._row.number, True)

    def close(self, *, reset: bool) -> None:
        """See Transport."""
        has_ended = self._has_ended()  # if so, the next connection may have its place from here on
        super().close(reset=reset)
        self._tcp.later(self._clear(has_ended))

    async def _clear(self, has_ended: bool) -> None:
        """Reset the data path when nothing passes it any more: it gives up what all data paths share."""
        await self._tcp.device.gate.until(lambda: has_ended or self._has_ended() or not self._is_ours())
        if has_ended or self._is_ours():  # otherwise, the next connection has reset it, or will
            with contextlib.suppress(DeviceError):
                await self._path.set_fields("CONTROL", reset=1)
        self._cleared.set()

    def _has_ended(self) -> bool:
        """Whether both ends have sent all of their octets."""
        return self._tcp.ended(self._row) or bool(self._tcp.status(self._row) & _BOTH_CLOSED)

    async def cleared(self) -> None:
        """See AttachedTransport."""
        await self._cleared.wait()

    async def packets(self) -> int:
        """See AttachedTransport."""
        return await self._registers.counter("PACKETS", self._row.number)

    async def octets(self) -> int:
        """See AttachedTransport."""
        return await self._registers.counter("OCTETS", self._row.number)

    async def finished(self) -> None:
        """See AttachedTransport."""
        tcp, row = self._tcp, self._row
        await self._registers.gate.until(lambda: row.finished or tcp.ended(row))
        if not row.finished:
            raise tcp.lost(row)
