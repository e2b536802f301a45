"""Octets from a few bits at a time, as MII, RMII and RGMII at 10 and 100 Mb/s have them."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.layouts import SFD, RxOctets

__all__ = ["OctetAssembler"]


class OctetAssembler(wiring.Component):
    """Collects octets, and aligns them at the SFD, as the preamble may begin with any part of an octet.

    An incomplete octet at the end of a frame is omitted.

    Latency: 1 cycle.

    Parameters
    ----------
    bits : bits that arrive at a time: 2 or 4

    Members
    -------
    strobe, valid, error : In, 1 bit
    data : In, ``bits`` bits
        As in :class:`.RxOctets`; the low bits of an octet come first.
    o : Out, signature :class:`.RxOctets`

    """

    def __init__(self, bits: int):
        if bits not in (2, 4):
            raise ValueError(f"bits must be 2 or 4, not {bits!r}")
        self.bits = bits
        super().__init__({"strobe": In(1), "valid": In(1), "error": In(1), "data": In(bits), "o": Out(RxOctets())})

    def elaborate(self, platform):
        m = Module()
        collected = Signal(8 - self.bits)
        octet = Signal(8)
        place = Signal(range(8 // self.bits))
        aligned = Signal()
        begins = Signal()
        ends = Signal()
        failed = Signal()  # in this octet, before these bits
        m.d.comb += [
            octet.eq(Cat(collected, self.data)),
            begins.eq(self.valid & ~aligned & (octet == SFD)),
            ends.eq(~self.valid | begins | place.all()),
        ]
        m.d.sync += self.o.strobe.eq(self.strobe & ends)
        with m.If(self.strobe):
            m.d.sync += [
                collected.eq(octet[self.bits:]),
                place.eq(place + 1),
                aligned.eq(self.valid & (aligned | begins)),
                failed.eq(self.valid & ~ends & (failed | self.error)),
                self.o.valid.eq(self.valid),
                self.o.error.eq(failed | self.error),
                self.o.data.eq(octet),
            ]
            with m.If(begins | ~self.valid):
                m.d.sync += [collected.eq(0), place.eq(0)]
        return m
