"""The registers of a whole RNIC, as plain data: its parameters, and the pages that have something for the host.

:class:`.LinkedRnic` is their gateware. This module imports no hardware library.
"""

from open_rnic.rtl.registers import Field, Register, each_connection

__all__ = ["BY_NAME", "IDENTITY", "MAC_PAGE", "PAGE_BITS", "RNIC_MAP", "RNIC_PAGE", "VERSION"]

IDENTITY = int.from_bytes(b"RNI1", "big")
VERSION = 0x0002_0003
PAGE_BITS = 8  # of the bus: 256 registers in a page
RNIC_PAGE = 0xFE  # of these registers; page 0 is that of TCP, page 1 + n that of connection n
MAC_PAGE = 0xFF


_EVENTS = each_connection("EVENTS", (0x010, 0x01C), "The connections with an event.", "{} has one")
_ENGINES = each_connection("ENGINES", (0x014, 0x020), "The interrupts of the RDMA engines.", "that of {}")
_STREAMS = each_connection("STREAMS", (0x018, 0x024), "The connections with received words for the host.",
                           "a word waits in RECEIVED of {}")  # fmt: skip
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
        Field("rings", 2, 1, "the memory of TCP's rings has reported an error: no octet passes any more"),
        Field("sdram", 3, 1, "the training of the SDRAM's reads has failed: no access to the memory ends"),
    )),
    _EVENTS[0],
    _ENGINES[0],
    _STREAMS[0],
    *_EVENTS[1:],
    *_ENGINES[1:],
    *_STREAMS[1:],
)  # fmt: skip

BY_NAME: dict[str, Register] = {f"RNIC_{each.name}": each for each in RNIC_MAP}  # as a host names them
