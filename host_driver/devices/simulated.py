"""The device in simulation: the RTL in Verilator, under cocotb, in a process of its own.

An application uses it as it uses a board. ``host_driver.devices.sim.server`` is the other side of the socket, and
``host_driver.devices.sim.wire`` describes the octets that pass over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from open_rnic.host_driver.device import Device, DeviceError, Event, Ulpdu
from open_rnic.host_driver.devices.sim.build import Simulation
from open_rnic.host_driver.devices.sim.prepare import prepare
from open_rnic.host_driver.devices.sim.process import START, SimulationProcess
from open_rnic.host_driver.devices.sim.waves import save_views
from open_rnic.host_driver.devices.sim.wire import (
    EVENT,
    EVENT_WINDOW,
    PLACE,
    WORD,
    Kind,
    beats,
    frame,
    take_frames,
    window,
)
from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.rdma.engine import SPACE, MappedMemory
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.rdma import registers as rdma
from open_rnic.rtl.rdma import sample_registers, signal_registers
from open_rnic.rtl.registers import BY_NAME, Verdict

_Item = TypeVar("_Item")
_log = logging.getLogger(__name__)


class _Inbox(Generic[_Item]):
    """Received items of one flow that were not read yet, each with its cost in the flow's window."""

    def __init__(self, kind: Kind, size: int) -> None:
        self.kind = kind
        self.items: deque[tuple[_Item, int]] = deque()
        self.read = 0  # cost of the items read since the last GRANT
        self.batch = size // 4

    def clear(self) -> None:
        self.read += sum(cost for _, cost in self.items)
        self.items.clear()


class _Outbox:
    """The credit of one flow."""

    def __init__(self, kind: Kind, credit: int) -> None:
        self.kind = kind
        self.credit = credit


