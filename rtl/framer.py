"""From ULPDUs to FPDUs: ULPDU_Length in front, PAD behind (RFC 5044 §4.1)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .stream import Packet, keep_octets, swap_octets

__all__ = ["FpduFramer"]


class FpduFramer(wiring.Component):
    """Puts ULPDU_Length before each ULPDU and zeros behind it, up to a multiple of 4 octets.

    Combinational, but for the 2 octets that each beat hands to the next. An FPDU whose last 2 octets begin a beat
    of their own holds the input up for 1 cycle.

    Members
    -------
    i : :class:`TxUlpdu` and ``abort``: on the last beat, the ULPDU must not be taken for good
    o : FPDUs without markers and CRC, whole lanes; ``abort`` as on ``i``
    """

    def __init__(self, lanes: int):
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, length=16, abort=1))),
            "o": Out(stream.Signature(Packet(lanes, abort=1))),
        })
        self.lanes = lanes

    def elaborate(self, platform):
        m = Module()
        i, o = self.i.payload, self.o.payload
        room = 4 * self.lanes - 2  # octets of a ULPDU's beat that fit behind the 2 of the one before

        carry = Signal(16, reset_less=True)
        first = Signal(init=1)
        spilled = Signal()  # all of the ULPDU was taken, its last octets are in ``carry``
        abort = Signal(reset_less=True)

        octets = Mux(i.last, i.octets, room + 2)
        body = Signal.like(i.data)
        m.d.comb += body.eq(Mux(i.last, keep_octets(i.data, i.octets), i.data))
        spills = octets > room

        with m.If(spilled):
            m.d.comb += [
                self.o.valid.eq(1),
                o.data.eq(carry),
                o.octets.eq(4),
                o.last.eq(1),
                o.abort.eq(abort),
            ]
            with m.If(self.o.ready):
                m.d.sync += [spilled.eq(0), first.eq(1)]
        with m.Else():
            m.d.comb += [
                self.o.valid.eq(self.i.valid),
                self.i.ready.eq(self.o.ready),
                o.data.eq(Cat(Mux(first, swap_octets(i.length), carry), body)),
                o.octets.eq(Cat(Const(0, 2), (octets + 2 + 3)[2:])),
                o.last.eq(i.last & ~spills),
                o.abort.eq(i.abort),
            ]
            with m.If(self.i.valid & self.i.ready):
                m.d.sync += [
                    carry.eq(body[-16:]),
                    abort.eq(i.abort),
                    first.eq(i.last),
                    spilled.eq(i.last & spills),
                ]
        return m
