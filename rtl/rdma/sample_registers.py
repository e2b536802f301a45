"""The registers of the sample writer, as plain data.

They follow those of the RDMA engine (:data:`open_rnic.rtl.rdma.registers.RDMA_MAP`) in the same page. This module
imports no hardware library.
"""

from enum import IntEnum

from open_rnic.rtl.registers import Access, Field, Register

__all__ = ["BY_NAME", "IDENTITY", "RECORD_OCTETS", "SAMPLE_MAP", "TAKEN", "VERSION", "Doorbell"]

IDENTITY = int.from_bytes(b"SMP1", "big")
VERSION = 0x0001_0000
TAKEN = 8  # bit of STATUS, and of the signal generator's
RECORD_OCTETS = 16  # of a doorbell: the tail, and the samples dropped before it, 64 bits each, low octet first


class Doorbell(IntEnum):
    """The message that announces new octets in its ring to the peer. Except for NONE, it carries a record of 16 octets.

    Octets 0 to 7 of the record are the tail: the number of octets that have been written to the ring. Octets 8 to 15
    are the number of samples that were dropped before the last of these octets. In both, the least significant octet
    is the first.
    """

    NONE = 0
    SEND = 1
    SEND_SE = 2  # a Send with Solicited Event
    WRITE = 3  # an RDMA Write to BELL_STAG, BELL_TO


def _value(doc: str, access: Access = Access.RO, reset: int = 0) -> tuple[Field, ...]:
    return (Field("value", 0, 32, doc, access, reset),)


def _halves(name: str, address: int, doc: str, what: str, access: Access = Access.RO) -> tuple[Register, ...]:
    return (
        Register(f"{name}_LO", address, doc, _value(f"bits 31:0 of {what}", access)),
        Register(f"{name}_HI", address + 4, doc, _value(f"bits 63:32 of {what}", access)),
    )


def _flag(name: str, lsb: int, doc: str, access: Access = Access.RW) -> Field:
    return Field(name, lsb, 1, doc, access)


SAMPLE_MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x300, "Identifies the sample writer; 0 in a device without it.",
             _value('"SMP1" in ASCII', reset=IDENTITY)),
    Register("VERSION", 0x304, "The version of these registers.", (
        Field("minor", 0, 16, "increased by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "increased by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CAPABILITIES", 0x308, "The parameters with which the sample writer was built.", (
        Field("sample", 0, 8, "octets of a sample: 2 to this power"),
        Field("buffer", 8, 8, "octets of the memory in which samples wait: 2 to this power"),
    )),
    Register("CONTROL", 0x30C, "Controls the sample writer. Other registers are written while `enable` is 0.", (
        _flag("enable", 0, "samples are taken; when it is cleared, those that wait are written and announced"),
        _flag("drops", 1, "a sample for which there is no room is dropped; otherwise the stream of samples stalls"),
        Field("doorbell", 4, 2, "the kind of doorbell", Access.RW, enum=Doorbell),
    )),
    Register("RING_STAG", 0x310, "The peer's STag for the ring.", _value("the STag", Access.RW)),
    *_halves("RING_TO", 0x314, "The peer's TO of the ring's first octet.", "the TO", Access.RW),
    Register("RING_OCTETS", 0x31C, "The size of the ring, at most 2^31 octets. While it is 0, nothing is written.",
             _value("octets", Access.RW)),
    Register("WRITE_OCTETS", 0x320, "The length of an RDMA Write, except before the end of the ring or a doorbell. "
             "It is limited to half of CAPABILITIES.buffer. Up to a quarter, the buffer takes a sample in every cycle.",
             _value("octets", Access.RW, 1024)),
    Register("BELL_OCTETS", 0x324, "A doorbell follows this number of octets behind the previous doorbell.",
             _value("octets; 0: any number", Access.RW)),
    Register("BELL_TICKS", 0x328, "The octets that wait are written, and a doorbell follows, this number of ticks "
             "behind the previous doorbell, or behind the first sample after it, whichever is later.",
             _value("ticks; 0: any number", Access.RW)),
    Register("BELL_STAG", 0x32C, "The peer's STag for doorbells of the kind WRITE.", _value("the STag", Access.RW)),
    *_halves("BELL_TO", 0x330, "The peer's TO for doorbells of the kind WRITE.", "the TO", Access.RW),
    Register("HEAD_ADDRESS", 0x338, "The address in this device's memory of the head: the number of octets that the "
             "peer has freed, 64 bits, low octet first. The peer writes all 8 octets with one RDMA Write.",
             _value("a multiple of 8", Access.RW)),
    Register("STATUS", 0x33C, "The state of the sample writer.", (
        _flag("bad_head", 0, "a head was ignored: it was behind the head before, or ahead of what was announced",
              Access.CLEAR),
        _flag("gap", 1, "samples are dropped until all samples before them have been announced", Access.RO),
        _flag("blocked", 2, "the ring has no room for the next RDMA Write", Access.RO),
        _flag("pending", 3, "samples wait, or have not been announced", Access.RO),
        _flag("busy", 4, "the engine has RDMA Writes or doorbells that it has not read", Access.RO),
        _flag("taken", TAKEN, "another connection has the sample writer", Access.RO),
    )),
    *_halves("TAIL", 0x340, "The octets for which RDMA Writes have been given to the engine.", "the number"),
    Register("HEAD", 0x348, "The octets that the peer has freed, modulo 2^32.", _value("octets")),
    *_halves("DROPPED", 0x34C, "The samples that have been dropped while `enable` was 1.", "the number"),
    Register("BELLS", 0x354, "The doorbells that have been given to the engine.", _value("doorbells")),
)  # fmt: skip

BY_NAME: dict[str, Register] = {f"SAMPLE_{each.name}": each for each in SAMPLE_MAP}  # as a host names them
