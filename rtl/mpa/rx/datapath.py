"""Receive: from the MPA stream to ULPDUs."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, SINK, Packet, RxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.mpa.events import Event, one_of
from open_rnic.rtl.mpa.rx.fpdu_receiver import FpduReceiver
from open_rnic.rtl.mpa.rx.mode_switch import RxModeSwitch
from open_rnic.rtl.mpa.rx.rtr_detector import RtrDetector
from open_rnic.rtl.mpa.rx.store_and_forward import StoreAndForward, check_store
from open_rnic.rtl.mpa.stream_mode import in_turn
from open_rnic.rtl.registers import DirectionState, Model, Role, Rtr

__all__ = ["RxDatapath"]


class RxDatapath(wiring.Component):
    """Receive of one connection.

    ::

        ulpdu ◂ StoreAndForward ◂ RtrDetector ◂ FpduReceiver ◂ RxModeSwitch ◂ mpa
                 (an option)                     stream mode ──────┘

    Members
    -------
    mpa : In, stream of :class:`.Packet`
        From the peer: the octets of the stream, in chunks cut anywhere.
    ulpdu : Out, stream of :class:`.RxUlpdu`
        To the host: stream-mode chunks (verdict STREAM), then ULPDUs.
    stream_octets : In, 32 bits
        See :attr:`.ModeSwitch.octets`.
    enable : In, 1 bit
        See :attr:`.ModeSwitch.enable`.
    role, model : In, :class:`.Role`, :class:`.Model`
    rtr_accept : In, 3 bits
    permissive, markers, crc : In, 1 bit
        As in register CONFIG.
    start : In, 7 bits
        Offset of the first FPDU in the marked stream, in lanes.
    maximum : In, 16 bits
        The largest ULPDU_Length.
    asked : In, 1 bit
        From :class:`.TxDatapath`.
    good, rtr, respond, failed : Out, 1 bit
    kind : Out, :class:`.Rtr`
    sink : Out, 96 bits
        See :class:`.RtrDetector`.
    state : Out, :class:`.DirectionState`
        The state of this direction.
    event : Out, :class:`.Event`
        The events of :class:`.RxModeSwitch` and :class:`.RtrDetector`.
    fpdu, crc_error : Out, 1 bit
        For the counters: a good FPDU has ended; an FPDU with a wrong CRC has ended.
    size : Out, 15 bits
    marker_count : Out, 8 bits
        With ``fpdu``: its lanes, markers included, and its markers.
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
            "role": In(Role),
            "model": In(Model),
            "rtr_accept": In(3),
            "permissive": In(1),
            "markers": In(1),
            "crc": In(1),
            "start": In(range(INTERVAL)),
            "maximum": In(16),
            "asked": In(1),
            "good": Out(1),
            "rtr": Out(1),
            "kind": Out(Rtr),
            "respond": Out(1),
            "sink": Out(SINK),
            "failed": Out(1),
            "state": Out(DirectionState),
            "event": Out(Event),
            "fpdu": Out(1),
            "size": Out(15),
            "marker_count": Out(8),
            "crc_error": Out(1),
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
            *(getattr(detector, name).eq(getattr(self, name)) for name in (
                "role", "model", "rtr_accept", "permissive",
            )),
            *(getattr(self, name).eq(getattr(detector, name)) for name in (
                "good", "rtr", "kind", "respond", "sink", "failed",
            )),
            self.state.eq(Mux(detector.failed, DirectionState.STOPPED, switch.state)),
            self.event.eq(one_of(switch.event, detector.event)),
        ]
        m.d.sync += [
            detector.asked.eq(self.asked),  # the response comes many cycles after its request
            self.fpdu.eq(detector.good),
            self.size.eq(detector.size),
            self.marker_count.eq(detector.markers),
            self.crc_error.eq(detector.crc_error),
        ]
        return m
