"""Encodes, stores and sends responses."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.link.cobs import CobsEncoder, Octet

__all__ = ["Responses"]


class Responses(wiring.Component):
    """Stores the last two responses in encoded form, so that each can be sent several times.

    One response can be sent while the other is written.

    Parameters
    ----------
    size : size of the memory for each response in octets, a power of 2
    margin : see :class:`.CobsEncoder`

    Members
    -------
    i : In, stream of :class:`.Octet`
        The octets of a response, and its end.
    half : In, 1 bit
        The half of the memory that is written or, with ``send``, sent. Held while a response is written.
    full : Out, 1 bit
        See :class:`.CobsEncoder`.
    send : In, 1 bit
        Send the response in ``half``, unless ``sending`` is 1. Its end must have been transferred in an earlier cycle.
    sending : Out, 1 bit
        A response is being sent.
    sent : Out, 1 bit
        The half of the memory that holds this response.
    length : Out, range(``size`` + 1)
        The number of its octets, with the zero at its end.
    o : Out, stream of 8 bits
        Octets for the line.

    """

    def __init__(self, size: int, margin: int):
        self.size = size
        self.margin = margin
        super().__init__({
            "i": In(stream.Signature(Octet)),
            "half": In(1),
            "full": Out(1),
            "send": In(1),
            "sending": Out(1),
            "sent": Out(1),
            "length": Out(range(size + 1)),
            "o": Out(stream.Signature(8)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.cobs = cobs = CobsEncoder(self.size, self.margin)
        m.submodules.memory = memory = Memory(shape=8, depth=2 * self.size, init=[])
        write, read = memory.write_port(), memory.read_port()
        wiring.connect(m, wiring.flipped(self.i), cobs.i)
        m.d.comb += [
            self.full.eq(cobs.full),
            write.en.eq(cobs.write),
            write.addr.eq(Cat(cobs.address, self.half)),
            write.data.eq(cobs.data),
        ]
        for half in range(2):
            length = Signal.like(self.length, name=f"length_{half}")
            with m.If(write.en & (self.half == half) & (cobs.data == 0)):  # the end: no other octet is 0
                m.d.sync += length.eq(cobs.address + 1)
            with m.If(self.sent == half):
                m.d.comb += self.length.eq(length)

        place = Signal(range(self.size))  # the address of the octet at the output
        following = Signal.like(place)
        m.d.comb += [
            following.eq(place + (self.o.valid & self.o.ready)),
            read.addr.eq(Cat(following, self.sent)),
            self.o.payload.eq(read.data),
        ]
        m.d.sync += place.eq(following)
        with m.If(~self.sending):
            m.d.sync += place.eq(0)
            with m.If(self.send):
                m.d.sync += [self.sending.eq(1), self.sent.eq(self.half)]
        with m.Else():
            m.d.sync += self.o.valid.eq(1)  # the memory has output the first octet
            with m.If(self.o.valid & self.o.ready & (read.data == 0)):
                m.d.sync += [self.o.valid.eq(0), self.sending.eq(0)]
        return m