class SimulatedDevice(Device, asyncio.Protocol):
    """The RTL in Verilator. Open it with :meth:`open`.

    Between the application and the simulation each stream holds at most 256 KiB and one packet, or one call of
    ``write_ulpdus``, in each direction. If the application does not read, the RTL's ``ready`` goes low. Unread events
    beyond the first 64 stay in the RTL's FIFO. ULPDUs with a bad CRC or marker are dropped; an event reports them.
    """

    name = "simulated"
    memory: MappedMemory | None = None

    @classmethod
    async def open(
        cls, *, lanes: int = 4, waves: Path | str | None = None, offload: bool = False
    ) -> SimulatedDevice:
        """Start a device of ``lanes`` 32-bit lanes and reset it. The first build of a width takes a minute.

        With ``offload``, it has an RDMA engine, whose memory is this program's, with a sample writer and a signal
        generator.

        ``waves`` is a folder in which the device writes an FST file of its own, and views of it for GTKWave and Surfer.
        Raises ValueError for an unknown width, and DeviceError if the simulation cannot be built or started; the
        message names the log.
        """
        check_lanes(lanes)
        top = "rdma" if offload else "device", str(lanes)
        simulation = await prepare(*top, waves=waves is not None)
        trace = None if waves is None else _fresh_file(Path(waves), lanes)
        device = cls(lanes)
        if offload:
            device.memory = MappedMemory(SPACE // 2)  # the other half is the sample writer's
        try:
            await device._start(simulation, top, trace)
        except BaseException:
            await device.close()
            raise
        return device

    @classmethod
    async def join(
        cls, sock: socket.socket, process: SimulationProcess, memory: MappedMemory | None = None
    ) -> SimulatedDevice:
        """Return a data path of a simulation that someone else has started, and ends; ``sock`` leads to it.

        With ``memory``, it has an RDMA engine.
        """
        device = cls(1)
        device._process, device._owns, device.memory = process, False, memory
        await asyncio.get_running_loop().create_connection(lambda: device, sock=sock)
        return device

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._owns = True  # the process is this device's
        size = window(lanes)
        self._ulpdus = _Inbox[Ulpdu](Kind.ULPDU, size)
        self._mpa = _Inbox[bytes](Kind.MPA, size)
        self._events = _Inbox[Event](Kind.EVENT, EVENT_WINDOW)
        self._tx_ulpdu = _Outbox(Kind.ULPDU, size)
        self._rx_mpa = _Outbox(Kind.MPA, size)
        self._values: deque[tuple[asyncio.Future[int], bool]] = deque()  # True: the access is a reset
        self._drains = self._drained = 0  # DRAIN frames sent, DRAINED frames received
        self._interrupt_due = False  # an interrupt has been asked for, and has not come
        self._gate = Gate()
        self._hello = asyncio.Event()
        self._received = bytearray()
        self._unsent: list[bytes] = []
        self._failure: DeviceError | None = None
        self._process: SimulationProcess | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def process(self) -> int:
        """The id of the simulation process."""
        assert self._process is not None
        return self._process.pid

    # --- the device interface

    async def get(self, register: str) -> int:
        """Return the register's 32-bit value; raises ValueError for an unknown name."""
        return await self._access(frame(Kind.GET, _address(register)))

    async def set(self, register: str, value: int) -> None:
        """Write the register. The write takes effect before all later calls.

        ULPDUs and octets handed over before may not have reached the RTL yet. A reset discards them, and all
        results that have not been read. Raises ValueError for an unknown name and for more than 32 bits.
        """
        address = _address(register)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{register} holds 32 bits, not {value}")
        resets = register == "CONTROL" and bool(value & _RESET)
        await self._access(frame(Kind.SET, address, WORD.pack(value)), resets)

    def push(self, register: str, *words: int) -> None:
        """See Device."""
        if self._failure is None:
            self._send(frame(Kind.PUSH, _address(register), b"".join(map(WORD.pack, words))))

    async def interrupt(self) -> None:
        """See Device."""
        self._check()
        if not self._interrupt_due:
            self._interrupt_due = True
            self._send(frame(Kind.INTERRUPT))
        await self._gate.until(lambda: self._failure or not self._interrupt_due)
        self._check()

    async def next_event(self) -> Event:
        """See Device."""
        return await self._take(self._events)

    async def write_ulpdu(self, octets: bytes) -> None:
        """Hand over one ULPDU, or a packet of stream octets; waits while 256 KiB are on their way."""
        await self._give(self._tx_ulpdu, [octets])

    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """See Device."""
        await self._give(self._tx_ulpdu, ulpdus)

    async def read_ulpdu(self) -> Ulpdu:
        """Return the next good ULPDU, or some stream octets; waits for it."""
        return await self._take(self._ulpdus)

    async def read_ulpdus(self) -> list[bytes]:
        """See Device."""
        await self._there(self._ulpdus)
        ulpdus = []
        while self._ulpdus.items and self._ulpdus.items[0][0].verdict is Verdict.GOOD:
            ulpdus.append(self._pop(self._ulpdus).octets)
        return ulpdus

    async def write_mpa(self, octets: bytes) -> None:
        """Hand over octets of the peer's MPA stream, as one chunk; waits while 256 KiB are on their way."""
        if octets:
            await self._give(self._rx_mpa, [octets])

    async def read_mpa(self) -> bytes:
        """Return the next FPDU, or packet of stream octets, for the peer; waits for it."""
        return await self._take(self._mpa)

    async def read_fpdus(self) -> list[bytes]:
        """See Device."""
        fpdus = [await self.read_mpa()]
        while self._mpa.items:
            fpdus.append(self._pop(self._mpa))
        return fpdus

    async def drained(self) -> None:
        """See Device. The simulation answers when nothing has moved for some clock cycles."""
        self._check()
        self._drains += 1
        number = self._drains
        self._send(frame(Kind.DRAIN))
        unread = self._ulpdus, self._events
        await self._gate.until(
            lambda: self._failure or (self._drained >= number and not any(box.items for box in unread))
        )
        self._check()

    async def close(self) -> None:
        """End the simulation, and make every waiting task raise DeviceError. Idempotent."""
        if self._failure is None:
            self._fail(DeviceError("the device has been closed"))
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None and self._owns:
            await self._process.end()  # the process ends when its socket closes

    # --- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """For asyncio."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """For asyncio."""
        self._received += data
        for kind, note, octets in take_frames(self._received):
            match kind:
                case Kind.ULPDU if note == Verdict.CRC:
                    self.rejected = octets
                    self._ulpdus.read += beats(len(octets), self.lanes)
                case Kind.ULPDU:
                    self._ulpdus.items.append((Ulpdu(octets, Verdict(note)), beats(len(octets), self.lanes)))
                case Kind.MPA:
                    self._mpa.items.append((octets, beats(len(octets), self.lanes)))
                case Kind.EVENT:
                    self._events.items.append((Event.read(*EVENT.unpack(octets)), 1))
                case Kind.VALUE:
                    waiting, resets = self._values.popleft()
                    if resets:  # everything received before this is from before the reset
                        self._forget()
                    if not waiting.done():
                        waiting.set_result(WORD.unpack(octets)[0])
                case Kind.GRANT:
                    box = self._tx_ulpdu if note == Kind.ULPDU else self._rx_mpa
                    box.credit += WORD.unpack(octets)[0]
                case Kind.DRAINED:
                    self._drained += 1
                case Kind.WRITE if self.memory is not None:
                    (address,) = WORD.unpack_from(octets)
                    self.memory.write(address, memoryview(octets)[WORD.size :])
                case Kind.READ if self.memory is not None:
                    address, most = PLACE.unpack(octets)
                    self._send(frame(Kind.BLOCK, 0, self.memory.words(address, most, 4 * self.lanes)))
                case Kind.INTERRUPT:
                    self._interrupt_due = False
                case Kind.HELLO:
                    self._hello.set()
            self._gate.look()

    def connection_lost(self, exc: Exception | None) -> None:
        """For asyncio."""
        if self._failure is None:
            assert self._process is not None
            self._fail(self._process.death())

    async def _start(self, simulation: Simulation, top: Sequence[str], trace: Path | None) -> None:
        self._process, (ours,) = SimulationProcess.joined(simulation, top, trace=trace)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        try:
            await asyncio.wait_for(self._hello.wait(), START)
        except TimeoutError:
            self._fail(self._process.late())
        self._check()

    def _fail(self, failure: DeviceError) -> None:
        self._failure = failure
        self._hello.set()
        self._gate.look()
        for each, _ in self._values:
            if not each.done():
                each.set_exception(failure)
        self._values.clear()

    def _check(self) -> None:
        if self._failure is not None:
            raise DeviceError(*self._failure.args)

    def _send(self, octets: bytes) -> None:
        # All frames that are sent in one iteration of the event loop are one write.
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(octets)

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def _forget(self) -> None:
        for box in (self._ulpdus, self._mpa, self._events):
            box.clear()
            self._grant(box)

    def _grant(self, box: _Inbox[Any]) -> None:
        self._send(frame(Kind.GRANT, box.kind, WORD.pack(box.read)))
        box.read = 0

    async def _access(self, request: bytes, resets: bool = False) -> int:
        self._check()
        value: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._values.append((value, resets))
        self._send(request)
        return await value

    async def _give(self, box: _Outbox, packets: Sequence[bytes]) -> None:
        self._check()
        await self._gate.until(lambda: self._failure or box.credit > 0)
        self._check()
        for each in packets:
            box.credit -= beats(len(each), self.lanes)
            self._send(frame(box.kind, 0, each))

    async def _there(self, box: _Inbox[Any]) -> None:
        await self._gate.until(lambda: box.items or self._failure)
        if not box.items:
            self._check()

    async def _take(self, box: _Inbox[_Item]) -> _Item:
        await self._there(box)
        return self._pop(box)

    def _pop(self, box: _Inbox[_Item]) -> _Item:
        item, cost = box.items.popleft()
        box.read += cost
        if box.read >= box.batch and self._failure is None:
            self._grant(box)
        self._gate.look()
        return item


_RESET = BY_NAME["CONTROL"]["reset"].mask


_REGISTERS = BY_NAME | rdma.BY_NAME | sample_registers.BY_NAME | signal_registers.BY_NAME


def _address(register: str) -> int:
    found = _REGISTERS.get(register)
    if found is None:
        raise ValueError(f"no register is called {register}")
    return found.address // 4


def _fresh_file(folder: Path, lanes: int) -> Path:
    """Create a file for waves in ``folder`` that no other device uses, and its views beside it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            path = folder.absolute() / f"device{number}.fst"
            with contextlib.suppress(FileExistsError), open(path, "x"):
                save_views(path, lanes)
                return path
            number += 1
    except OSError as problem:
        raise DeviceError(f"no waves can be written to {folder}: {problem.strerror}") from None
