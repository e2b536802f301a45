"""From chunks of the MPA stream to judged ULPDUs, at any width."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, CheckedUlpdu, Packet, Train
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mpa.rx.delineator import Delineator
from open_rnic.rtl.mpa.rx.fpdu_checker import FpduChecker
from open_rnic.rtl.mpa.rx.fpdu_lane_receiver import LaneReceiver
from open_rnic.rtl.mpa.rx.markers import ChunkPacker
from open_rnic.rtl.mpa.rx.train_aligner import TrainAligner

__all__ = ["FpduReceiver"]


class FpduReceiver(wiring.Component):
    """Finds the FPDUs in the MPA stream, checks their CRCs and markers, and returns their ULPDUs.

    ::

        i ▸ ChunkPacker ▸ Delineator ▸ FpduChecker ▸ o      2 lanes and more
        i ▸ ChunkPacker ▸ LaneReceiver ▸ o                  1 lane
        i ▸ TrainAligner ▸ FpduChecker ▸ o                  many connections, 2 lanes and more
        i ▸ LaneReceiver ▸ o                                many connections, 1 lane

    Latency: the sum of the blocks' latencies. Throughput: one beat per cycle.

    Members
    -------
    i : In, stream of :class:`.Packet`
        Chunks, with ``octets`` valid on every beat. With many connections, a stream of :class:`.Train`.
    o : Out, stream of :class:`.CheckedUlpdu`
        ULPDUs.
    markers : In, 1 bit
        The stream has markers.
    start : In, 7 bits
        Offset of the first FPDU in the marked stream, in lanes. Only with one connection.
    maximum : In, 16 bits
        The largest ULPDU_Length, in octets.
    enable : In, 1 bit
        Check CRCs.

    idle : Out, 1 bit
        No beat is in the block. Only with many connections.

    With one connection, the inputs besides ``i`` do not change once octets have arrived. With many, they are those of
    the connection of the beat at ``i``.
    """

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        one = {"i": In(stream.Signature(Packet(lanes))), "start": In(range(INTERVAL))}
        many = {"i": In(stream.Signature(Train(lanes, connections))), "idle": Out(1)}
        super().__init__({
            **(many if connections > 1 else one),
            "o": Out(stream.Signature(CheckedUlpdu(lanes, connections))),
            "markers": In(1),
            "maximum": In(16),
            "enable": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        if self.connections > 1:
            if self.lanes == 1:
                m.submodules.receiver = first = last = LaneReceiver(self.connections)
                m.d.comb += self.idle.eq(first.idle)
            else:
                m.submodules.aligner = first = TrainAligner(self.lanes, self.connections)
                m.submodules.checker = last = FpduChecker(self.lanes, self.connections)
                wiring.connect(m, first.o, last.i)
                m.d.comb += self.idle.eq(first.idle & last.idle)
            wiring.connect(m, wiring.flipped(self.i), first.i)
            wiring.connect(m, last.o, wiring.flipped(self.o))
            expose(m, first, self, ("markers", "maximum", "enable"))
            return m
        m.submodules.packer = packer = ChunkPacker(self.lanes)
        if self.lanes == 1:
            m.submodules.receiver = unmarks = delineator = checker = LaneReceiver()
        else:
            m.submodules.delineator = delineator = Delineator(self.lanes)
            m.submodules.checker = checker = FpduChecker(self.lanes)
            unmarks = packer
            wiring.connect(m, delineator.o, checker.i)
        wiring.connect(m, wiring.flipped(self.i), packer.i)
        wiring.connect(m, packer.o, delineator.i)
        wiring.connect(m, checker.o, wiring.flipped(self.o))
        m.d.comb += [
            unmarks.markers.eq(self.markers),
            unmarks.start.eq(self.start),
            delineator.maximum.eq(self.maximum),
            checker.enable.eq(self.enable),
        ]
        return m
