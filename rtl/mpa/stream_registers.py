"""The registers through which the host passes ULPDUs to a data path and takes them from it, as plain data.

:class:`.StreamWindow` is their gateware. They follow those of the data path in the same page. This module imports no
hardware library.
"""

from open_rnic.rtl.registers import Access, Field, Register, Verdict

__all__ = ["BY_NAME", "ROOM", "STREAM_MAP"]

ROOM = 16  # words that can wait for the data path

STREAM_MAP: tuple[Register, ...] = (
    Register("STATE", 0x100, "What waits in either direction.", (
        Field("room", 0, 5, "the number of words that WORD takes now"),
        Field("waits", 8, 1, "a word waits in RECEIVED; the following fields belong to it"),
        Field("last", 9, 1, "the packet ends with it"),
        Field("octets", 10, 3, "the number of its octets: 4, or 0 to 4 if it is the last one"),
        Field("verdict", 13, 2, "if it is the last one: the verdict on the packet", enum=Verdict),
    ), pops=True),
    Register("BEGIN", 0x104, "Begins a packet, when all octets of the one before have been written.", (
        Field("octets", 0, 16, "the length of the ULPDU, or of the stream octets; 0 takes the room of a word",
              Access.PUSH),
    )),
    Register("WORD", 0x108, "Writes the next word of the packet.", (
        Field("value", 0, 32, "4 octets, the first one in bits 7:0", Access.PUSH),
    )),
    Register("RECEIVED", 0x10C, "The word that the latest read of STATE has announced; 0 without one.", (
        Field("value", 0, 32, "4 octets, the first one in bits 7:0", Access.RO),
    ), pops=True),
)  # fmt: skip

BY_NAME: dict[str, Register] = {f"STREAM_{each.name}": each for each in STREAM_MAP}  # as a host names them
