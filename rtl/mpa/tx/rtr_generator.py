"""Generates the RTR indications of RFC 6581 §9.2, and the Read Response to a Read RTR."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import SINK, TxUlpdu
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.mpa.rtr import HEADER

__all__ = ["RtrGenerator", "Ulpdu"]


class Ulpdu(enum.Enum, shape=2):
    """The ULPDUs of :class:`RtrGenerator`. Those after the first are RTRs, with the values of :class:`.Rtr`."""

    RESPONSE = 0
    SEND = 1
    WRITE = 2
    READ = 3


# DDP control, RDMAP control, then the header: RFC 5041 §4.2 and §4.3, RFC 5040 §4.4. STags are 1, not 0, because some
# hardware gives STag 0 a meaning of its own even in messages whose STag is not checked.
_OCTETS = {
    Ulpdu.RESPONSE: bytes.fromhex("c142" + 12 * "00"),
    Ulpdu.SEND: bytes.fromhex("4143 00000000" "00000000 00000001 00000000"),
    Ulpdu.WRITE: bytes.fromhex("c140 00000001 0000000000000000"),
    Ulpdu.READ: bytes.fromhex(
        "4141 00000000" "00000001 00000001 00000000"
        "00000000 0000000000000000 00000000 00000001 0000000000000000"
    ),
}


class RtrGenerator(wiring.Component):
    """Generates an RTR, or the zero-length Read Response that answers a Read RTR.

    Latency: 1 cycle, 2 cycles above 4 lanes. Throughput: one beat every 2 cycles.

    Members
    -------
    o : Out, stream of :class:`.TxUlpdu`
        The ULPDU.
    start : In, 1 bit
        Generate a ULPDU. Stays set until the ULPDU's last beat has been transferred.
    kind : In, :class:`Ulpdu`
        The ULPDU to generate. Does not change while ``start`` is set.
    sink : In, 96 bits
        The Sink STag and Sink TO of the Read Request, in wire order. Only a Read Response uses them.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "o": Out(stream.Signature(TxUlpdu(lanes))),
            "start": In(1),
            "kind": In(Ulpdu),
            "sink": In(SINK),
        })

    def elaborate(self, platform):
        m = Module()
        width = 4 * self.lanes
        o = Signal.like(self.o.payload)
        beats = -(-HEADER // width)
        beat = Signal(range(beats))
        octets = Signal(8 * beats * width)
        length = Signal(range(HEADER))
        with m.Switch(self.kind):
            for kind, value in _OCTETS.items():
                with m.Case(kind):
                    m.d.comb += [octets.eq(int.from_bytes(value, "little")), length.eq(len(value))]
                    if kind is Ulpdu.RESPONSE:
                        m.d.comb += octets[16:16 + SINK].eq(self.sink)
        start = self.start
        if self.lanes > AT_ONCE:  # the kind reaches all over a wide beat, in two cycles
            known, chosen, started = octets, Signal.like(octets), Signal()
            octets = chosen
            m.d.sync += [chosen.eq(known), started.eq(start)]
            start = start & started
        before = Array(n * width for n in range(beats))[beat]  # octets in earlier beats
        left = Signal(range(HEADER))  # octets in this beat and later ones
        m.d.comb += [
            left.eq(length - before),
            o.data.eq(octets.word_select(beat, 8 * width)),
            o.length.eq(length),
            o.octets.eq(left[:len(o.octets)]),
            o.last.eq(left <= width),
        ]
        with m.If(~self.o.valid):
            m.d.sync += [self.o.valid.eq(start), self.o.payload.eq(o)]
        with m.Elif(self.o.ready):
            m.d.sync += [self.o.valid.eq(0), beat.eq(Mux(o.last, 0, beat + 1))]
        return m
