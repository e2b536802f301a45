"""A few places for whole packets."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.stream import check_depth
from open_rnic.rtl.net.packet_memory import OutputRegister, PacketMemory, PacketWriter

__all__ = ["PacketSlots"]

SLOT = 512  # words: more than in the longest frame or packet


class PacketSlots(wiring.Component):
    """One or two places for packets: smaller than a :class:`.PacketFifo`.

    Latency: 3 cycles from ``commit`` to the first beat at ``o``. Throughput: one word per cycle, and a cycle between
    packets.

    Parameters
    ----------
    slots : 1 or 2
    words : the most words of a packet, a power of 2

    Members
    -------
    i : In, signature :class:`.PacketWriter`
    o : Out, stream of :class:`.Packet`
        The packets. The last word that was written of each must have ``last``.

    """

    def __init__(self, slots: int, words: int = SLOT):
        if slots not in (1, 2):
            raise ValueError(f"slots must be 1 or 2, not {slots!r}")
        check_depth(words)
        self.slots = slots
        self.words = words
        super().__init__({
            "i": In(PacketWriter(words)), "o": Out(stream.Signature(Packet(1))),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = PacketMemory(self.slots * self.words)
        m.submodules.output = output = OutputRegister()
        wiring.connect(m, output.o, wiring.flipped(self.o))
        written = Signal(range(self.slots))  # the slot of the packet that is being written
        fetched = Signal(range(self.slots))  # the slot of the packet that is being read
        full = Signal(self.slots)
        place = Signal(range(self.words))
        more = Signal()
        ends = Signal()
        m.d.comb += [
            self.i.fits.eq(~full.bit_select(written, 1)),
            memory.write_address.eq(Cat(self.i.place, written) if self.slots > 1 else self.i.place),
            memory.word.eq(self.i.word),
            memory.low.eq(self.i.low & self.i.fits),
            memory.high.eq(self.i.high & self.i.fits),
            memory.read_address.eq(Cat(place, fetched) if self.slots > 1 else place),
            output.i.payload.eq(memory.held),
            ends.eq(output.i.valid & output.i.payload.last),
            more.eq(full.bit_select(fetched, 1) & ~ends),
            memory.read.eq(more & (output.i.ready | ~output.i.valid)),
        ]
        with m.If(output.i.ready | ~output.i.valid):
            m.d.sync += output.i.valid.eq(more)
        with m.If(output.i.ready & ends):
            m.d.sync += [place.eq(0), full.bit_select(fetched, 1).eq(0), fetched.eq(fetched + (self.slots > 1))]
        with m.Elif(memory.read):
            m.d.sync += place.eq(place + 1)
        with m.If(self.i.commit):
            m.d.sync += [full.bit_select(written, 1).eq(1), written.eq(written + (self.slots > 1))]
        return m
