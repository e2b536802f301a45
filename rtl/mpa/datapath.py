"""The data path of one connection."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, RxUlpdu, TxUlpdu
from open_rnic.rtl.lib.counter import count
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.mpa.events import EventQueue, check_depth
from open_rnic.rtl.mpa.rtr import Rtrs, report_rtrs
from open_rnic.rtl.mpa.rx.datapath import RxDatapath
from open_rnic.rtl.mpa.rx.store_and_forward import check_store
from open_rnic.rtl.mpa.tx.datapath import TxDatapath
from open_rnic.rtl.registers import MAX_ULPDU, Cause, EventKind
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["BETWEEN", "MpaDatapath", "couple"]

BETWEEN = ("report", "sink", "failed", "asked")  # the signals between transmit and receive


def couple(m: Module, tx: TxDatapath, rx: RxDatapath):
    """Connect transmit and receive. ``report`` reaches transmit 1 cycle later."""
    m.d.sync += tx.report.eq(rx.report)
    m.d.comb += [tx.sink.eq(rx.sink), tx.failed.eq(rx.failed), rx.asked.eq(tx.asked)]


def mpa_streams(lanes: int) -> dict[str, wiring.Member]:
    """The streams of octets of a data path, as :class:`MpaDatapath` describes them."""
    return {
        "tx_ulpdu": In(stream.Signature(TxUlpdu(lanes))),
        "tx_mpa": Out(stream.Signature(Packet(lanes))),
        "rx_mpa": In(stream.Signature(Packet(lanes))),
        "rx_ulpdu": Out(stream.Signature(RxUlpdu(lanes))),
    }


class MpaDatapath(wiring.Component):
    """Both directions of MPA for one connection, with the registers.

    ::

        tx_ulpdu ▸ TxDatapath ▸ tx_mpa
                       ▴ RTR, errors
        rx_ulpdu ◂ RxDatapath ◂ rx_mpa

    Throughput in MPA mode: each direction transfers a full beat, or the last beat of an FPDU, in every cycle.

    Parameters
    ----------
    lanes : width of the streams in 32-bit lanes: 1, 2, 4, 8 or 16
    event_depth : number of entries of the event FIFO, 2 to 255
    store_and_forward : size in octets, a power of 2, of a memory that stores received ULPDUs until their verdict is
        known. Bad ULPDUs are then discarded, and a ULPDU_Length over this size is MPA error 3, even if RX_MAX_ULPDU
        allows it. If 0, ULPDUs are delivered while they arrive, and the last beat of a bad one has a bad verdict.
    keep_terminates : see :class:`.StoreAndForward`

    Members
    -------
    tx_ulpdu : In, stream of :class:`.TxUlpdu`
        From the host: stream-mode packets, then ULPDUs.
    tx_mpa : Out, stream of :class:`.Packet`
        To the peer: stream-mode packets, then one packet for each FPDU.
    rx_mpa : In, stream of :class:`.Packet`
        From the peer: the octets of the stream, divided into chunks in any way.
    rx_ulpdu : Out, stream of :class:`.RxUlpdu`
        To the host: chunks of stream-mode octets (verdict STREAM), then ULPDUs.
    bus : In, :class:`.RegisterBus`
        Access to the registers (:mod:`.registers`).
    irq : Out, 1 bit
        At least one event is pending.
    reset : Out, 1 bit
        CONTROL.reset takes effect in this cycle. Queues outside that hold data of the connection must be reset, too.
    rtr : Out, :class:`.Rtrs`

    """

    def __init__(self, lanes: int = 4, *, event_depth: int = 16, store_and_forward: int = 0,
                 keep_terminates: bool = False):  # fmt: skip
        check_lanes(lanes)
        check_depth(event_depth)
        if store_and_forward:
            check_store(store_and_forward)
        self.lanes = lanes
        self.event_depth = event_depth
        self.store_and_forward = store_and_forward
        self.keep_terminates = keep_terminates
        super().__init__({
            **mpa_streams(lanes),
            "bus": In(RegisterBus()),
            "irq": Out(1),
            "reset": Out(1),
            "rtr": Out(Rtrs()),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterBank()
        reset = Signal()  # a register, because the reset has a large fan-out
        m.d.sync += reset.eq(registers.CONTROL.reset)
        m.d.comb += [registers.reset.eq(reset), self.reset.eq(reset)]
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        # This resets everything except the register bank, which must complete the current access.
        m.submodules.connection = ResetInserter(reset)(self._connection(registers))
        return m

    def _connection(self, registers):
        m = Module()
        m.submodules.tx = tx = TxDatapath(self.lanes)
        m.submodules.rx = rx = RxDatapath(
            self.lanes, store_and_forward=self.store_and_forward, keep_terminates=self.keep_terminates
        )
        wiring.connect(m, wiring.flipped(self.tx_ulpdu), tx.ulpdu)
        wiring.connect(m, tx.mpa, wiring.flipped(self.tx_mpa))
        wiring.connect(m, wiring.flipped(self.rx_mpa), rx.mpa)
        wiring.connect(m, rx.ulpdu, wiring.flipped(self.rx_ulpdu))
        couple(m, tx, rx)
        self._set(m, registers, tx, rx)
        m.d.comb += [
            registers.CAPABILITIES.lanes.eq(self.lanes),
            registers.CAPABILITIES.event_depth.eq(self.event_depth),
            registers.CAPABILITIES.store_and_forward.eq(bool(self.store_and_forward)),
            registers.STATE.tx.eq(tx.state),
            registers.STATE.rx.eq(rx.state),
            registers.STATE.fence_open.eq(tx.fence_open),
        ]
        config = registers.CONFIG
        report_rtrs(m, self.rtr, rx.event, role=config.role, model=config.model, rtr_send=config.rtr_send)
        # Transmit comes first, because it can report events in consecutive cycles; receive cannot.
        self._events(m, registers, [tx.event, rx.event])
        # FPDUs, octets and markers are counted at points that stream-mode packets bypass.
        sent, received = tx.counts, rx.counts
        self._count(m, registers, {
            "CYCLES": 1,
            "TX_FPDUS": sent.fpdu,
            "TX_OCTETS": sent.octets,
            "TX_MARKERS": sent.marker,
            "TX_STALLS": self.tx_mpa.valid & ~self.tx_mpa.ready,
            "RX_FPDUS": received.fpdu,
            "RX_OCTETS": Mux(received.fpdu, Cat(Const(0, 2), received.size), 0),
            "RX_MARKERS": Mux(received.fpdu, received.markers, 0),
            "RX_CRC_ERRORS": received.crc_error,
            "RX_STALLS": self.rx_mpa.valid & ~self.rx_mpa.ready,
        })
        return m

    def _set(self, m, registers, tx, rx):
        """Pass settings on. The maxima are set long before octets arrive, so limiting them may take some cycles."""
        config, control = registers.CONFIG, registers.CONTROL
        storable = min(self.store_and_forward or MAX_ULPDU, MAX_ULPDU)
        m.d.comb += [
            *(each.role.eq(config.role) for each in (tx.settings, rx.settings)),
            *(each.model.eq(config.model) for each in (tx.settings, rx.settings)),
            tx.settings.rtr_send.eq(config.rtr_send),
            tx.settings.rdmap.eq(config.rdmap),
            tx.settings.markers.eq(config.markers_tx),
            tx.settings.crc.eq(config.crc_tx),
            rx.settings.rtr_accept.eq(config.rtr_accept),
            rx.settings.permissive.eq(config.permissive),
            rx.markers.eq(config.markers_rx),
            rx.crc.eq(config.crc_rx),
            tx.stream_octets.eq(registers.TX_STREAM_OCTETS.value),
            rx.stream_octets.eq(registers.RX_STREAM_OCTETS.value),
            tx.enable.eq(control.tx_enable),
            rx.enable.eq(control.rx_enable),
            tx.start.eq(registers.TX_MPA_OFFSET.value[2:]),
            rx.start.eq(registers.RX_MPA_OFFSET.value[2:]),
        ]
        for direction, limit, register in (
            (tx, MAX_ULPDU, registers.TX_MAX_ULPDU),
            (rx, storable, registers.RX_MAX_ULPDU),
        ):
            asked = Signal(16, reset_less=True)
            over = Signal(reset_less=True)
            maximum = Signal(16, reset_less=True)
            m.d.sync += [
                asked.eq(register.value),
                over.eq(register.value > limit),
                maximum.eq(Mux(over, limit, asked)),
            ]
            m.d.comb += direction.maximum.eq(maximum)

    def _events(self, m, registers, given):
        m.submodules.events = events = EventQueue(len(given), self.event_depth)
        sources = events.i  # delayed by 1 cycle
        for source, event in zip(sources, given, strict=True):
            kind = Signal.like(event.kind)
            fields = Signal.like(event, reset_less=True)
            m.d.sync += [kind.eq(event.kind), fields.eq(event)]
            m.d.comb += [source.eq(fields), source.kind.eq(kind)]

        taken = Signal(48)
        oldest = events.o.payload
        m.d.comb += [
            self.irq.eq(events.o.valid),
            events.o.ready.eq(registers.EVENT.pop),
            registers.EVENT.kind.eq(Mux(events.o.valid, oldest.kind, 0)),
            registers.EVENT.detail.eq(Mux(events.o.valid, oldest.detail, 0)),
            registers.EVENT.value.eq(Mux(events.o.valid, oldest.value, 0)),
            Cat(registers.EVENT_OFFSET_LO.value, registers.EVENT_OFFSET_HI.value).eq(taken),
            registers.EVENT_STATUS.level.eq(events.level),
        ]
        with m.If(registers.EVENT.pop & events.o.valid):
            m.d.sync += taken.eq(oldest.offset)
        with m.If(events.lost):
            m.d.sync += registers.EVENT_STATUS.overflow.eq(1)
        with m.Elif(registers.EVENT_STATUS.clear_overflow):
            m.d.sync += registers.EVENT_STATUS.overflow.eq(0)
        for source in sources:
            with m.If(source.kind == EventKind.ERROR):
                m.d.sync += [
                    registers.ERROR.code.eq(_code(source.detail)),
                    registers.ERROR.cause.eq(source.detail),
                    registers.ERROR.value.eq(source.value),
                    Cat(registers.ERROR_OFFSET_LO.value, registers.ERROR_OFFSET_HI.value).eq(source.offset),
                ]

    def _count(self, m, registers, increments):
        """Count in the registers, 1 cycle late; the high half of a wide counter takes its carry 1 cycle later."""
        for name, increment in increments.items():
            step = Signal.like(Value.cast(increment), name=f"{name}_step")
            m.d.sync += step.eq(increment)
            counter = registers.ports.get((name, "value"))
            if counter is None:
                count(m, *(registers.ports[f"{name}_{half}", "value"] for half in ("LO", "HI")), step)
            else:
                m.d.sync += counter.eq(counter + step)


def _code(cause):
    """Return the MPA error code of a Cause, as logic."""
    return Array(Const(each.code, 8) for each in Cause)[cause]
