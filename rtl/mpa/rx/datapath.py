"""Receive: from the MPA stream to ULPDUs."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, SINK, Packet, RxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.mpa.events import Event, one_of
from open_rnic.rtl.mpa.rtr import Report
from open_rnic.rtl.mpa.rx.fpdu_receiver import FpduReceiver
from open_rnic.rtl.mpa.rx.mode_switch import RxModeSwitch
from open_rnic.rtl.mpa.rx.rtr_detector import RtrDetector
from open_rnic.rtl.mpa.rx.store_and_forward import StoreAndForward, check_store
from open_rnic.rtl.mpa.settings import RtrSettings
from open_rnic.rtl.mpa.stream_mode import in_turn
from open_rnic.rtl.registers import DirectionState

__all__ = ["RxDatapath"]


class RxCounts(data.Struct):
    """What has happened: a good FPDU has ended, with its lanes and its markers; or one with a wrong CRC."""

    fpdu: 1
    size: 15  # lanes, markers included
    markers: 8
    crc_error: 1


class RxDatapath(wiring.Component):
    """Receive of one connection.

    ::

        ulpdu ◂ StoreAndForward ◂ RtrDetector ◂ FpduReceiver ◂ RxModeSwitch ◂ mpa
                 (an option)                     stream mode ──────┘

    Members
    -------
    mpa : In, stream of :class:`.Packet`; from the peer: the octets of the stream, in chunks cut anywhere
    ulpdu : Out, stream of :class:`.RxUlpdu`; to the host: stream-mode chunks (verdict STREAM), then ULPDUs
    stream_octets, enable : In, 32 bits, 1 bit; see :class:`.ModeSwitch`
    settings : In, :class:`.RtrSettings`
    markers, crc : In, 1 bit; as in register CONFIG
    start : In, 7 bits; offset of the first FPDU in the marked stream, in lanes
    maximum : In, 16 bits; the largest ULPDU_Length
    asked : In, 1 bit; from :class:`.TxDatapath`
    report, failed, sink : Out, :class:`.Report`, 1 bit, 96 bits; see :class:`.RtrDetector`
    state : Out, :class:`.DirectionState`
    event : Out, :class:`.Event`; of :class:`.RxModeSwitch` and :class:`.RtrDetector`
    counts : Out, :class:`RxCounts`; for the counters
    """

    def __init__(self, lanes: int, *, store_and_forward: int = 0, keep_terminates: bool = False):
        check_lanes(lanes)
        if store_and_forward:
            check_store(store_and_forward)
        self.lanes = lanes
        self.store_and_forward = store_and_forward
        self.keep_terminates = keep_terminates
        super().__init__({
            "mpa": In(stream.Signature(Packet(lanes))),
            "ulpdu": Out(stream.Signature(RxUlpdu(lanes))),
            "stream_octets": In(32),
            "enable": In(1),
            "settings": In(RtrSettings),
            "markers": In(1),
            "crc": In(1),
            "start": In(range(INTERVAL)),
            "maximum": In(16),
            "asked": In(1),
            "report": Out(Report),
            "sink": Out(SINK),
            "failed": Out(1),
            "state": Out(DirectionState),
            "event": Out(Event),
            "counts": Out(RxCounts),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        m.submodules.switch = switch = RxModeSwitch(lanes)
        m.submodules.receiver = receiver = FpduReceiver(lanes)
        m.submodules.detector = detector = RtrDetector(lanes)
        wiring.connect(m, wiring.flipped(self.mpa), switch.i)
        wiring.connect(m, switch.mpa, receiver.i)
        wiring.connect(m, receiver.o, detector.i)
        ulpdus = detector.o
        if self.store_and_forward:
            m.submodules.store = store = StoreAndForward(
                lanes, self.store_and_forward, keep_terminates=self.keep_terminates
            )
            wiring.connect(m, ulpdus, store.i)
            ulpdus = store.o
        in_turn(m, switch, ulpdus, wiring.flipped(self.ulpdu))

        m.d.comb += [
            switch.octets.eq(self.stream_octets),
            switch.enable.eq(self.enable),
            receiver.markers.eq(self.markers),
            receiver.start.eq(self.start),
            receiver.maximum.eq(self.maximum),
            receiver.enable.eq(self.crc),
            detector.start.eq(self.start << 2),
            detector.settings.eq(self.settings),
            self.report.eq(detector.report),
            self.sink.eq(detector.sink),
            self.failed.eq(detector.failed),
            self.state.eq(Mux(detector.failed, DirectionState.STOPPED, switch.state)),
            self.event.eq(one_of(switch.event, detector.event)),
        ]
        m.d.sync += [
            detector.asked.eq(self.asked),  # the response comes many cycles after its request
            self.counts.fpdu.eq(detector.report.good),
            self.counts.size.eq(detector.size),
            self.counts.markers.eq(detector.markers),
            self.counts.crc_error.eq(detector.crc_error),
        ]
        return m
