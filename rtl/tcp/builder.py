"""Builds segments of the words that the program writes, and of octets of the send ring."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.tcp.ring import RingRead

__all__ = ["Builder"]


class Builder(wiring.Component):
    """Builds a segment: ``destination`` and ``length``, then each ``word`` of the header, then ``payload``.

    Members
    -------
    destination, length, word, payload_from, payload : In, 1 bit
        A write of ``value`` to one of these ports. ``payload`` is the number of octets of payload, and ends the
        segment.
    value : In, 32 bits
    connection : In
        The connection from whose ring the payload is read.
    ready : Out, 1 bit
        A write is accepted.
    idle : Out, 1 bit
        No segment is being built: a whole header would be accepted without much delay.
    read : Out, :class:`.RingRead`
        The payload.
    i : In, stream of :class:`.Packet`
        The octets that are read.
    o : Out, stream of :class:`.Packet` with ``destination`` (32 bits) and ``length`` (16 bits)
        The segment, with a checksum of 0.
    """

    def __init__(self, index_bits: int):
        super().__init__({
            **{name: In(1) for name in ("destination", "length", "word", "payload_from", "payload")},
            "value": In(32), "connection": In(index_bits), "ready": Out(1), "idle": Out(1),
            "read": Out(RingRead(index_bits)), "i": In(packet(1)), "o": Out(packet(1, destination=32, length=16)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        held = Signal(32, reset_less=True)  # the header's latest word, which may be the segment's last
        holds = Signal()
        closes = Signal()  # the held word is the last one of the segment
        opened = Signal()  # the held word is the last one of the header: a payload follows
        fixed = self.o.payload
        m.d.comb += [
            fixed.data.eq(swap_octets(held)),
            fixed.octets.eq(4),
            fixed.last.eq(closes),
            self.ready.eq(~closes & ~opened & (~holds | self.o.ready | ~self.word)),
            self.idle.eq(~holds),
            self.read.octets.eq(self.value),
            self.read.connection.eq(self.connection),
        ]
        with m.If(self.ready):
            with m.If(self.destination):
                m.d.sync += fixed.destination.eq(self.value)
            with m.If(self.length):
                m.d.sync += fixed.length.eq(self.value)
            with m.If(self.payload_from):
                m.d.sync += self.read.place.eq(self.value)
            with m.If(self.word):
                m.d.sync += [held.eq(self.value), holds.eq(1)]
            with m.If(self.payload):
                m.d.sync += [closes.eq(self.value == 0), opened.eq(self.value != 0)]
                m.d.comb += self.read.start.eq(self.value != 0)
        passes = Signal()  # the payload passes
        with m.If(passes):
            m.d.comb += [
                *(fixed[each].eq(self.i.payload[each]) for each in ("data", "octets", "last")),
                self.o.valid.eq(self.i.valid),
                self.i.ready.eq(self.o.ready),
                self.idle.eq(0),
            ]
            with m.If(self.i.valid & self.o.ready & self.i.payload.last):
                m.d.sync += [passes.eq(0), opened.eq(0)]
        with m.Else():
            m.d.comb += self.o.valid.eq(holds & (self.word | closes | opened))
            with m.If(self.o.valid & self.o.ready & ~(self.word & self.ready)):
                m.d.sync += [holds.eq(0), closes.eq(0), passes.eq(opened)]
        return m
