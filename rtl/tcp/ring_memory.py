"""The rings of TCP in a memory behind a port: words on their way to it, and where they lie."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import MemoryPort, MemoryWrite, word_bits
from open_rnic.rtl.lib.stream import Fifo
from open_rnic.rtl.tcp.config import RingMemory

__all__ = ["KINDS", "WriteQueue", "connect_memory", "memory_members", "ring_members"]

KINDS = "receive", "send"  # of rings
NOTE = 32  # bits of a note


def memory_members(memory: RingMemory | None) -> dict:
    """The ports of rings that lie in ``memory``; none if that is block RAM.

    Members
    -------
    memory : Out, :class:`.MemoryPort`
        Reads and writes are those of the rings alone. ``words.ready`` is always 1.
    memory_failed : Out, 1 bit
        The memory has reported an error since the reset. Since then, no octet is delivered or sent.
    """
    return {} if memory is None else {"memory": Out(MemoryPort(1)), "memory_failed": Out(1)}


def ring_members(memory: RingMemory | None) -> dict:
    """The :func:`memory_members` of both kinds of rings.

    Members
    -------
    receive_memory, receive_memory_failed
        Those of the rings for received octets.
    send_memory, send_memory_failed
        Those of the rings for octets to send.
    """
    return {f"{kind}_{name}": member for kind in KINDS for name, member in memory_members(memory).items()}


def connect_memory(m: Module, rings, queue, reader, ring: Value) -> None:
    """Connect the memory of ``rings`` to their :class:`WriteQueue` and :class:`.AheadReader`, which reads ``ring``."""
    memory, read = rings.memory, reader.read
    wiring.connect(m, queue.write, wiring.flipped(memory.write))
    wiring.connect(m, wiring.flipped(memory.words), reader.words)
    m.d.comb += [
        memory.read.payload.eq(queue.word(Cat(read.payload.address, ring))),
        memory.read.valid.eq(read.valid),
        read.ready.eq(memory.read.ready),
        reader.fault.eq(memory.fault),
        queue.fault.eq(memory.write_fault),
        rings.memory_failed.eq(queue.failed | reader.failed),
    ]


class WriteQueue(wiring.Component):
    """Words on their way to a memory that takes its time. It has the signals of a write port of block RAM.

    A note follows the words that were given before it, and is given back when all of them can be read. Words and notes
    are given in a cycle with ``room``, or up to twice after it, and not both in a cycle.

    Latency: 1 cycle to the port. Throughput: a word in every cycle.

    Parameters
    ----------
    words : number of the words, a power of 2
    start : address of their first octet, a multiple of the size of all of them
    depth : words and notes that can wait, a power of 2, at least 8

    Members
    -------
    addr : In
    data : In, 32 bits
    en : In, 4 bits
        Octets of the word ``addr`` to write.
    note : In, 32 bits
    notes : In, 1 bit
        ``note`` is given.
    room : Out, 1 bit
    settled : Out, 32 bits
    settles : Out, 1 bit
        This note is given back.
    empty : Out, 1 bit
        No word and no note waits.
    write : Out, stream of :class:`.MemoryWrite`
        A note is a word without octets, with ``last``.
    fault : In, 1 bit
        ``write_fault`` of the :class:`.MemoryPort`.
    failed : Out, 1 bit
        A word could not be written, since the reset. No note is given back any more.

    """

    def __init__(self, words: int, start: int, depth: int):
        self.words = words
        self.start = start
        self.depth = depth
        super().__init__({
            "addr": In(range(words)), "data": In(32), "en": In(4),
            "note": In(NOTE), "notes": In(1), "room": Out(1), "settled": Out(NOTE), "settles": Out(1), "empty": Out(1),
            "write": Out(stream.Signature(MemoryWrite(1))), "fault": In(1), "failed": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        entry = data.StructLayout({"address": self.addr.shape(), "data": 32, "mask": 4, "last": 1})
        m.submodules.queue = queue = Fifo(entry, self.depth, spare=3)
        given, beat = queue.i.payload, self.write.payload
        m.d.comb += [
            self.room.eq(queue.spare),
            queue.i.valid.eq(self.en.any() | self.notes),
            given.address.eq(self.addr),
            given.data.eq(Mux(self.notes, self.note, self.data)),
            given.mask.eq(self.en),
            given.last.eq(self.notes),
            beat.address.eq(self.word(queue.o.payload.address)),
            *(beat[name].eq(queue.o.payload[name]) for name in ("data", "mask", "last")),
            self.write.valid.eq(queue.o.valid),
            queue.o.ready.eq(self.write.ready),
            self.empty.eq(~queue.o.valid),
            self.settled.eq(beat.data),
            self.settles.eq(self.write.valid & self.write.ready & beat.last & ~self.failed & ~self.fault),
        ]
        m.d.sync += self.failed.eq(self.failed | self.fault)
        return m

    def word(self, place: Value) -> Value:
        """The address of a word in memory: ``place`` is its number."""
        bits = len(self.addr)
        return Cat(place[:bits], Const(self.start // 4 >> bits, word_bits(1) - bits))
