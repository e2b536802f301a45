"""Finds frames in received octets, and checks them."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.mac.layouts import LEAST_FRAME, LONGEST_TAGGED, PADDING, SFD, Discarded, RxOctets

__all__ = ["MacReceiver"]


class MacReceiver(wiring.Component):
    """Removes preamble, SFD and FCS, and collects octets in words, behind two octets of padding.

    Octets before an SFD are ignored, and so is an incomplete octet at the end of a frame. A gap of one octet is enough.

    A word is kept until the next one is complete: a frame ends four octets before its last octet, so with as many
    octets in its last but one word as there are in its last word.

    Latency: 3 cycles from the octet behind the frame to its last word.

    Parameters
    ----------
    longest : octets of the longest frame, with FCS

    Members
    -------
    octets : In, signature :class:`.RxOctets`
    word : Out, :class:`.Packet`
    valid : Out, 1 bit
        There is a word.
    bad : Out, 1 bit
        With the last word: the frame is to be discarded.
    discarded : Out, :class:`.Discarded`
        With ``bad``, the reason.

    """

    def __init__(self, longest: int = LONGEST_TAGGED):
        if longest < LEAST_FRAME:
            raise ValueError(f"longest must be at least {LEAST_FRAME} octets, not {longest!r}")
        self.longest = longest
        super().__init__({
            "octets": In(RxOctets()),
            "word": Out(Packet(1)),
            "valid": Out(1),
            "bad": Out(1),
            "discarded": Out(Discarded()),
        })
        # The octet that was received last.
        self._octet = Signal(8, reset_less=True)
        self._begins = Signal()  # it is an SFD
        self._takes = Signal()  # it is behind an SFD
        self._ends = Signal()  # there is none, but there was one before

    def elaborate(self, platform):
        m = Module()
        rises, errs = self._classify(m)
        ended = Signal()
        m.d.sync += ended.eq(self._ends)
        self._collect(m, ended)
        oversize, complete = self._measure(m, rises)
        self._judge(m, errs, oversize, complete, ended)
        return m

    def _classify(self, m):
        """Decide what an octet is; return whether it is the first one, and whether it has an error."""
        octets = self.octets
        ready = Signal()  # there was a gap since the reset
        carrier = Signal()  # the octet before was valid
        inside = Signal()  # there was an SFD
        is_sfd = Signal()
        rises = Signal()  # first octet
        errs = Signal()
        valid = octets.strobe & octets.valid
        m.d.comb += is_sfd.eq(octets.valid & ready & ~inside & (octets.data == SFD))
        m.d.sync += [
            rises.eq(valid & ~carrier),
            self._begins.eq(octets.strobe & is_sfd),
            self._takes.eq(valid & inside),
            self._ends.eq(octets.strobe & ~octets.valid & carrier & ready),
            errs.eq(valid & octets.error),
            self._octet.eq(octets.data),
        ]
        with m.If(octets.strobe):
            m.d.sync += [
                ready.eq(ready | ~octets.valid),
                carrier.eq(octets.valid),
                inside.eq(octets.valid & (inside | is_sfd)),
            ]
        return rises, errs

    def _collect(self, m, ended):
        """Collect octets in words. While one is collected, the one before is held."""
        collected = Signal(32)
        held = Signal(32, reset_less=True)
        holds = Signal()
        place = Signal(range(4))  # of the next octet
        completes = Signal()  # the octet is the first one of the next word
        m.d.comb += completes.eq(self._takes & (place == 0))
        with m.If(self._begins):
            m.d.sync += [collected.eq(0), place.eq(PADDING), holds.eq(0)]
        with m.Elif(self._takes):
            m.d.sync += [collected.eq(Cat(collected[8:], self._octet)), place.eq(place + 1)]
        with m.If(completes):
            m.d.sync += [held.eq(collected), holds.eq(1)]
        m.d.comb += [
            self.word.data.eq(held),
            self.word.last.eq(ended),
            self.word.octets.eq(Mux(place == 0, 4, place)),
            self.valid.eq(ended | (completes & holds)),
        ]

    def _measure(self, m, rises):
        """Return whether the frame is too long, and whether it is long enough."""
        length = Signal(range(self.longest + 1))
        complete = Signal()
        oversize = Signal()
        with m.If(rises):
            m.d.sync += [complete.eq(0), oversize.eq(0)]
        with m.If(self._begins):
            m.d.sync += length.eq(0)
        with m.Elif(self._takes):
            with m.If(length == LEAST_FRAME - 1):
                m.d.sync += complete.eq(1)
            with m.If(length == self.longest):
                m.d.sync += oversize.eq(1)
            with m.Else():
                m.d.sync += length.eq(length + 1)
        return oversize, complete

    def _judge(self, m, errs, oversize, complete, ended):
        """Reach a verdict in the cycle ``ends``. The next frame may begin a cycle later."""
        m.submodules.crc = crc = CRC32_ETHERNET(data_width=8).create()
        failed = Signal()
        found = Signal(len(Discarded().members))
        m.d.comb += [crc.start.eq(self._begins), crc.valid.eq(self._takes), crc.data.eq(self._octet)]
        m.d.sync += [
            failed.eq(errs | (failed & ~self._ends)),
            found.eq(Cat(failed, oversize, ~complete, ~crc.match_detected)),
            self.bad.eq(failed | oversize | ~complete | ~crc.match_detected),
        ]
        m.d.comb += Value.cast(self.discarded).eq(Mux(ended, found & -found, 0))
