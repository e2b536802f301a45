"""The layouts that the blocks of the RDMA engine share; those of its memory port are in :mod:`.memory_port`."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import ADDRESS_BITS, MemoryPort, MemoryWrite, word_bits
from open_rnic.rtl.lib.rows import connection_shape, only_many

__all__ = ["ADDRESS_BITS", "Buffer", "Completed", "Fragment", "MemoryPort", "MemoryWrite", "Message", "RequestWords",
           "Segments", "Sink", "WorkWords", "request_row_octets",
           "request_row_words", "word_bits"]


def request_row_octets(lanes: int) -> int:
    """Octets of a row of the memory for RDMA Read Requests: whole words for the 28 octets of a request."""
    return max(32, 4 * lanes)


def request_row_words(lanes: int) -> int:
    """Words of this row."""
    return request_row_octets(lanes) // (4 * lanes)


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


def _of_connection(connections: int) -> dict[str, wiring.Member]:
    return only_many(connections, {"connection": Out(connection_shape(connections))})


class WorkWords(wiring.Signature):
    """Words of WORK commands, on their way to a loader.

    Members
    -------
    valid : Out, 1 bit
    word : Out, 32 bits
    last : Out, 1 bit
        It is the last one of its command.
    connection : Out
        Its connection; only with many.
    """

    def __init__(self, connections: int = 1):
        super().__init__({"valid": Out(1), "word": Out(32), "last": Out(1), **_of_connection(connections)})


class RequestWords(wiring.Signature):
    """Words of RDMA Read Requests of the peer, on their way to the memory of a loader.

    Members
    -------
    valid : Out, 1 bit
    word : Out, 32 * ``lanes`` bits
    place : Out
        Its place in the memory; the number of the connection is above that of the word.
    arrived : Out, 1 bit
        A request is complete.
    connection : Out
        Its connection; only with many.
    """

    def __init__(self, lanes: int, reads: int, connections: int = 1):
        words = request_row_words(lanes) * reads * connections
        super().__init__({
            "valid": Out(1), "word": Out(32 * lanes), "place": Out(range(words)),
            "arrived": Out(1), **_of_connection(connections),
        })  # fmt: skip


class Segments(wiring.Signature):
    """What the sender reports to the loader of the segment that it sends, and what the loader adds to a message.

    Members
    -------
    answering : Out, 1 bit
        A Read Response is being sent.
    live : In, 1 bit
        The source of the Read Response, the message or the one that is being sent, may be read or has no octets.

    With many connections, the message is taken for one segment, and what is left of it is given back:

    connection : Out
        The connection of the segment.
    busy : Out, 1 bit
        A segment has begun, or what is left of its message has not been given back.
    ends : Out, 1 bit
        All octets of the segment are named. For one cycle.
    wanted : Out, 1 bit
        The segment needs the next fragment.
    unfinished : Out, 1 bit
        Another segment follows the one that begins.
    saves : Out, 1 bit
    saved : Out, 32 * ``lanes`` bits
    save_at : Out, 4 bits
        Word ``save_at`` of what is left: see :meth:`.RdmaSender._header`.
    message_connection : In
        The connection of the message.
    message_live : In, 1 bit
        As ``live``, of the message; ``live`` is that of ``connection``.
    resumes : In, 1 bit
        The message is the rest of one: ``to`` of a Send is the MO.
    """

    def __init__(self, lanes: int, connections: int = 1):
        number = connection_shape(connections)
        many = {
            "connection": Out(number), "busy": Out(1), "ends": Out(1), "wanted": Out(1), "unfinished": Out(1),
            "saves": Out(1), "saved": Out(32 * lanes), "save_at": Out(4),
            "message_connection": In(number), "message_live": In(1), "resumes": In(1),
        }  # fmt: skip
        super().__init__({"answering": Out(1), "live": In(1), **only_many(connections, many)})
