"""Octets into beats."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import Packet
from open_rnic.rtl.lib.lanes import check_lanes

__all__ = ["ToBeats"]


class ToBeats(wiring.Component):
    """Makes packets of octets.

    A beat that is complete takes no octets until it has moved, and a short one the more cycles the shorter it is.

    Members
    -------
    valid, ready : an octet, or the end of an empty packet, moves
    octet : the octet
    last : the packet ends with it
    empty : with ``last``, it ends without it
    o : the packets
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "valid": In(1),
            "ready": Out(1),
            "octet": In(8),
            "last": In(1),
            "empty": In(1),
            "o": Out(stream.Signature(Packet(lanes))),
        })

    def elaborate(self, platform):
        m = Module()
        beat = self.o.payload
        held = Signal(32 * self.lanes, reset_less=True)
        at = Signal(range(4 * self.lanes))  # octets in the beat, while it is not complete
        aligns = Signal()  # the octets of a short one are moved to its beginning
        shifts = Signal()
        fills = Signal()
        m.d.comb += [
            self.ready.eq(~self.o.valid & ~aligns),
            shifts.eq((self.valid & self.ready) | aligns),
            fills.eq(at.all()),
            beat.data.eq(held),
        ]
        with m.If(shifts):
            m.d.sync += [held.eq(Cat(held[8:], self.octet)), at.eq(at + 1)]
            with m.If(fills):
                m.d.sync += [self.o.valid.eq(1), aligns.eq(0)]
        with m.If(self.valid & self.ready):
            m.d.sync += [beat.last.eq(self.last), beat.octets.eq(Mux(self.empty, 0, at + 1))]
            with m.If(self.last & ~fills):
                m.d.sync += aligns.eq(1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
