"""From FPDUs to ULPDUs: ULPDU_Length comes off the front, PAD off the end (RFC 5044 §4.1)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .stream import Packet, check_lanes, swap_octets

__all__ = ["FpduDeframer"]


class FpduDeframer(wiring.Component):
    """Takes ULPDU_Length and PAD off FPDUs that have neither markers nor CRC any more.

    Latency 2 cycles at most from a beat and its successor; one beat a cycle.

    Members
    -------
    i : ULPDU_Length, ULPDU, PAD; ``extra`` on the last beat
    o : ULPDUs, with the same ``extra``
    """

    def __init__(self, lanes: int, **extra):
        check_lanes(lanes)
        self.lanes = lanes
        self.extra = extra
        shape = Packet(lanes, **extra)
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        width = 4 * self.lanes
        i, o = self.i.payload, self.o.payload

        held = Signal(Packet(self.lanes, **self.extra), reset_less=True)  # the beat before the one at the input
        holds = Signal()
        left = Signal(16, reset_less=True)  # octets of the ULPDU that have not gone out, those held included
        first = Signal(init=1)

        ends = left <= width
        m.d.comb += [
            self.o.valid.eq(holds & (held.last | self.i.valid)),
            o.data.eq(Cat(held.data[16:], i.data[:16])),
            o.octets.eq(left[:len(o.octets)]),
            o.last.eq(ends | held.last),
            *(o[name].eq(Mux(held.last, held[name], i[name])) for name in self.extra),
            # The beat at the input is held next, or if only its first octets were wanted it is done with.
            self.i.ready.eq(~holds | self.o.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                held.eq(i),
                holds.eq(~(holds & ~held.last & ends)),
                left.eq(Mux(first, swap_octets(i.data[:16]), left - width)),
                first.eq(i.last),
            ]
        with m.Elif(holds & held.last & self.o.ready):
            m.d.sync += holds.eq(0)
        return m
