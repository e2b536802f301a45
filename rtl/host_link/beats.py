"""Assembles octets into beats."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.lanes import check_lanes

__all__ = ["ToBeats"]


class ToBeats(wiring.Component):
    """Assembles octets into packets.

    Throughput: one octet per cycle. The block stalls from the end of a beat until the beat has been transferred; a
    short last beat additionally takes 1 cycle for each missing octet.

    Members
    -------
    valid, ready : In, Out, 1 bit
        With both set, an octet, or the end of an empty packet, is transferred.
    octet : In, 8 bits
        The octet.
    last : In, 1 bit
        The packet ends with this octet.
    empty : In, 1 bit
        With ``last``: the packet has no octets, and ``octet`` is ignored.
    o : Out, stream of :class:`.Packet`
        The packets.
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
        at = Signal(range(4 * self.lanes))  # number of octets in the incomplete beat
        aligns = Signal()  # the octets of a short beat are being moved to its beginning
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
