"""The interface through which an application drives a data path in software, in simulation or on a board.

A device is the data path of one connection. It has registers (``rtl.registers``), events, ULPDUs in and out, and the
octets of the MPA stream in and out. With TCP on the host, the owner of the socket sends the octets from ``read_mpa``
and hands received octets to ``write_mpa``.

In stream mode, before MPA is enabled in a direction, ``write_ulpdu`` and ``read_ulpdu`` carry stream octets
unchanged (RFC 6581 §4.2): the startup frames of RFC 5044 §7.1 go this way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from open_rnic.rtl.registers import BY_NAME, Cause, EventKind, Rtr, Verdict

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets
    from open_rnic.host_driver.rdma.engine import EngineMemory

__all__ = ["AttachedDevice", "Device", "DeviceError", "DeviceWithTcp", "Event", "Ulpdu"]


class DeviceError(Exception):
    """The device failed: it could not be opened, or it disappeared."""


@dataclass(frozen=True)
class Event:
    """An entry of the event FIFO.

    ``offset`` is the start of the FPDU that the event is about: octets of the received MPA stream, counted from
    RX_MPA_OFFSET, up to the first octet that the FPDU's CRC covers (its leading marker, if it has one). It is 0 for an
    event that is about no FPDU.
    """

    kind: EventKind
    detail: int = 0
    value: int = 0
    offset: int = 0

    @classmethod
    def read(cls, word: int, low: int, high: int) -> Self:
        """Decode the words of EVENT, EVENT_OFFSET_LO and EVENT_OFFSET_HI; EVENT is 0 if the FIFO is empty."""
        register = BY_NAME["EVENT"]
        kind, detail, value = (register[name].get(word) for name in ("kind", "detail", "value"))
        return cls(EventKind(kind), detail, value, high << 32 | low)

    @property
    def cause(self) -> Cause:
        """The cause of an ERROR; Cause.NONE for every other kind."""
        return Cause(self.detail) if self.kind is EventKind.ERROR else Cause.NONE

    @property
    def what(self) -> str:
        """The description of an ERROR, without its code and place; empty for every other kind."""
        return {
            Cause.NONE: "",
            Cause.CRC: f"the CRC of the FPDU with ULPDU_Length {self.value} does not match",
            Cause.FPDUPTR: f"FPDUPTR {self.value} does not point to the FPDU's start",
            Cause.RX_LENGTH: f"ULPDU_Length {self.value} is over the maximum",
            Cause.NOT_RTR: f"the first FPDU, of ULPDU_Length {self.value}, is not a negotiated RTR",
            Cause.TX_LENGTH: f"a ULPDU of {self.value} octets is over the maximum",
            Cause.TX_MISMATCH: f"a ULPDU was not of the {self.value} octets announced",
            Cause.TX_STREAM: f"a stream-mode packet ran {self.value} octets past the start of MPA",
        }[self.cause]

    def __str__(self) -> str:
        match self.kind:
            case EventKind.ERROR:
                return f"error {self.cause.code}: {self.what}, at stream offset {self.offset}"
            case EventKind.RTR_SENT | EventKind.RTR_RECEIVED:
                return f"{self.kind.name} {Rtr(self.detail).name}"
            case _:
                return self.kind.name


class Ulpdu(NamedTuple):
    """The octets that ``read_ulpdu`` returns, with the device's verdict on them."""

    octets: bytes
    verdict: Verdict = Verdict.GOOD


