"""Receives and stores requests."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.host_link.cobs import CobsDecoder
from open_rnic.rtl.lib.late_read import late_read

__all__ = ["Requests"]


class Requests(wiring.Component):
    """Stores received frames, at most two, until they have been processed.

    Octets that arrive while both places are full are lost. The CRC detects frames that are damaged, truncated by such a
    loss, or longer than their memory.

    Parameters
    ----------
    size : size of the memory for a frame in octets, a power of 2; a frame must be shorter

    Members
    -------
    i : In, stream of 8 bits
        Octets from the line; ``ready`` is always 1.
    waiting : Out, 1 bit
        A frame is stored. Its octets can be read from the next cycle on.
    length : Out, range(``size``)
        The length of this frame in octets, modulo ``size``.
    address : In, range(``size``)
        The address of an octet of this frame.
    octet : Out, 8 bits
        The octet at the ``address`` of the previous cycle.
    release : In, 1 bit
        The frame has been processed, and is discarded.
    lost : Out, 1 bit
        A frame ends that was not stored completely, because two others are stored.

    """

    def __init__(self, size: int):
        self.size = size
        super().__init__({
            "i": In(stream.Signature(8)),
            "waiting": Out(1),
            "length": Out(range(size)),
            "address": In(range(size)),
            "octet": Out(8),
            "release": In(1),
            "lost": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.cobs = cobs = CobsDecoder()
        m.submodules.memory = memory = Memory(shape=8, depth=2 * self.size, init=[])
        write, read = memory.write_port(), late_read(m, memory)
        wiring.connect(m, wiring.flipped(self.i), cobs.i)

        half = Signal()  # the half of the memory for the next frame; the waiting frame is in the other half
        held = Signal()  # the next frame is complete
        count = Signal(range(self.size))  # number of octets of the next frame
        m.d.comb += [
            write.en.eq(cobs.valid & ~held),
            write.addr.eq(Cat(count, half)),
            write.data.eq(cobs.octet),
            read.addr.eq(Cat(self.address, ~half)),
            self.octet.eq(read.data),
            self.lost.eq(cobs.end & held),
        ]
        with m.If(write.en):
            m.d.sync += count.eq(count + 1)
        with m.If(cobs.end):
            m.d.sync += held.eq(1)
        with m.If(self.release):
            m.d.sync += self.waiting.eq(0)
        with m.If(held & ~self.waiting):
            m.d.sync += [held.eq(0), self.waiting.eq(1), half.eq(~half), self.length.eq(count), count.eq(0)]
        return m
