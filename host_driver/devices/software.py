"""The device without hardware: ``host_driver.mpa.datapath`` behind the asynchronous device interface."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import TYPE_CHECKING

from open_rnic.host_driver.device import Device, DeviceError, Event, Ulpdu
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.mpa.datapath import MpaDatapath
from open_rnic.host_driver.rdma.engine import CopiedMemory, MappedMemory, Twin
from open_rnic.rtl.registers import BY_NAME, DirectionState, EventKind, Rtr

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets

__all__ = ["SoftwareDevice"]

_ROOM = 1 << 18  # octets: a queue that holds more accepts nothing
_CHUNK = 1 << 16  # octets of the MPA stream that are processed at once


class _OwnMemory:
    """Memory that only the engine accesses, and the host as on a board."""

    def __init__(self, octets: int) -> None:
        self._octets = mmap(-1, octets)  # takes no memory for octets that nobody has written

    def read(self, address: int, octets: int) -> bytes:
        """See Memory."""
        return self._octets[address : address + octets]

    def write(self, address: int, octets: Octets) -> None:
        """See Memory."""
        self._octets[address : address + len(octets)] = octets

    write_memory = write

    async def read_memory(self, address: int, octets: int) -> bytes:
        """See MemoryAccess."""
        await asyncio.sleep(0)
        return self.read(address, octets)


class SoftwareDevice(Device):
    """A data path in Python. One task at a time may wait in each method.

    A ULPDU or chunk is accepted while less than 256 KiB wait in its direction, so each direction holds at most
    256 KiB and one ULPDU or chunk. ``lanes`` is only reported in CAPABILITIES. With ``offload``, the RDMA engine's twin
    is between its ULPDUs and its data path. With ``octets``, the engine works on a memory of that size, as that of a
    board does; otherwise it uses the buffers of the program.
    """

    name = "software"

    def __init__(self, *, lanes: int = 4, offload: bool = False, octets: int = 0) -> None:
        self.lanes = lanes
        self._path = MpaDatapath(lanes=lanes)
        self._twin: Twin | None = None
        if offload:
            if octets:
                own = _OwnMemory(octets)
                self.memory = CopiedMemory(own, octets)
                self._twin = Twin(own, reads=128)
            else:
                mapped = self.memory = MappedMemory()
                self._twin = Twin(mapped, reads=128)
            self._path.seen = self._report_rtrs
        self._closed = False
        self._gate = Gate()
        self._event_gate = Gate()

    async def get(self, register: str) -> int:
        """Return the register's word; raises ValueError for an unknown name."""
        self._check()
        if self._twin and register.startswith(_ENGINE):
            return self._twin.read(register)
        return self._path.read(register)

    async def set(self, register: str, value: int) -> None:
        """Write the register; raises ValueError for an unknown name and for more than 32 bits."""
        self._check()
        self._write(register, value)
        self._look()

    def push(self, register: str, *words: int) -> None:
        """See Device."""
        if self._closed:
            return
        for word in words:
            self._write(register, word)
        self._look()

    async def interrupt(self) -> None:
        """See Device."""
        twin = self._twin
        if twin is None:
            raise DeviceError("it has no RDMA engine")
        await self._until(lambda: twin.irq)

    async def next_event(self) -> Event:
        """Pop the event FIFO, as a read of EVENT does; waits for an event."""
        await self._until(self._has_event, self._event_gate)
        event = self._path.take_event()
        self._look()
        return event

    async def write_ulpdu(self, octets: bytes) -> None:
        """Hand over one ULPDU or stream-mode packet; waits while 256 KiB are on their way to the peer."""
        await self._until(self._has_tx_room)
        self._path.transmit(octets)
        self._look()

    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """See Device."""
        await self._until(self._has_tx_room)
        self._path.transmit_all(ulpdus)
        self._look()

    async def read_ulpdu(self) -> Ulpdu:
        """Return the next ULPDU or stream octets. A bad ULPDU is not delivered; an event reports it."""
        await self._until(self._has_ulpdu)
        if passed := self._passed():
            return Ulpdu(passed.popleft())
        ulpdu = self._path.ulpdus.pop()
        self._look()
        return ulpdu

    async def read_ulpdus(self) -> list[bytes]:
        """See Device."""
        await self._until(self._has_ulpdu)
        if self._path.ulpdus.stream:
            return []
        if passed := self._passed():
            return [passed.popleft()]
        ulpdus = self._path.ulpdus.good.pop_all()
        self._look()
        return ulpdus

    async def write_mpa(self, octets: bytes) -> None:
        """Hand over octets from the peer; waits while 256 KiB are on their way to the host."""
        self._check()
        for at in range(0, len(octets), _CHUNK):
            await self._until(self._has_rx_room)
            self._path.receive(octets[at : at + _CHUNK])
            self._look()

    async def read_mpa(self) -> bytes:
        """Return the next FPDU or stream-mode packet for the peer."""
        await self._until(self._has_mpa)
        octets = self._path.mpa.pop()
        self._look()
        return octets

    async def read_fpdus(self) -> list[bytes]:
        """See Device."""
        await self._until(self._has_mpa)
        fpdus = self._path.mpa.pop_all()
        self._look()
        return fpdus

    async def drained(self) -> None:
        """See Device."""
        await self._until(self._is_drained)

    async def close(self) -> None:
        """Make every method raise DeviceError, also in tasks that wait in one."""
        self._closed = True
        self._look()

    def _check(self) -> None:
        if self._closed:
            raise DeviceError("the device has been closed")

    def _write(self, register: str, value: int) -> None:
        if self._twin and register.startswith(_ENGINE):
            self._twin.write(register, value)
            return
        self._path.write(register, value)
        if self._twin and register == "CONTROL" and value & _RESET:
            self._twin.reset()

    def _report_rtrs(self, event: Event) -> None:
        assert self._twin
        match event.kind:
            case EventKind.RTR_SENT:
                self._twin.engine.rtr_sent(Rtr(event.detail))
            case EventKind.RTR_RECEIVED:
                self._twin.engine.rtr_received(Rtr(event.detail), event.value)
            case EventKind.RESPONSE_RECEIVED:
                self._twin.engine.rtr_answered()

    def _run_engine(self, engine: Twin) -> None:
        received = self._path.ulpdus.good
        while received and engine.receive(received.peek()):
            received.pop()
        while self._has_tx_room() and self._sends() and (ulpdu := engine.next_ulpdu()) is not None:
            self._path.transmit(ulpdu)

    def _sends(self) -> bool:
        return _TX.get(self._path.read("STATE")) != DirectionState.STOPPED

    def _passed(self) -> deque[bytes] | None:
        """The ULPDUs that the engine has passed to the host; None if it does not take any, or has passed none."""
        return self._twin.ulpdus if self._twin and self._twin.enabled else None

    def _look(self) -> None:
        if self._twin and self._twin.enabled and not self._closed:
            self._run_engine(self._twin)
        self._event_gate.look()  # events are seen before the octets that they announce
        self._gate.look()

    async def _until(self, holds: Callable[[], bool], gate: Gate | None = None) -> None:
        self._check()
        await (gate or self._gate).until(lambda: self._closed or holds())
        self._check()

    def _has_event(self) -> bool:
        return bool(self._path.events)

    def _has_tx_room(self) -> bool:
        return self._path.tx_octets < _ROOM

    def _has_mpa(self) -> bool:
        return bool(self._path.mpa)

    def _has_rx_room(self) -> bool:
        return self._path.rx_octets < _ROOM

    def _has_ulpdu(self) -> bool:
        if self._twin and self._twin.enabled:
            return bool(self._path.ulpdus.stream or self._twin.ulpdus)
        return bool(self._path.ulpdus)

    def _is_drained(self) -> bool:
        return not (self._path.rx_octets or self._path.ulpdus or self._path.events or self._passed())


_ENGINE = "RDMA_"  # prefix of the names of the engine's registers
_RESET = BY_NAME["CONTROL"]["reset"].mask
_TX = BY_NAME["STATE"]["tx"]
