"""The board behind the device interface: a :class:`.Driver` and a serial port."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar

from open_rnic.host_driver.device import Device, DeviceError, Event, Ulpdu
from open_rnic.host_driver.devices.serial import BAUD
from open_rnic.host_driver.devices.serial.driver import Driver, Feed
from open_rnic.host_driver.devices.serial.exchange import Exchange, LinkFailureError, NoAnswerError
from open_rnic.host_driver.devices.serial.port import Port
from open_rnic.host_driver.waiting import Gate
from open_rnic.rtl.registers import BY_NAME, IDENTITY, VERSION, Verdict

BITS = 10  # bits of an octet on the line
_ROOM = 1 << 17  # octets: a queue that holds more accepts nothing
_T = TypeVar("_T")


class SerialDevice(Device):
    """A data path behind a serial port. Open it with :meth:`open`.

    Between the program and the board each stream holds at most 128 KiB, one packet or call of ``write_ulpdus``, and two
    frames in each direction. If the program does not read, the board's streams stall. ULPDUs with a bad CRC or marker
    are dropped; an event reports them.
    """

    name = "serial"

    @classmethod
    async def open(cls, port: str, baud: int = BAUD, *, pace: float | None = None) -> SerialDevice:
        """Open the board at this port and reset it.

        ``pace`` is the time of an octet on the line in seconds, if it does not follow from ``baud``. Raises DeviceError
        if the port does not exist, cannot be opened or is in use, and if no board or another device answers.
        """
        device = cls(port, baud, BITS / baud if pace is None else pace)
        try:
            await device._meet(baud)
        except BaseException:
            await device.close()
            raise
        return device

    def __init__(self, port: str, baud: int, pace: float) -> None:
        self.lanes = 0
        self._port_name = port
        self._driver = Driver(Exchange(secrets.randbelow((1 << 32) - 1) + 1, pace))
        self._failure: DeviceError | None = None
        self._gate = Gate()
        self._values: dict[int, asyncio.Future[int]] = {}
        self._curious = 0
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._loop = asyncio.get_running_loop()
        self._port = Port(port, baud, self._received, self._lost)

    @property
    def driver(self) -> Driver:
        """The driver, with the link's statistics."""
        return self._driver

    # --- the device interface

    async def get(self, register: str) -> int:
        """Return the register's 32-bit value; raises ValueError for an unknown name."""
        _check(register)
        return await self._access(self._driver.read(register) if self._usable() else 0)

    async def set(self, register: str, value: int) -> None:
        """Write the register. ULPDUs and octets handed over before may not have reached the data path yet.

        A reset discards them, and all results that have not been read. Raises ValueError for an unknown name and for
        more than 32 bits.
        """
        _check(register)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{register} holds 32 bits, not {value}")
        await self._access(self._driver.write(register, value) if self._usable() else 0)

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
                f"{self._port_name}: no answer at {baud} baud: is it this board's port and speed, and is the board "
                "programmed?"
            ) from None
        if identity != IDENTITY:
            raise DeviceError(f"{self._port_name}: IDENTITY is 0x{identity:08x}, not 0x{IDENTITY:08x}: another design")
        if version >> 16 != VERSION >> 16 or version & 0xFFFF < VERSION & 0xFFFF:
            raise DeviceError(
                f"{self._port_name}: the board has version {_version(version)} of the registers, this program needs "
                f"{_version(VERSION)}: build and program a bitstream anew"
            )
        self.lanes = BY_NAME["CAPABILITIES"]["lanes"].get(capabilities)
        await self.set("CONTROL", BY_NAME["CONTROL"]["reset"].mask)

    # --- the port

    def _received(self, octets: bytes) -> None:
        self._guard(lambda: self._driver.receive(octets, self._loop.time()))

    def _lost(self, why: str) -> None:
        self._fail(DeviceError(why))

    def _tick(self) -> None:
        self._timer = None
        self._guard(lambda: self._driver.tick(self._loop.time()))

    def _guard(self, step: Callable[[], None]) -> None:
        if self._failure is not None:
            return
        try:
            step()
        except LinkFailureError as error:
            self._fail(type(error)(f"{self._port_name}: {error}"))
            return
        driver = self._driver
        while driver.values:
            value = driver.values.popleft()
            waiting = self._values.pop(value.access)
            if not waiting.done():
                waiting.set_result(value.value)
        self._gate.look()
        self._attend()

    def _attend(self) -> None:
        """Send all requests, after the tasks that run now have made theirs."""
        if not self._soon and self._failure is None:
            self._soon = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._soon = False
        if self._failure is not None:
            return
        self._driver.curious = self._curious > 0
        if octets := self._driver.to_send(self._loop.time()):
            self._port.write(octets)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._failure is None and (deadline := self._driver.deadline) is not None:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _fail(self, failure: DeviceError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._port.close()
        if self._timer is not None:
            self._timer.cancel()
        for each in self._values.values():
            if not each.done():
                each.set_exception(failure)
        self._values.clear()
        self._gate.look()

    # --- waiting

    def _usable(self) -> bool:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        return True

    async def _access(self, key: int) -> int:
        self._values[key] = waiting = self._loop.create_future()
        self._attend()
        value: int = await waiting
        return value

    async def _give(self, feed: Feed, packets: Sequence[bytes]) -> None:
        self._usable()
        await self._gate.until(lambda: self._failure or feed.octets < _ROOM)
        self._usable()
        for each in packets:
            feed.add(each)
        self._attend()

    async def _wait(self, holds: Callable[[], bool]) -> None:
        self._usable()
        if not holds():
            self._curious += 1
            self._attend()
            try:
                await self._gate.until(lambda: self._failure or holds())
            finally:
                self._curious -= 1
            self._usable()

    def _taken(self, what: _T) -> _T:
        self._attend()  # there is room for more
        self._gate.look()
        return what


def _check(register: str) -> None:
    if register not in BY_NAME:
        raise ValueError(f"no register is called {register}")


def _version(word: int) -> str:
    return f"{word >> 16}.{word & 0xFFFF}"
