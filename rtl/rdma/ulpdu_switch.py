"""Merges the ULPDUs of the host and those of the engine."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import TxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes

__all__ = ["UlpduSwitch"]


class UlpduSwitch(wiring.Component):
    """Passes whole ULPDUs of two sources; those of the host come first.

    Latency: combinational; a ULPDU of the host waits for a cycle. Throughput: one beat per cycle.

    Members
    -------
    host, engine : In, stream of :class:`.TxUlpdu`
    o : Out, stream of :class:`.TxUlpdu`
    """

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        ulpdus = stream.Signature(TxUlpdu(lanes, connections))
        super().__init__({"host": In(ulpdus), "engine": In(ulpdus),
                          "o": Out(stream.Signature(TxUlpdu(lanes, connections)))})  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        is_host = Signal()
        offered = Signal()  # a beat was offered in the last cycle, or a ULPDU has begun
        m.d.comb += [
            self.o.valid.eq(Mux(is_host, self.host.valid, self.engine.valid)),
            self.o.payload.eq(Mux(is_host, self.host.payload, self.engine.payload)),
            self.host.ready.eq(self.o.ready & is_host),
            self.engine.ready.eq(self.o.ready & ~is_host),
        ]
        ends = self.o.valid & self.o.ready & self.o.payload.last
        m.d.sync += offered.eq((offered | self.o.valid) & ~ends)
        with m.If(ends | ~(offered | self.o.valid)):
            m.d.sync += is_host.eq(self.host.valid & ~(ends & is_host))
        return m