class Device(ABC):
    """The data path of one connection. Use it as an asynchronous context manager.

    Every queue behind these methods is bounded: a writer waits while the data path has no room. Methods raise
    DeviceError if the device has failed or is closed.
    """

    name: str
    lanes: int
    rejected = b""  # the last ULPDU with a bad CRC, for devices with TCP of their own
    memory: EngineMemory | None = None  # of the RDMA engine; None in a device without one
    needs_engine = False  # the host's own ULPDUs are too short for DDP in software

    def push(self, register: str, *words: int) -> None:
        """Write these words to a register of the RDMA engine, in order with all other accesses; does not wait.

        Nothing happens if the device has failed or is closed. Raises DeviceError if it has no engine.
        """
        raise DeviceError("it has no RDMA engine")

    async def interrupt(self) -> None:
        """Wait until the RDMA engine requests an interrupt."""
        raise DeviceError("it has no RDMA engine")

    def write_memory(self, address: int, octets: Octets) -> None:
        """Write octets to the device's own memory, in order with all accesses to registers; does not wait."""
        raise DeviceError("it has no memory of its own")

    async def read_memory(self, address: int, octets: int) -> bytes:
        """Read octets from the device's own memory, in order with all accesses to registers that were begun before."""
        raise DeviceError("it has no memory of its own")

    @abstractmethod
    async def get(self, register: str) -> int:
        """Return the 32-bit value of a register, which is named as in ``rtl.registers``."""

    @abstractmethod
    async def set(self, register: str, value: int) -> None:
        """Write a register."""

    @abstractmethod
    async def next_event(self) -> Event:
        """Return the oldest event that was not returned yet; waits for one."""

    @abstractmethod
    async def write_ulpdu(self, octets: bytes) -> None:
        """Hand over one ULPDU, or in stream mode a packet of stream octets."""

    @abstractmethod
    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """Hand over several ULPDUs: the segments of a message, of some hundred KiB at most.

        Waits as ``write_ulpdu`` does, once, and then hands over all of them. A call that is cancelled hands over none.
        """

    @abstractmethod
    async def read_ulpdu(self) -> Ulpdu:
        """Return the next received ULPDU, or in stream mode some stream octets; waits for it."""

    @abstractmethod
    async def read_ulpdus(self) -> list[bytes]:
        """Return all good ULPDUs received so far; waits for the first.

        Returns an empty list if stream octets are next: they stay for ``read_ulpdu``.
        """

    @abstractmethod
    async def write_mpa(self, octets: bytes) -> None:
        """Hand over octets of the peer's MPA stream, cut anywhere."""

    @abstractmethod
    async def read_mpa(self) -> bytes:
        """Return the next octets for the peer: one FPDU with its markers, or one stream-mode packet."""

    @abstractmethod
    async def read_fpdus(self) -> list[bytes]:
        """Return all that ``read_mpa`` would return now, one entry each; waits for the first."""

    @abstractmethod
    async def drained(self) -> None:
        """Wait until the receive direction holds nothing that could still be delivered.

        Then the data path has processed all octets given to ``write_mpa``, and ``read_ulpdu`` and ``next_event`` have
        returned all ULPDUs and events from them. Octets of an incomplete FPDU may remain. MPA must be enabled on
        receive.
        The transmit direction needs no such method: a ULPDU leaves as one FPDU, so the caller of ``read_fpdus`` counts.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release the device, and end every process that it started. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def set_fields(self, register: str, **fields: int) -> None:
        """Write a register with these fields, and with every other field at its reset value."""
        description = BY_NAME[register]
        word = description.reset
        for name, value in fields.items():
            one = description[name]
            word = (word & ~one.mask) | one.put(value)
        await self.set(register, word)

    async def get_wide(self, name: str) -> int:
        """Return the 64-bit counter in the registers ``name``_LO and ``name``_HI."""
        while True:
            high = await self.get(f"{name}_HI")
            low = await self.get(f"{name}_LO")
            if await self.get(f"{name}_HI") == high:
                return high << 32 | low


class DeviceWithTcp(Device):
    """A device whose MPA stream is that of its own TCP, so that no octets of it pass through the program."""

    async def write_mpa(self, octets: bytes) -> None:
        """Raise DeviceError: the octets come from TCP."""
        raise DeviceError("its MPA stream comes from its TCP")

    async def read_mpa(self) -> bytes:
        """Raise DeviceError: the octets go to TCP."""
        raise DeviceError("its MPA stream goes to its TCP")

    async def read_fpdus(self) -> list[bytes]:
        """Raise DeviceError: the octets go to TCP."""
        return [await self.read_mpa()]


class AttachedDevice(DeviceWithTcp):
    """The data path that comes with a connection whose TCP is in the same device.

    It has no data path before the connection is attached to it: a method then raises DeviceError. If it is to use the
    RDMA engine of its data path, ``sibling`` is any data path of that device: all engines of a device are alike, and
    share one memory, or each have one. What is written to memory before is then written again to that of the data path.
    """

    name = "attached"
    lanes = 1

    def __init__(self, sibling: Device | None = None) -> None:
        self._path: Device | None = None
        self._sibling = sibling
        self._early: list[tuple[int, bytes]] = []
        self.memory = None if sibling is None or sibling.memory is None else sibling.memory.beside(self)
        self.needs_engine = sibling is not None and sibling.needs_engine

    @classmethod
    async def open(cls) -> Device:
        """Return one that uses no engine and is not attached, as other devices are opened."""
        return cls()

    def attach(self, path: Device) -> None:
        """Stand for ``path``, which stays open after ``close``."""
        self._path = path
        for address, octets in self._early:
            path.write_memory(address, octets)

    @property
    def path(self) -> Device:
        """The data path."""
        if self._path is None:
            raise DeviceError("no connection is attached to it")
        return self._path

    @property
    def rejected(self) -> bytes:  # type: ignore[override]
        """See Device."""
        return self.path.rejected

    def push(self, register: str, *words: int) -> None:
        """See Device."""
        if self._path is not None:
            self._path.push(register, *words)

    async def interrupt(self) -> None:
        """See Device."""
        await self.path.interrupt()

    def write_memory(self, address: int, octets: Octets) -> None:
        """See Device."""
        if self._path is None:
            self._early.append((address, bytes(octets)))
        else:
            self._path.write_memory(address, octets)

    async def read_memory(self, address: int, octets: int) -> bytes:
        """See Device."""
        return await self.path.read_memory(address, octets)

    async def get(self, register: str) -> int:
        """See Device; what the engine is capable of is known before a connection is attached."""
        if self._path is None and self._sibling and register == "RDMA_CAPABILITIES":
            return await self._sibling.get(register)
        return await self.path.get(register)

    async def set(self, register: str, value: int) -> None:
        """See Device."""
        await self.path.set(register, value)

    async def next_event(self) -> Event:
        """See Device."""
        return await self.path.next_event()

    async def write_ulpdu(self, octets: bytes) -> None:
        """See Device."""
        await self.path.write_ulpdu(octets)

    async def write_ulpdus(self, ulpdus: Sequence[bytes]) -> None:
        """See Device."""
        await self.path.write_ulpdus(ulpdus)

    async def read_ulpdu(self) -> Ulpdu:
        """See Device."""
        return await self.path.read_ulpdu()

    async def read_ulpdus(self) -> list[bytes]:
        """See Device."""
        return await self.path.read_ulpdus()

    async def drained(self) -> None:
        """See Device."""
        await self.path.drained()

    async def close(self) -> None:
        """See Device."""
        self._path = None
