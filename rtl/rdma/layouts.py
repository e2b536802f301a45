"""The layouts that the blocks of the RDMA engine share; those of its memory port are in :mod:`.memory_port`."""

from amaranth.lib import data

from open_rnic.rtl.formats.memory_port import ADDRESS_BITS, MemoryPort, MemoryWrite, word_bits

__all__ = ["ADDRESS_BITS", "Buffer", "Completed", "Fragment", "MemoryPort", "MemoryWrite", "Message",
           "Sink", "request_row_octets", "word_bits"]


def request_row_octets(lanes: int) -> int:
    """Octets of a row of the memory for RDMA Read Requests: whole words for the 28 octets of a request."""
    return max(32, 4 * lanes)


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
