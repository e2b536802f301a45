"""The RDMA engine in software: DDP and RDMAP (RFC 5041, RFC 5040) of one connection, without I/O, clocks or tasks.

It places, sends and answers, and decides whether a ULPDU is acceptable. Its owner has the STags, and learns from calls
of its methods what the engine has done::

    work, receives ─▸          ─▸ next_ulpdu()
         receive() ─▸  Engine  ─▸ Owner: finished, received, requested, passed, refused
                               ◂▸ buffers and regions of the owner

Messages are cut on demand: the engine copies no octets but into ULPDUs, and received octets go straight from the ULPDU
into their buffer.

Segments must arrive in the order in which RFC 5041 §5.3 says a peer should send them. A message whose MO leaves a gap
is refused, and so is a Read Response that does not match the request exactly.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from open_rnic.host_driver.ddp import (
    FIRST_MSN,
    READ_QN,
    SEND_QN,
    TAGGED_OCTETS,
    TERMINATE_QN,
    UNTAGGED_OCTETS,
    DdpError,
    Due,
    NoBufferError,
    Opcode,
    Place,
    ReadRequest,
    Tagged,
    Untagged,
    decode,
    next_msn,
    refusal,
    source_refusal,
    tagged_segment,
    untagged_segment,
)
from open_rnic.host_driver.ddp.refusal import Reach, Regions
from open_rnic.rtl.formats.opcodes import TAGGED, UNTAGGED
from open_rnic.rtl.registers import Rtr

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Message as Source
    from open_rnic.host_driver.ddp import Octets
    from open_rnic.host_driver.rdma.engine.memory import Buffer


class Reached(Reach, Protocol):
    """A region, and its memory."""

    @property
    def view(self) -> Buffer:
        """The octets."""


@dataclass(eq=False, slots=True)
class Message:
    """A Send, RDMA Write or RDMA Read to send.

    ``data`` are its octets; of an RDMA Read, ``sink`` is the STag and the TO at which the Read Response is placed.
    """

    opcode: Opcode
    octets: int
    data: Source = field(repr=False)
    stag: int = 0
    to: int = 0
    fence: bool = False
    sink: tuple[int, int] = (0, 0)
    begun: bool = False
    msn: int = 0  # of a Send or RDMA Read that has begun
    arrived: int = 0  # octets of the Read Response

    @property
    def reads(self) -> bool:
        """Whether this is an RDMA Read."""
        return self.opcode is Opcode.RDMA_READ_REQUEST


@dataclass(eq=False, slots=True)
class UntaggedBuffer:
    """A buffer for one Send. The fields behind ``context``, which is the owner's, are valid once it has completed."""

    buffer: Buffer = field(repr=False)
    context: Any = None
    octets: int = 0
    opcode: Opcode = Opcode.SEND
    invalidated: int | None = None  # the STag that the Send revoked


@dataclass(slots=True)
class Request:
    """An RDMA Read Request of the peer, and what is left of it."""

    msn: int
    whole: ReadRequest
    rest: ReadRequest


_Region = TypeVar("_Region", bound=Reached)
_Message = TypeVar("_Message", bound=Message)
_Buffer = TypeVar("_Buffer", bound=UntaggedBuffer)
_Message_contra = TypeVar("_Message_contra", bound=Message, contravariant=True)
_Buffer_contra = TypeVar("_Buffer_contra", bound=UntaggedBuffer, contravariant=True)


class Owner(Regions[_Region], Protocol[_Region, _Message_contra, _Buffer_contra]):
    """The owner of an engine, which also has the STags."""

    def invalidate(self, region: _Region) -> None:
        """Revoke the STag: a Send of the peer invalidates it."""

    def sink(self, read: _Message_contra) -> tuple[int, int]:
        """Return the STag and the TO of the sink of an RDMA Read, which begins."""

    def finished(self, message: _Message_contra) -> None:
        """Note that all octets of a Send or RDMA Write are in ULPDUs, or all of a Read Response in memory."""

    def received(self, buffer: _Buffer_contra) -> None:
        """Note that a Send has filled the oldest buffer."""

    def requested(self, request: Request) -> None:
        """Note an RDMA Read Request: the owner may ``check`` it before it is answered."""

    def passed(self, ulpdu: bytes) -> None:
        """Take a ULPDU that the engine does not process: a Terminate, or one without a valid header."""

    def refused(self, error: DdpError, ulpdu: bytes) -> None:
        """Note that the ULPDU is refused."""

    def source_refused(self, error: DdpError, request: ReadRequest, msn: int) -> None:
        """Note that the source of an RDMA Read must not be read, and what is left of the Read."""


