"""The device without hardware: ``host_driver.mpa.datapath`` behind the asynchronous device interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from open_rnic.host_driver.device import Device, DeviceError, Event, Ulpdu
from open_rnic.host_driver.mpa.datapath import MpaDatapath

_ROOM = 1 << 18  # octets: above this a queue takes no more
_CHUNK = 1 << 16  # octets of the MPA stream that are dealt with in one go


class _Gate:
    """Where tasks wait until something holds."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self.is_open = is_open
        self.waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Let everyone look again."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()


class SoftwareDevice(Device):
    """A data path in Python. One task at a time may be in each of the methods that wait.

    A ULPDU or chunk is taken when fewer than 256 KiB wait in its direction, so what is held is bounded by that
    and what the last one brought. ``lanes`` changes nothing but what CAPABILITIES says.
    """

    name = "software"

    def __init__(self, *, lanes: int = 4) -> None:
        self.lanes = lanes
        self._path = path = MpaDatapath(lanes=lanes)
        self._closed = False
        self._event = _Gate(lambda: bool(path.events))
        self._tx_room = _Gate(lambda: path.tx_octets < _ROOM)
        self._tx_ready = _Gate(lambda: bool(path.mpa))
        self._rx_room = _Gate(lambda: path.rx_octets < _ROOM)
        self._rx_ready = _Gate(lambda: bool(path.ulpdus))
        self._gates = (self._event, self._tx_room, self._tx_ready, self._rx_room, self._rx_ready)

    async def get(self, register: str) -> int:
        """The register's word; raises ValueError when there is none of this name."""
        self._check()
        return self._path.read(register)

    async def set(self, register: str, value: int) -> None:
        """Write the register; raises ValueError for an unknown name and for more than 32 bits."""
        self._check()
        self._path.write(register, value)
        self._wake()

    async def next_event(self) -> Event:
        """Pop the event FIFO, as reading EVENT does; waits for an event."""
        await self._pass(self._event)
        return self._path.take_event()

    async def write_ulpdu(self, octets: bytes) -> None:
        """Hand over one ULPDU or stream-mode packet; waits while too much is on its way to the peer."""
        await self._pass(self._tx_room)
        self._path.transmit(octets)
        self._wake()

    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """Hand over all these; waits as ``write_ulpdu`` does, once."""
        await self._pass(self._tx_room)
        self._path.transmit_all(ulpdus)
        self._wake()

    async def read_ulpdu(self) -> Ulpdu:
        """The next ULPDU or stream octets. A ULPDU that is not good is never delivered: its event tells of it."""
        await self._pass(self._rx_ready)
        ulpdu = self._path.ulpdus.pop()
        self._wake()
        return ulpdu

    async def read_ulpdus(self) -> list[bytes]:
        """All good ULPDUs that wait for the host; waits for the first, and gives none when stream octets are due."""
        await self._pass(self._rx_ready)
        if self._path.ulpdus.stream:
            return []
        ulpdus = self._path.ulpdus.good.pop_all()
        self._wake()
        return ulpdus

    async def write_mpa(self, octets: bytes) -> None:
        """Hand over octets from the peer; waits while too much is on its way to the host."""
        self._check()
        for at in range(0, len(octets), _CHUNK):
            await self._pass(self._rx_room)
            self._path.receive(octets[at : at + _CHUNK])
            self._wake()

    async def read_mpa(self) -> bytes:
        """The next FPDU or stream-mode packet for the peer."""
        await self._pass(self._tx_ready)
        octets = self._path.mpa.pop()
        self._wake()
        return octets

    async def read_fpdus(self) -> list[bytes]:
        """All FPDUs and stream-mode packets that wait for the peer; waits for the first."""
        await self._pass(self._tx_ready)
        fpdus = self._path.mpa.pop_all()
        self._wake()
        return fpdus

    async def close(self) -> None:
        """Make every method raise DeviceError, in the tasks that wait in one, too."""
        self._closed = True
        for gate in self._gates:
            gate.wake()

    def _check(self) -> None:
        if self._closed:
            raise DeviceError("the device has been closed")

    async def _pass(self, gate: _Gate) -> None:
        self._check()
        while not gate.is_open():
            waiter = asyncio.get_running_loop().create_future()
            gate.waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in gate.waiters:  # cancelled
                    gate.waiters.remove(waiter)
            self._check()

    def _wake(self) -> None:
        for gate in self._gates:
            if gate.waiters and gate.is_open():
                gate.wake()
