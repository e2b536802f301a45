"""DDP segments with RDMAP headers (RFC 5041, RFC 5040): a codec and the rules for segments.

The package knows octets only, and imports no other part of the driver: the data path recognises RTRs with it, below
MPA, and RDMAP and SCTP use it above.
"""

from open_rnic.host_driver.ddp.faults import DdpError, Fault
from open_rnic.host_driver.ddp.headers import (
    READ_QN,
    READ_REQUEST_OCTETS,
    SEND_QN,
    TAGGED_OCTETS,
    TERMINATE_QN,
    UNTAGGED_OCTETS,
    Octets,
    ReadRequest,
    Tagged,
    Terminate,
    Untagged,
    decode,
)
from open_rnic.host_driver.ddp.refusal import TO_END, Due, NoBufferError, Place, refusal, source_refusal
from open_rnic.host_driver.ddp.segments import (
    MAX_MESSAGE,
    Message,
    next_msn,
    tagged_segment,
    tagged_segments,
    untagged_segment,
    untagged_segments,
)
from open_rnic.rtl.formats.opcodes import FIRST_MSN, Opcode

__all__ = [
    "FIRST_MSN",
    "MAX_MESSAGE",
    "READ_QN",
    "READ_REQUEST_OCTETS",
    "SEND_QN",
    "TAGGED_OCTETS",
    "TERMINATE_QN",
    "TO_END",
    "UNTAGGED_OCTETS",
    "DdpError",
    "Due",
    "Fault",
    "Message",
    "NoBufferError",
    "Octets",
    "Opcode",
    "Place",
    "ReadRequest",
    "Tagged",
    "Terminate",
    "Untagged",
    "decode",
    "next_msn",
    "refusal",
    "source_refusal",
    "tagged_segment",
    "tagged_segments",
    "untagged_segment",
    "untagged_segments",
]
