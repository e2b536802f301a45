"""The data path of many connections."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, Packet, RxUlpdu, Train, TxUlpdu
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Clear, block_ram, connection_shape
from open_rnic.rtl.lib.stream import Fifo, LateFifo
from open_rnic.rtl.mpa.counter_sums import CounterSums
from open_rnic.rtl.mpa.rtr import Rtrs, report_rtrs
from open_rnic.rtl.mpa.rx.fpdu_receiver import FpduReceiver
from open_rnic.rtl.mpa.rx.rtr_detector import RtrDetector
from open_rnic.rtl.mpa.rx.store_and_forward import StoreAndForward, check_store
from open_rnic.rtl.mpa.settings import RtrSettings
from open_rnic.rtl.mpa.shared_registers import NumberedEvent, SharedRegisters
from open_rnic.rtl.mpa.tx.fence import Fence, Passes
from open_rnic.rtl.mpa.tx.framer import frame
from open_rnic.rtl.registers import BY_NAME, MAX_ULPDU, DirectionState, EventKind, Model, Role, Rtr
from open_rnic.rtl.registers.bus import paged_bus

__all__ = ["RxSettings", "SharedMpa", "TxSettings"]

_DEPTH = 16  # events that wait for the registers
_SPARE = 8  # places for those of packets that have been taken

# The settings that each block needs.
_READERS = {
    "rx_settings": ("CONTROL", "CONFIG", "RX_STREAM_OCTETS", "RX_MPA_OFFSET", "RX_MAX_ULPDU"),
    "tx_settings": ("CONTROL", "TX_STREAM_OCTETS"),
    "given": ("CONFIG", "TX_MAX_ULPDU"),
    "fence": ("CONFIG",),
    "inserter": ("TX_MPA_OFFSET",),
    "train": ("CONFIG", "RX_MAX_ULPDU"),
    "detector": ("CONFIG", "RX_MPA_OFFSET"),
    "rtr": ("CONFIG",),
}


class RxSettings(data.Struct):
    """The settings of a connection that the logic before receive needs, as in its registers.

    ``stream_octets`` and ``enable`` are those of receive. ``start`` is RX_MPA_OFFSET in lanes, modulo the interval of
    markers; ``maximum`` is the largest ULPDU_Length, and that is at most what the data path stores. With ``rtr_send``,
    a first FPDU with a Send of no octets is an RTR.
    """

    stream_octets: 32
    enable: 1
    markers: 1
    rtr_send: 1
    start: range(INTERVAL)
    maximum: 16


class TxSettings(data.Struct):
    """The settings of a connection that the logic around transmit needs, as in its registers."""

    stream_octets: 32
    enable: 1


def _config(word, name):
    """The field ``name`` of CONFIG."""
    field = BY_NAME["CONFIG"][name]
    return word[field.lsb:field.lsb + field.width]


def _gate(m: Module, name: str, i, o, holds):
    """Connect ``i`` and ``o``; while ``holds`` is 1, no packet begins. Returns whether a packet has begun."""
    inside = Signal(name=f"{name}_inside")  # a packet has been offered, and not ended
    passes = inside | ~holds
    m.d.comb += [o.valid.eq(i.valid & passes), i.ready.eq(o.ready & passes), o.payload.eq(i.payload)]
    with m.If(o.valid):
        m.d.sync += inside.eq(~(o.ready & o.payload.last))
    return inside


class Reports(wiring.Signature):
    """What has happened to an FPDU. For one cycle.

    Members
    -------
    fails : Out, 1 bit
        Receive of connection ``received_of`` has ended with an error.
    consumed : Out, 1 bit
        A good FPDU of it has been consumed: an RTR, or the response to one.
    made : Out, 1 bit
        An FPDU of the device's own, of connection ``made_of``, has passed the fence.
    received_of, made_of : Out, numbers of connections
    """

    def __init__(self, connections: int):
        number = connection_shape(connections)
        super().__init__({
            "received_of": Out(number), "fails": Out(1), "consumed": Out(1), "made_of": Out(number), "made": Out(1),
        })  # fmt: skip


class SharedMpa(wiring.Component):
    """Both directions of MPA for many connections, in MPA mode, with a page of registers for each.

    ::

        tx_ulpdu ▸ Fence ▸ FpduFramer ▸ MarkerInserter ▸ CrcAppender ▸ tx_fpdu
                     ▴ RTR, errors
        rx_ulpdu ◂ StoreAndForward ◂ RtrDetector ◂ FpduReceiver ◂ rx_fpdus

    The blocks are those of :class:`.MpaDatapath`, with :class:`.Rows` for what lasts from one FPDU to the next. Octets
    of stream mode pass outside: logic there counts them by the settings, and reports changes of mode as events. No
    connection waits for another one longer than for the packet, or the visit of the fence, that has begun; unless
    ULPDUs are given to a shut fence, or FPDUs without room for their ULPDUs.

    Throughput: each direction transfers a beat in every cycle. At a change of connection, transmit loses 2 cycles and
    receive 3, of which an FPDU's own octets cover 1.

    Parameters
    ----------
    connections : number of connections, at least 2
    lanes, store_and_forward, keep_terminates : see :class:`.MpaDatapath`

    Members
    -------
    tx_ulpdu : In, stream of :class:`.TxUlpdu`; from the host. Only ULPDUs that ``passable`` lets pass
    tx_fpdu : Out, stream of :class:`.Packet` with ``connection``; to the peers, a packet for each FPDU
    rx_fpdus : In, stream of :class:`.Train`; from the peers
    rx_ulpdu : Out, stream of :class:`.RxUlpdu`; good ULPDUs
    tx_mpa : In, 1 bit for each connection; transmit is in MPA mode
    room : In, 1 bit for each connection; for an FPDU of the device's own, besides all that is on its way
    passable : Out, array of 2 :class:`.Passes`
    bus, irq : In, :class:`.RegisterBus`; Out, 1 bit for each connection; see :class:`.SharedRegisters`
    rx_settings : Out, ``connection`` (In), ``settings``, :class:`RxSettings`, and ``failed``: its FPDUs are discarded
    tx_settings : Out, ``connection`` (In) and ``settings``, :class:`TxSettings`
    reports : Out, :class:`Reports`
    stream_event : In, stream of :class:`.NumberedEvent`; RX_MPA; TX_MPA, before ``tx_mpa`` is 1; stream mode's errors
    directions : Out, ``connection``, ``tx`` and ``rx`` (In): its :class:`.DirectionState`, as known outside
    resets : Out, 1 bit; a connection is about to be reset: the logic around begins nothing new
    idle : In, 1 bit; nothing is on its way in front of the data path or behind it; with ``resets``, nothing new enters
    clear : Out, :class:`.Clear`; ``tx_mpa`` is 0 in the next cycle. After power-up, all connections are cleared
    rtr : Out, :class:`.Rtrs`

    """

    def __init__(self, connections: int, lanes: int = 1, *, store_and_forward: int = 2048,
                 keep_terminates: bool = False):  # fmt: skip
        if connections < 2:
            raise ValueError(f"a data path is shared by at least 2 connections, not {connections!r}")
        check_lanes(lanes)
        check_store(store_and_forward)
        self.connections = connections
        self.lanes = lanes
        self.store_and_forward = store_and_forward
        self.keep_terminates = keep_terminates
        number = connection_shape(connections)
        super().__init__({
            "tx_ulpdu": In(stream.Signature(TxUlpdu(lanes, connections))),
            "tx_fpdu": Out(stream.Signature(Packet(lanes, connection=number))),
            "rx_fpdus": In(stream.Signature(Train(lanes, connections))),
            "rx_ulpdu": Out(stream.Signature(RxUlpdu(lanes, connections))),
            "tx_mpa": In(connections),
            "room": In(connections),
            "passable": Out(Passes(connections)).array(2),
            "bus": In(paged_bus(connections)),
            "irq": Out(connections),
            "rx_settings": Out(wiring.Signature({
                "connection": In(number), "settings": Out(RxSettings), "failed": Out(1),
            })),
            "tx_settings": Out(wiring.Signature({"connection": In(number), "settings": Out(TxSettings)})),
            "reports": Out(Reports(connections)),
            "stream_event": In(stream.Signature(NumberedEvent(connections))),
            "directions": Out(wiring.Signature({
                "connection": Out(number), "tx": In(DirectionState), "rx": In(DirectionState),
            })),
            "resets": Out(1),
            "idle": In(1),
            "clear": Out(Clear(connections)),
            "rtr": Out(Rtrs(connections)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = SharedRegisters(
            self.connections,
            self.lanes,
            sources=3,
            counters=3,
            limits={"TX_MAX_ULPDU": MAX_ULPDU, "RX_MAX_ULPDU": min(self.store_and_forward, MAX_ULPDU)},
            readers=_READERS,
        )
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        wiring.connect(m, wiring.flipped(self.stream_event), registers.events[2])
        m.d.comb += [
            self.irq.eq(registers.irq), self.resets.eq(registers.resets), Value.cast(self.clear).eq(registers.clear),
        ]
        self._show_settings(m, registers)
        fence, tx_idle = self._transmit(m, registers)
        detector, rx_idle = self._receive(m, registers)
        self._couple(m, fence, detector)
        self._report_rtrs(m, registers, detector)
        for inner, outer in zip(fence.passable, self.passable, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))
        m.d.comb += [
            registers.idle.eq(self.idle & tx_idle & rx_idle),
            self.directions.connection.eq(registers.state_of),
            fence.state.connection.eq(registers.state_of),
            detector.failed_of[0].eq(registers.state_of),
            registers.tx_state.eq(Mux(fence.state.stopped, DirectionState.STOPPED, self.directions.tx)),
            registers.rx_state.eq(Mux(detector.failed[0], DirectionState.STOPPED, self.directions.rx)),
            registers.open.eq(fence.state.open),
            detector.failed_of[1].eq(self.rx_settings.connection),
            self.rx_settings.failed.eq(detector.failed[1]),
        ]
        return m

    def _show_settings(self, m, registers):
        words, settings, control = registers.rx_settings.words, self.rx_settings.settings, BY_NAME["CONTROL"]
        role, model, permissive = (_config(words.CONFIG, name) for name in ("role", "model", "permissive"))
        accepts_send = _config(words.CONFIG, "rtr_accept")[Rtr.SEND - 1]
        m.d.comb += [
            registers.rx_settings.connection.eq(self.rx_settings.connection),
            settings.stream_octets.eq(words.RX_STREAM_OCTETS),
            settings.enable.eq(words.CONTROL[control["rx_enable"].lsb]),
            settings.markers.eq(_config(words.CONFIG, "markers_rx")),
            settings.rtr_send.eq(
                (role == Role.RESPONDER) & (model == Model.PEER_TO_PEER) & (accepts_send | permissive)
            ),
            settings.start.eq(words.RX_MPA_OFFSET[2:]),
            settings.maximum.eq(words.RX_MAX_ULPDU),
            registers.tx_settings.connection.eq(self.tx_settings.connection),
            self.tx_settings.settings.stream_octets.eq(registers.tx_settings.words.TX_STREAM_OCTETS),
            self.tx_settings.settings.enable.eq(registers.tx_settings.words.CONTROL[control["tx_enable"].lsb]),
        ]

    def _events(self, m, block, name, to):
        """Queue the events of a block for the registers; returns whether there is room for those of a packet."""
        m.submodules[f"{name}_events"] = queue = LateFifo(
            to.payload.shape(), _DEPTH, spare=_SPARE, attrs=block_ram(self.connections)
        )
        m.d.comb += [
            queue.i.valid.eq(block.event.kind != EventKind.NONE),
            *(queue.i.payload[field].eq(block.event[field]) for field in ("kind", "detail", "value", "offset")),
            queue.i.payload.connection.eq(block.event_of),
        ]
        wiring.connect(m, queue.o, to)
        return queue.spare

    def _count(self, m, name, to, adds, connection, *, rx, **fields):
        """Add up what the registers count; returns whether all of it has reached them.

        At 1 lane, an FPDU has several beats; at others, it may have one. The increments are added a cycle later, as
        the end of an FPDU is known late in its cycle.
        """
        bits = {field: len(Value.cast(value)) for field, value in fields.items()}
        dense = self.lanes > 1
        m.submodules[f"{name}_counts"] = tally = CounterSums(self.connections, rx=rx, fields=bits, dense=dense)
        m.d.sync += [
            tally.adds.eq(adds),
            tally.connection.eq(connection),
            *(tally.amounts[field].eq(value) for field, value in fields.items()),
        ]
        wiring.connect(m, tally.o, to)
        return tally.idle & ~adds

    def _stalls(self, m, name, packets, ends):
        """Return the number of cycles in which the packet of the stream ``packets`` has been stalled."""
        stalls = Signal(16, name=f"{name}_stalls")
        with m.If(ends):
            m.d.sync += stalls.eq(0)
        with m.Elif(packets.valid & ~packets.ready & ~stalls.all()):
            m.d.sync += stalls.eq(stalls + 1)
        return stalls

    def _transmit(self, m, registers):
        lanes, connections = self.lanes, self.connections
        m.submodules.fence = fence = Fence(lanes, connections)
        inserter, fpdus = frame(m, fence.o, lanes, connections)
        wiring.connect(m, fpdus, wiring.flipped(self.tx_fpdu))

        config, given = registers.fence.words.CONFIG, registers.given.words
        has_places = Signal()  # for events
        holds = Signal()
        m.d.comb += [
            registers.given.connection.eq(self.tx_ulpdu.payload.connection),
            registers.fence.connection.eq(fence.connection),
            registers.inserter.connection.eq(inserter.connection),
            *(fence.settings[name].eq(_config(config, name)) for name in ("role", "model", "rtr_send", "rdmap")),
            fence.settings.markers.eq(_config(config, "markers_tx")),
            fence.settings.crc.eq(_config(config, "crc_tx")),
            fence.rdmap_next.eq(_config(given.CONFIG, "rdmap")),
            fence.maximum.eq(given.TX_MAX_ULPDU),
            fence.mpa.eq(self.tx_mpa),
            fence.room.eq(Mux(holds, 0, self.room)),
            inserter.start.eq(registers.inserter.words.TX_MPA_OFFSET[2:]),
            Value.cast(fence.clear).eq(self.clear),
            Value.cast(inserter.clear).eq(self.clear),
            holds.eq(~has_places | (self.resets & self.idle)),
        ]
        begun = _gate(m, "tx", self.tx_ulpdu, fence.i, holds)
        m.d.sync += has_places.eq(self._events(m, fence, "tx", registers.events[0]))
        return fence, fence.idle & ~begun & self._count_sent(m, registers, fence, inserter)

    def _count_sent(self, m, registers, fence, inserter):
        """Count the FPDUs that leave. Return whether all that have passed the fence have left, and are counted."""
        lanes = self.lanes
        # Markers are inserted before the FPDU leaves.
        leaving, leaves = self.tx_fpdu.payload, self.tx_fpdu.valid & self.tx_fpdu.ready
        ends = Signal()
        octets = Signal(17)
        inserted = Signal(8)
        # FPDUs that have passed the fence, and not left: one in each beat.
        most = 16 if lanes == 1 else 32 if lanes <= AT_ONCE else 64
        m.submodules.markers = markers = Fifo(8, most // 2 if lanes == 1 else most)
        within = Signal(range(most))
        passes = fence.o.valid & fence.o.ready & fence.o.payload.last
        m.d.comb += [
            ends.eq(leaves & leaving.last),
            markers.i.valid.eq(inserter.placed),
            markers.i.payload.eq(inserted + inserter.inserted),
            markers.o.ready.eq(ends),
        ]
        m.d.sync += within.eq(within + passes - ends)
        with m.If(inserter.placed):
            m.d.sync += inserted.eq(0)
        with m.Elif(inserter.inserted):
            m.d.sync += inserted.eq(inserted + 1)
        with m.If(leaves):
            m.d.sync += octets.eq(Mux(leaving.last, 0, octets + 4 * lanes))
        counted = self._count(
            m, "tx", registers.counts[0], ends, leaving.connection, rx=False, fpdus=Const(1),
            markers=markers.o.payload, octets=(octets + leaving.octets)[:17],
            stalls=self._stalls(m, "tx", self.tx_fpdu, ends),
        )  # fmt: skip
        return (within == 0) & counted

    def _receive(self, m, registers):
        lanes, connections = self.lanes, self.connections
        m.submodules.receiver = receiver = FpduReceiver(lanes, connections)
        m.submodules.detector = detector = RtrDetector(lanes, connections)
        m.submodules.store = store = StoreAndForward(
            lanes, self.store_and_forward, keep_terminates=self.keep_terminates, connections=connections
        )
        wiring.connect(m, detector.o, store.i)
        wiring.connect(m, store.o, wiring.flipped(self.rx_ulpdu))

        train, config = registers.train.words, registers.detector.words.CONFIG
        m.d.comb += [
            registers.train.connection.eq(self.rx_fpdus.payload.connection),
            registers.detector.connection.eq(detector.connection),
            receiver.markers.eq(_config(train.CONFIG, "markers_rx")),
            receiver.enable.eq(_config(train.CONFIG, "crc_rx")),
            receiver.maximum.eq(train.RX_MAX_ULPDU),
            *(detector.settings[name].eq(_config(config, name)) for name in RtrSettings.as_shape().members),
            detector.start.eq(registers.detector.words.RX_MPA_OFFSET & ~3),
            Value.cast(detector.clear).eq(self.clear),
        ]

        trains, ulpdus = self.rx_fpdus, detector.i
        ends = Signal()
        m.d.comb += ends.eq(trains.valid & trains.ready & trains.payload.last)
        stalls = self._stalls(m, "rx", trains, ends)
        stalls_counted = self._count(
            m, "train", registers.counts[2], ends & (stalls != 0), trains.payload.connection, rx=True, stalls=stalls
        )
        good = detector.report.good
        counted = self._count(
            m, "rx", registers.counts[1], good | detector.crc_error, detector.connection, rx=True, fpdus=good,
            octets=Mux(good, Cat(Const(0, 2), detector.size), 0), markers=Mux(good, detector.markers, 0),
            crc_errors=detector.crc_error,
        )  # fmt: skip
        has_places = Signal()
        m.d.sync += has_places.eq(self._events(m, detector, "rx", registers.events[1]))
        begun = _gate(m, "rx", trains, receiver.i, self.resets & self.idle)
        _gate(m, "checked", receiver.o, ulpdus, ~has_places)
        return detector, receiver.idle & detector.idle & store.idle & ~begun & counted & stalls_counted

    def _couple(self, m, fence, detector):
        """Report the first good FPDU, RTRs and errors to the fence, 1 cycle later.

        Also report, to the logic around, the FPDUs that pass only one end of the data path.
        """
        received, sent = detector.event, fence.event
        is_consumed = (received.kind == EventKind.RTR_RECEIVED) & (received.detail != Rtr.NONE)
        m.d.comb += [
            self.reports.received_of.eq(detector.event_of),
            self.reports.fails.eq(received.kind == EventKind.ERROR),
            self.reports.consumed.eq(is_consumed | (received.kind == EventKind.RESPONSE_RECEIVED)),
            self.reports.made_of.eq(fence.event_of),
            self.reports.made.eq((sent.kind == EventKind.RTR_SENT) | (sent.kind == EventKind.RESPONSE_SENT)),
        ]
        may_open = Signal()  # an FPDU that may open the fence has come
        m.d.sync += [
            may_open.eq((detector.report.good & detector.first) | detector.report.rtr),
            fence.report.eq(detector.report),
            fence.sink.eq(detector.sink),
        ]
        m.d.comb += [
            fence.reports.eq(may_open | self.reports.fails),
            fence.reports_of.eq(detector.event_of),
            detector.failed_of[2].eq(fence.connection),
            fence.failed.eq(detector.failed[2]),
            fence.state.asked_of.eq(detector.connection),
            detector.asked.eq(fence.state.asked),
        ]

    def _report_rtrs(self, m, registers, detector):
        config = {name: _config(registers.rtr.words.CONFIG, name) for name in ("role", "model", "rtr_send")}
        m.d.comb += registers.rtr.connection.eq(self.rtr.sends_of)
        m.d.sync += self.rtr.connection.eq(detector.event_of)
        report_rtrs(m, self.rtr, detector.event, **config)
