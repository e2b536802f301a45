"""The board behind the device interface: a :class:`.Driver` and a serial port."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TypeVar

from open_rnic.host_driver.device import Device, DeviceError, Event, Ulpdu
from open_rnic.host_driver.devices.serial import BAUD
from open_rnic.host_driver.devices.serial.client import LinkClient
from open_rnic.host_driver.devices.serial.driver import REGISTERS, Driver, Feed
from open_rnic.host_driver.devices.serial.exchange import Exchange, NoAnswerError
from open_rnic.host_driver.devices.serial.port import Port
from open_rnic.host_driver.devices.serial.window import MemoryWindow
from open_rnic.host_driver.rdma.engine import CopiedMemory
from open_rnic.rtl.rdma import registers as rdma
from open_rnic.rtl.registers import BY_NAME, IDENTITY, VERSION, Verdict

BITS = 10  # bits of an octet on the line
_ROOM = 1 << 17  # octets: a queue that holds more accepts nothing
_T = TypeVar("_T")


class SerialDevice(LinkClient, MemoryWindow, Device):
    """A data path behind a serial port. Open it with :meth:`open`.

    Between the program and the board each stream holds at most 128 KiB, one packet or call of ``write_ulpdus``, and two
    frames in each direction. If the program does not read, the board's streams stall. ULPDUs with a bad CRC or marker
    are dropped; an event reports them.
    """

    name = "serial"

    @classmethod
    async def open(
        cls, port: str, baud: int = BAUD, *, pace: float | None = None, offload: bool | None = False
    ) -> SerialDevice:
        """Open the board at this port and reset it.

        ``pace`` is the time of an octet on the line in seconds, if it does not follow from ``baud``. With ``offload``,
        its RDMA engine is used; if this is None, only if the board has one. Raises DeviceError if the port does not
        exist, cannot be opened or is in use, if no board or another device answers, and if the board has no engine.
        """
        device = cls(port, baud, BITS / baud if pace is None else pace, offload=offload)
        try:
            await device._meet(baud)
        except BaseException:
            await device.close()
            raise
        return device

    def __init__(self, port: str, baud: int, pace: float, *, offload: bool | None = False) -> None:
        self._driver = Driver(Exchange(secrets.randbelow((1 << 32) - 1) + 1, pace))
        super().__init__(port, self._driver)
        self.lanes = 0
        self._offload = offload
        self._port = Port(port, baud, self._received, self._lost)

    @property
    def driver(self) -> Driver:
        """The driver, with the link's statistics."""
        return self._driver

    # --- the device interface

    async def get(self, register: str) -> int:
        """Return the register's 32-bit value; raises ValueError for an unknown name."""
        _check(register)
        return await self._read(register)

    async def set(self, register: str, value: int) -> None:
        """Write the register. ULPDUs and octets handed over before may not have reached the data path yet.

        A reset discards them, and all results that have not been read. Raises ValueError for an unknown name and for
        more than 32 bits.
        """
        _check(register)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{register} holds 32 bits, not {value}")
        self._usable()
        await self._expect(self._driver.write(register, value))

    def push(self, register: str, *words: int) -> None:
        """See Device."""
        _check(register)
        if self._failure is None:
            for word in words:
                self._driver.write(register, word)
            self._attend()

    async def interrupt(self) -> None:
        """See Device."""
        await self._wait(lambda: self._driver.interrupted)

    def _read(self, register: str) -> asyncio.Future[int]:
        self._usable()
        return self._expect(self._driver.read(register))

    async def next_event(self) -> Event:
        """See Device."""
        await self._wait(lambda: bool(self._driver.events))
        return self._taken(self._driver.events.popleft())

    async def write_ulpdu(self, octets: bytes) -> None:
        """Hand over one ULPDU, or a packet of stream octets; waits while 128 KiB are on their way."""
        await self._give(self._driver.tx_ulpdu, [octets])

    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """See Device."""
        await self._give(self._driver.tx_ulpdu, ulpdus)

    async def read_ulpdu(self) -> Ulpdu:
        """Return the next good ULPDU, or some stream octets; waits for it."""
        await self._wait(lambda: bool(self._driver.ulpdus))
        return self._taken(self._driver.take_ulpdu())

    async def read_ulpdus(self) -> list[bytes]:
        """See Device."""
        await self._wait(lambda: bool(self._driver.ulpdus))
        ulpdus = []
        while self._driver.ulpdus and self._driver.ulpdus[0].verdict is Verdict.GOOD:
            ulpdus.append(self._driver.take_ulpdu().octets)
        return self._taken(ulpdus)

    async def write_mpa(self, octets: bytes) -> None:
        """Hand over octets of the peer's MPA stream; waits while 128 KiB are on their way."""
        if octets:
            await self._give(self._driver.rx_mpa, [octets])

    async def read_mpa(self) -> bytes:
        """Return the next FPDU, or packet of stream octets, for the peer; waits for it."""
        await self._wait(lambda: bool(self._driver.mpa))
        return self._taken(self._driver.take_mpa())

    async def read_fpdus(self) -> list[bytes]:
        """See Device."""
        fpdus = [await self.read_mpa()]
        while self._driver.mpa:
            fpdus.append(self._driver.take_mpa())
        return fpdus

    async def drained(self) -> None:
        """See Device. The board has drained when two consecutive responses are empty."""
        await self._wait(lambda: self._driver.drained)

    async def close(self) -> None:
        """Release the port, and make every waiting task raise DeviceError. Idempotent."""
        self._fail(DeviceError("the device has been closed"))

    # --- beginning

    async def _meet(self, baud: int) -> None:
        try:
            identity, version, capabilities = [await self.get(name) for name in ("IDENTITY", "VERSION", "CAPABILITIES")]
        except DeviceError as error:
            if self._driver.exchange.session_open or not isinstance(error, NoAnswerError):
                raise
            raise DeviceError(
                f"{self._place}: no answer at {baud} baud: is it this board's port and speed, and is the board "
                "programmed?"
            ) from None
        self._match("IDENTITY", identity, IDENTITY)
        self._match_version("the registers", version, VERSION)
        self.lanes = BY_NAME["CAPABILITIES"]["lanes"].get(capabilities)
        await self.set("CONTROL", BY_NAME["CONTROL"]["reset"].mask)
        if self._offload is not False:
            await self._meet_engine()

    async def _meet_engine(self) -> None:
        identity, version, octets = [
            await self.get(name) for name in ("RDMA_IDENTITY", "RDMA_VERSION", "MEMORY_OCTETS")
        ]
        if identity == rdma.IDENTITY and octets:
            self._match_version("the RDMA engine's registers", version, rdma.VERSION)
            self.memory = CopiedMemory(self, octets)
        elif self._offload:
            raise DeviceError(f"{self._place}: the board has no RDMA engine: build it with --core rdma")

    # --- the port

    def _write(self, octets: bytes) -> None:
        self._port.write(octets)

    def _release(self) -> None:
        self._port.close()

    # --- the streams

    async def _give(self, feed: Feed, packets: Sequence[bytes]) -> None:
        self._usable()
        await self._gate.until(lambda: self._failure or feed.octets < _ROOM)
        self._usable()
        for each in packets:
            feed.add(each)
        self._attend()

    def _taken(self, what: _T) -> _T:
        self._attend()  # there is room for more
        self._gate.look()
        return what


def _check(register: str) -> None:
    if register not in REGISTERS:
        raise ValueError(f"no register is called {register}")
