"""Gathers written words of a memory port to wider words."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import MemoryWrite
from open_rnic.rtl.memory.ports import Split

__all__ = ["WideWrites"]


class WideWrites(wiring.Component):
    """Gathers words that follow each other and are parts of one wider word.

    Latency: 1 cycle, or until the next part of the word has come. Throughput: a word of ``write`` in each cycle. A word
    without octets to write is not given on.

    Parameters
    ----------
    split : how an address of ``write`` is one of ``o``

    Members
    -------
    write : In, stream of :class:`.MemoryWrite`
    o : Out, stream of ``address``, ``data``, ``mask``
        The wider words; ``mask`` has a bit for each octet, and is not 0.
    done : In, 1 bit
        All words that have left have been written.
    waits : Out, 1 bit
        A write with ``last`` waits until all are written.

    """

    def __init__(self, split: Split):
        self.split = split
        word = data.StructLayout({"address": split.address_bits, "data": split.bits, "mask": split.bits // 8})
        super().__init__({
            "write": In(stream.Signature(MemoryWrite(split.lanes))), "o": Out(stream.Signature(word)),
            "done": In(1), "waits": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        beat, held = self.write.payload, self.o.payload
        address, part = self.split(beat.address)
        has = Signal()  # there are octets in ``held``
        sent = Signal()  # the write with ``last`` that waits is in ``held``, or was
        follows = Signal()  # the beat is a part of the word that is held
        enters = Signal()
        empty = Signal()
        m.d.comb += [
            empty.eq(~beat.mask.any()),
            follows.eq(held.address == address),
            self.waits.eq(self.write.valid & beat.last),
            self.o.valid.eq(has & (held.mask.all() | sent | (self.write.valid & (Mux(empty, beat.last, ~follows))))),
            enters.eq(self.write.valid & ~empty & ~sent & (~has | self.o.ready | (follows & ~self.o.valid))),
            self.write.ready.eq(Mux(beat.last, (sent | empty) & ~has & self.done, enters | empty)),
        ]
        m.d.sync += [
            has.eq(enters | (has & ~(self.o.valid & self.o.ready))),
            sent.eq((sent | enters) & self.waits & ~self.write.ready),
        ]
        with m.If(enters):
            joins = Signal()
            m.d.comb += joins.eq(has & ~self.o.valid)
            m.d.sync += held.address.eq(address)
            for n in range(self.split.parts):
                mask = held.mask.word_select(n, self.split.octets)
                word = held.data.word_select(n, 8 * self.split.octets)
                with m.If(part == n):
                    m.d.sync += [
                        mask.eq(Mux(joins, mask, 0) | beat.mask),
                        word.eq(Cat(
                            Mux(beat.mask[octet], beat.data.word_select(octet, 8), word.word_select(octet, 8))
                            for octet in range(self.split.octets)
                        )),
                    ]  # fmt: skip
                with m.Elif(~joins):
                    m.d.sync += mask.eq(0)
        return m
