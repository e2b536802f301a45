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
from open_rnic.host_driver.gate import Gate
from open_rnic.rtl.registers import BY_NAME, IDENTITY, VERSION, Verdict

BITS = 10  # that an octet takes on the line
_ROOM = 1 << 17  # octets: above this a queue takes no more
_T = TypeVar("_T")


class SerialDevice(Device):
    """A data path behind a serial port. Open it with :meth:`open`.

    Each stream holds, in each direction, at most 128 KiB, one packet and two frames between the program and the board;
    when the program does not read, the board's streams stand. ULPDUs whose CRC or marker is bad are dropped: the event
    tells of them.
    """

    name = "serial"

    @classmethod
    async def open(cls, port: str, baud: int = BAUD, *, pace: float | None = None) -> SerialDevice:
        """The board at this port, just reset.

        ``pace`` is how many seconds the line takes for an octet, if that does not follow from ``baud``. Raises
        DeviceError when there is no such port or no right to it, when it is in use, and when nobody or something else
        answers.
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
        """For a look at what the link has been through."""
        return self._driver

    # --- the device interface

    async def get(self, register: str) -> int:
        """The register's 32-bit value; raises ValueError when there is none of this name."""
        _check(register)
        return await self._access(self._driver.read(register) if self._usable() else 0)

    async def set(self, register: str, value: int) -> None:
        """Write the register; what was handed over before may not have reached the data path yet.

        A reset drops that, and what was not read yet. Raises ValueError for an unknown name and for more than 32 bits.
        """
        _check(register)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{register} holds 32 bits, not {value}")
        await self._access(self._driver.write(register, value) if self._usable() else 0)

    async def next_event(self) -> Event:
        """The oldest event not seen yet; waits for one."""
        await self._wait(lambda: bool(self._driver.events))
        return self._taken(self._driver.events.popleft())

    async def write_ulpdu(self, octets: bytes) -> None:
        """Hand over one ULPDU, or a packet of stream octets; waits while too much is on its way."""
        await self._give(self._driver.tx_ulpdu, [octets])

    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """Hand over all these; waits as ``write_ulpdu`` does, once."""
        await self._give(self._driver.tx_ulpdu, ulpdus)

    async def read_ulpdu(self) -> Ulpdu:
        """The next good ULPDU, or some stream octets; waits for it."""
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
        """Hand over octets of the peer's MPA stream; waits while too much is on its way."""
        if octets:
            await self._give(self._driver.rx_mpa, [octets])

    async def read_mpa(self) -> bytes:
        """The next FPDU, or packet of stream octets, for the peer; waits for it."""
        await self._wait(lambda: bool(self._driver.mpa))
        return self._taken(self._driver.take_mpa())

    async def read_fpdus(self) -> list[bytes]:
        """See Device."""
        fpdus = [await self.read_mpa()]
        while self._driver.mpa:
            fpdus.append(self._driver.take_mpa())
        return fpdus

    async def drained(self) -> None:
        """See Device. The board shows it by its responses: two in a row that bring nothing."""
        await self._wait(lambda: self._driver.drained)

    async def close(self) -> None:
        """Let go of the port, and let every waiting task raise DeviceError. Idempotent."""
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
        """Send what there is to send, once the tasks that run now have had their say."""
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
