"""The errors of RDMAP, DDP and MPA, with their codes in a Terminate (RFC 5040 §4.8)."""

from __future__ import annotations

from enum import Enum


class Fault(Enum):
    """The errors that a Terminate can report, each as layer, error type and error code.

    RFC 5040 §4.8 defines those of RDMAP, RFC 5041 §7.2 those of DDP, RFC 5044 §8 and RFC 6581 §8 those of MPA.
    """

    RDMAP_CATASTROPHIC = (0, 0, 0x00)
    SOURCE_STAG = (0, 1, 0x00)
    SOURCE_BOUNDS = (0, 1, 0x01)
    SOURCE_ACCESS = (0, 1, 0x02)
    SOURCE_STREAM = (0, 1, 0x03)
    SOURCE_TO_WRAP = (0, 1, 0x04)
    CANNOT_INVALIDATE = (0, 1, 0x09)
    PROTECTION = (0, 1, 0xFF)
    RDMAP_VERSION = (0, 2, 0x05)
    OPCODE = (0, 2, 0x06)
    STREAM_CATASTROPHIC = (0, 2, 0x07)
    GLOBAL_CATASTROPHIC = (0, 2, 0x08)
    CANNOT_INVALIDATE_OPERATION = (0, 2, 0x09)
    OPERATION = (0, 2, 0xFF)
    DDP_CATASTROPHIC = (1, 0, 0x00)
    STAG = (1, 1, 0x00)
    BOUNDS = (1, 1, 0x01)
    STREAM = (1, 1, 0x02)
    TO_WRAP = (1, 1, 0x03)
    TAGGED_VERSION = (1, 1, 0x04)
    QN = (1, 2, 0x01)
    NO_BUFFER = (1, 2, 0x02)
    MSN = (1, 2, 0x03)
    MO = (1, 2, 0x04)
    TOO_LONG = (1, 2, 0x05)
    UNTAGGED_VERSION = (1, 2, 0x06)
    MPA_LOST = (2, 0, 0x01)
    MPA_CRC = (2, 0, 0x02)
    MPA_MARKER = (2, 0, 0x03)
    MPA_STARTUP = (2, 0, 0x04)
    MPA_CATASTROPHIC = (2, 0, 0x05)
    MPA_IRD = (2, 0, 0x06)
    MPA_RTR = (2, 0, 0x07)

    @property
    def layer(self) -> int:
        """0 RDMAP, 1 DDP, 2 MPA."""
        return self.value[0]

    @property
    def type(self) -> int:
        """The error type; its meaning depends on the layer."""
        return self.value[1]

    @property
    def code(self) -> int:
        """The error code; its meaning depends on the layer and the type."""
        return self.value[2]

    def __str__(self) -> str:
        return _FAULTS[self]


_FAULTS = {
    Fault.RDMAP_CATASTROPHIC: "local catastrophic error",
    Fault.SOURCE_STAG: "invalid STag",
    Fault.SOURCE_BOUNDS: "base or bounds violation",
    Fault.SOURCE_ACCESS: "access rights violation",
    Fault.SOURCE_STREAM: "STag not associated with the stream",
    Fault.SOURCE_TO_WRAP: "TO wrap",
    Fault.CANNOT_INVALIDATE: "STag cannot be invalidated",
    Fault.PROTECTION: "unspecified protection error",
    Fault.RDMAP_VERSION: "invalid RDMAP version",
    Fault.OPCODE: "unexpected Opcode",
    Fault.STREAM_CATASTROPHIC: "catastrophic error, localized to the stream",
    Fault.GLOBAL_CATASTROPHIC: "catastrophic error, global",
    Fault.CANNOT_INVALIDATE_OPERATION: "STag cannot be invalidated",
    Fault.OPERATION: "unspecified operation error",
    Fault.DDP_CATASTROPHIC: "local catastrophic error",
    Fault.STAG: "invalid STag",
    Fault.BOUNDS: "base or bounds violation",
    Fault.STREAM: "STag not associated with the stream",
    Fault.TO_WRAP: "TO wrap",
    Fault.TAGGED_VERSION: "invalid DDP version",
    Fault.QN: "invalid QN",
    Fault.NO_BUFFER: "invalid MSN: no buffer available",
    Fault.MSN: "invalid MSN: out of range",
    Fault.MO: "invalid MO",
    Fault.TOO_LONG: "message too long for the available buffer",
    Fault.UNTAGGED_VERSION: "invalid DDP version",
    Fault.MPA_LOST: "TCP connection lost",
    Fault.MPA_CRC: "CRC mismatch",
    Fault.MPA_MARKER: "marker and ULPDU_Length mismatch",
    Fault.MPA_STARTUP: "invalid MPA Request or Reply",
    Fault.MPA_CATASTROPHIC: "local catastrophic error",
    Fault.MPA_IRD: "insufficient IRD",
    Fault.MPA_RTR: "no matching RTR",
}


class DdpError(Exception):
    """A ULPDU is not a valid segment, or not the expected one; the text names the field and both values.

    ``fault`` is the error that a Terminate reports for it.
    """

    def __init__(self, what: str, fault: Fault = Fault.STREAM_CATASTROPHIC) -> None:
        super().__init__(what)
        self.fault = fault
