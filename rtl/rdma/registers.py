"""The registers of the RDMA engine, and the commands that the host writes to one of them, as plain data.

The registers follow those of the MPA data path (:data:`open_rnic.rtl.registers.MAP`) in the same page. This module
imports no hardware library.
"""

from dataclasses import dataclass
from enum import IntEnum

from open_rnic.rtl.registers import Access, Field, Register

__all__ = [
    "BY_NAME", "FORMATS", "HEADER_WORDS", "IDENTITY", "RDMA_MAP", "REQUEST_WORDS", "VERSION",
    "Command", "Format", "Right",
]  # fmt: skip

IDENTITY = int.from_bytes(b"RDM1", "big")
VERSION = 0x0001_0002
HEADER_WORDS = 5  # 20 octets: the longest DDP header, and 2 octets
REQUEST_WORDS = 7  # an RDMA Read Request header (RFC 5040 §4.4)


class Command(IntEnum):
    """The kinds of command, in bits 31:28 of a command's first word. :data:`FORMATS` has the rest of them."""

    REGION = 1
    REVOKE = 2
    BUFFER = 3
    WORK = 4
    WITHDRAW = 5


class Right(IntEnum):
    """The bits of a region's rights."""

    LOCAL_WRITE = 1  # the Read Responses to this end's RDMA Reads
    REMOTE_WRITE = 2
    REMOTE_READ = 4

    @property
    def bit(self) -> int:
        """Its place among the rights."""
        return self.bit_length() - 1


@dataclass(frozen=True)
class Format:
    """A command: the fields of its first word beside the kind, and the words that follow."""

    command: Command
    doc: str
    fields: tuple[Field, ...]
    words: tuple[str, ...]


def _word(doc: str, access: Access = Access.RO, reset: int = 0, width: int = 32) -> tuple[Field, ...]:
    return (Field("value", 0, width, doc, access, reset),)


def _flag(name: str, lsb: int, doc: str, access: Access = Access.RW) -> Field:
    return Field(name, lsb, 1, doc, access)


FORMATS: tuple[Format, ...] = (
    Format(Command.REGION, "Registers memory. The row of the table is the remainder of the STag by the number of rows: "
           "a region that was there before is gone.", (
        Field("rights", 0, 3, "the sum of 1 (Read Responses to this end's RDMA Reads may write), 2 (the peer's RDMA "
              "Writes may write) and 4 (the peer's RDMA Reads may read)"),
        Field("invalidates", 3, 1, "the peer's Sends may invalidate the STag"),
        Field("stag", 8, 16, "the low 16 bits of the STag"),
    ), ("address", "octets", "TO, low half", "TO, high half", "STag")),
    Format(Command.REVOKE, "Takes a region back. From the next cycle on, no octet is accepted for its STag, and none "
           "is read. Octets that were accepted before are in memory when STATUS.placing has been 0.", (), ("STag",)),
    Format(Command.BUFFER, "Posts a buffer, which takes the next Send for which none is posted yet.", (),
           ("address", "octets")),
    Format(Command.WORK, "Posts a message.", (
        Field("opcode", 0, 4, "the Opcode (RFC 5040 §4.1) of a Send, an RDMA Write or an RDMA Read Request"),
        Field("fence", 4, 1, "the message waits until no RDMA Read of this end is outstanding"),
        Field("fabric", 5, 1, "it is the work of logic beside the engine"),
        Field("pieces", 8, 6, "the number of pieces of the message; an RDMA Read has one, its sink"),
    ), ("octets", "STag: the peer's, or in a Send with Invalidate the STag to invalidate", "TO, low half",
        "TO, high half", "the address of the first piece; for a sink, which is a region of its own, also the first TO "
        "of that region", "the octets of the first piece; for a sink, the STag of that region. Two such words follow "
        "for each other piece")),
    Format(Command.WITHDRAW, "Takes a buffer back: it takes no Send, unless one has begun to arrive for it. Either way "
           "it appears in RECEIVED, in the order of the buffers.", (),
           ("the number of the buffer: that of the first BUFFER since the reset is 0; only as many low bits count as "
            "it takes to distinguish all buffers that can be posted",)),
)  # fmt: skip

_HEADERS = tuple(
    Register(f"REFUSED_{n}", 0x250 + 4 * n, f"After STATUS.refused, octets {4 * n} to {4 * n + 3} of the ULPDU.",
             _word("the first octet is in bits 31:24"))
    for n in range(HEADER_WORDS)
)  # fmt: skip

