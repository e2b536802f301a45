"""The memory port of the RDMA engine, and the other layouts that its blocks share."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes

__all__ = ["ADDRESS_BITS", "Buffer", "Completed", "Fragment", "MemoryPort", "MemoryWrite", "Message",
           "Sink", "request_row_octets", "word_bits"]

ADDRESS_BITS = 32  # of an octet in memory


def word_bits(lanes: int) -> int:
    """Bits of the address of a word: a word is as wide as a beat."""
    return ADDRESS_BITS - 2 - (lanes.bit_length() - 1)


def request_row_octets(lanes: int) -> int:
    """Octets of a row of the memory for RDMA Read Requests: whole words for the 28 octets of a request."""
    return max(32, 4 * lanes)


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
    """The memory behind the engine, from the engine's side. Words are as wide as a beat of ``lanes`` lanes.

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


class Buffer(data.Struct):
    """A posted buffer for a Send. If it is ``withdrawn``, only a Send that has begun may still use it."""

    address: ADDRESS_BITS
    octets: 32
    withdrawn: 1


class Sink(data.Struct):
    """The sink of an RDMA Read of this end: the STag of its region, and whether it has any octets."""

    stag: 32
    some: 1


class Completed(data.Struct):
    """A Send that has been received: its Opcode, its length, and the STag that it has invalidated.

    Or a buffer that was withdrawn: ``opcode`` is 0, which is no Send's, and the rest has no meaning.
    """

    opcode: 4
    octets: 32
    stag: 32


class Message(data.Struct):
    """A message to send.

    Members
    -------
    opcode : 4 bits
    response : 1 bit
        It answers an RDMA Read Request.
    fabric : 1 bit
        Logic beside the engine has posted it.
    octets, stag, to
        The length, and the STag and TO of the header; of an RDMA Read, those of the source.
    """

    opcode: 4
    response: 1
    fabric: 1
    octets: 32
    stag: 32
    to: 64


class Fragment(data.Struct):
    """A piece of the message's octets. The ``last`` one reaches to the message's end, whatever ``octets`` says.

    Of an RDMA Read, ``address`` is that of the sink, and ``octets`` the STag of its region.
    """

    address: ADDRESS_BITS
    octets: 32
    last: 1
