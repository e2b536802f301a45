"""The RNIC behind an Ethernet cable: registers of its network path, and a device for each connection."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

from open_rnic.host_driver.device import DeviceError, DeviceWithTcp, Event, Ulpdu
from open_rnic.host_driver.devices.serial.client import LinkClient
from open_rnic.host_driver.devices.serial.exchange import Exchange, NoAnswerError
from open_rnic.host_driver.devices.serial.window import MemoryWindow
from open_rnic.host_driver.devices.udp.datagrams import Datagrams, datagrams
from open_rnic.host_driver.devices.udp.driver import MAC, PATH, RNIC, DataPath, Page, RnicDriver, failure_of
from open_rnic.host_driver.rdma.engine import CopiedMemory, Places
from open_rnic.rtl import registers as mpa
from open_rnic.rtl.rdma import registers as rdma
from open_rnic.rtl.registers import Verdict
from open_rnic.rtl.rnic import registers as rnic_registers
from open_rnic.rtl.tcp import registers as tcp
from open_rnic.rtl.tcp.words import Command

__all__ = ["UdpPath", "UdpRnic"]

PACE = 4e-7  # seconds for an octet in a request and its response: 1 Gb/s, and the work of the board
LATENCY = 0.02  # seconds that networks and both ends may take besides
_FIRST = 40  # transmissions before the first answer
_PATIENCE = 750  # transmissions later: a minute without a cable
_DISCARDED = "RX_NO_ROOM", "RX_CHECKSUM", "RX_IGNORED", "CONFLICTS"
_ROOM = 1 << 16  # octets: a queue that holds more accepts nothing
_COMMAND = tcp.BY_NAME["COMMAND"]
_CONTROL = mpa.BY_NAME["CONTROL"]
_CAPABILITIES = rnic_registers.BY_NAME["RNIC_CAPABILITIES"]


class UdpRnic(LinkClient):
    """An RNIC behind UDP, with the registers of its network path (:class:`.PathRegisters`). Open it with :meth:`open`.

    ``paths`` are the data paths of the connections.
    """

    @classmethod
    async def open(cls, way: Datagrams, *, pace: float = PACE, latency: float = LATENCY) -> UdpRnic:
        """Open the RNIC at the end of this way, and reset all of its connections.

        Another host that uses it loses it. ``pace`` is the time of an octet in seconds, ``latency`` that of a request
        without octets; longer times are detected. Raises DeviceError if no RNIC answers, or another design does.
        """
        rnic = cls(way, pace, latency)
        try:
            await rnic._meet()
        except BaseException:
            await rnic.close()
            raise
        return rnic

    def __init__(self, way: Datagrams, pace: float, latency: float) -> None:
        exchange = Exchange(secrets.randbelow((1 << 32) - 1) + 1, pace, latency)
        exchange.attempts = _FIRST
        self.driver = RnicDriver(exchange)
        super().__init__(way.place, self.driver)
        self.paths: list[UdpPath] = []
        self._way = way
        way.receive = self._received

    def moved(self) -> None:
        """Note that the way leads to another address now."""
        self._place = self._way.place

    # --- the registers of the network path

    async def get(self, register: str) -> int:
        """See PathRegisters."""
        return await self.read(PATH, register)

    async def set(self, register: str, value: int) -> None:
        """See PathRegisters."""
        await self.write(PATH, register, value)

    async def interrupt(self) -> None:
        """See PathRegisters."""
        await self.look(lambda: self.driver.path_seen)

    # --- all registers

    def read(self, page: Page, register: str) -> asyncio.Future[int]:
        """Begin to read a register, in order with all other accesses; raises ValueError for an unknown name."""
        self._usable()
        return self._expect(self.driver.read(page, register))

    def write(self, page: Page, register: str, value: int) -> asyncio.Future[int]:
        """Begin to write a register; raises ValueError for an unknown name and for more than 32 bits."""
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{register} holds 32 bits, not {value}")
        self._usable()
        return self._expect(self.driver.write(page, register, value))

    async def counters(self) -> dict[str, int]:
        """Return the counters of the MAC."""
        return await self._all(MAC, [name for name in MAC.registers if name.startswith(("RX_", "TX_"))])

    async def discarded(self) -> dict[str, int]:
        """Return how many of the MAC's frames the network path has discarded, and how many address conflicts it saw."""
        return await self._all(PATH, _DISCARDED)

    async def _all(self, page: Page, names: Sequence[str]) -> dict[str, int]:
        return dict(zip(names, await asyncio.gather(*(self.read(page, name) for name in names)), strict=True))

    async def close(self) -> None:
        """Release the board, and make every waiting task raise DeviceError. Idempotent."""
        self._fail(DeviceError("the device has been closed"))

    # --- for the data paths

    def begun(self) -> None:
        """Send what the driver has been given."""
        self._attend()

    async def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds, and look at the device meanwhile."""
        self._usable()
        if not holds():
            self.driver.attend(self._loop.time())
            await self._wait(holds)

    async def look(self, seen: Callable[[], int]) -> None:
        """Wait until ``seen`` is the number of a look from now on."""
        before = self.driver.looks
        await self.wait(lambda: seen() > before)

    async def give(self, path: DataPath, packets: Sequence[bytes]) -> None:
        """Hand over packets; waits while many octets are on their way."""
        self._usable()
        await self._gate.until(lambda: self._failure or path.octets < _ROOM)
        self._usable()
        for each in packets:
            self.driver.give(path, each)
        self._attend()

    @property
    def failure(self) -> DeviceError | None:
        """Why the device has failed, or is closed; None while it works."""
        return self._failure

    def fail(self, failure: DeviceError) -> None:
        """Give the device up, for this reason."""
        self._fail(failure)

    async def failing(self) -> None:
        """Wait until the device has failed, or is closed."""
        await self._gate.until(lambda: self._failure)

    # --- the port

    def _write(self, octets: bytes) -> None:
        for each in datagrams(octets):
            self._way.send(each)

    def _release(self) -> None:
        self._way.close()

    # --- beginning

    async def _meet(self) -> None:
        try:
            identity, version, capabilities, pending = await asyncio.gather(
                *(self.read(RNIC, f"RNIC_{name}") for name in ("IDENTITY", "VERSION", "CAPABILITIES", "PENDING"))
            )
        except NoAnswerError:
            if self.driver.exchange.session_open:
                raise
            trouble = f" ({self._way.trouble})" if self._way.trouble else ""
            raise DeviceError(
                f"{self._place}: no answer{trouble}: is this the board's address, is its cable in, and is the board "
                "programmed with an RNIC? `rnic find` lists the boards in the network"
            ) from None
        self.driver.exchange.attempts = _PATIENCE
        self._match("RNIC_IDENTITY", identity, rnic_registers.IDENTITY)
        self._match_version("the RNIC's registers", version, rnic_registers.VERSION)
        if failure := failure_of(pending):
            raise DeviceError(f"{self._place}: {failure}")
        connections = _CAPABILITIES["connections"].get(capabilities)
        self._match("IDENTITY", await self.get("IDENTITY"), tcp.IDENTITY)
        self._match_version("TCP's registers", await self.get("VERSION"), tcp.VERSION)
        self.driver.open(connections)
        self.paths = [UdpPath(self, path) for path in self.driver.paths]
        for path in self.paths:
            await path.meet()
        if _CAPABILITIES["shared"].get(capabilities):
            places = Places(1 << _CAPABILITIES["memory"].get(capabilities))
            for path in self.paths:
                path.memory = CopiedMemory(path, places.space, places)
                path.needs_engine = True
        await self._clear()

    async def _clear(self) -> None:
        """Abort all connections, and reset their data paths: nobody uses what another host or program has left."""
        for name in mpa.words_of("ACCEPT", len(self.paths)):
            await self.set(name, 0)
        for n, path in enumerate(self.paths):
            while _COMMAND["pending"].get(await self.get("COMMAND")):
                pass
            await self.set(
                "COMMAND",
                _COMMAND["kind"].put(Command.ABORT) | _COMMAND["connection"].put(n) | _COMMAND["go"].put(1),
            )
            while _COMMAND["pending"].get(await self.get("COMMAND")):
                pass
            await path.set("CONTROL", _CONTROL["reset"].mask)
        for name in mpa.words_of("CHANGED", len(self.paths)):
            await self.set(name, (1 << mpa.WORD) - 1)


class UdpPath(MemoryWindow, DeviceWithTcp):
    """The data path of a connection of an RNIC.

    Its ULPDUs and stream octets pass through registers, 4 octets at a time: enough for startup frames. Its RDMA engine
    is for all else.
    """

    name = "udp"
    lanes = 1
    memory: CopiedMemory | None = None

    def __init__(self, rnic: UdpRnic, path: DataPath) -> None:
        self._rnic = rnic
        self._data = path

    async def meet(self) -> None:
        """Check the registers, and learn whether there is an RDMA engine."""
        names = "IDENTITY", "VERSION", "RDMA_IDENTITY", "RDMA_VERSION", "MEMORY_OCTETS"
        identity, version, engine, engine_version, octets = await asyncio.gather(*map(self._read, names))
        self._rnic._match("IDENTITY", identity, mpa.IDENTITY)
        self._rnic._match_version("the registers", version, mpa.VERSION)
        if engine == rdma.IDENTITY and octets:
            self._rnic._match_version("the RDMA engine's registers", engine_version, rdma.VERSION)
            self.memory = CopiedMemory(self, octets, Places(octets))

    def _read(self, register: str) -> asyncio.Future[int]:
        return self._rnic.read(self._data.page, register)

    @property
    def rejected(self) -> bytes:  # type: ignore[override]
        """See Device."""
        return self._data.rejected

    async def get(self, register: str) -> int:
        """See Device."""
        return await self._read(register)

    async def set(self, register: str, value: int) -> None:
        """See Device. A reset discards packets that were handed over, and all results that have not been read."""
        await self._rnic.write(self._data.page, register, value)

    def push(self, register: str, *words: int) -> None:
        """See Device."""
        self._data.page.address(register)
        if self._rnic.failure is None:
            for word in words:
                self._rnic.driver.write(self._data.page, register, word)
            self._rnic.begun()

    async def interrupt(self) -> None:
        """See Device."""
        number = self._data.page.number - self._rnic.paths[0]._data.page.number
        self._data.waiting += 1
        try:
            await self._rnic.look(lambda: self._rnic.driver.engines_seen[number])
        finally:
            self._data.waiting -= 1

    async def next_event(self) -> Event:
        """See Device."""
        await self._rnic.wait(lambda: bool(self._data.events))
        return self._data.events.popleft()

    async def write_ulpdu(self, octets: bytes) -> None:
        """See Device."""
        await self._rnic.give(self._data, [octets])

    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """See Device."""
        await self._rnic.give(self._data, ulpdus)

    async def read_ulpdu(self) -> Ulpdu:
        """See Device."""
        await self._rnic.wait(lambda: bool(self._data.ulpdus))
        return self._data.ulpdus.popleft()

    async def read_ulpdus(self) -> list[bytes]:
        """See Device."""
        await self._rnic.wait(lambda: bool(self._data.ulpdus))
        ulpdus = []
        while self._data.ulpdus and self._data.ulpdus[0].verdict is Verdict.GOOD:
            ulpdus.append(self._data.ulpdus.popleft().octets)
        return ulpdus

    async def drained(self) -> None:
        """See Device. The board has drained when two looks from now on find nothing."""
        self._data.quiet = 0
        await self._rnic.wait(lambda: self._data.quiet > 2 and not (self._data.ulpdus or self._data.events))

    async def close(self) -> None:
        """Do nothing: the RNIC is closed as a whole."""
