"""The registers through which the host reads and writes the memory of a device, as plain data.

They follow those of the RDMA engine (:data:`open_rnic.rtl.rdma.registers.RDMA_MAP`) in the same page. This module
imports no hardware library.
"""

from open_rnic.rtl.registers import Access, Field, Register

__all__ = ["BY_NAME", "MEMORY_MAP"]


def _word(doc: str, access: Access = Access.RO) -> tuple[Field, ...]:
    return (Field("value", 0, 32, doc, access),)


MEMORY_MAP: tuple[Register, ...] = (
    Register("OCTETS", 0x2C0, "The size of the memory; 0 in a device whose memory the host has no access to.",
             _word("octets")),
    Register("ADDRESS", 0x2C4, "The address of the next word that WRITE or READ accesses. Each access adds 4 to it.",
             _word("a multiple of 4", Access.PUSH)),
    Register("MASK", 0x2C8, "The octets of a word that WRITE writes.", (
        Field("value", 0, 4, "bit 0 is the octet at the lowest address", Access.RW, 0xF),
    )),
    Register("WRITE", 0x2CC, "Writes a word to the memory.",
             _word("the octet at the lowest address is in bits 7:0", Access.PUSH)),
    Register("READ", 0x2D0, "Reads a word from the memory.", _word("as in WRITE"), pops=True),
)  # fmt: skip

BY_NAME: dict[str, Register] = {f"MEMORY_{each.name}": each for each in MEMORY_MAP}  # as a host names them
