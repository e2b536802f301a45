"""Why an end must refuse a segment: the checks of RFC 5041 §7.1, RFC 5040 §5 and §7, without side effects.

All who receive ask here, so they agree: the engine in software, and the host of an engine in a device, which learns
only that a segment was refused, and its header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from open_rnic.host_driver.ddp.faults import DdpError, Fault
from open_rnic.host_driver.ddp.headers import (
    READ_QN,
    READ_REQUEST_OCTETS,
    SEND_QN,
    TERMINATE_QN,
    ReadRequest,
    Tagged,
    Untagged,
)
from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.rdma.registers import Right

TO_END = 1 << 64  # a TO and a length together stay below it (RFC 5041 §7.1)
_QUEUES = {  # RFC 5040 §4.1 gives each message its queue
    Opcode.SEND: SEND_QN,
    Opcode.SEND_INVALIDATE: SEND_QN,
    Opcode.SEND_SE: SEND_QN,
    Opcode.SEND_SE_INVALIDATE: SEND_QN,
    Opcode.RDMA_READ_REQUEST: READ_QN,
    Opcode.TERMINATE: TERMINATE_QN,
}


class NoBufferError(DdpError):
    """No buffer is posted for this segment of a Send."""

    def __init__(self, segment: Untagged) -> None:
        super().__init__(f"{segment.opcode} with MSN {segment.msn} where no buffer is posted", Fault.NO_BUFFER)
        self.segment = segment


class Due(NamedTuple):
    """An RDMA Read whose Read Response is due: ``octets`` for ``stag`` from ``to`` on, of which some have arrived."""

    stag: int
    to: int
    octets: int
    arrived: int = 0


class Place(NamedTuple):
    """The place up to which an end has received."""

    msn: Mapping[int, int]  # of the next segment of each queue
    mo: int  # of the next segment of a Send
    buffer: int | None  # octets of the buffer for that Send; None if none is posted
    requests: int  # RDMA Reads of the peer that are not answered
    ird: int  # the most of these
    due: Due | None  # the RDMA Read whose Read Response is next


class Reach(Protocol):
    """What an STag reaches."""

    @property
    def access(self) -> int:
        """The bits of :class:`.Right`."""

    @property
    def to(self) -> int:
        """The TO of the first octet."""

    @property
    def octets(self) -> int:
        """The number of octets."""


_Region = TypeVar("_Region", bound=Reach)


class Regions(Protocol[_Region]):
    """The STags of a stream."""

    def find(self, stag: int) -> _Region | None:
        """Return the region of this STag; None if it is not valid."""

    def allows(self, region: _Region) -> bool:
        """Return whether the region is for this stream."""

    def invalidates(self, region: _Region) -> bool:
        """Return whether the peer's Sends may invalidate the region's STag."""


def refusal(
    segment: Tagged | Untagged, octets: int, place: Callable[[], Place], regions: Regions[_Region]
) -> DdpError | None:
    """Return the error of a segment with this many octets of payload, which are not looked at; None if it is good.

    Of a Send for which no buffer is posted it is a NoBufferError: the receiver decides whether the Send waits.
    """
    if isinstance(segment, Tagged):
        match segment.opcode:
            case Opcode.RDMA_WRITE:  # RFC 5041 §5.2: STag and TO of a message of no octets are ignored
                return _unreachable(segment.stag, segment.to, octets, Right.REMOTE_WRITE, _SINK, regions)
            case Opcode.RDMA_READ_RESPONSE:
                return _read_response(segment, octets, place().due, regions)
        return DdpError(f"{segment.opcode} in a tagged segment", Fault.OPCODE)
    return _untagged(segment, octets, place(), regions)


def source_refusal(request: ReadRequest, regions: Regions[_Region]) -> DdpError | None:
    """Return the error of an RDMA Read whose source the peer may not read (RFC 5040 §7.2), or None.

    RFC 5040 §5.2.1: of a Read of no octets, STag and TO are ignored.
    """
    return _unreachable(request.source_stag, request.source_to, request.size, Right.REMOTE_READ, _SOURCE, regions)


def _read_response(segment: Tagged, octets: int, due: Due | None, regions: Regions[_Region]) -> DdpError | None:
    """Check the response against the request, as RFC 5040 §5.2.2 allows."""
    if due is None:
        return DdpError("RDMA Read Response where none is due", Fault.OPCODE)
    to = due.to + due.arrived
    if octets and segment.stag != due.stag:
        return DdpError(f"RDMA Read Response to STag {segment.stag:#x} where {due.stag:#x} is due", Fault.STAG)
    if octets and segment.to != to:
        return DdpError(f"RDMA Read Response at TO {segment.to:#x} where {to:#x} is due", Fault.BOUNDS)
    arrived = due.arrived + octets
    if arrived > due.octets or (segment.last and arrived < due.octets):
        return DdpError(f"RDMA Read Response of {arrived} octets where {due.octets} are due", Fault.BOUNDS)
    return _unreachable(segment.stag, segment.to, octets, Right.LOCAL_WRITE, _SINK, regions)


def _untagged(segment: Untagged, octets: int, place: Place, regions: Regions[_Region]) -> DdpError | None:
    """Check QN, MSN and MO (RFC 5041 §7.1), then the message."""
    opcode, qn, msn = segment.opcode, segment.qn, segment.msn
    if opcode not in _QUEUES:
        return DdpError(f"{opcode} in an untagged segment", Fault.OPCODE)
    if qn != _QUEUES[opcode]:
        return DdpError(f"{opcode} on QN {qn} where {_QUEUES[opcode]} is due", Fault.QN)
    if msn != place.msn[qn]:
        return DdpError(f"{opcode} with MSN {msn} where {place.msn[qn]} is due", Fault.MSN)
    mo = place.mo if qn == SEND_QN else 0
    if segment.mo != mo:
        return DdpError(f"{opcode} with MO {segment.mo} where {mo} is due", Fault.MO)
    if qn == SEND_QN:
        return _send(segment, segment.mo + octets, place.buffer, regions)
    if qn == READ_QN:
        return _read_request(segment, octets, place)
    return None


def _send(segment: Untagged, end: int, room: int | None, regions: Regions[_Region]) -> DdpError | None:
    opcode, stag = segment.opcode, segment.stag
    if room is None:
        return NoBufferError(segment)
    if end > room:
        return DdpError(f"{opcode} of at least {end} octets for a buffer of {room}", Fault.TOO_LONG)
    if opcode.invalidates:  # RFC 5040 §5.3, §7.2, §8.1.1 rule 7
        region = regions.find(stag)
        if region is None:
            return DdpError(f"STag {stag:#x}, to be invalidated, is not valid", Fault.SOURCE_STAG)
        if not regions.invalidates(region):
            return DdpError(f"STag {stag:#x}, to be invalidated, is not this stream's alone", Fault.CANNOT_INVALIDATE)
    return None


def _read_request(segment: Untagged, octets: int, place: Place) -> DdpError | None:
    if octets > READ_REQUEST_OCTETS:
        what = f"RDMA Read Request of {octets} octets where {READ_REQUEST_OCTETS} are due"
        return DdpError(what, Fault.TOO_LONG)
    if place.requests >= place.ird:
        # RFC 5040 §5.2.2: the queue has IRD buffers, each request uses one, so this is RFC 5041 §7.1's check 2
        what = f"RDMA Read Request with MSN {segment.msn} where {place.ird} (the IRD) are outstanding"
        return DdpError(what, Fault.NO_BUFFER)
    if octets < READ_REQUEST_OCTETS:
        return DdpError(f"an RDMA Read Request header of {octets} octets where {READ_REQUEST_OCTETS} are due")
    if not segment.last:
        return DdpError("RDMA Read Request that goes on in another segment")
    return None


class _Faults(NamedTuple):
    """The fault that each check of tagged memory reports."""

    stag: Fault
    stream: Fault
    access: Fault
    wrap: Fault
    bounds: Fault


# RFC 5041 §7.2 has no code for access rights; §7.1 check 2: there is no buffer that allows placement
_SINK = _Faults(Fault.STAG, Fault.STREAM, Fault.STAG, Fault.TO_WRAP, Fault.BOUNDS)
_SOURCE = _Faults(
    Fault.SOURCE_STAG, Fault.SOURCE_STREAM, Fault.SOURCE_ACCESS, Fault.SOURCE_TO_WRAP, Fault.SOURCE_BOUNDS
)


def _unreachable(
    stag: int, to: int, octets: int, right: Right, faults: _Faults, regions: Regions[_Region]
) -> DdpError | None:
    """Return the error of octets that the peer may not access; None also if there are none."""
    if not octets:
        return None
    region = regions.find(stag)
    if region is None:
        return DdpError(f"STag {stag:#x} is not valid", faults.stag)
    if not regions.allows(region):
        return DdpError(f"STag {stag:#x} is not for this stream", faults.stream)
    if not region.access & right:
        return DdpError(f"STag {stag:#x} has no right {right.name}", faults.access)
    if to + octets >= TO_END:
        return DdpError(f"{octets} octets from TO {to:#x} on wrap", faults.wrap)
    if to < region.to or to + octets > region.to + region.octets:
        ends = f"TO {region.to:#x} to {region.to + region.octets:#x}"
        return DdpError(f"{octets} octets from TO {to:#x} on are not in STag {stag:#x}, {ends}", faults.bounds)
    return None
