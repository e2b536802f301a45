"""The program's end of a link, for asyncio: between a sans-IO driver, a port, and the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.serial.driver import LinkDriver
from open_rnic.host_driver.devices.serial.exchange import LinkFailureError
from open_rnic.host_driver.lib.waiting import Gate

__all__ = ["LinkClient"]


class LinkClient:
    """Operates a driver. ``place`` is the device's name in messages.

    A subclass has the port: ``_write`` sends octets, ``_release`` releases it.
    """

    def __init__(self, place: str, driver: LinkDriver) -> None:
        self._place = place
        self._link = driver
        self._failure: DeviceError | None = None
        self._gate = Gate()
        self._values: dict[int, asyncio.Future[int]] = {}
        self._curious = 0
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._loop = asyncio.get_running_loop()

    def _write(self, octets: bytes) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    # --- accesses

    def _usable(self) -> bool:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        return True

    def _expect(self, key: int) -> asyncio.Future[int]:
        """Return the result of the access with this key."""
        waiting: asyncio.Future[int] = self._loop.create_future()
        self._values[key] = waiting
        self._attend()
        return waiting

    async def _wait(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds, and ask the device for results meanwhile."""
        self._usable()
        if not holds():
            self._curious += 1
            self._attend()
            try:
                await self._gate.until(lambda: self._failure or holds())
            finally:
                self._curious -= 1
            self._usable()

    # --- what answers

    def _match(self, register: str, found: int, wanted: int) -> None:
        """Raise DeviceError if IDENTITY, or another register, belongs to another design."""
        if found != wanted:
            raise DeviceError(f"{self._place}: {register} is 0x{found:08x}, not 0x{wanted:08x}: another design")

    def _match_version(self, what: str, found: int, wanted: int) -> None:
        """Raise DeviceError if the program does not know these registers, or needs later ones."""
        if found >> 16 != wanted >> 16 or found & 0xFFFF < wanted & 0xFFFF:
            raise DeviceError(
                f"{self._place}: the board has version {_version(found)} of {what}, this program needs "
                f"{_version(wanted)}: build and program a bitstream anew"
            )

    # --- the port

    def _received(self, octets: bytes) -> None:
        self._guard(lambda: self._link.receive(octets, self._loop.time()))

    def _lost(self, why: str) -> None:
        self._fail(DeviceError(why))

    def _tick(self) -> None:
        self._timer = None
        self._guard(lambda: self._link.tick(self._loop.time()))

    def _guard(self, step: Callable[[], None]) -> None:
        if self._failure is not None:
            return
        try:
            step()
        except LinkFailureError as error:
            self._fail(type(error)(f"{self._place}: {error}"))
            return
        values = self._link.values
        while values:
            value = values.popleft()
            waiting = self._values.pop(value.access, None)  # None for what was pushed
            if waiting is not None and not waiting.done():
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
        self._link.curious = self._curious > 0
        if octets := self._link.to_send(self._loop.time()):
            self._write(octets)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._failure is None and (deadline := self._link.deadline) is not None:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _fail(self, failure: DeviceError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._release()
        if self._timer is not None:
            self._timer.cancel()
        for each in self._values.values():
            if not each.done():
                each.set_exception(failure)
        self._values.clear()
        self._gate.look()


def _version(word: int) -> str:
    return f"{word >> 16}.{word & 0xFFFF}"
