"""Finds the FPDUs in the MPA stream (RFC 5044 §6)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import StreamBeat, aligned
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Fifo, ReadyFifo
from open_rnic.rtl.mpa.rx.fpdu_aligner import FpduAligner
from open_rnic.rtl.mpa.rx.fpdu_finder import FpduFinder

__all__ = ["Delineator"]

SLACK = 16  # beats, FPDUs: a beat of 16 lanes can hold 8 FPDUs


class Delineator(wiring.Component):
    """Returns each FPDU in beats of its own, from lane 0 on.

    ::

        i ▸┬ FpduFinder ▸┬ FpduAligner ▸ o
           └── beats ────┘

    A marker between two FPDUs belongs to the second FPDU (RFC 5044 §4.3). An FPDU is therefore complete without the
    marker behind it, and does not wait for it.

    After a ULPDU_Length over the maximum, no later FPDU can be found: the block sends one beat with ``too_long``, then
    discards its input.

    Latency: 6 cycles, 11 cycles above 4 lanes. Throughput: in each cycle a full beat, or the end of an FPDU.

    Members
    -------
    i : In, stream of :class:`.StreamBeat`
        The stream without markers.
    o : Out, signature :func:`.aligned`
        FPDUs.
    maximum : In, 16 bits
        The largest ULPDU_Length. It does not change once octets have arrived.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(StreamBeat(lanes))),
            "o": Out(aligned(lanes)),
            "maximum": In(16),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.finder = finder = FpduFinder(self.lanes)
        m.submodules.aligner = aligner = FpduAligner(self.lanes)
        m.submodules.beats = beats = Fifo(self.i.payload.shape(), SLACK)
        m.submodules.found = found = ReadyFifo(finder.o.payload.shape(), SLACK)
        both_ready = Signal()  # registered, because it stalls all blocks before
        m.d.sync += both_ready.eq(finder.spare & beats.spare)
        m.d.comb += [
            finder.maximum.eq(self.maximum),
            self.i.ready.eq(both_ready),
            *(to.payload.eq(self.i.payload) for to in (finder.i, beats.i)),
            *(to.valid.eq(self.i.valid & both_ready) for to in (finder.i, beats.i)),
        ]
        wiring.connect(m, finder.o, found.i)
        wiring.connect(m, found.o, aligner.found)
        wiring.connect(m, beats.o, aligner.i)
        wiring.connect(m, aligner.o, wiring.flipped(self.o))
        if self.lanes > AT_ONCE:
            # What the aligner decides by has a queue of its own, which need not lie where the octets are.
            m.submodules.counts = counts = ReadyFifo(self.i.payload.count.shape(), SLACK)
            m.d.comb += [
                counts.i.valid.eq(beats.i.valid),
                counts.i.payload.eq(self.i.payload.count),
                counts.o.ready.eq(beats.o.ready),
                aligner.i.valid.eq(counts.o.valid),
                aligner.i.payload.count.eq(counts.o.payload),
            ]
        return m