class Progress(Generic[_Message, _Buffer]):
    """What one end may do, and what it has received and sent. Whoever drives an engine in a device has this, too."""

    def __init__(self) -> None:
        self.ird = self.ord = 0
        self.waits = True  # a Send for which no buffer is posted stalls until one is; otherwise it is refused
        self.drops = False  # it is discarded
        self.shut = False  # RDMA Read Requests are discarded, because nothing can be sent any more
        self.stops = False  # no other ULPDU is begun
        self.receives: deque[_Buffer] = deque()
        self.reads: deque[_Message] = deque()  # RDMA Reads that wait for their Read Response
        self.read_rtr = 0  # 1 while this end's own Read RTR is unanswered
        self.requests: deque[Request] = deque()  # of the peer
        self.rx_msn = {SEND_QN: FIRST_MSN, READ_QN: FIRST_MSN, TERMINATE_QN: FIRST_MSN}
        self.tx_msn = {SEND_QN: FIRST_MSN, READ_QN: FIRST_MSN}
        self.rx_mo = 0  # the MO of the next segment of a Send
        self.send_begun = False  # a Send has begun, and its last segment has not arrived
        self.write_begun: Tagged | None = None  # the latest segment of an RDMA Write, if more must follow

    def place(self) -> Place:
        """Return the place up to which this end has received."""
        buffer = len(self.receives[0].buffer) if self.receives else None
        due = None
        if self.reads:
            read = self.reads[0]
            due = Due(*read.sink, read.octets, read.arrived)
        return Place(self.rx_msn, self.rx_mo, buffer, len(self.requests), self.ird, due)

    def begin(self, message: _Message) -> None:
        """Give the message its MSN."""
        message.begun = True
        if message.opcode is not Opcode.RDMA_WRITE:
            qn = READ_QN if message.reads else SEND_QN
            message.msn = self.tx_msn[qn]
            self.tx_msn[qn] = next_msn(message.msn)

    # The MSNs and the place in the IRRQ that RTRs of the data path use (RFC 6581 §4.4.2)

    def rtr_sent(self, kind: Rtr) -> None:
        """Note that the data path sends this RTR before anything else."""
        if kind is Rtr.SEND:
            self.tx_msn[SEND_QN] = next_msn(FIRST_MSN)
        elif kind is Rtr.READ:  # an RDMA Read like any other until it is answered (RFC 5040 §6.1)
            self.tx_msn[READ_QN] = next_msn(FIRST_MSN)
            self.read_rtr = 1

    def rtr_answered(self) -> None:
        """Note that the Read Response to a Read RTR has arrived."""
        self.read_rtr = 0

    def rtr_received(self, kind: Rtr, octets: int) -> None:
        """Note that the data path has consumed this RTR, a ULPDU of this many octets; it may have no header.

        As the first message of its queue, the RTR uses MSN 1 (RFC 5041 §4.3). The data path has checked the MSN of a
        Read RTR; the MSN of a Send RTR is not checked, because it has no payload (RFC 5041 §7.1).
        """
        if kind is Rtr.SEND and octets >= UNTAGGED_OCTETS:
            self.rx_msn[SEND_QN] = next_msn(FIRST_MSN)
        elif kind is Rtr.READ:
            self.rx_msn[READ_QN] = next_msn(FIRST_MSN)


