"""Asks a memory with wide words for the words of a memory port, and for each wide word once."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.stream import Fifo
from open_rnic.rtl.memory.ports import Split

__all__ = ["WideReads"]


class WideReads(wiring.Component):
    """Asks for a wide word once, if its parts are read one after the other in the order of their addresses.

    A part that is read when all words have been given is asked for again, as others may have changed it.

    Latency: combinational from ``read`` to ``asks``; 1 cycle from ``gives`` to ``words``. Throughput: a word in each
    cycle.

    Parameters
    ----------
    split : how an address of ``read`` is one of ``asks``
    depth : wide words that can be on their way, a power of 2

    Members
    -------
    read : In, stream of a word's address
    words : Out, stream of a word
        Of :class:`.MemoryPort`.
    asks : Out, stream of a wide word's address
    gives : In, 1 bit
    given : In, a wide word
        The next wide word comes. There is room for it.
    forget : In, 1 bit
        Words may have changed: those that are read from the next cycle on are asked for again.

    """

    def __init__(self, split: Split, depth: int):
        self.split, self.depth = split, depth
        super().__init__({
            "read": In(stream.Signature(split.word_bits)), "words": Out(stream.Signature(8 * split.octets)),
            "asks": Out(stream.Signature(split.address_bits)), "gives": In(1), "given": In(split.bits),
            "forget": In(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        split, words = self.split, self.words
        tag = data.StructLayout({"part": split.part_bits, "is_new": 1})
        m.submodules.tags = tags = Fifo(tag, 2 * self.depth)
        m.submodules.wide = wide = Fifo(split.bits, self.depth)
        address, part = split(self.read.payload)

        known = Signal()  # the wide word that was asked for last, and its part; while ``tags`` has it, it is on its way
        latest = Signal(split.address_bits)
        latest_part = Signal(split.part_bits)
        repeats = Signal()
        on_way = Signal(range(self.depth + 1))
        free = Signal()  # there is room for one more
        moves = Signal()
        m.d.comb += [
            repeats.eq(known & tags.o.valid & (latest == address) & (part > latest_part)),
            free.eq(tags.i.ready & (on_way != self.depth)),
            self.asks.valid.eq(self.read.valid & ~repeats & free),
            self.asks.payload.eq(address),
            self.read.ready.eq(Mux(repeats, tags.i.ready, self.asks.ready & free)),
            moves.eq(self.read.valid & self.read.ready),
            tags.i.valid.eq(moves),
            tags.i.payload.part.eq(part),
            tags.i.payload.is_new.eq(~repeats),
        ]
        with m.If(moves):
            m.d.sync += [known.eq(1), latest.eq(address), latest_part.eq(part)]
        with m.If(self.forget):
            m.d.sync += known.eq(0)

        held = Signal(split.bits)
        takes = Signal()
        m.d.comb += [
            wide.i.valid.eq(self.gives),
            wide.i.payload.eq(self.given),
            words.valid.eq(tags.o.valid & (wide.o.valid | ~tags.o.payload.is_new)),
            words.payload.eq(
                Mux(tags.o.payload.is_new, wide.o.payload, held).word_select(tags.o.payload.part, 8 * split.octets)
            ),
            tags.o.ready.eq(words.ready & words.valid),
            takes.eq(tags.o.ready & tags.o.payload.is_new),
            wide.o.ready.eq(takes),
        ]
        m.d.sync += on_way.eq(on_way + (self.asks.valid & self.asks.ready) - takes)
        with m.If(takes):
            m.d.sync += held.eq(wide.o.payload)
        return m
