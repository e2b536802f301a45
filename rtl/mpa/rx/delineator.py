"""Makes FPDUs of the MPA stream (RFC 5044 §6)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import StreamBeat, aligned
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Fifo, ReadyFifo
from open_rnic.rtl.mpa.rx.aligner import FpduAligner
from open_rnic.rtl.mpa.rx.finder import FpduFinder

__all__ = ["Delineator"]

SLACK = 16  # beats, FPDUs: a beat of 16 lanes can hold 8, and comes when the last of their chunks has come


class Delineator(wiring.Component):
    """Gives each FPDU in beats of its own, from lane 0 on.

    ::

        i ▸┬ FpduFinder ▸┬ FpduAligner ▸ o
           └── beats ────┘

    A marker between two FPDUs belongs to the second one (RFC 5044 §4.3). So an FPDU is complete without it, and without
    anything else that follows.

    Latency 6 cycles. In each cycle a full beat goes out, or the rest of an FPDU.

    After a ULPDU_Length over the maximum nothing can be found any more: one beat with ``too_long`` goes out, then
    what comes in is taken and dropped.

    Members
    -------
    i : :class:`.StreamBeat`
    o : as :func:`.aligned` says
    maximum : the largest ULPDU_Length; does not change once octets have come
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
        both_ready = Signal()  # in a register, as it holds all up that comes before
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
        return m
