"""One RDMAP stream (RFC 5040) over DDP (RFC 5041), without sockets, clocks or tasks.

A ``Stream`` takes the ULP's work and the peer's ULPDUs, and returns ULPDUs and completions::

    post(), post_receive() ─▸  Stream  ─▸ next_ulpdu()
                 receive() ─▸          ─▸ completed, and ``terminate`` or ``terminated``

ULPDUs are made on demand: the stream copies no octets, and holds only views of the ULP's buffers. Received octets go
straight from the ULPDU into their buffer.

Segments must arrive in the order in which RFC 5041 §5.3 says a peer should send them. A message whose MO leaves a gap
is refused, and so is a Read Response that does not match the request exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from open_rnic.host_driver.ddp import (
    FIRST_MSN,
    MAX_MESSAGE,
    READ_QN,
    READ_REQUEST_OCTETS,
    SEND_QN,
    TAGGED_OCTETS,
    TERMINATE_QN,
    TO_END,
    UNTAGGED_OCTETS,
    DdpError,
    Due,
    Fault,
    NoBufferError,
    Octets,
    Opcode,
    Place,
    ReadRequest,
    Tagged,
    Terminate,
    Untagged,
    decode,
    next_msn,
    refusal,
    source_refusal,
    tagged_segments,
    untagged_segments,
)
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
from open_rnic.rtl.registers import Rtr


@dataclass(eq=False, slots=True)
class Work:
    """A request that the ULP has posted. ``context`` is the caller's; ``done`` means that it can complete."""

    request: WorkRequest
    octets: int
    message: View = field(repr=False)  # the data; for an RDMA Read, its sink
    context: Any = None
    done: bool = False
    sink: Piece | None = None  # of an RDMA Read whose request has been sent
    window: Region | None = None  # registered for this RDMA Read alone
    arrived: int = 0  # octets of the Read Response that have arrived
    address: int | None = None  # of the message, in the memory of the device that sends it
    msn: int | None = None  # of a Send or RDMA Read that has begun


@dataclass(eq=False, slots=True)
class Receive:
    """A buffer that the ULP has posted for one Send. The fields after ``context`` are valid once it has completed."""

    request: ReceiveRequest
    buffer: View = field(repr=False)
    context: Any = None
    octets: int = 0
    opcode: Opcode = Opcode.SEND
    invalidated: int | None = None  # the STag that the Send revoked
    address: int | None = None  # of the buffer, in the memory of the device that fills it


