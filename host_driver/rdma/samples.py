"""Samples of a device's fabric in a ring of the peer's memory: both ends of ``rtl.rdma.sample_writer``.

::

    reader        writer
          ─▸ MPA Request:
             the place of the ring
          ◂─ MPA Reply:
             the place of the head
          ─▸ RDMA Write of the head, 0
          ◂─ RDMA Writes of samples
             into the ring
          ◂─ Send: a record of what
             the ring holds
          ─▸ RDMA Write of the head,
             to free octets

A place has 16 octets in network order: TO (64), STag (32), length (32). A record has the number of octets that have
been written to the ring, and the number of samples that were dropped before the last of them; the head is the number of
octets that the reader has freed. These have 64 bits each, with the least significant octet first.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from open_rnic.host_driver.connection import POLL
from open_rnic.host_driver.device import Device, DeviceError
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma.connection import By, ClosedError, Connection, RdmaError
from open_rnic.host_driver.rdma.manager import ConnectionRequest, connect
from open_rnic.host_driver.rdma.memory import Access, Place, ProtectionDomain, Region
from open_rnic.rtl.rdma import sample_registers, signal_registers
from open_rnic.rtl.rdma.sample_registers import RECORD_OCTETS, Doorbell
from open_rnic.rtl.rdma.signal_registers import Pattern
from open_rnic.rtl.registers import Register, Role

__all__ = [
    "Block",
    "Delivery",
    "Doorbell",
    "Pattern",
    "Place",
    "SampleReader",
    "SampleStatus",
    "SampleWriter",
    "SamplesError",
    "SignalGenerator",
    "SignalStatus",
]

RING = 1 << 16  # octets, by default
_MAX_RING = 1 << 31
_RECORD = struct.Struct("<QQ")
_HEAD = struct.Struct("<Q")
_WORD = 0xFFFF_FFFF
_REGISTERS: dict[str, Register] = sample_registers.BY_NAME | signal_registers.BY_NAME


class SamplesError(Exception):
    """The peer has violated the protocol of this module."""


@dataclass(frozen=True)
class Delivery:
    """When samples leave, and what happens to samples for which there is no room.

    A doorbell of the kind WRITE needs ``bell_place``, which has 16 octets or more. See ``docs/samples.md``.
    """

    drops: bool = True  # otherwise the stream of samples stalls
    write_octets: int = 1024  # octets of an RDMA Write
    doorbell: Doorbell = Doorbell.SEND
    bell_octets: int = 0  # octets from one doorbell to the next; 0: a quarter of the ring
    bell_ticks: int = 0  # ticks after which samples are announced, though they are fewer; 0: none
    bell_place: Place | None = None

    def check(self, ring: Place) -> None:
        """Raise ValueError if the sample writer cannot deliver to this ring."""
        if not 0 < ring.octets <= _MAX_RING:
            raise ValueError(f"a ring has 1 to {_MAX_RING} octets, not {ring.octets}")
        if not 0 < self.write_octets <= ring.octets // 2:
            raise ValueError(
                f"write_octets is at least 1 and at most half of the ring of {ring.octets} octets, "
                f"not {self.write_octets}"
            )
        for name in ("bell_octets", "bell_ticks"):
            if not 0 <= getattr(self, name) <= _WORD:
                raise ValueError(f"{name} has 32 bits, not {getattr(self, name)}")
        if self.doorbell is Doorbell.WRITE and (self.bell_place is None or self.bell_place.octets < RECORD_OCTETS):
            raise ValueError(f"a doorbell of the kind WRITE needs a bell_place of {RECORD_OCTETS} octets")


@dataclass(frozen=True)
class SampleStatus:
    """The counts of a sample writer. They are read one after the other: they agree if the writer has stopped."""

    octets: int  # written to the ring
    freed: int  # octets that the reader has freed
    dropped: int  # samples for which there was no room
    bells: int  # doorbells
    blocked: bool  # the ring has no room for the next RDMA Write
    pending: bool  # samples wait, or have not been announced
    busy: bool  # RDMA Writes or doorbells are on their way through the engine
    bad_head: bool  # the reader has freed octets that it must not free, which had no effect


class SampleWriter:
    """The sample writer in the device of a connection; ``accept`` or ``open`` makes it.

    An asynchronous context manager, which closes the connection and deregisters the head.
    """

    def __init__(self, connection: Connection, head: Region, control: int, sample: int) -> None:
        self.connection = connection
        self.sample = sample  # octets of a sample
        self._head = head
        self._control = control  # with ``enable``

    @classmethod
    async def accept(cls, request: ConnectionRequest, delivery: Delivery | None = None) -> Self:
        """Accept a ``SampleReader`` with the place of a new head.

        A request is rejected, and raises ValueError, if its private data is no place of a ring, or of a ring for which
        ``delivery`` makes no sense, if the device has no sample writer, and if another of its connections has it: a
        Reply arrives even where frames are lost, as a reset does not. Raises the errors of
        ``ConnectionRequest.accept``, too.
        """
        delivery = delivery or Delivery()
        try:
            ring = Place.decode(request.private_data)
            delivery.check(ring)
            await _take_writer(request.device)
        except ValueError:
            await request.reject()
            raise
        domain = ProtectionDomain()
        head = domain.register(bytearray(_HEAD.size), Access.REMOTE_WRITE)
        try:
            connection = await request.accept(Place.of(head).encode(), domain=domain)
            try:
                return await cls.open(connection, ring, head, delivery)
            except BaseException:
                await connection.abort()
                raise
        except BaseException:
            head.deregister()
            raise

    @classmethod
    async def open(cls, connection: Connection, ring: Place, head: Region, delivery: Delivery | None = None) -> Self:
        """Return the sample writer of the connection's device, which writes to ``ring``.

        The peer writes 8 octets to ``head``. A connection has one ring. Raises ValueError if the device has no sample
        writer, if another of its connections has it, if it has written samples already, and if ``delivery`` makes no
        sense for the ring.
        """
        delivery = delivery or Delivery()
        delivery.check(ring)
        device = connection.device
        await _take_writer(device)
        if await device.get_wide("SAMPLE_TAIL"):
            raise ValueError("the sample writer of this connection has written to its ring already")
        place = delivery.bell_place or Place(0, 0, 0)
        values = {
            "RING_STAG": ring.stag, "RING_TO_LO": ring.to & _WORD, "RING_TO_HI": ring.to >> 32,
            "RING_OCTETS": ring.octets, "WRITE_OCTETS": delivery.write_octets,
            "BELL_OCTETS": delivery.bell_octets or max(ring.octets // 4, 1), "BELL_TICKS": delivery.bell_ticks,
            "BELL_STAG": place.stag, "BELL_TO_LO": place.to & _WORD, "BELL_TO_HI": place.to >> 32,
            "HEAD_ADDRESS": connection.device_address(head),
        }  # fmt: skip
        for name, value in values.items():
            await device.set(f"SAMPLE_{name}", value)
        control = _word("SAMPLE_CONTROL", enable=1, drops=delivery.drops, doorbell=delivery.doorbell)
        capabilities = await device.get("SAMPLE_CAPABILITIES")
        return cls(connection, head, control, 1 << _REGISTERS["SAMPLE_CAPABILITIES"]["sample"].get(capabilities))

    async def start(self) -> None:
        """Take samples from now on."""
        await self.connection.device.set("SAMPLE_CONTROL", self._control)

    async def stop(self) -> SampleStatus:
        """Take no more samples, and return when all that were taken have been announced.

        This waits for the peer to free room for them. Raises SamplesError if the peer has closed before, unless it has
        freed all octets and no sample waits, and an RdmaError if the connection has ended before.
        """
        device = self.connection.device
        try:
            await device.set("SAMPLE_CONTROL", self._control & ~_REGISTERS["SAMPLE_CONTROL"]["enable"].mask)
            while True:
                over = self.connection.over  # asked first, so that the status has all that the peer has freed
                status = await self.status()
                if self.connection.error:
                    raise self.connection.error
                left = status.octets - status.freed
                if over and (left or status.pending):
                    raise SamplesError(
                        f"the reader closed with {left} of {status.octets} octets not freed"
                        + (", and with samples that wait" if status.pending else "")
                    )
                if not status.pending and not status.busy:
                    break
                await asyncio.sleep(POLL)
        except DeviceError:
            raise self.connection.error or ClosedError(By.LOCAL) from None
        return status

    async def finish(self) -> SampleStatus:
        """Stop, close this end's half of the connection, and wait until the reader has closed the other half.

        Raises what ``stop`` raises. A reader that closes without the octets that were announced last is not noticed, as
        it need not free them.
        """
        status = await self.stop()
        await self.connection.shutdown()
        if error := await self.connection.disconnected():
            raise error
        return status

    async def status(self) -> SampleStatus:
        """Return the counts; raises DeviceError if the device is closed."""
        device = self.connection.device
        word = await device.get("SAMPLE_STATUS")
        flags = {name: bool(_REGISTERS["SAMPLE_STATUS"][name].get(word))
                 for name in ("blocked", "pending", "busy", "bad_head")}  # fmt: skip
        freed = await device.get("SAMPLE_HEAD")
        octets = await device.get_wide("SAMPLE_TAIL")
        return SampleStatus(
            octets=octets,
            freed=octets - (octets - freed) % (1 << 32),
            dropped=await device.get_wide("SAMPLE_DROPPED"),
            bells=await device.get("SAMPLE_BELLS"),
            **flags,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self.connection.__aexit__(*failure)
        await self.connection.cleared()  # another connection can have the sample writer now
        self._head.deregister()


class Block(NamedTuple):
    """Samples in their order. ``octets`` is the ring's memory, or a copy if they lie on both sides of its end."""

    octets: memoryview  # these are freed when the next block is asked for
    lost: int  # samples that were dropped before the first of these


