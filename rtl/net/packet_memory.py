"""The memory of packets, and how they are written."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.late_read import late_read

__all__ = ["OutputRegister", "PacketMemory", "PacketWriter"]


class PacketWriter(wiring.Signature):
    """The input of a :class:`PacketFifo`.

    The words of a packet are written at any places, in any order, and more than once. Then ``commit`` appends the
    packet to the queue. A packet that is not committed is discarded when the next one is written.

    Parameters
    ----------
    depth : words in the queue

    Members
    -------
    place : Out, range(``depth``)
        The place of the word in its packet. With ``commit``, the number of words of the packet.
    word : Out, :class:`.Packet`
        The word.
    low, high : Out, 1 bit
        Write the low or high half of the word, if it fits. ``octets`` is written with the low half, ``last`` with the
        high half.
    commit : Out, 1 bit
        The packet is complete. In this cycle, nothing is written. All words of the packet must have fit.
    fits : In, 1 bit
        There is room for a word at ``place``. It remains until the packet is committed.

    """

    def __init__(self, depth: int):
        super().__init__({
            "place": Out(range(depth)),
            "word": Out(Packet(1)),
            "low": Out(1),
            "high": Out(1),
            "commit": Out(1),
            "fits": In(1),
        })


class PacketMemory(wiring.Component):
    """A memory for words of packets, with a register for the word that is read.

    A word must not be read in the cycle in which it is written: this saves the logic that would give it a meaning.

    Members
    -------
    write_address, read_address : In, range(``depth``)
    word : In, :class:`.Packet`
    low, high : In, 1 bit
        Write a half of ``word``: see :class:`PacketWriter`.
    read : In, 1 bit
    held : Out, :class:`.Packet`
        The word that was read last, from the next cycle on.

    """

    def __init__(self, depth: int):
        self.depth = depth
        super().__init__({
            "write_address": In(range(depth)),
            "word": In(Packet(1)),
            "low": In(1),
            "high": In(1),
            "read_address": In(range(depth)),
            "read": In(1),
            "held": Out(Packet(1)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=36, depth=self.depth, init=[])
        write, read = memory.write_port(granularity=18), late_read(m, memory)
        word = self.word
        m.d.comb += [
            write.addr.eq(self.write_address),
            write.data.eq(Cat(word.data[:16], word.octets[:2], word.data[16:], word.octets[2], word.last)),
            write.en.eq(Cat(self.low, self.high)),
            read.addr.eq(self.read_address),
            read.en.eq(self.read),
            Value.cast(self.held).eq(Cat(read.data[:16], read.data[18:34], read.data[16:18], read.data[34:])),
        ]
        return m


class OutputRegister(wiring.Component):
    """A register for words from a memory, whose output is late in the cycle. The path of ``ready`` is combinational.

    Latency: 1 cycle. Throughput: one word per cycle.

    Members
    -------
    i : In, stream of :class:`.Packet`
    o : Out, stream of :class:`.Packet`

    """

    def __init__(self):
        super().__init__({"i": In(stream.Signature(Packet(1))), "o": Out(stream.Signature(Packet(1)))})

    def elaborate(self, platform):
        m = Module()
        register = Signal(Packet(1), reset_less=True)
        m.d.comb += [self.i.ready.eq(self.o.ready | ~self.o.valid), self.o.payload.eq(register)]
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), register.eq(self.i.payload)]
        return m
