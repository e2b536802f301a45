"""The memory of a program."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["REST", "Rom"]

REST = 128  # words that are not worth twice as many block RAMs


class Rom(wiring.Component):
    """Words that are only read.

    A few words more than a power of 2 are in look-up tables, where the next power of 2 would take twice as many block
    RAMs.

    Members
    -------
    addr : In, the address of a word
    en : In(1), read this word
    data : Out, the word of the last cycle in which ``en`` was 1
    """

    def __init__(self, shape: data.StructLayout, words: Sequence[data.Const]):
        self.words = words
        super().__init__({"addr": In(range(len(words))), "en": In(1), "data": Out(shape)})

    def elaborate(self, platform):
        m = Module()
        bits = max(1, (len(self.words) - 1).bit_length())
        half = 1 << bits - 1
        if len(self.words) - half > REST:
            half <<= 1
        parts = [self.words[:half], self.words[half:]]
        reads = []
        for name, words, attributes in zip(("block", "rest"), parts, ({}, {"rom_style": "logic"}), strict=True):
            if words:
                depth = 1 << (len(words) - 1).bit_length()
                m.submodules[name] = memory = Memory(shape=self.data.shape(), depth=depth, init=words, attrs=attributes)
                reads.append(memory.read_port())
                m.d.comb += [reads[-1].addr.eq(self.addr), reads[-1].en.eq(self.en)]
        late = Signal()  # the word is one of the second part
        if len(reads) > 1:
            with m.If(self.en):
                m.d.sync += late.eq(self.addr[bits - 1])
        m.d.comb += self.data.eq(Mux(late, reads[-1].data, reads[0].data))
        return m
