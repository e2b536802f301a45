"""Where responses are made, kept, and sent from."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.link.cobs import CobsEncoder, Octet

__all__ = ["Responses"]


class Responses(wiring.Component):
    """Keeps the last two responses, as they go over the line, and sends them as often as told to.

    One can be sent while the other is made.

    Parameters
    ----------
    size : octets of memory for each, a power of 2
    margin : as of :class:`.CobsEncoder`

    Members
    -------
    i : a response, an octet a cycle at most
    half : which of the two it is; held while it is made, and with ``send``
    full : as of :class:`.CobsEncoder`
    send : send one, if none is ``sending``; not sooner than in the cycle after its end was taken
    sending : one is being sent
    sent : which
    o : octets for the line

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

        place = Signal(range(self.size))
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
            m.d.sync += self.o.valid.eq(1)  # the memory has had a cycle to read
            with m.If(self.o.valid & self.o.ready & (read.data == 0)):
                m.d.sync += [self.o.valid.eq(0), self.sending.eq(0)]
        return m
