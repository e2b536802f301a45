"""The data path of one connection: the top of the RTL."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .bus import RegisterBus
from .checker import FpduChecker
from .chunks import ChunkPacker
from .crc import CrcAppender
from .delineator import Delineator
from .events import EventQueue, check_depth
from .fence import Fence
from .framer import FpduFramer
from .markers import MarkerInserter
from .register_bank import RegisterBank
from .registers import IDENTITY, MAX_ULPDU, VERSION, Cause, DirectionState, EventKind, Verdict
from .rtr import RtrDetector
from .store import StoreAndForward, check_store
from .stream import Buffer, Packet, RxUlpdu, TxUlpdu, check_lanes
from .stream_mode import RxModeSwitch, TxModeSwitch

__all__ = ["MpaDatapath"]


class MpaDatapath(wiring.Component):
    """MPA for one connection, both directions, with its registers.

    ::

        tx_ulpdu ▸ TxModeSwitch ▸ Fence ▸ FpduFramer ▸ MarkerInserter ▸ CrcAppender ▸ tx_mpa
                                    ▴ RTR
        rx_ulpdu ◂ RtrDetector ◂ FpduChecker ◂ Delineator ◂ ChunkPacker ◂ RxModeSwitch ◂ rx_mpa

    In MPA mode each direction moves a full beat, or the end of an FPDU, in every cycle.

    Parameters
    ----------
    lanes : width of the streams in 32-bit lanes: 1, 2, 4, 8 or 16
    event_depth : entries of the event FIFO, 2 to 255
    store_and_forward : octets of memory, a power of 2, in which received ULPDUs wait for their verdict, so that bad
        ones are not delivered at all; a longer ULPDU_Length is error 3, whatever RX_MAX_ULPDU says; 0: they are
        delivered as they come, and the verdict on the last beat says that they were bad

    Members
    -------
    tx_ulpdu : from the host: stream-mode packets, then ULPDUs
    tx_mpa : to the peer: stream-mode packets, then a packet for each FPDU
    rx_mpa : from the peer: octets of the stream, in chunks cut anywhere
    rx_ulpdu : to the host: stream-mode chunks (verdict STREAM), then ULPDUs
    bus : registers (:mod:`rtl.registers`)
    interrupt : an event is waiting

    """

    def __init__(self, lanes: int = 4, *, event_depth: int = 16, store_and_forward: int = 0):
        check_lanes(lanes)
        check_depth(event_depth)
        if store_and_forward:
            check_store(store_and_forward)
        self.lanes = lanes
        self.event_depth = event_depth
        self.store_and_forward = store_and_forward
        super().__init__({
            "tx_ulpdu": In(stream.Signature(TxUlpdu(lanes))),
            "tx_mpa": Out(stream.Signature(Packet(lanes))),
            "rx_mpa": In(stream.Signature(Packet(lanes))),
            "rx_ulpdu": Out(stream.Signature(RxUlpdu(lanes))),
            "bus": In(RegisterBus()),
            "interrupt": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterBank()
        reset = Signal()
        m.d.comb += [reset.eq(registers.CONTROL.reset), registers.reset.eq(reset)]
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        # All but the register bank, which has an access to finish, starts anew with a connection.
        m.submodules.connection = ResetInserter(reset)(self._connection(registers))
        return m

    def _connection(self, registers):
        m = Module()
        lanes = self.lanes

        m.submodules.tx_switch = tx_switch = TxModeSwitch(lanes)
        m.submodules.fence = fence = Fence(lanes)
        m.submodules.framer = framer = FpduFramer(lanes)
        m.submodules.inserter = inserter = MarkerInserter(lanes)
        m.submodules.appender = appender = CrcAppender(lanes)
        wiring.connect(m, wiring.flipped(self.tx_ulpdu), tx_switch.i)
        wiring.connect(m, tx_switch.mpa, fence.i)
        wiring.connect(m, fence.o, framer.i)
        wiring.connect(m, framer.o, inserter.i)
        wiring.connect(m, inserter.o, appender.i)
        m.submodules.sent = sent = Buffer(Packet(lanes))
        self._either(m, tx_switch, appender.o, sent.i)
        wiring.connect(m, sent.o, wiring.flipped(self.tx_mpa))

        m.submodules.rx_switch = rx_switch = RxModeSwitch(lanes)
        m.submodules.packer = packer = ChunkPacker(lanes)
        m.submodules.delineator = delineator = Delineator(lanes)
        m.submodules.checker = checker = FpduChecker(lanes)
        m.submodules.detector = detector = RtrDetector(lanes)
        wiring.connect(m, wiring.flipped(self.rx_mpa), rx_switch.i)
        wiring.connect(m, rx_switch.mpa, packer.i)
        wiring.connect(m, packer.o, delineator.i)
        wiring.connect(m, delineator.o, checker.i)
        wiring.connect(m, checker.o, detector.i)
        ulpdus = detector.o
        if self.store_and_forward:
            m.submodules.store = store = StoreAndForward(lanes, self.store_and_forward)
            wiring.connect(m, ulpdus, store.i)
            ulpdus = store.o
        self._either(m, rx_switch, ulpdus, wiring.flipped(self.rx_ulpdu))

        # What receive tells transmit, and transmit receive.
        m.d.comb += [getattr(fence, name).eq(getattr(detector, name))
                     for name in ("good", "rtr", "respond", "sink", "failed")]
        m.d.comb += detector.asked.eq(fence.asked)

        # What the host has set.
        config, control = registers.CONFIG, registers.CONTROL
        storable = min(self.store_and_forward or MAX_ULPDU, MAX_ULPDU)
        m.d.comb += [
            tx_switch.octets.eq(registers.TX_STREAM_OCTETS.value),
            tx_switch.enable.eq(control.tx_enable),
            *(getattr(fence, name).eq(getattr(config, name)) for name in ("role", "model", "rtr_send", "rdmap")),
            fence.mpa.eq(tx_switch.state == DirectionState.MPA),
            fence.maximum.eq(_at_most(MAX_ULPDU, registers.TX_MAX_ULPDU.value)),
            inserter.enable.eq(config.markers_tx),
            inserter.start.eq(registers.TX_MPA_OFFSET.value[2:]),
            appender.enable.eq(config.crc_tx),
            rx_switch.octets.eq(registers.RX_STREAM_OCTETS.value),
            rx_switch.enable.eq(control.rx_enable),
            packer.markers.eq(config.markers_rx),
            packer.start.eq(registers.RX_MPA_OFFSET.value[2:]),
            delineator.maximum.eq(_at_most(storable, registers.RX_MAX_ULPDU.value)),
            checker.enable.eq(config.crc_rx),
            *(getattr(detector, name).eq(getattr(config, name))
              for name in ("role", "model", "rtr_accept", "permissive")),
            detector.start.eq(registers.RX_MPA_OFFSET.value & ~3),
        ]

        # What the host reads.
        state = registers.STATE
        m.d.comb += [
            registers.CAPABILITIES.lanes.eq(lanes),
            registers.CAPABILITIES.event_depth.eq(self.event_depth),
            registers.CAPABILITIES.store_and_forward.eq(bool(self.store_and_forward)),
            registers.IDENTITY.value.eq(IDENTITY),
            Cat(registers.VERSION.minor, registers.VERSION.major).eq(VERSION),
            state.tx.eq(Mux(fence.stopped, DirectionState.STOPPED, tx_switch.state)),
            state.rx.eq(Mux(detector.failed, DirectionState.STOPPED, rx_switch.state)),
            state.fence_open.eq(fence.open),
        ]
        # Transmit, which can have events in cycles that follow each other, does not wait for receive, which cannot.
        self._events(m, registers, [tx_switch.event, fence.event, rx_switch.event, detector.event])
        # Counted where stream-mode packets do not pass.
        leaves = appender.o.valid & appender.o.ready
        leaving = appender.o.payload
        received = Cat(Const(0, 2), detector.size)
        self._count(m, registers, {
            "CYCLES": 1,
            "TX_FPDUS": leaves & leaving.last,
            "TX_OCTETS": Mux(leaves, Mux(leaving.last, leaving.octets, 4 * lanes), 0),
            "TX_MARKERS": inserter.inserted,
            "TX_STALLS": self.tx_mpa.valid & ~self.tx_mpa.ready,
            "RX_FPDUS": detector.good,
            "RX_OCTETS": Mux(detector.good, received, 0),
            "RX_MARKERS": Mux(detector.good, detector.markers, 0),
            "RX_CRC_ERRORS": detector.crc_error,
            "RX_STALLS": self.rx_mpa.valid & ~self.rx_mpa.ready,
        })
        return m

    def _either(self, m, switch, packets, to):
        """Stream-mode packets go to ``to`` first, then ``packets``: when one of them has a beat, the other has none."""
        in_mpa = Signal()  # a cycle late, which is sooner than the first FPDU
        m.d.sync += in_mpa.eq(switch.state == DirectionState.MPA)
        m.d.comb += [
            to.valid.eq(packets.valid | switch.stream.valid),
            packets.ready.eq(to.ready),
            switch.stream.ready.eq(to.ready),
        ]
        with m.If(in_mpa):
            m.d.comb += to.payload.eq(packets.payload)
        with m.Else():
            m.d.comb += [to.payload[field].eq(switch.stream.payload[field]) for field in Packet(self.lanes).members]
            if "verdict" in to.payload.shape().members:
                m.d.comb += to.payload.verdict.eq(Verdict.STREAM)

    def _events(self, m, registers, sources):
        m.submodules.events = events = EventQueue(len(sources), self.event_depth)
        m.d.comb += [queued.eq(source) for queued, source in zip(events.i, sources, strict=True)]

        taken = Signal(48)
        oldest = events.o.payload
        m.d.comb += [
            self.interrupt.eq(events.o.valid),
            events.o.ready.eq(registers.EVENT.pop),
            *(getattr(registers.EVENT, name).eq(Mux(events.o.valid, oldest[name], 0))
              for name in ("kind", "detail", "value")),
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
        for name, increment in increments.items():
            if hasattr(registers, name):
                counter = getattr(registers, name).value
            else:
                counter = Cat(getattr(registers, f"{name}_LO").value, getattr(registers, f"{name}_HI").value)
            m.d.sync += counter.eq(counter + increment)


def _at_most(limit, value):
    return Mux(value > limit, limit, value)


def _code(cause):
    """The MPA error code for a Cause, as logic."""
    return Array(Const(each.code, 8) for each in Cause)[cause]
