"""A stream whose DDP and RDMAP are in the RDMA engine of a device, driven through the registers of ``rtl.rdma``.

The engine places, sends and answers. What is done once for each request or connection stays here: work that exceeds the
engine's queues waits, completions are put into the order of posting (RFC 5040 §5.5 rule 15), STags are made, and when
the engine refuses a ULPDU, :func:`.refusal` finds out why from its header. All data paths therefore report the same
errors.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from open_rnic.host_driver.connection import LINGER, POLL
from open_rnic.host_driver.ddp import (
    READ_QN,
    SEND_QN,
    TAGGED_OCTETS,
    UNTAGGED_OCTETS,
    DdpError,
    Fault,
    Opcode,
    Place,
    ReadRequest,
    Tagged,
    decode,
    refusal,
    source_refusal,
)
from open_rnic.host_driver.device import Device, DeviceError
from open_rnic.host_driver.rdma.engine import EngineMemory, Progress, commands
from open_rnic.host_driver.rdma.memory import Access, DeviceBuffer, Growing, ProtectionDomain, Region, View
from open_rnic.host_driver.rdma.stream import Receive, Stream, Work
from open_rnic.host_driver.rdma.work import ReceiveRequest, WorkRequest
from open_rnic.rtl.rdma.registers import BY_NAME, HEADER_WORDS, REQUEST_WORDS

_STATUS = BY_NAME["RDMA_STATUS"]
_DONE = BY_NAME["RDMA_DONE"]
_CONTROL = BY_NAME["RDMA_CONTROL"]
READY = 10.0  # seconds, for an engine that takes some microseconds, in simulation too
PLACED = 10.0  # seconds, for a memory that takes a word in some cycles
_BEHIND = 4  # ULPDUs behind which no octet of an earlier one waits: each moves the engine's words, of which two wait
_COUNT = 1 << 16  # the counters in DONE are modulo this
_MSNS = 1 << 32


class OffloadStream(Stream):
    """A ``Stream`` whose engine is in a device. Its ``receive`` takes the ULPDUs that the engine passes to the host.

    ``sync`` reads the engine's registers, and must be called after each interrupt. ``blocked`` is whether a Send of the
    peer stalls because no buffer is posted for it, as of the last ``sync``.
    """

    @classmethod
    async def open(cls, domain: ProtectionDomain, device: Device, *, waits: bool = True) -> OffloadStream:
        """Return a stream in a device with an engine; raises ValueError if the domain's regions do not fit."""
        assert device.memory is not None
        word = await device.get("RDMA_CAPABILITIES")
        sizes = {field.name: 1 << field.get(word) for field in BY_NAME["RDMA_CAPABILITIES"].fields}
        stream = cls(domain, device, device.memory, sizes, waits=waits)
        try:
            domain.attach(stream, stream)
        except BaseException:
            stream._remove_all()
            raise
        return stream

    def __init__(
        self,
        domain: ProtectionDomain,
        device: Device,
        memory: EngineMemory,
        sizes: dict[str, int],
        *,
        waits: bool = True,
    ) -> None:
        super().__init__(domain, Progress(), waits)
        self.blocked = False
        self._device = device
        self._memory = memory
        self._sizes = sizes
        self._enabled = False  # commands can be carried out
        self._lock = asyncio.Lock()  # held while registers are read that belong together
        self._mulpdu: Callable[[], int] = lambda: 0
        self._limits = 0  # as last written
        self._addresses: dict[Region, int] = {}
        self._retired: list[int] = []  # addresses of memory that the engine may still use
        self._freeing: asyncio.Task[None] | None = None
        self.follow: Callable[[], Awaitable[None]] = self.sync  # the owner's way to call ``sync``
        self._rows: set[int] = set()
        self._sink_address: int | None = None  # the address of the sink that is being registered
        self._windows = min(sizes["work"], max(sizes["regions"] // 2, 1))  # rows kept for the sinks of RDMA Reads
        self._buffers = 0  # the first of the posted buffers are in the engine
        self._given: deque[Receive] = deque()  # these, and withdrawn ones that the engine has not given back
        self._returned = 0  # number of buffers that the engine has given back
        self._waiting: deque[Work] = deque()  # not yet in the engine
        self._messages: deque[Work] = deque()  # Sends and RDMA Writes in the engine
        self._reading: deque[Work] = deque()  # RDMA Reads in the engine
        self._done = 0  # as last read
        self._status: dict[str, int] = {field.name: 0 for field in _STATUS.fields}

    # Commands to the engine

    def _push(self, command: list[int]) -> None:
        self._device.push("RDMA_COMMAND", *command)

    async def begin(self, ird: int, ord: int, mulpdu: Callable[[], int]) -> None:  # noqa: A002
        """Enable the engine; the device has been reset, and its data path is still in stream mode.

        Raises DeviceError if the engine does not become ready.
        """
        await super().begin(ird, ord, mulpdu)
        self._mulpdu = mulpdu
        deadline = asyncio.get_running_loop().time() + READY
        while not _STATUS["ready"].get(await self._device.get("RDMA_STATUS")):
            if asyncio.get_running_loop().time() > deadline:
                raise DeviceError(f"its RDMA engine was not ready within {READY:g} s of the reset")
            await asyncio.sleep(0)
        self._enabled = True
        self._write_limits()
        for region, address in self._addresses.items():
            self._push_region(region, address)
        self._give_buffers()
        self.control()

    def control(self, **choices: bool) -> None:
        """See Stream."""
        super().control(**choices)
        now = self.progress
        flags = {"enable": True, "waits": now.waits, "drops": now.drops, "shut": now.shut, "stop": now.stops}
        if self._enabled:
            self._device.push("RDMA_CONTROL", sum(_CONTROL[name].put(flag) for name, flag in flags.items()))

    def _write_limits(self) -> None:
        register = BY_NAME["RDMA_LIMITS"]
        limits = register["mulpdu"].put(self._mulpdu()) | register["ird"].put(self.progress.ird)
        limits |= register["ord"].put(min(self.progress.ord, self._sizes["reads"]))
        if limits != self._limits:
            self._limits = limits
            self._device.push("RDMA_LIMITS", limits)

    def stop(self) -> None:
        """See Stream."""
        super().stop()
        if self._freeing is not None:
            self._freeing.cancel()

    async def silence(self) -> bool:
        """See Stream; gives up after a second, as the peer may not take the rest of a ULPDU."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while await self._sends():
                    await asyncio.sleep(POLL)
                await self._finish_done()
                return True
        return False

    async def _finish_done(self) -> None:
        """Learn of messages that have left since the last ``sync``: they are complete, in spite of any later error."""
        if self._enabled:
            with contextlib.suppress(DeviceError):
                async with self._lock:
                    await self._read_done()

    async def _sends(self) -> bool:
        if not self._enabled:
            return False
        try:
            return bool(_STATUS["sending"].get(await self._device.get("RDMA_STATUS")))
        except DeviceError:
            return False

    def detach(self) -> None:
        """Release the memory, which the peer must not access any more: what still arrives is discarded."""
        self.stop()
        super().detach()
        self.domain.detach(self)
        self._remove_all()
        self._enabled = False

    def _remove_all(self) -> None:
        for region in tuple(self._addresses):  # of the domain
            self.remove(region)

    async def released(self) -> None:
        """See Stream."""
        if self._freeing is not None:
            await asyncio.wait([self._freeing])
        for address in self._retired:
            self._memory.unmap(address)
        self._retired.clear()

    def _retire(self, address: int, *, kept: bool = False) -> None:
        """Unmap memory of the engine when it does not use it any more."""
        if self._memory.retire(address, kept=kept):
            self._retired.append(address)
            if not self.progress.stops and self._freeing is None:
                self._freeing = asyncio.get_running_loop().create_task(self._free())

    async def _free(self) -> None:
        """Free addresses when the octets that were accepted for them are in memory."""
        with contextlib.suppress(DeviceError):
            while self._retired and not self.progress.stops:
                count = len(self._retired)
                if not await self._placed():
                    break
                for address in self._retired[:count]:
                    self._memory.unmap(address)
                del self._retired[:count]
        self._freeing = None

    async def _placed(self) -> bool:
        """Wait until all octets that were accepted before are in memory; False if the stream ends instead.

        It ends if memory does not take them. The value of a register comes behind all commands, and behind all accesses
        to memory from before its read.
        """
        received = BY_NAME["RDMA_ULPDUS"]["received"]
        first = received.get(await self._device.get("RDMA_ULPDUS"))
        deadline = asyncio.get_running_loop().time() + PLACED
        while True:
            await self.follow()  # a read of STATUS alone would clear an interrupt
            if self.progress.stops or self.ended or self.discards:
                return False  # words of a ULPDU that was cut off may still be written
            later = (received.get(await self._device.get("RDMA_ULPDUS")) - first) % _COUNT
            if not self._status["placing"] or later >= _BEHIND:
                return True
            if asyncio.get_running_loop().time() > deadline:
                self.abort(Fault.RDMAP_CATASTROPHIC, f"the memory of the device has not taken octets for {PLACED:g} s")
                await self.follow()
                return False
            await asyncio.sleep(POLL)

    # Regions: the stream is a RegionTable of its domain

    def room(self) -> int:
        """See RegionTable. The rows that the sinks of RDMA Reads need are not for others."""
        kept = self._windows if self._sink_address is None else 0
        return max(self._sizes["regions"] - len(self._rows) - kept, 0)

    def fits(self, stag: int) -> bool:
        """See RegionTable."""
        return stag % self._sizes["regions"] not in self._rows

    def add(self, region: Region) -> None:
        """See RegionTable."""
        self.check_memory(region.view)
        if self._sink_address is not None:
            address = self._sink_address
        elif region.access & _REMOTE:
            address = self._memory.share(region.view, writable=bool(region.access & Access.REMOTE_WRITE))
        else:
            address = 0  # the engine knows the STag, and accesses nothing
        self._addresses[region] = address
        self._rows.add(region.stag % self._sizes["regions"])
        if self._enabled:
            self._push_region(region, address)

    def remove(self, region: Region) -> None:
        """See RegionTable."""
        address = self._addresses.pop(region, None)
        if address is None:
            return
        self._rows.discard(region.stag % self._sizes["regions"])
        if self._enabled:
            self._push(commands.revoke(region.stag))
            # A segment of a Read Response that has begun needs the octets that it had when the peer might read them
            self._retire(address, kept=bool(region.access & Access.REMOTE_READ) and not self.progress.stops)
        else:
            self._memory.unmap(address)

    async def known(self) -> None:
        """See RegionTable. The answer to a read comes behind all that was written before."""
        await self._device.get("RDMA_CAPABILITIES")

    def address(self, region: Region) -> int:
        """Return the address of a region in the device's memory; raises ValueError for a region of other streams."""
        if region not in self._addresses:
            raise ValueError(f"STag {region.stag:#x} is not valid on this stream")
        return self._addresses[region]

    def _push_region(self, region: Region, address: int) -> None:
        stag, octets, to, own = region.stag, region.octets, region.to, region.stream is self
        self._push(commands.region(stag, address, octets, to, int(region.access), invalidate=own))

    # Posting

    def prepare(self, request: WorkRequest, context: Any = None) -> Work:
        """See Stream; raises ValueError for a message that has no place in the device's memory, too."""
        work = super().prepare(request, context)
        try:
            self._map_message(work)
        except ValueError:
            if not self.posted:
                raise
        return work

    def prepare_receive(self, request: ReceiveRequest, context: Any = None) -> Receive:
        """See Stream; raises ValueError for a buffer that has no place in the device's memory, too."""
        receive = super().prepare_receive(request, context)
        if isinstance(receive.buffer, Growing):
            receive.buffer.limit(self._memory.room)
        receive.address = self._map(receive.buffer, fill=False)
        return receive

    def check_memory(self, view: View) -> None:
        """See Stream: memory of the device, which its connections share, is memory of this stream."""
        if isinstance(view, DeviceBuffer) and view.memory.places is not self._memory.places:
            super().check_memory(view)

    def _map_message(self, work: Work) -> None:
        work.address = self._map(work.data, fill=not work.reads)

    @property
    def longest(self) -> int:
        """See Stream: several have to fit into the device's memory."""
        return min(super().longest, self._memory.space // 2)

    async def look(self) -> None:
        """See Stream."""
        await self._memory.load_shared()

    def _map(self, view: View, *, fill: bool) -> int:
        if len(view) > self.longest:
            raise ValueError(f"a message or buffer has at most {self.longest} octets in this device, not {len(view)}")
        return self._memory.map(view, fill=fill)

    def discard(self, prepared: Work | Receive) -> None:
        """See Stream."""
        if prepared.address is not None:
            self._memory.unmap(prepared.address)

    def post(self, work: Work) -> None:
        """See Stream."""
        super().post(work)
        self._waiting.append(work)
        self._memory.store()
        self._give_work()

    def post_receive(self, receive: Receive) -> None:
        """See Stream."""
        super().post_receive(receive)
        self._give_buffers()

    def withdraw(self, receive: Receive) -> bool:
        """See Stream; a Send that the engine has begun to receive by then completes all the same."""
        if not super().withdraw(receive):
            return False
        if receive in self._given:
            self._buffers -= 1
            self._push(commands.withdraw(self._returned + self._given.index(receive)))
        else:
            self.discard(receive)
        return True

    def _give_buffers(self) -> None:
        while self._enabled and self._buffers < len(self._receives) and len(self._given) < self._sizes["buffers"]:
            receive = self._receives[self._buffers]
            assert receive.address is not None
            self._push(commands.buffer(receive.address, len(receive.buffer)))
            self._given.append(receive)
            self._buffers += 1

    def _give_work(self) -> None:
        if self._waiting:
            try:
                self._write_limits()
            except OSError:  # the connection is over, and has no EMSS any more: the work will be flushed
                return
        while self._waiting and len(self._messages) + len(self._reading) < self._sizes["work"]:
            work = self._waiting[0]
            if work.address is None and not self._find_room(work):
                return
            address = work.address
            assert address is not None
            if work.reads:
                if not self._register_sink(work):
                    return
                pieces = [(address, work.sink[0])]
                self._reading.append(work)
            else:
                pieces = [(address, work.octets)] if work.octets else []
                self._messages.append(work)
            self.progress.begin(self._waiting.popleft())  # as the engine does
            self._push(commands.work(work.opcode, work.octets, work.stag, work.to, pieces, fence=work.fence))

    def _find_room(self, work: Work) -> bool:
        """Map a message for which there was no room in memory; False if there is none before others have been sent."""
        try:
            self._map_message(work)
        except ValueError as error:
            if not (self._messages or self._reading):
                self.abort(Fault.RDMAP_CATASTROPHIC, str(error))
            return False
        return True

    def _register_sink(self, work: Work) -> bool:
        """Register the sink of an RDMA Read until it completes; False if no row is free before another Read completes.

        The TO is the address of the sink in the device.
        """
        assert work.address is not None
        assert not isinstance(work.data, Growing)
        self._sink_address = work.address
        try:
            if not self.room():
                return False
            work.window = self.domain.register(work.data, Access.LOCAL_WRITE, to=work.address, stream=self)
        finally:
            self._sink_address = None
        work.sink = work.window.stag, work.address
        return True

    # What the engine has done

    @property
    def idle(self) -> bool:
        """See Stream; as of the last ``sync``, as far as the peer's requests are concerned."""
        return not (self.posted or self._status["requests"] or self._status["sending"])

    @property
    def rest_of_write(self) -> str:
        """See Stream; as of the last ``sync``. The engine does not report the place of an RDMA Write."""
        return "the rest of an RDMA Write" if self._status["write_begun"] else ""

    def place(self) -> Place:
        """See Stream; as of the last ``sync``."""
        return super().place()._replace(requests=self._status["requests"])

    @property
    def discards(self) -> bool:
        """Whether the engine takes no more ULPDUs, as of the last ``sync``."""
        return any(self._status[name] for name in ("refused", "source_refused", "memory_failed"))

    async def sync(self, *, end: bool = False) -> None:
        """Learn what the engine has done; ``end`` says that it does nothing more."""
        if not self._enabled:
            return
        async with self._lock:
            await self._read_done()  # first, because this clears the interrupt
            word = await self._device.get("RDMA_STATUS")
            self._status = {field.name: field.get(word) for field in _STATUS.fields}
            if self.discards:
                await self._read_done()  # now it is final
            await self._read_received()
            self.blocked = bool(self._status["blocked"])
            self.progress.send_begun = bool(self._status["send_begun"])
            begun = max(self._status["reads"] - self.progress.read_rtr, 0)
            self.progress.reads = deque(list(self._reading)[:begun])
            if end:
                await self._memory.load_shared()
            if end or self.discards:
                await self._read_place()
            if not self.ended:
                if self._status["refused"] and not self._status["passed"]:
                    await self._classify()
                elif self._status["source_refused"] and not self._status["refused"]:
                    await self._classify_source()
                elif self._status["memory_failed"] and not self._status["refused"]:
                    self.abort(Fault.RDMAP_CATASTROPHIC, "the memory of the device has answered with an error")
        if not self.ended:
            self._give_work()
            self._give_buffers()

    async def _read_done(self) -> None:
        word = await self._device.get("RDMA_DONE")
        before, self._done = self._done, word
        for name, queue in (("sent", self._messages), ("reads", self._reading)):
            for _ in range((_DONE[name].get(word) - _DONE[name].get(before)) % _COUNT):
                if not queue:  # the work has been flushed
                    break
                work = queue[0]
                if queue is self._reading:
                    assert work.address is not None
                    await self._memory.load(work.address, work.octets)
                if queue and queue[0] is work:
                    queue.popleft()
                    self.discard(work)
                    work.done = True
        self._complete()

    async def _read_received(self) -> None:
        register = BY_NAME["RDMA_RECEIVED"]
        while register["valid"].get(word := await self._device.get("RDMA_RECEIVED")):
            octets = await self._device.get("RDMA_RECEIVED_OCTETS")
            stag = await self._device.get("RDMA_RECEIVED_STAG")
            if not self._given:  # flushed
                continue
            receive = self._given[0]
            if opcode := register["opcode"].get(word):  # otherwise, it was withdrawn
                assert receive.address is not None
                await self._memory.load(receive.address, octets)
                await self._memory.load_shared()
            if not (self._given and self._given[0] is receive):
                continue
            self._given.popleft()
            self._returned += 1
            self.discard(receive)
            if not opcode:
                continue
            if self._receives and receive is self._receives[0]:
                self._receives.popleft()
                self._buffers -= 1
            receive.octets, receive.opcode = octets, Opcode(opcode)
            if receive.opcode.invalidates:
                receive.invalidated = stag
                region = self.domain.stags.find(stag)
                if region is not None and region.stream is self:
                    region.deregister()
            self.completed.append(receive)

    async def _read_place(self) -> None:
        """Learn where the peer's messages have stopped."""
        get = self._device.get
        progress = self.progress
        progress.rx_msn[SEND_QN] = await get("RDMA_RX_SEND_MSN")
        progress.rx_msn[READ_QN] = await get("RDMA_RX_READ_MSN")
        progress.rx_mo = await get("RDMA_RX_MO")
        if progress.reads:
            progress.reads[0].arrived = await get("RDMA_RX_ARRIVED")

    async def _classify(self) -> None:
        """Find out why the engine has refused a ULPDU."""
        words = [await self._device.get(f"RDMA_REFUSED_{n}") for n in range(HEADER_WORDS)]
        header = b"".join(word.to_bytes(4, "big") for word in words)
        length = await self._device.get("RDMA_REFUSED_LENGTH")
        octets = TAGGED_OCTETS if header[0] & 0x80 else UNTAGGED_OCTETS
        segment = decode(header[:octets])
        error = refusal(segment, length - octets, self.place, self)
        if error is None:
            # What was missing is there by now: buffers and regions are given to the engine while octets arrive
            if isinstance(segment, Tagged):
                error = DdpError("the STag was not valid when the octets arrived", Fault.STAG)
            else:
                error = DdpError("no buffer was posted in time", Fault.NO_BUFFER)
        self.refused(error, header[:octets] + bytes(length - octets))

    async def _classify_source(self) -> None:
        """Find out why the source of an RDMA Read must not be read."""
        get = self._device.get
        words = [await get("RDMA_SOURCE") for _ in range(REQUEST_WORDS)]
        request = ReadRequest.decode(b"".join(word.to_bytes(4, "big") for word in words))
        request = request.after(request.size - await get("RDMA_SOURCE_LEFT"))
        msn = (self.progress.rx_msn[READ_QN] - self._status["requests"]) % _MSNS
        error = source_refusal(request, self)
        if error is None:
            what = f"STag {request.source_stag:#x} was not valid when the request was answered"
            error = DdpError(what, Fault.SOURCE_STAG)
        self.source_refused(error, request, msn)

    # The end

    def flush_receives(self) -> list[Receive]:
        """See Stream."""
        dropped = super().flush_receives()
        self._forget(dropped)
        return dropped

    def flush(self) -> list[Work | Receive]:
        """See Stream; but the work that the engine has done stays in ``completed``."""
        done = list(self.completed)
        self.completed.clear()
        dropped = super().flush()
        self.completed.extend(done)
        self._forget(dropped)
        for queue in (self._waiting, self._messages, self._reading):
            queue.clear()
        return dropped

    def _forget(self, dropped: Sequence[Work | Receive]) -> None:
        written: set[Work | Receive] = {*self._given, *self._reading}  # by the engine, if octets still arrive
        for each in written:
            assert each.address is not None
            self._retire(each.address)
        for each in dropped:
            if each not in written:
                self.discard(each)
        self._given.clear()
        self._buffers = 0


_REMOTE = Access.REMOTE_WRITE | Access.REMOTE_READ
