"""RTR indications, and the other ULPDUs that a data path itself generates or recognises (RFC 6581 §4.4, RFC 5040 §4).

Reserved bits are ignored (RFC 5041 §4.1, RFC 5040 §4.1), and so are the STag and TO of a message of no octets
(RFC 5041 §5.2). MSN and MO are checked only in a segment with a payload (RFC 5041 §7.1): in a Read RTR they must be 1
and 0, because it is the first message of its queue; a Send RTR has no payload.
"""

from __future__ import annotations

from open_rnic.host_driver.ddp import (
    FIRST_MSN,
    READ_QN,
    READ_REQUEST_OCTETS,
    SEND_QN,
    TERMINATE_QN,
    UNTAGGED_OCTETS,
    DdpError,
    Opcode,
    ReadRequest,
    Tagged,
    Untagged,
    decode,
)
from open_rnic.host_driver.ddp.headers import CONTROL_WORD, control
from open_rnic.rtl.registers import Rtr

_RTR_STAG = 1  # some hardware treats STag 0 as special
_RTRS = {
    Rtr.SEND: Untagged(Opcode.SEND, SEND_QN, FIRST_MSN, mo=0, last=True).encode(),
    Rtr.WRITE: Tagged(Opcode.RDMA_WRITE, _RTR_STAG, to=0, last=True).encode(),
    Rtr.READ: Untagged(
        Opcode.RDMA_READ_REQUEST,
        READ_QN,
        FIRST_MSN,
        mo=0,
        last=True,
        payload=ReadRequest(sink_stag=0, sink_to=0, size=0, source_stag=_RTR_STAG, source_to=0).encode(),
    ).encode(),
}


def rtr_ulpdu(kind: Rtr) -> bytes:
    """Return the ULPDU of an RTR: the first message of its queue, of no octets."""
    return _RTRS[kind]


def rtr_kind(ulpdu: bytes) -> Rtr:
    """Return the kind of RTR that a ULPDU is, or NONE. A ULPDU of no octets counts as a Send."""
    if not ulpdu:
        return Rtr.SEND
    match _decoded(ulpdu):
        case Untagged(Opcode.SEND, qn=0, last=True, payload=payload) if not payload:
            return Rtr.SEND
        case Tagged(Opcode.RDMA_WRITE, last=True, payload=payload) if not payload:
            return Rtr.WRITE
        case Untagged(Opcode.RDMA_READ_REQUEST, qn=1, msn=1, mo=0, last=True, payload=payload) if (
            len(payload) == READ_REQUEST_OCTETS and not ReadRequest.decode(payload).size
        ):
            return Rtr.READ
    return Rtr.NONE


def read_response(request: bytes) -> bytes:
    """Return the zero-length Read Response to a Read RTR, for the STag and TO that the request names as its sink."""
    read = ReadRequest.decode(request[UNTAGGED_OCTETS:])
    return Tagged(Opcode.RDMA_READ_RESPONSE, read.sink_stag, read.sink_to, last=True).encode()


def is_empty_read_response(ulpdu: bytes) -> bool:
    """Whether this is a Read Response of no octets."""
    match _decoded(ulpdu):
        case Tagged(Opcode.RDMA_READ_RESPONSE, last=True, payload=payload):
            return not payload
    return False


def is_terminate(ulpdu: bytes) -> bool:
    """Whether this is a Terminate (RFC 5040 §4.8): untagged, Opcode 7."""
    if len(ulpdu) < CONTROL_WORD.size:
        return False
    tagged, *_, opcode = control(ulpdu)
    return opcode == Opcode.TERMINATE and not tagged


def is_terminate_instead_of_rtr(ulpdu: bytes) -> bool:
    """Whether an initiator sends this because it can send no RTR (RFC 6581 §9.1, §9.2): a Terminate on QN 2.

    Unlike ``is_terminate``, which is for what the host itself sends, it checks the versions and QN. MSN and MO may be
    cut off.
    """
    segment = _decoded(ulpdu.ljust(UNTAGGED_OCTETS, b"\0"))
    return isinstance(segment, Untagged) and segment.opcode is Opcode.TERMINATE and segment.qn == TERMINATE_QN


def _decoded(ulpdu: bytes) -> Tagged | Untagged | None:
    try:
        return decode(ulpdu)
    except DdpError:
        return None
