"""Turns the words of a queue into segments and datagrams."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.net.layouts import RxDatagram, RxSegment

__all__ = ["DatagramDelivery", "SegmentDelivery"]


class SegmentDelivery(wiring.Component):
    """Delivers TCP segments. Latency: 2 cycles from the first word. Throughput: a segment costs 2 cycles more.

    Members
    -------
    i : In, stream of :class:`.Packet`
        The words of packets, as :class:`.Receiver` writes them.
    o : Out, stream of :class:`.RxSegment`
    """

    def __init__(self):
        super().__init__({"i": In(stream.Signature(Packet(1))), "o": Out(stream.Signature(RxSegment()))})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i.payload, self.o.payload
        m.d.comb += [o.data.eq(i.data), o.octets.eq(i.octets), o.last.eq(i.last)]
        with m.FSM():
            with m.State("Source"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += o.source.eq(swap_octets(i.data))
                with m.If(self.i.valid):
                    m.next = "Length"
            with m.State("Length"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += o.length.eq(i.data)
                with m.If(self.i.valid):
                    m.next = "Segment"
            with m.State("Segment"):
                m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
                with m.If(self.i.valid & self.o.ready & i.last):
                    m.next = "Source"
        return m


class DatagramDelivery(wiring.Component):
    """Delivers UDP datagrams. Latency: 4 cycles from the first word. Throughput: a datagram costs 4 cycles more.

    Members
    -------
    i : In, stream of :class:`.Packet`
        The words of packets, as :class:`.Receiver` writes them.
    o : Out, stream of :class:`.RxDatagram`
    """

    def __init__(self):
        super().__init__({"i": In(stream.Signature(Packet(1))), "o": Out(stream.Signature(RxDatagram()))})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i.payload, self.o.payload
        m.d.comb += [o.data.eq(i.data), o.octets.eq(i.octets), o.last.eq(i.last)]
        with m.FSM():
            with m.State("Source"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += o.source.eq(swap_octets(i.data))
                with m.If(self.i.valid):
                    m.next = "Length"
            with m.State("Length"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += o.length.eq(i.data[:16] - 8)
                with m.If(self.i.valid):
                    m.next = "Ports"
            with m.State("Ports"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    o.source_port.eq(swap_octets(i.data[:16])),
                    o.destination_port.eq(swap_octets(i.data[16:])),
                ]
                with m.If(self.i.valid):
                    m.next = "Checksum"
            with m.State("Checksum"):
                # The word of Length and checksum; a packet of no octets ends with it.
                m.d.comb += self.i.ready.eq(~i.last)
                with m.If(self.i.valid):
                    m.next = "Payload"
                    with m.If(i.last):
                        m.next = "Empty"
            with m.State("Empty"):
                m.d.comb += [self.o.valid.eq(1), o.octets.eq(0), self.i.ready.eq(self.o.ready)]
                with m.If(self.o.ready):
                    m.next = "Source"
            with m.State("Payload"):
                m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
                with m.If(self.i.valid & self.o.ready & i.last):
                    m.next = "Source"
        return m
