"""The memory port: of the RDMA engine, and of the rings of TCP that lie outside of block RAM."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes

__all__ = ["ADDRESS_BITS", "MemoryPort", "MemoryWrite", "word_bits"]

ADDRESS_BITS = 32  # of an octet in memory


def word_bits(lanes: int) -> int:
    """Bits of the address of a word: a word is as wide as a beat."""
    return ADDRESS_BITS - 2 - (lanes.bit_length() - 1)


class MemoryWrite(data.StructLayout):
    """A word to write.

    Members
    -------
    address : bits of a word's address
        The word's number: the address of its first octet, divided by 4 * ``lanes``.
    data : 32 * ``lanes`` bits
        The octets; octet 0, in bits 7:0, is at the lowest address.
    mask : 4 * ``lanes`` bits
        Octets to write; may be none.
    last : 1 bit
        When this beat has been transferred, this word and all words before it can be read back.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        super().__init__({"address": word_bits(lanes), "data": 32 * lanes, "mask": 4 * lanes, "last": 1})


class MemoryPort(wiring.Signature):
    """The memory behind an engine, from the engine's side. Words are as wide as a beat of ``lanes`` lanes.

    Members
    -------
    write : Out, stream of :class:`MemoryWrite`
        Words to write, in order.
    read : Out, stream of a word's address
        Words to read. A read that is taken after a write with ``last`` returns what was written.
    words : In, stream of 32 * ``lanes`` bits
        The words, in the order of the reads. As many may be outstanding as the memory likes. When the engine is reset,
        those that it has asked for still come.
    fault : In, 1 bit
        With a word: it could not be read, and has any value.
    write_fault : In, 1 bit
        A word could not be written. For one cycle, before the transfer of the write with ``last`` that is this word, or
        follows it. When the engine is reset, those of words before may still come.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        super().__init__({
            "write": Out(stream.Signature(MemoryWrite(lanes))),
            "read": Out(stream.Signature(word_bits(lanes))),
            "words": In(stream.Signature(32 * lanes)),
            "fault": In(1),
            "write_fault": In(1),
        })
