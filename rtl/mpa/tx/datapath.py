"""Transmit: from ULPDUs to the MPA stream."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, SINK, Packet, TxUlpdu
from open_rnic.rtl.lib.copies import later
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.mpa.events import Event, one_of
from open_rnic.rtl.mpa.rtr import Report
from open_rnic.rtl.mpa.settings import SendSettings
from open_rnic.rtl.mpa.stream_mode import in_turn
from open_rnic.rtl.mpa.tx.fence import Fence
from open_rnic.rtl.mpa.tx.framer import frame
from open_rnic.rtl.mpa.tx.mode_switch import TxModeSwitch
from open_rnic.rtl.registers import DirectionState

__all__ = ["TxDatapath"]


class TxCounts(data.StructLayout):
    """What happens in a cycle: an FPDU ends, a marker is inserted, and this number of octets is sent."""

    def __init__(self, lanes: int):
        super().__init__({"fpdu": 1, "marker": 1, "octets": range(4 * lanes + 1)})


class TxDatapath(wiring.Component):
    """Transmit of one connection.

    ::

        ulpdu ▸ TxModeSwitch ▸ Fence ▸ FpduFramer ▸ MarkerInserter ▸ CrcAppender ▸ mpa
                  └───────────────────── stream mode ───────────────────────────────┘

    Members
    -------
    ulpdu : In, stream of :class:`.TxUlpdu`; from the host: stream-mode packets, then ULPDUs
    mpa : Out, stream of :class:`.Packet`; to the peer: stream-mode packets, then one packet for each FPDU
    stream_octets, enable : In, 32 bits, 1 bit; see :class:`.ModeSwitch`
    settings : In, :class:`.SendSettings`
    start : In, 7 bits; offset of the first FPDU in the marked stream, in lanes
    maximum : In, 16 bits; the longest ULPDU that may be sent, in octets
    report, failed, sink : In, :class:`.Report`, 1 bit, 96 bits; from :class:`.RxDatapath`
    asked : Out, 1 bit; a Read RTR has been sent
    state : Out, :class:`.DirectionState`
    fence_open : Out, 1 bit; the fence is open
    event : Out, :class:`.Event`; of :class:`.TxModeSwitch` and :class:`.Fence`
    counts : Out, :class:`TxCounts`; for the counters
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "ulpdu": In(stream.Signature(TxUlpdu(lanes))),
            "mpa": Out(stream.Signature(Packet(lanes))),
            "stream_octets": In(32),
            "enable": In(1),
            "settings": In(SendSettings),
            "start": In(range(INTERVAL)),
            "maximum": In(16),
            "report": In(Report),
            "sink": In(SINK),
            "failed": In(1),
            "asked": Out(1),
            "state": Out(DirectionState),
            "fence_open": Out(1),
            "event": Out(Event),
            "counts": Out(TxCounts(lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        m.submodules.switch = switch = TxModeSwitch(lanes)
        m.submodules.fence = fence = Fence(lanes)
        wiring.connect(m, wiring.flipped(self.ulpdu), switch.i)
        wiring.connect(m, switch.mpa, fence.i)
        inserter, fpdus = frame(m, fence.o, lanes)
        in_turn(m, switch, fpdus, wiring.flipped(self.mpa))

        # A wide fence lies far from the switch. MPA mode does not end, so the fence may know a cycle later.
        in_mpa = later(m, switch.state == DirectionState.MPA, lanes, name="in_mpa")
        leaving, leaves = fpdus.payload, fpdus.valid & fpdus.ready
        m.d.comb += [
            switch.octets.eq(self.stream_octets),
            switch.enable.eq(self.enable),
            fence.settings.eq(self.settings),
            fence.maximum.eq(self.maximum),
            fence.report.eq(self.report),
            fence.sink.eq(self.sink),
            fence.failed.eq(self.failed),
            fence.mpa.eq(in_mpa),
            inserter.start.eq(self.start),
            self.asked.eq(fence.state.asked),
            self.state.eq(Mux(fence.state.stopped, DirectionState.STOPPED, switch.state)),
            self.fence_open.eq(fence.state.open),
            self.event.eq(one_of(switch.event, fence.event)),
            self.counts.fpdu.eq(leaves & leaving.last),
            self.counts.octets.eq(Mux(leaves, Mux(leaving.last, leaving.octets, 4 * lanes), 0)),
            self.counts.marker.eq(inserter.inserted),
        ]
        return m