class Stream:
    """An RDMAP stream on top of a connection that carries ULPDUs in order.

    ``ird`` and ``ord`` are the negotiated values; buffers can be posted before they are known. ``completed`` holds
    completed requests, in order, for the caller to take. ``waits`` selects the treatment of a Send for which no buffer
    is posted: if it is set, ``receive`` refuses the Send until a buffer is posted, so that TCP slows the peer down;
    otherwise, the stream ends with DDP error 2/02.

    ``terminate`` is the Terminate that this end must send. ``next_ulpdu`` does not return it: it follows all ULPDUs
    that were returned before, and nothing follows it (RFC 5040 §5.4). ``terminated`` is the peer's Terminate.
    """

    def __init__(self, domain: ProtectionDomain, *, ird: int = 0, ord: int = 0, waits: bool = True) -> None:  # noqa: A002
        self.domain = domain
        self.ird = ird
        self.ord = ord
        self.waits = waits
        self.drops = False  # drop Sends without a buffer, because the ULP receives no more
        self.shut = False  # nothing can be sent any more, so RDMA Read Requests are dropped, too
        self.completed: deque[Work | Receive] = deque()
        self.terminate: Terminate | None = None
        self.terminated: Terminate | None = None
        self.what = ""  # the reason for ``terminate``, with the offending values

        self._receives: deque[Receive] = deque()
        self._work: deque[Work] = deque()  # posted, not begun
        self._begun: deque[Work] = deque()  # begun, not completed, in the order of posting (RFC 5040 §5.5 rule 15)
        self._reads: deque[Work] = deque()  # RDMA Reads that wait for their Read Response
        self._requests: deque[tuple[ReadRequest, bytes]] = deque()  # of the peer, each with its ULPDU
        self._read_rtr = 0  # 1 while this end's own Read RTR is unanswered
        self._responses_next = True
        self._message: Iterator[bytes] | None = None  # the segments of the current message that have not been sent
        self._tx_msn = {SEND_QN: FIRST_MSN, READ_QN: FIRST_MSN}
        self._rx_msn = {SEND_QN: FIRST_MSN, READ_QN: FIRST_MSN, TERMINATE_QN: FIRST_MSN}
        self._rx_mo = 0  # the MO of the next segment of a Send
        self._send_begun = False  # a Send has begun, and its last segment has not arrived
        self._write_begun: Tagged | None = None  # the latest segment of an RDMA Write, if more must follow

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
        return len(self._work) + len(self._begun)

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
        return not (self.posted or self._requests or self._message)

    @property
    def ready(self) -> bool:
        """Whether ``next_ulpdu`` would return a ULPDU."""
        return bool(self._message or self._requests or self._may_begin)

    def prepare(self, request: WorkRequest, context: Any = None) -> Work:
        """Return the work for ``post``; raises ValueError for a request that can never be carried out.

        Such requests are those with an impossible address, Sends with fields of other messages, those whose sink
        belongs to another stream, lacks the access right or is too small, and all RDMA Reads if the ORD is 0.
        """
        read = request.opcode is Opcode.RDMA_READ_REQUEST
        if request.opcode not in _REQUESTS:
            raise ValueError(f"the ULP cannot post this message: {request.opcode}")
        if read and not self.ord:
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
        return Work(request, octets, message, context)

    def post(self, work: Work) -> None:
        """Queue the work."""
        self._work.append(work)

    def discard(self, prepared: Work | Receive) -> None:
        """Release what ``prepare`` or ``prepare_receive`` has returned, and nobody posts."""

    def prepare_receive(self, request: ReceiveRequest, context: Any = None) -> Receive:
        """Return the buffer for ``post_receive``; raises ValueError for a buffer that cannot be written."""
        buffer = self.domain.view(request.local, self, Access.LOCAL_WRITE)
        self.check_memory(buffer)
        if buffer.readonly:
            raise ValueError("a read-only buffer cannot receive")
        return Receive(request, buffer, context)

    def check_memory(self, view: View) -> None:
        """Raise ValueError for memory that this stream cannot access: that of a device."""
        if isinstance(view, DeviceBuffer):
            raise ValueError("memory of a device is only for connections whose RDMA engine works on it")

    def post_receive(self, receive: Receive) -> None:
        """Queue the buffer for one Send."""
        self._receives.append(receive)

    @property
    def reads(self) -> bool:
        """Whether a posted RDMA Read has not completed."""
        return bool(self._reads) or any(_reads(work) for work in self._work)

    @property
    def unfinished(self) -> str:
        """Describe what is missing if the peer's half of the connection ends here; empty if the end is orderly.

        RFC 5040 §2.4, RFC 5041 §2.3: messages in progress may complete before a graceful end.
        """
        missing = []
        if self._send_begun:
            msn = self._rx_msn[SEND_QN]
            missing.append(f"the Send with MSN {msn} from MO {self._rx_mo} on")
        if write := self._write_begun:
            to = write.to + len(write.payload)
            missing.append(f"the RDMA Write to STag {write.stag:#x} from TO {to:#x} on")
        if self._reads:
            read, others = self._reads[0], len(self._reads) - 1
            behind = f" and of {others} behind it" if others else ""
            missing.append(
                f"{read.octets - read.arrived} of {read.octets} octets of an RDMA Read Response{behind}"
            )
        return ", ".join(missing)

    def withdraw(self, receive: Receive) -> bool:
        """Take a posted buffer back; returns False if a Send has filled it, or has begun to."""
        if receive not in self._receives or (self._send_begun and receive is self._receives[0]):
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
            end = refused.source_to + refused.size
            for work in self._reads:
                if _covers(work, refused.source_stag, refused.source_to, end) and work.request.to + work.octets == end:
                    return work
            return None
        try:
            segment = decode(terminate.ddp_header)
        except DdpError:
            return None
        if isinstance(segment, Untagged):
            return self._first(lambda work: work.msn == segment.msn and _queue(work) == segment.qn)
        octets = max((terminate.segment_length or 0) - TAGGED_OCTETS, 1)  # of no octets, the STag is not checked
        return self._first(
            lambda work: work.request.opcode is segment.opcode
            and _covers(work, segment.stag, segment.to, segment.to + octets)
        )  # fmt: skip

    def _first(self, fits: Callable[[Work], bool]) -> Work | None:
        return next(filter(fits, self._begun), None)

    def flush_receives(self) -> list[Receive]:
        """Release the posted buffers: no Send will arrive."""
        dropped = list(self._receives)
        self._receives.clear()
        return dropped

    def flush(self) -> list[Work | Receive]:
        """Release all posted work that will not complete any more, or whose completion has not been taken."""
        dropped: list[Work | Receive] = [*self.completed, *self._begun, *self._work, *self._receives]
        for queue in (self.completed, self._begun, self._work, self._receives, self._reads, self._requests):
            queue.clear()
        self._message = None
        return dropped

    # For streams whose DDP is in a device, which override these

    async def begin(self, ird: int, ord: int, mulpdu: Callable[[], int]) -> None:  # noqa: A002
        """Set the results of the negotiation; called before the first ULPDU passes."""
        self.ird, self.ord = ird, ord

    async def sync(self, *, end: bool = False) -> None:
        """Learn what has happened; ``end`` says that nothing more will."""

    def control(self) -> None:
        """Apply ``drops`` and ``shut`` to what arrives from now on."""

    def detach(self) -> None:
        """Release the memory: the connection is over."""
        self.domain.release(self)

    def stop(self) -> None:
        """Begin no other ULPDU: the connection is over."""

    async def silence(self) -> bool:
        """Wait, after ``stop``, until every ULPDU that has begun has left the ULP's memory; False if one has not."""
        return True

    async def released(self) -> None:
        """Note, after ``detach``, that the device does nothing more."""

    # The MSNs and the place in the IRRQ that the device's own RTRs use (RFC 6581 §4.4.2)

    def rtr_sent(self, kind: Rtr) -> None:
        """Note that the device sends this RTR before anything else."""
        if kind is Rtr.SEND:
            self._tx_msn[SEND_QN] = next_msn(FIRST_MSN)
        elif kind is Rtr.READ:  # an RDMA Read like any other until it is answered (RFC 5040 §6.1)
            self._tx_msn[READ_QN] = next_msn(FIRST_MSN)
            self._read_rtr = 1

    def rtr_answered(self) -> None:
        """Note that the Read Response to a Read RTR has arrived."""
        self._read_rtr = 0

    def rtr_received(self, kind: Rtr, octets: int) -> None:
        """Note that the device has consumed this RTR, a ULPDU of this many octets; without a DDP header it has no MSN.

        As the first message of its queue, the RTR uses MSN 1 (RFC 5041 §4.3). The device has checked the MSN of a Read
        RTR; the MSN of a Send RTR is not checked, because it has no payload (RFC 5041 §7.1).
        """
        if kind is Rtr.SEND and octets >= UNTAGGED_OCTETS:
            self._rx_msn[SEND_QN] = next_msn(FIRST_MSN)
        elif kind is Rtr.READ:
            self._rx_msn[READ_QN] = next_msn(FIRST_MSN)

    # Transmit

    def next_ulpdu(self, mulpdu: Callable[[], int]) -> bytes | None:
        """Return the next ULPDU to send, or None if there is none now or the stream has ended.

        A call means that all earlier ULPDUs have been handed over. ``mulpdu`` returns the current MULPDU in octets.
        """
        while not self.ended:
            if self._message is None:
                self._message = self._next_message(mulpdu)
                if self._message is None:
                    return None
            ulpdu = next(self._message, None)
            if ulpdu is not None:
                return ulpdu
            self._message = None
        return None

    def _next_message(self, mulpdu: Callable[[], int]) -> Iterator[bytes] | None:
        """Begin the next message: Read Responses and the ULP's own messages take turns."""
        self._responses_next = not self._responses_next
        if self._requests and (self._responses_next or not self._may_begin):
            return self._response(mulpdu())
        if self._may_begin:
            work = self._work.popleft()
            self._begun.append(work)
            return self._request(work, mulpdu())
        return None

    @property
    def _may_begin(self) -> bool:
        if not self._work:
            return False
        # RFC 5040 §5.5 rule 13: work that is posted behind a waiting request waits, too
        work = self._work[0]
        if work.request.fence and self._reads:  # RFC 5040 §5.5 rule 12
            return False
        return not _reads(work) or len(self._reads) + self._read_rtr < self.ord  # RFC 5040 §6.1

    def _request(self, work: Work, mulpdu: int) -> Iterator[bytes]:
        request = work.request
        match request.opcode:
            case Opcode.RDMA_WRITE:
                yield from tagged_segments(request.opcode, request.stag, request.to, work.message, mulpdu)
            case Opcode.RDMA_READ_REQUEST:
                sink = self._sink(work)
                self._reads.append(work)
                header = ReadRequest(sink.stag, sink.to, work.octets, request.stag, request.to).encode()
                msn = self._take_msn(work, READ_QN)
                yield Untagged(request.opcode, READ_QN, msn, 0, True, header).encode()
                return  # an RDMA Read completes with its response
            case _:
                stag, msn = request.stag, self._take_msn(work, SEND_QN)
                yield from untagged_segments(request.opcode, SEND_QN, msn, work.message, mulpdu, stag=stag)
        work.done = True  # a message that has been handed over is complete (RFC 5040 §5.5 rules 9 and 14)
        self._complete()

    def _sink(self, work: Work) -> Piece:
        """Return the piece whose STag and TO the RDMA Read Request names as its sink (RFC 5040 §4.4).

        A single piece of registered memory is used as it is; any other sink is registered until the Read completes.
        """
        local = work.request.local
        if isinstance(local, Region):
            local = local[:]
        if not isinstance(local, Piece):
            assert isinstance(work.message, memoryview | Scattered)
            work.window = self.domain.register(work.message, Access.LOCAL_WRITE, stream=self)
            local = work.window[:]
        work.sink = local
        return local

    def _take_msn(self, work: Work, qn: int) -> int:
        work.msn = self._tx_msn[qn]
        self._tx_msn[qn] = next_msn(work.msn)
        return work.msn

    def _complete(self) -> None:
        while self._begun and self._begun[0].done:
            work = self._begun.popleft()
            work.message = memoryview(b"")
            if work.window is not None:
                work.window.deregister()
            self.completed.append(work)

    def _response(self, mulpdu: int) -> Iterator[bytes]:
        """Answer the oldest request; its source is checked for each segment, as it may be revoked meanwhile."""
        request, ulpdu = self._requests[0]
        last = False
        while not last:
            octets = min(mulpdu - TAGGED_OCTETS, request.size)
            last = octets == request.size
            sink = request.sink_stag, request.sink_to
            try:
                segment = Tagged(Opcode.RDMA_READ_RESPONSE, *sink, last, self._source(request, octets)).encode()
            except DdpError as error:  # RFC 5040 §4.8: the header then shows the progress of the Read
                self._refuse(Terminate.of(error.fault, ulpdu, request.encode()), str(error))
                return
            if last:  # the peer may receive it and send the next request before this code runs again
                self._requests.popleft()
            yield segment
            request = request.after(octets)

    def _check_source(self, request: ReadRequest) -> None:
        if error := source_refusal(request, self):
            raise error

    def _source(self, request: ReadRequest, octets: int) -> Octets:
        """Return the first ``octets`` of the source; raises DdpError if the peer may not read them."""
        self._check_source(request)
        if not octets:
            return b""
        region = self._region(request.source_stag)
        at = request.source_to - region.to
        return region.view[at : at + octets]

    def _refuse(self, terminate: Terminate, what: str) -> None:
        if not self.ended:
            self.terminate, self.what = terminate, what
            self._message = None

    # Receive

    def place(self) -> Place:
        """Return the place up to which the stream has received."""
        buffer = len(self._receives[0].buffer) if self._receives else None
        due = None
        if self._reads:
            work = self._reads[0]
            assert work.sink
            due = Due(work.sink.stag, work.sink.to, work.octets, work.arrived)
        return Place(self._rx_msn, self._rx_mo, buffer, len(self._requests), self.ird, due)

    def find(self, stag: int) -> Region | None:
        """See :class:`.Regions`."""
        return self.domain.stags.find(stag)

    def allows(self, region: Region) -> bool:
        """See :class:`.Regions`."""
        return self.domain.allows(region, self)

    def invalidates(self, region: Region) -> bool:
        """See :class:`.Regions`."""
        return region.stream is self

    def receive(self, ulpdu: bytes) -> bool:
        """Take a ULPDU from the peer; False refuses a Send without a buffer, to be offered again once one is posted.

        ULPDUs that arrive after the stream has ended are dropped (RFC 5041 §7.1).
        """
        if self.ended:
            return True
        rdma_header = b""
        try:
            segment = decode(ulpdu)
            if segment.opcode is Opcode.RDMA_READ_REQUEST:
                rdma_header = bytes(segment.payload[:READ_REQUEST_OCTETS])
            error = refusal(segment, len(segment.payload), self.place, self)
            if error is None:
                self._process(segment, ulpdu)
            elif not isinstance(error, NoBufferError) or not (self.waits or self.drops):
                raise error
            elif not self.drops:
                return False
            else:
                self._pass(error.segment)
        except DdpError as error:
            self._refuse(Terminate.of(error.fault, ulpdu, rdma_header), str(error))
        return True

    def _process(self, segment: Tagged | Untagged, ulpdu: bytes) -> None:
        """Process a segment that is good; raises DdpError for a Terminate or a source that is not."""
        if isinstance(segment, Tagged):
            self._place(segment)
            if segment.opcode is Opcode.RDMA_WRITE:
                self._write_begun = None if segment.last else segment
            else:
                self._take_response(segment)
            return
        if segment.qn == SEND_QN:
            self._take_send(segment)
        elif segment.qn == READ_QN:
            self._take_request(ReadRequest.decode(segment.payload), ulpdu)
        else:
            self.terminated = Terminate.decode(segment.payload)
            self._message = None
        self._pass(segment)

    def _pass(self, segment: Untagged) -> None:
        """Expect the segment behind this one."""
        if segment.qn == SEND_QN:
            self._rx_mo, self._send_begun = 0 if segment.last else segment.mo + len(segment.payload), not segment.last
        if segment.last:
            self._rx_msn[segment.qn] = next_msn(segment.msn)

    def _region(self, stag: int) -> Region:
        region = self.find(stag)
        assert region is not None
        return region

    def _place(self, segment: Tagged) -> None:
        if segment.payload:
            region = self._region(segment.stag)
            at = segment.to - region.to
            region.view[at : at + len(segment.payload)] = segment.payload

    def _take_response(self, segment: Tagged) -> None:
        work = self._reads[0]
        work.arrived += len(segment.payload)
        if segment.last:
            self._reads.popleft()
            work.done = True
            self._complete()

    def _take_send(self, segment: Untagged) -> None:
        opcode, end = segment.opcode, segment.mo + len(segment.payload)
        receive = self._receives[0]
        if segment.payload:
            receive.buffer[segment.mo : end] = segment.payload
        if segment.last:
            self._receives.popleft()
            receive.octets, receive.opcode = end, opcode
            if opcode.invalidates:
                receive.invalidated = segment.stag
                self._region(segment.stag).deregister()
            self.completed.append(receive)

    def _take_request(self, request: ReadRequest, ulpdu: bytes) -> None:
        if self.shut or not self._requests:  # those in front of it are answered before it is refused
            self._check_source(request)
        if not self.shut:
            self._requests.append((request, ulpdu))


def _reads(work: Work) -> bool:
    return work.request.opcode is Opcode.RDMA_READ_REQUEST


def _queue(work: Work) -> int:
    return READ_QN if _reads(work) else SEND_QN


def _covers(work: Work, stag: int, to: int, end: int) -> bool:
    """Whether these octets of the peer's memory are of a tagged message, or of an RDMA Read's source."""
    request = work.request
    return stag == request.stag and request.to <= to and end <= request.to + work.octets


_TAGGED = {Opcode.RDMA_WRITE, Opcode.RDMA_READ_REQUEST}  # they have an STag and a TO of the peer
_REQUESTS = {*SENDS, Opcode.RDMA_READ_REQUEST, Opcode.RDMA_WRITE}
