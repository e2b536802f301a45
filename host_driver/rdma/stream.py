"""One RDMAP stream (RFC 5040) over DDP (RFC 5041), without sockets, clocks or tasks.

A ``Stream`` takes the ULP's work, keeps it in the order of posting, and makes the Terminate. DDP is in an engine:
``SoftwareStream`` has one of its own, and ``host_driver.rdma.offload`` drives that of a device::

    post(), post_receive() ─▸  Stream  ─▸ completed, and ``terminate`` or ``terminated``
                                 ◂▸
                               engine
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from open_rnic.host_driver.ddp import (
    MAX_MESSAGE,
    READ_QN,
    SEND_QN,
    TAGGED_OCTETS,
    TO_END,
    DdpError,
    Fault,
    Opcode,
    Place,
    ReadRequest,
    Terminate,
    Untagged,
    decode,
    refusal,
)
from open_rnic.host_driver.rdma.engine import Engine, Message, Progress, Request, UntaggedBuffer
from open_rnic.host_driver.rdma.memory import (
    MAX_STAG,
    Access,
    DeviceBuffer,
    Piece,
    ProtectionDomain,
    Region,
    Scattered,
    View,
)
from open_rnic.host_driver.rdma.work import ReceiveRequest, WorkRequest
from open_rnic.rtl.formats.opcodes import SENDS


@dataclass(eq=False, slots=True, kw_only=True)
class Work(Message):
    """A request that the ULP has posted. ``context`` is the caller's; ``done`` means that it can complete."""

    data: View = field(repr=False)  # for an RDMA Read, its sink
    request: WorkRequest
    context: Any = None
    done: bool = False
    window: Region | None = None  # registered for this RDMA Read alone
    address: int | None = None  # of the message, in the memory of the device that sends it


@dataclass(eq=False, slots=True, kw_only=True)
class Receive(UntaggedBuffer):
    """A buffer that the ULP has posted for one Send."""

    buffer: View = field(repr=False)
    request: ReceiveRequest
    address: int | None = None  # of the buffer, in the memory of the device that fills it


