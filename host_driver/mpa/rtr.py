"""RTR indications, and the other ULPDUs that a data path itself makes or knows (RFC 6581 §4.4, RFC 5040 §4).

A ULPDU starts with the DDP header: a control octet (T, L, four reserved bits, DV) and RDMAP's (RV, two
reserved bits, Opcode), and then for an untagged one 4 octets for RDMAP, QN, MSN and MO, for a tagged one STag and TO.
Reserved bits are not looked at (RFC 5041 §4.1, RFC 5040 §4.1), and nor are the STag and TO of a message
of no octets (RFC 5041 §5.2). MSN and MO are checked where a segment carries octets (RFC 5041 §7.1): a Read RTR's must
be 1 and 0, as it is the first message of its queue, and one buffer of 28 octets takes it; a Send RTR carries none.
"""

from __future__ import annotations

from struct import pack

from open_rnic.rtl.registers import Rtr

_TAGGED, _LAST, _DDP_VERSION = 0x80, 0x40, 0x01
_RDMAP_VERSION = 0x40
_WRITE, _READ_REQUEST, _READ_RESPONSE, _SEND, _TERMINATE = 0, 1, 2, 3, 7
_UNTAGGED_OCTETS, _TAGGED_OCTETS, _READ_REQUEST_OCTETS = 18, 14, 46
_QN = slice(6, 10)
_MSN_AND_MO = slice(10, 18)
_FIRST = pack(">II", 1, 0)  # MSN 1, MO 0
_RTR_STAG = 1  # some hardware treats STag 0 as special


def _untagged(opcode: int, qn: int) -> bytes:
    return pack(">BBIIII", _LAST | _DDP_VERSION, _RDMAP_VERSION | opcode, 0, qn, 1, 0)  # MSN 1, MO 0


def _tagged(opcode: int, stag: int, to: int) -> bytes:
    return pack(">BBIQ", _TAGGED | _LAST | _DDP_VERSION, _RDMAP_VERSION | opcode, stag, to)


_RTRS = {
    Rtr.SEND: _untagged(_SEND, 0),
    Rtr.WRITE: _tagged(_WRITE, _RTR_STAG, 0),
    Rtr.READ: _untagged(_READ_REQUEST, 1) + pack(">IQIIQ", 0, 0, 0, _RTR_STAG, 0),  # sink, RDMARDSZ, source
}


def rtr_ulpdu(kind: Rtr) -> bytes:
    """The ULPDU of an RTR: the first message of its queue, of no octets."""
    return _RTRS[kind]


def rtr_kind(ulpdu: bytes) -> Rtr:
    """Which RTR this ULPDU has the shape of; NONE when it has none. One of no octets at all counts as a Send."""
    match len(ulpdu):
        case 0:
            return Rtr.SEND
        case 18 if _control(ulpdu) == (_LAST, _SEND) and ulpdu[_QN] == b"\0\0\0\0":
            return Rtr.SEND
        case 14 if _control(ulpdu) == (_TAGGED | _LAST, _WRITE):
            return Rtr.WRITE
        case 46 if (
            _control(ulpdu) == (_LAST, _READ_REQUEST)
            and ulpdu[_QN] == b"\0\0\0\1"
            and ulpdu[_MSN_AND_MO] == _FIRST
            and ulpdu[30:34] == b"\0\0\0\0"
        ):
            return Rtr.READ
    return Rtr.NONE


def read_response(request: bytes) -> bytes:
    """The zero-length Read Response to a Read RTR: it goes to the STag and TO that the request names as its sink."""
    sink = request[_UNTAGGED_OCTETS : _UNTAGGED_OCTETS + 12]
    return _tagged(_READ_RESPONSE, 0, 0)[:2] + sink


def is_empty_read_response(ulpdu: bytes) -> bool:
    """Whether this is a Read Response of no octets."""
    return len(ulpdu) == _TAGGED_OCTETS and _control(ulpdu) == (_TAGGED | _LAST, _READ_RESPONSE)


def is_terminate(ulpdu: bytes) -> bool:
    """Whether this is a Terminate (RFC 5040 §4.8): untagged, Opcode 7."""
    return len(ulpdu) > 1 and ulpdu[1] & 0x0F == _TERMINATE and not ulpdu[0] & _TAGGED


def is_terminate_instead_of_rtr(ulpdu: bytes) -> bool:
    """Whether an initiator sends this because it can send no RTR (RFC 6581 §9.1, §9.2): a Terminate, versions and QN 2.

    A responder that has not opened yet looks closer than ``is_terminate``, which is about what the host sends itself.
    """
    return (
        len(ulpdu) >= _QN.stop
        and _control(ulpdu) in ((0, _TERMINATE), (_LAST, _TERMINATE))
        and ulpdu[_QN] == b"\0\0\0\2"
    )


def _control(ulpdu: bytes) -> tuple[int, int] | None:
    """T and L in place, and the Opcode; None when a version is not 1."""
    ddp, rdmap = ulpdu[0], ulpdu[1]
    if ddp & 0x03 != _DDP_VERSION or rdmap & 0xC0 != _RDMAP_VERSION:
        return None
    return ddp & (_TAGGED | _LAST), rdmap & 0x0F
