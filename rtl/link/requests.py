"""Receives and stores requests."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.link.cobs import CobsDecoder

__all__ = ["Requests"]


class Requests(wiring.Component):
    """Stores received frames, at most two, until they have been processed.

    Octets that arrive while both places are full are lost. The CRC detects frames that are damaged, truncated by such a
    loss, or longer than their memory.

    Parameters
    ----------
    size : octets of memory for a frame, a power of 2; a frame has fewer

    Members
    -------
    i : octets of the line, one in any cycle
    waiting : a frame is there; from the cycle after that its octets can be read
    length : octets of it, modulo ``size``
    address : which octet to read
    octet : the one that ``address`` had in the cycle before
    release : the frame has been dealt with
    lost : a frame ends of which octets were lost because two others are there

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
        write, read = memory.write_port(), memory.read_port()
        wiring.connect(m, wiring.flipped(self.i), cobs.i)

        half = Signal()  # where the next frame is put; the one that waits is in the other
        held = Signal()  # the next frame is complete, and the one before it still waits
        count = Signal(range(self.size))  # octets of the next frame
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
