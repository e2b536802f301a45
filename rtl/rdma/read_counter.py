"""Counts the RDMA Reads of both ends."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.stream import Fifo
from open_rnic.rtl.rdma.layouts import Sink

__all__ = ["ReadCounter"]


class ReadCounter(wiring.Component):
    """The RDMA Reads that are outstanding: this end's, which ORD limits, and the peer's, which IRD limits.

    Members
    -------
    loads : In, 1 bit
        An RDMA Read of this end will be sent.
    asks : In, 1 bit
        Its RDMA Read Request is being sent; ``asked`` is its sink.
    asked : In, :class:`.Sink`
    answered : In, 1 bit
        A Read Response is complete.
    sinks : Out, stream of :class:`.Sink`
        The sinks of the RDMA Reads that have been sent.
    outstanding : Out, 8 bits
        RDMA Reads of this end, with a Read RTR.
    none : Out, 1 bit
        There is none but a Read RTR.
    starts : In, 1 bit
        The Read RTR, if ``read_rtr``, is settled.
    read_rtr, rtr_answered : In, 1 bit
        This end sends a Read RTR; its Read Response has arrived.
    requested : In, 1 bit
        The peer has sent an RDMA Read Request.
    answers : In, 1 bit
        The last octets of a Read Response to the peer are being sent.
    requests : Out, 8 bits
        RDMA Read Requests of the peer.
    """

    def __init__(self, reads: int):
        self.reads = reads
        super().__init__({
            "loads": In(1), "asks": In(1), "asked": In(Sink), "answered": In(1),
            "sinks": Out(stream.Signature(Sink)), "outstanding": Out(8), "none": Out(1),
            "starts": In(1), "read_rtr": In(1), "rtr_answered": In(1),
            "requested": In(1), "answers": In(1), "requests": Out(8),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.sinks = sinks = Fifo(Sink, self.reads)
        wiring.connect(m, sinks.o, wiring.flipped(self.sinks))
        own = Signal(range(self.reads + 1))
        others = Signal(range(self.reads + 1))
        rtr = Signal()  # the Read RTR has not been answered
        m.d.comb += [
            sinks.i.valid.eq(self.asks),
            sinks.i.payload.eq(self.asked),
            self.outstanding.eq(own + rtr),
            self.none.eq(own == 0),
            self.requests.eq(others),
        ]
        count_up_down(m, own, self.loads, self.answered)
        count_up_down(m, others, self.requested, self.answers)
        with m.If(~self.starts):
            m.d.sync += rtr.eq(self.read_rtr)
        with m.Elif(self.rtr_answered):
            m.d.sync += rtr.eq(0)
        return m