RDMA_MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x200, "Identifies the engine; 0 in a device without it.",
             _word('"RDM1" in ASCII', reset=IDENTITY)),
    Register("VERSION", 0x204, "The version of these registers.", (
        Field("minor", 0, 16, "increased by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "increased by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CAPABILITIES", 0x208, "The parameters with which the engine was built.", (
        Field("regions", 0, 8, "rows of the STag table: 2 to this power"),
        Field("buffers", 8, 8, "buffers for Sends that can be posted: 2 to this power"),
        Field("work", 16, 8, "Sends, RDMA Writes and RDMA Reads that can be posted: 2 to this power; as many pieces"),
        Field("reads", 24, 8, "the largest IRD and ORD: 2 to this power"),
    )),
    Register("CONTROL", 0x20C, "Controls the engine.", (
        _flag("enable", 0, "the engine takes the ULPDUs from the data path; otherwise they pass to the host"),
        _flag("waits", 1, "a Send for which no buffer is posted stalls until one is; otherwise it is refused"),
        _flag("drops", 2, "a Send for which no buffer is posted is discarded"),
        _flag("shut", 3, "RDMA Read Requests are discarded"),
        _flag("stop", 4, "the engine begins no other ULPDU"),
    )),
    Register("LIMITS", 0x210, "The results of the negotiation. Written before the engine is enabled; MULPDU also "
             "later.", (
        Field("mulpdu", 0, 16, "the MULPDU in octets, at least 64 and at most 64,768", Access.RW, 1024),
        Field("ird", 16, 8, "RDMA Read Requests of the peer that may be outstanding", Access.RW),
        Field("ord", 24, 8, "RDMA Reads of this end that may be outstanding", Access.RW),
    )),
    Register("COMMAND", 0x214, "Takes the words of commands. There is room for every command that the "
             "capabilities allow; after a reset, commands must wait for STATUS.ready. Their formats: Commands, below.",
             _word("a word", Access.PUSH)),
    Register("RECEIVED", 0x218, "The oldest buffer that a Send has completed, or that was withdrawn. A read removes it "
             "from the queue. Zero if there is none.", (
        _flag("valid", 0, "there was one", Access.RO),
        Field("opcode", 4, 4, "the Send's Opcode (RFC 5040 §4.1); 0 if the buffer was withdrawn"),
    ), pops=True),
    Register("RECEIVED_OCTETS", 0x21C, "The length of the Send that was read last.", _word("octets")),
    Register("RECEIVED_STAG", 0x220, "The STag that the Send that was read last has invalidated.",
             _word("the STag; any value if it has invalidated none")),
    Register("DONE", 0x224, "The posted work that is done. A read clears the interrupt that a change sets.", (
        Field("sent", 0, 16, "Sends and RDMA Writes, modulo 2^16: all of their octets have been read from memory"),
        Field("reads", 16, 16, "RDMA Reads, modulo 2^16: all octets of the Read Response are in memory"),
    ), pops=True),
    Register("STATUS", 0x228, "The state of the engine. A read clears the interrupt that a change of bits 0 to 4 "
             "and 9 sets.", (
        _flag("ready", 0, "commands are accepted: the STag table has been cleared after the reset", Access.RO),
        _flag("refused", 1, "a ULPDU has been refused, or passed to the host: nothing else is received or sent",
              Access.RO),
        _flag("source_refused", 2, "an RDMA Read Request whose source must not be read: nothing else is sent",
              Access.RO),
        _flag("passed", 3, "the ULPDU was passed to the host: a Terminate, or a ULPDU without a valid header",
              Access.RO),
        _flag("blocked", 4, "a Send stalls because no buffer is posted", Access.RO),
        _flag("placing", 5, "received octets are on their way to memory", Access.RO),
        _flag("sending", 6, "a message is being sent; with CONTROL.stop or bit 1, 2 or 9, only ULPDUs that have begun",
              Access.RO),
        _flag("send_begun", 7, "a Send of the peer has begun, and its last segment has not arrived", Access.RO),
        _flag("write_begun", 8, "an RDMA Write of the peer has begun, and its last segment has not arrived",
              Access.RO),
        _flag("memory_failed", 9, "memory has answered with an error: nothing else is received or sent", Access.RO),
        Field("requests", 16, 8, "RDMA Read Requests of the peer that are not answered yet"),
        Field("reads", 24, 8, "RDMA Reads of this end that are outstanding, with a Read RTR"),
    ), pops=True),
    Register("ULPDUS", 0x22C, "ULPDUs of the engine, without those that pass to and from the host.", (
        Field("received", 0, 16, "processed, modulo 2^16"),
        Field("sent", 16, 16, "sent, modulo 2^16"),
    )),
    Register("RX_SEND_MSN", 0x234, "The MSN of the next Send of the peer.", _word("the MSN")),
    Register("RX_READ_MSN", 0x238, "The MSN of the next RDMA Read Request of the peer.", _word("the MSN")),
    Register("RX_MO", 0x23C, "The MO of the next segment of a Send of the peer.", _word("octets")),
    Register("RX_ARRIVED", 0x244, "Octets of the oldest outstanding Read Response that have arrived.", _word("octets")),
    Register("REFUSED_LENGTH", 0x24C, "After STATUS.refused, the length of the ULPDU.", _word("octets", width=16)),
    *_HEADERS,
    Register("SOURCE", 0x270, "After STATUS.source_refused, the RDMA Read Request (RFC 5040 §4.4): each read returns "
             "the next of its 7 words. Its MSN is RX_READ_MSN - STATUS.requests.", _word("the word"), pops=True),
    Register("SOURCE_LEFT", 0x274, "Octets of it that have not been sent.", _word("octets")),
)  # fmt: skip

BY_NAME: dict[str, Register] = {f"RDMA_{each.name}": each for each in RDMA_MAP}  # as a host names them beside others