class Stream:
    """An RDMAP stream on top of a connection that carries ULPDUs in order.

    Buffers can be posted before IRD and ORD are known. ``completed`` holds completed requests, in order, for the caller
    to take. ``progress`` is the engine's; of one in a device, as far as it is known. ``waits`` selects the treatment of
    a Send for which no buffer is posted: if it is set, the Send stalls until a buffer is posted, so that TCP slows the
    peer down; otherwise, the stream ends with DDP error 2/02.

    ``terminate`` is the Terminate that this end must send. It follows all ULPDUs that were sent before, and nothing
    follows it (RFC 5040 §5.4). ``terminated`` is the peer's Terminate.
    """

    def __init__(self, domain: ProtectionDomain, progress: Progress[Work, Receive], waits: bool) -> None:
        self.domain = domain
        self.progress = progress
        progress.waits = waits
        self.completed: deque[Work | Receive] = deque()
        self.terminate: Terminate | None = None
        self.terminated: Terminate | None = None
        self.what = ""  # the reason for ``terminate``, with the offending values
        self._posted: deque[Work] = deque()  # not completed, in the order of posting (RFC 5040 §5.5 rule 15)
        self._receives = progress.receives

    # Calls of the ULP

    @property
    def longest(self) -> int:
        """The most octets of a message that this end sends, and of a buffer for one that it receives."""
        return MAX_MESSAGE

    async def look(self) -> None:
        """Let registered memory have what the peer has written: a device may have a copy of it."""

    @property
    def ended(self) -> bool:
        """Whether a Terminate has been received, or must be sent."""
        return self.terminate is not None or self.terminated is not None

    @property
    def posted(self) -> int:
        """The number of Sends, RDMA Writes and RDMA Reads that have not completed."""
        return len(self._posted)

    @property
    def receives(self) -> int:
        """The number of posted buffers that no Send has completed."""
        return len(self._receives)

    @property
    def lent(self) -> int:
        """The number of these buffers that have no ``context``."""
        return sum(each.context is None for each in self._receives)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send and nothing to wait for."""
        return not (self._posted or self.progress.requests)

    @property
    def ready(self) -> bool:
        """Whether this end has a ULPDU to send; an engine in a device sends its own."""
        return False

    def prepare(self, request: WorkRequest, context: Any = None) -> Work:
        """Return the work for ``post``; raises ValueError for a request that can never be carried out.

        Such requests are those with an impossible address, Sends with fields of other messages, those whose sink
        belongs to another stream, lacks the access right or is too small, and all RDMA Reads if the ORD is 0.
        """
        read = request.opcode is Opcode.RDMA_READ_REQUEST
        if request.opcode not in _REQUESTS:
            raise ValueError(f"the ULP cannot post this message: {request.opcode}")
        if read and not self.progress.ord:
            raise ValueError("RDMA Reads are not possible: the connection's ORD is 0")
        message = self.domain.view(request.local, self, Access.LOCAL_WRITE if read else Access(0))
        self.check_memory(message)
        octets = len(message)
        if read and message.readonly:
            raise ValueError("a read-only buffer cannot be the sink of an RDMA Read")
        if octets > MAX_MESSAGE:
            raise ValueError(f"a message has at most {MAX_MESSAGE} octets, not {octets} (RFC 5041 §5.2)")
        if not 0 <= request.stag <= MAX_STAG:
            raise ValueError(f"an STag is 0 to {MAX_STAG:#x}, not {request.stag:#x}")
        if request.to < 0 or request.to + octets >= TO_END:
            raise ValueError(f"{octets} octets from TO {request.to:#x} on do not stay below TO 2^64")
        if request.opcode not in _TAGGED:  # these fields of the header are reserved
            if request.stag and not request.opcode.invalidates:
                raise ValueError(f"only a Send with Invalidate has an STag: {request.stag:#x}")
            if request.to:
                raise ValueError(f"a Send has no TO: {request.to:#x}")
        return Work(
            opcode=request.opcode, octets=octets, data=message, stag=request.stag, to=request.to, fence=request.fence,
            request=request, context=context,
        )  # fmt: skip

    def post(self, work: Work) -> None:
        """Queue the work."""
        self._posted.append(work)

    def discard(self, prepared: Work | Receive) -> None:
        """Release what ``prepare`` or ``prepare_receive`` has returned, and nobody posts."""

    def prepare_receive(self, request: ReceiveRequest, context: Any = None) -> Receive:
        """Return the buffer for ``post_receive``; raises ValueError for a buffer that cannot be written."""
        buffer = self.domain.view(request.local, self, Access.LOCAL_WRITE)
        self.check_memory(buffer)
        if buffer.readonly:
            raise ValueError("a read-only buffer cannot receive")
        return Receive(buffer=buffer, context=context, request=request)

    def check_memory(self, view: View) -> None:
        """Raise ValueError for memory that this stream cannot access: that of a device."""
        if isinstance(view, DeviceBuffer):
            raise ValueError("memory of a device is only for connections whose RDMA engine works on it")

    def post_receive(self, receive: Receive) -> None:
        """Queue the buffer for one Send."""
        self._receives.append(receive)

    @property
    def reads(self) -> bool:
        """Whether a posted RDMA Read is not done."""
        return any(work.reads and not work.done for work in self._posted)

    @property
    def unfinished(self) -> str:
        """Describe what is missing if the peer's half of the connection ends here; empty if the end is orderly.

        RFC 5040 §2.4, RFC 5041 §2.3: messages in progress may complete before a graceful end.
        """
        missing, place, reads = [], self.place(), self.progress.reads
        if self.progress.send_begun:
            missing.append(f"the Send with MSN {place.msn[SEND_QN]} from MO {place.mo} on")
        if self.rest_of_write:
            missing.append(self.rest_of_write)
        if due := place.due:
            behind = f" and of {len(reads) - 1} behind it" if len(reads) > 1 else ""
            missing.append(f"{due.octets - due.arrived} of {due.octets} octets of an RDMA Read Response{behind}")
        return ", ".join(missing)

    def withdraw(self, receive: Receive) -> bool:
        """Take a posted buffer back; returns False if a Send has filled it, or has begun to."""
        if receive not in self._receives or (self.progress.send_begun and receive is self._receives[0]):
            return False
        self._receives.remove(receive)
        return True

    def abort(self, fault: Fault, what: str) -> None:
        """End the stream for a local reason; ``terminate`` is then the Terminate to send."""
        self._refuse(Terminate.of(fault), what)

    def named(self, terminate: Terminate) -> Work | None:
        """Return the request that the peer has refused, according to the headers in its Terminate.

        None if they name none that has begun and has not completed. They name an RDMA Read whose source is refused by
        the rest of its source, an RDMA Write by STag and TO, and any other message by QN and MSN.
        """
        if terminate.rdma_header:
            refused = ReadRequest.decode(terminate.rdma_header)
            stag, to, end = refused.source_stag, refused.source_to, refused.source_to + refused.size
            return self._first(
                lambda work: work.reads and not work.done and _covers(work, stag, to, end)
                and work.to + work.octets == end
            )  # fmt: skip
        try:
            segment = decode(terminate.ddp_header)
        except DdpError:
            return None
        if isinstance(segment, Untagged):
            return self._first(lambda work: work.msn == segment.msn and _queue(work) == segment.qn)
        octets = max((terminate.segment_length or 0) - TAGGED_OCTETS, 1)  # of no octets, the STag is not checked
        return self._first(
            lambda work: work.opcode is segment.opcode
            and _covers(work, segment.stag, segment.to, segment.to + octets)
        )  # fmt: skip

    def _first(self, fits: Callable[[Work], bool]) -> Work | None:
        return next((work for work in self._posted if work.begun and fits(work)), None)

    def flush_receives(self) -> list[Receive]:
        """Release the posted buffers: no Send will arrive."""
        dropped = list(self._receives)
        self._receives.clear()
        return dropped

    def flush(self) -> list[Work | Receive]:
        """Release all posted work that will not complete any more, or whose completion has not been taken."""
        dropped: list[Work | Receive] = [*self.completed, *self._posted, *self._receives]
        for queue in (self.completed, self._posted, self._receives):
            queue.clear()
        return dropped

    def _complete(self) -> None:
        while self._posted and self._posted[0].done:
            work = self._posted.popleft()
            work.data = memoryview(b"")
            if work.window is not None:
                work.window.deregister()
            self.completed.append(work)

    # What the peer sends

    def receive(self, ulpdu: bytes) -> bool:
        """Take a ULPDU from the peer; False stalls a Send without a buffer, to be offered again once one is posted.

        ULPDUs that arrive after the stream has ended are dropped (RFC 5041 §7.1).
        """
        self.passed(ulpdu)
        return True

    def passed(self, ulpdu: bytes) -> None:
        """Take a ULPDU that an engine does not process: a Terminate, or one that must be refused."""
        if self.ended:
            return
        try:
            segment = decode(ulpdu)
            if error := refusal(segment, len(segment.payload), self.place, self):
                raise error
            self.terminated = Terminate.decode(segment.payload)
        except DdpError as error:
            self.refused(error, ulpdu)

    def refused(self, error: DdpError, ulpdu: bytes) -> None:
        """End the stream because of a ULPDU."""
        self._refuse(Terminate.of(error.fault, ulpdu), str(error))

    def source_refused(self, error: DdpError, request: ReadRequest, msn: int) -> None:
        """End the stream because of the source of an RDMA Read, of which ``request`` is left."""
        header = request.encode()
        ulpdu = Untagged(Opcode.RDMA_READ_REQUEST, READ_QN, msn, 0, True, header).encode()
        self._refuse(Terminate.of(error.fault, ulpdu, header), str(error))

    def _refuse(self, terminate: Terminate, what: str) -> None:
        if not self.ended:
            self.terminate, self.what = terminate, what

    def place(self) -> Place:
        """Return the place up to which the stream has received."""
        return self.progress.place()

    @property
    def rest_of_write(self) -> str:
        """The part of an RDMA Write that must follow; empty if there is none."""
        write = self.progress.write_begun
        return f"the RDMA Write to STag {write.stag:#x} from TO {write.to + len(write.payload):#x} on" if write else ""

    def find(self, stag: int) -> Region | None:
        """See :class:`.Regions`."""
        return self.domain.stags.find(stag)

    def allows(self, region: Region) -> bool:
        """See :class:`.Regions`."""
        return self.domain.allows(region, self)

    def invalidates(self, region: Region) -> bool:
        """See :class:`.Regions`."""
        return region.stream is self

    # The course of a connection

    async def begin(self, ird: int, ord: int, mulpdu: Callable[[], int]) -> None:  # noqa: A002
        """Set the results of the negotiation; called before the first ULPDU passes.

        ``mulpdu`` returns the current MULPDU in octets.
        """
        self.progress.ird, self.progress.ord = ird, ord

    async def sync(self, *, end: bool = False) -> None:
        """Learn what has happened; ``end`` says that nothing more will."""

    def control(self, **choices: bool) -> None:
        """Make these choices of ``progress``, for what arrives and is sent from now on."""
        for name, choice in choices.items():
            setattr(self.progress, name, choice)

    def detach(self) -> None:
        """Release the memory: the connection is over."""
        self.domain.release(self)

    def stop(self) -> None:
        """Begin no other ULPDU: the connection is over."""
        self.control(stops=True, drops=True, shut=True)

    async def silence(self) -> bool:
        """Wait, after ``stop``, until every ULPDU that has begun has left the ULP's memory; False if one has not."""
        return True

    async def released(self) -> None:
        """Note, after ``detach``, that the device does nothing more."""