class Engine(Progress[_Message, _Buffer], Generic[_Region, _Message, _Buffer]):
    """DDP and RDMAP of one connection. Once ``stopped``, it receives and sends nothing more."""

    def __init__(self, owner: Owner[_Region, _Message, _Buffer]) -> None:
        super().__init__()
        self.owner = owner
        self.mulpdu = 1024  # octets
        self.stopped = False
        self.work: deque[_Message] = deque()  # not begun
        self._message: _Message | None = None  # that is being sent
        self._at = 0  # its next octet
        self._answers = False  # a Read Response is being sent
        self._responses_next = True

    @property
    def ready(self) -> bool:
        """Whether ``next_ulpdu`` has something to send."""
        return not self._silent and bool(self._message or self.requests or self._may_begin)

    @property
    def sending(self) -> bool:
        """Whether a message has begun, and more of it follows."""
        return not self._silent and (self._message is not None or self._answers)

    @property
    def _silent(self) -> bool:
        return self.stopped or self.stops

    # Receive

    def receive(self, ulpdu: bytes) -> bool:
        """Take a ULPDU from the peer; False stalls a Send without a buffer, to be offered again once one is posted.

        A ULPDU that is refused changes no octet of memory. ULPDUs behind it are discarded (RFC 5041 §7.1).
        """
        if self.stopped:
            return True
        try:
            segment = decode(ulpdu)
        except DdpError:
            self._pass_on(ulpdu)
            return True
        error = refusal(segment, len(segment.payload), self.place, self.owner)
        if error is None:
            if isinstance(segment, Tagged):
                self._take_tagged(segment)
            else:
                self._take_untagged(segment, ulpdu)
        elif isinstance(error, NoBufferError) and (self.waits or self.drops):
            if not self.drops:
                return False
            self._expect_behind(error.segment)
        elif segment.opcode not in (TAGGED if isinstance(segment, Tagged) else UNTAGGED):
            self._pass_on(ulpdu)
        else:
            self.stopped = True
            self.owner.refused(error, ulpdu)
        return True

    def _pass_on(self, ulpdu: bytes) -> None:
        self.stopped = True
        self.owner.passed(ulpdu)

    def _take_tagged(self, segment: Tagged) -> None:
        if segment.payload:
            region = self._region(segment.stag)
            at = segment.to - region.to
            region.view[at : at + len(segment.payload)] = segment.payload
        if segment.opcode is Opcode.RDMA_WRITE:
            self.write_begun = None if segment.last else segment
            return
        read = self.reads[0]
        read.arrived += len(segment.payload)
        if segment.last:
            self.reads.popleft()
            self.owner.finished(read)

    def _take_untagged(self, segment: Untagged, ulpdu: bytes) -> None:
        if segment.qn == SEND_QN:
            self._take_send(segment)
        elif segment.qn == READ_QN:
            whole = ReadRequest.decode(segment.payload)
            request = Request(segment.msn, whole, whole)
            if not self.shut:
                self.requests.append(request)
            self._expect_behind(segment)
            self.owner.requested(request)
        else:
            self._pass_on(ulpdu)

    def _take_send(self, segment: Untagged) -> None:
        receive, end = self.receives[0], segment.mo + len(segment.payload)
        if segment.payload:
            receive.buffer[segment.mo : end] = segment.payload
        self._expect_behind(segment)
        if segment.last:
            self.receives.popleft()
            receive.octets, receive.opcode = end, segment.opcode
            if segment.opcode.invalidates:
                receive.invalidated = segment.stag
                self.owner.invalidate(self._region(segment.stag))
            self.owner.received(receive)

    def _expect_behind(self, segment: Untagged) -> None:
        """Expect the segment behind this one."""
        if segment.qn == SEND_QN:
            self.rx_mo, self.send_begun = 0 if segment.last else segment.mo + len(segment.payload), not segment.last
        if segment.last:
            self.rx_msn[segment.qn] = next_msn(segment.msn)

    def _region(self, stag: int) -> _Region:
        region = self.owner.find(stag)
        assert region is not None
        return region

    # Transmit

    def next_ulpdu(self) -> bytes | None:
        """Return the next ULPDU to send; None if there is none now.

        Read Responses and own messages take turns, message by message (RFC 5040 §5.5).
        """
        if self._silent:
            return None
        if self._message is None and not self._answers:
            if self.requests and (self._responses_next or not self._may_begin):
                self._answers, self._responses_next = True, False
            elif self._may_begin:
                self._responses_next = True
                self.begin(self.work.popleft())
            else:
                return None
        return self._response() if self._answers else self._segment()

    @property
    def _may_begin(self) -> bool:
        if not self.work:
            return False
        # RFC 5040 §5.5 rule 13: work that is posted behind a waiting request waits, too
        message = self.work[0]
        if message.fence and self.reads:  # RFC 5040 §5.5 rule 12
            return False
        return not message.reads or len(self.reads) + self.read_rtr < self.ord  # RFC 5040 §6.1

    def begin(self, message: _Message) -> None:
        """See Progress."""
        super().begin(message)
        self._message, self._at = message, 0
        if message.reads:
            message.sink = self.owner.sink(message)
            self.reads.append(message)

    def _segment(self) -> bytes:
        message, at = self._message, self._at
        assert message is not None
        opcode, stag = message.opcode, message.stag
        segment: Tagged | Untagged
        if opcode is Opcode.RDMA_WRITE:
            segment = tagged_segment(opcode, stag, message.to, message.data, at, self.mulpdu)
        elif opcode is Opcode.RDMA_READ_REQUEST:
            header = ReadRequest(*message.sink, message.octets, stag, message.to).encode()
            self._message = None  # it completes with its response
            return Untagged(opcode, READ_QN, message.msn, 0, True, header).encode()
        else:
            segment = untagged_segment(opcode, SEND_QN, message.msn, message.data, at, self.mulpdu, stag)
        ulpdu = segment.encode()
        self._at += len(segment.payload)
        if segment.last:
            self._message = None
            self.owner.finished(message)
        return ulpdu

    def check(self, request: Request) -> bool:
        """Refuse a request whose source must not be read, and return False."""
        error = source_refusal(request.rest, self.owner)
        if error:  # RFC 5040 §4.8: the header then shows the progress of the Read
            self.stopped = True
            self.owner.source_refused(error, request.rest, request.msn)
        return not error

    def _response(self) -> bytes | None:
        """Answer the oldest request; its source is checked for each segment, as it may be revoked meanwhile."""
        request = self.requests[0]
        rest = request.rest
        if not self.check(request):
            return None
        octets = min(self.mulpdu - TAGGED_OCTETS, rest.size)
        source: Octets = b""
        if octets:
            region = self._region(rest.source_stag)
            at = rest.source_to - region.to
            source = region.view[at : at + octets]
        last = octets == rest.size
        if last:
            self.requests.popleft()
            self._answers = False
        else:
            request.rest = rest.after(octets)
        return Tagged(Opcode.RDMA_READ_RESPONSE, rest.sink_stag, rest.sink_to, last, source).encode()
