"""Encodes, stores and sends responses."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.host_link.cobs import CobsEncoder, Octet
from open_rnic.rtl.lib.late_read import late_read

__all__ = ["APART", "Responses"]

APART = 16  # octets of a response apart, encoded: header, trailer, and 2 octets of COBS fit


class Responses(wiring.Component):
    """Stores the last two responses in encoded form, so that each can be sent several times.

    One response can be sent while the other is written. A short response that must replace neither has a place apart.

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
    apart : In, 1 bit
        Instead of ``half``: the response is written or sent apart, and has at most 16 octets.
    full : Out, 1 bit
        See :class:`.CobsEncoder`.
    send : In, 1 bit
        Send the response in ``half``, unless ``sending`` is 1. Its end must have been transferred in an earlier cycle.
    sending : Out, 1 bit
        A response is being sent.
    conflict : Out, 1 bit
        It is the response that would be written now.
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
            "apart": In(1),
            "full": Out(1),
            "send": In(1),
            "sending": Out(1),
            "conflict": Out(1),
            "length": Out(range(size + 1)),
            "o": Out(stream.Signature(8)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.cobs = cobs = CobsEncoder(self.size, self.margin)
        m.submodules.memory = memory = Memory(shape=8, depth=2 * self.size, init=[])
        m.submodules.memory_apart = memory_apart = Memory(shape=8, depth=APART, init=[])
        # A response is not written while it is sent: see ``conflict``.
        write, read = memory.write_port(), late_read(m, memory)
        write_apart, read_apart = memory_apart.write_port(), memory_apart.read_port()
        place = Signal(2, reset_less=True)  # where the response is that is being sent, or was last
        chosen = Signal.like(place)
        m.d.comb += [
            chosen.eq(Mux(self.apart, 2, self.half)),
            self.conflict.eq(self.sending & (place == chosen)),
        ]
        wiring.connect(m, wiring.flipped(self.i), cobs.i)
        m.d.comb += [
            self.full.eq(cobs.full),
            write.en.eq(cobs.write & ~self.apart),
            write.addr.eq(Cat(cobs.address, self.half)),
            write.data.eq(cobs.data),
            write_apart.en.eq(cobs.write & self.apart),
            write_apart.addr.eq(cobs.address),
            write_apart.data.eq(cobs.data),
        ]
        for number in range(3):
            length = Signal.like(self.length, name=f"length_{number}", reset_less=True)
            with m.If(cobs.write & (chosen == number)):  # the last octet that is written is the zero
                m.d.sync += length.eq(cobs.address + 1)
            with m.If(place == number):
                m.d.comb += self.length.eq(length)

        address = Signal(range(self.size), reset_less=True)  # of the octet at the output
        following = Signal.like(address)
        m.d.comb += [
            following.eq(address + (self.o.valid & self.o.ready)),
            read.addr.eq(Cat(following, place[0])),
            read_apart.addr.eq(following),
            self.o.payload.eq(Mux(place[1], read_apart.data, read.data)),
        ]
        m.d.sync += address.eq(following)
        with m.If(~self.sending):
            m.d.sync += address.eq(0)
            with m.If(self.send):
                m.d.sync += [self.sending.eq(1), place.eq(chosen)]
        with m.Else():
            m.d.sync += self.o.valid.eq(1)  # the memory has output the first octet
            with m.If(self.o.valid & self.o.ready & (self.o.payload == 0)):
                m.d.sync += [self.o.valid.eq(0), self.sending.eq(0)]
        return m