class SampleReader:
    """Receives samples in a ring of this end's memory, and iterates over them in blocks; ``connect`` makes it.

    The iteration ends when the peer closes the connection, and raises an RdmaError if the connection ends otherwise, or
    SamplesError if the peer does not keep to the protocol. Octets are freed when a quarter of the ring can be. An
    asynchronous context manager, which closes the connection and deregisters the ring.
    """

    def __init__(self, connection: Connection, ring: Region, head: Place) -> None:
        self.connection = connection
        self.octets = 0  # received
        self.lost = 0  # samples that were dropped before the last octet received
        self.bells = 0
        self._ring = ring
        self._head = head
        self._freed = 0

    @classmethod
    async def connect(cls, host: str, port: int, *, octets: int = RING, **options: Any) -> Self:
        """Connect to a ``SampleWriter`` with a new ring of ``octets`` octets.

        ``options`` are those of ``rdma.connect``. Raises SamplesError if the Reply has no place of a head, and the
        errors of ``rdma.connect``.
        """
        domain = ProtectionDomain()
        ring = domain.register(bytearray(octets), Access.REMOTE_WRITE)
        config = replace(options.pop("config", None) or Config(Role.INITIATOR), private_data=Place.of(ring).encode())
        try:
            connection = await connect(host, port, config, domain=domain, **options)
            try:
                return cls(connection, ring, _head_of(connection.negotiated.private_data))
            except SamplesError:
                await connection.abort()
                raise
        except BaseException:
            ring.deregister()
            raise

    async def __aiter__(self) -> AsyncIterator[Block]:
        """Receive blocks; a second iteration goes on behind the first."""
        await self._free(at_least=0)  # in the client-server model, an initiator sends first (RFC 5044 §7.1.2)
        while True:
            try:
                record = (await self.connection.receive(RECORD_OCTETS)).data
            except ClosedError:
                return
            block = self._take(bytes(record))
            self.bells += 1
            yield block
            await self._free(at_least=max(self._ring.octets // 4, 1))

    def _take(self, record: bytes) -> Block:
        size = self._ring.octets
        tail, dropped = _RECORD.unpack(record) if len(record) == RECORD_OCTETS else (-1, 0)
        if not self.octets <= tail <= self._freed + size or dropped < self.lost:
            raise SamplesError(
                f"behind octet {self.octets}, with octets free up to {self._freed + size} and {self.lost} samples "
                f"dropped, this is no record: {record.hex()}"
            )
        start, end = self.octets % size, self.octets % size + tail - self.octets
        ring = self._ring.view
        octets = ring[start:end] if end <= size else memoryview(bytes(ring[start:]) + bytes(ring[: end - size]))
        block = Block(octets, dropped - self.lost)
        self.octets, self.lost = tail, dropped
        return block

    async def _free(self, at_least: int) -> None:
        if self.octets - self._freed >= at_least:
            self._freed = self.octets
            with contextlib.suppress(RdmaError):  # what has arrived before the end of the connection is still received
                await self.connection.write(_HEAD.pack(self._freed), self._head.stag, self._head.to)

    async def close(self) -> None:
        """Close the connection, and deregister the ring. Idempotent, and never raises."""
        await self.connection.close()
        self._ring.deregister()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self.connection.__aexit__(*failure)
        self._ring.deregister()


@dataclass(frozen=True)
class SignalStatus:
    """The state of a signal generator."""

    given: int  # samples; the last one may wait
    runs: bool  # samples are still to be given
    stalls: bool  # a sample waits to be taken


class SignalGenerator:
    """A source of samples in the device, made by ``open``: ``rtl.rdma.signal_generator``."""

    def __init__(self, device: Device) -> None:
        self._device = device

    @classmethod
    async def open(cls, device: Device) -> Self:
        """Return the generator of a device; raises ValueError if it has none."""
        if not await _has(device, "SIGNAL", signal_registers.IDENTITY):
            raise ValueError(f"the {device.name} device has no signal generator")
        return cls(device)

    async def start(
        self, pattern: Pattern = Pattern.COUNTER, *, samples: int = 0, period: int = 1, turns: float = 0.0
    ) -> None:
        """Give ``samples`` samples, or any number if it is 0, the first with number 0.

        A sample follows ``period`` clock cycles after the one before it, or later if that has to wait. A SINE has
        ``turns`` periods in each sample, less than 1. Raises ValueError for values that do not fit.
        """
        if not 0 <= samples <= _WORD:
            raise ValueError(f"samples has 32 bits, not {samples}")
        if not 1 <= period <= _WORD:
            raise ValueError(f"period is at least 1 and has 32 bits, not {period}")
        if not 0 <= turns < 1:
            raise ValueError(f"turns is at least 0 and less than 1, not {turns:g}")
        await self.stop()
        for name, value in {"SAMPLES": samples, "PERIOD": period, "STEP": int(turns * (1 << 32))}.items():
            await self._device.set(f"SIGNAL_{name}", value)
        await self._device.set("SIGNAL_CONTROL", _word("SIGNAL_CONTROL", enable=1, pattern=pattern))

    async def stop(self) -> None:
        """Give no more samples; one that waits still has to be taken."""
        await self._device.set("SIGNAL_CONTROL", 0)

    async def finished(self, taker: Connection | None = None) -> SignalStatus:
        """Wait until all samples have been taken; stop if ``taker`` is over, as nothing may take them then.

        Raises DeviceError if the device is closed.
        """
        while (status := await self.status()).runs or status.stalls:
            if taker and taker.over:
                await self.stop()
                return await self.status()
            await asyncio.sleep(POLL)
        return status

    async def status(self) -> SignalStatus:
        """Return the state. Raises DeviceError if the device is closed."""
        word = await self._device.get("SIGNAL_STATUS")
        given = await self._device.get_wide("SIGNAL_GIVEN")
        register = _REGISTERS["SIGNAL_STATUS"]
        return SignalStatus(given, bool(register["runs"].get(word)), bool(register["stalls"].get(word)))


def _head_of(private_data: bytes) -> Place:
    """Return the place of the writer's head; raises SamplesError."""
    try:
        place = Place.decode(private_data)
    except ValueError as error:
        raise SamplesError(f"the Reply has no place of a head: {error}") from None
    if place.octets < _HEAD.size:
        raise SamplesError(f"a head has {_HEAD.size} octets, not {place.octets}")
    return place


def _word(register: str, **fields: int) -> int:
    return sum(_REGISTERS[register][name].put(int(value)) for name, value in fields.items())


async def _take_writer(device: Device) -> None:
    """Take the device's sample writer for a connection, which may have it already; raises ValueError if it cannot."""
    if not await _has(device, "SAMPLE", sample_registers.IDENTITY):
        raise ValueError(f"the {device.name} device of this connection has no sample writer")
    await device.set("SAMPLE_CONTROL", 0)  # takes it
    if _REGISTERS["SAMPLE_STATUS"]["taken"].get(await device.get("SAMPLE_STATUS")):
        raise ValueError("another connection of the device has its sample writer")


async def _has(device: Device, page: str, identity: int) -> bool:
    """Return whether the device has this page of registers."""
    try:
        return await device.get(f"{page}_IDENTITY") == identity
    except ValueError:  # it knows no such register
        return False