class SoftwareStream(Stream):
    """A ``Stream`` with an engine in software, which uses the ULP's buffers in place.

    Received ULPDUs go to ``receive``, and those to send come from ``next_ulpdus``.
    """

    def __init__(self, domain: ProtectionDomain, *, waits: bool = True) -> None:
        self.engine: Engine[Region, Work, Receive] = Engine(self)
        super().__init__(domain, self.engine, waits)
        self._mulpdu: Callable[[], int] = lambda: self.engine.mulpdu
        self._taken: list[Work] = []  # messages whose last ULPDU has been returned, and not handed over
        self._hands_over = False

    async def begin(self, ird: int, ord: int, mulpdu: Callable[[], int]) -> None:  # noqa: A002
        """See Stream."""
        await super().begin(ird, ord, mulpdu)
        self._mulpdu = mulpdu

    def _refuse(self, terminate: Terminate, what: str) -> None:
        super()._refuse(terminate, what)
        self.engine.stopped = True

    @property
    def idle(self) -> bool:
        """See Stream."""
        return super().idle and not self._hands_over

    @property
    def ready(self) -> bool:
        """Whether ``next_ulpdus`` would return one."""
        return self.engine.ready

    def post(self, work: Work) -> None:
        """See Stream."""
        super().post(work)
        self.engine.work.append(work)

    def flush(self) -> list[Work | Receive]:
        """See Stream."""
        for queue in (self.engine.work, self.engine.reads, self.engine.requests, self._taken):
            queue.clear()
        return super().flush()

    def receive(self, ulpdu: bytes) -> bool:
        """See Stream."""
        return self.engine.receive(ulpdu)

    def next_ulpdus(self, octets: int) -> list[bytes]:
        """Return the next ULPDUs to send, with at least this many octets if there are so many; then ``handed_over``."""
        ulpdus: list[bytes] = []
        engine = self.engine
        if engine.ready:
            engine.mulpdu = self._mulpdu()
            while octets > 0 and (ulpdu := engine.next_ulpdu()) is not None:
                ulpdus.append(ulpdu)
                octets -= len(ulpdu)
        self._hands_over = bool(ulpdus)
        return ulpdus

    def handed_over(self) -> None:
        """Complete the messages of all ULPDUs that ``next_ulpdus`` has returned (RFC 5040 §5.5 rules 9 and 14)."""
        self._hands_over = False
        for work in self._taken:
            work.done = True
        self._taken.clear()
        self._complete()

    # The engine's owner

    def invalidate(self, region: Region) -> None:
        """See Owner."""
        region.deregister()

    def sink(self, read: Work) -> tuple[int, int]:
        """See Owner; RFC 5040 §4.4.

        A single piece of registered memory is used as it is; any other sink is registered until the Read completes.
        """
        local = read.request.local
        if isinstance(local, Region):
            local = local[:]
        if not isinstance(local, Piece):
            assert isinstance(read.data, memoryview | Scattered)
            read.window = self.domain.register(read.data, Access.LOCAL_WRITE, stream=self)
            local = read.window[:]
        return local.stag, local.to

    def requested(self, request: Request) -> None:
        """See Owner: requests in front of it are answered before it is refused."""
        if self.engine.shut or len(self.engine.requests) == 1:
            self.engine.check(request)

    def finished(self, message: Work) -> None:
        """See Owner: a Send or RDMA Write completes when it has been handed over."""
        if message.reads:
            message.done = True
            self._complete()
        else:
            self._taken.append(message)

    def received(self, buffer: Receive) -> None:
        """See Owner."""
        self.completed.append(buffer)


def _queue(work: Work) -> int | None:
    if work.reads:
        return READ_QN
    return None if work.opcode is Opcode.RDMA_WRITE else SEND_QN


def _covers(work: Work, stag: int, to: int, end: int) -> bool:
    """Whether these octets of the peer's memory are of a tagged message, or of an RDMA Read's source."""
    return stag == work.stag and work.to <= to and end <= work.to + work.octets


_TAGGED = {Opcode.RDMA_WRITE, Opcode.RDMA_READ_REQUEST}  # they have an STag and a TO of the peer
_REQUESTS = {*SENDS, Opcode.RDMA_READ_REQUEST, Opcode.RDMA_WRITE}
