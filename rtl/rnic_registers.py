"""The registers of a whole RNIC, as plain data: its parameters, and the pages that have something for the host.

:class:`.LinkedRnic` is their gateware. This module imports no hardware library.
"""

from open_rnic.rtl.registers import Field, Register

__all__ = ["BY_NAME", "IDENTITY", "MAC_PAGE", "RNIC_MAP", "RNIC_PAGE", "VERSION"]

IDENTITY = int.from_bytes(b"RNI1", "big")
VERSION = 0x0002_0001
RNIC_PAGE = 0xFE  # of these registers; page 0 is that of TCP, page 1 + n that of connection n
MAC_PAGE = 0xFF


def _connections(doc: str) -> tuple[Field, ...]:
    return (Field("value", 0, 16, f"bit n: {doc}"),)


RNIC_MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x000, "Identifies the page.", (
        Field("value", 0, 32, '"RNI1" in ASCII', reset=IDENTITY),
    )),
    Register("VERSION", 0x004, "The version of the register map.", (
        Field("minor", 0, 16, "increased by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "increased by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CAPABILITIES", 0x008, "The parameters with which the RNIC was built.", (
        Field("connections", 0, 8, "number of connections"),
        Field("memory", 8, 8, "memory of each connection, or of all: 2 to this power octets"),
        Field("shared", 16, 1, "all connections have one memory"),
    )),
    Register("PENDING", 0x00C, "The interrupts of pages that exist once.", (
        Field("path", 0, 1, "CHANGED of page 0 is not 0"),
        Field("mac", 1, 1, "LINK.changed of page ff is set"),
    )),
    Register("EVENTS", 0x010, "The connections with an event.", _connections("connection n has one")),
    Register("ENGINES", 0x014, "The interrupts of the RDMA engines.", _connections("that of connection n")),
    Register("STREAMS", 0x018, "The connections with received words for the host.",
             _connections("a word waits in RECEIVED of connection n")),
)  # fmt: skip

BY_NAME: dict[str, Register] = {f"RNIC_{each.name}": each for each in RNIC_MAP}  # as a host names them
