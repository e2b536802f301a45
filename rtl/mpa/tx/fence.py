"""The MPA fence: decides when ULPDUs may be sent, and which (RFC 5044 §7.1.2, RFC 6581 §5)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.events import Event, report
from open_rnic.rtl.layouts import SINK, Packet, TxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import ReadyBuffer
from open_rnic.rtl.mpa.tx.rtr_generator import RtrGenerator, Ulpdu
from open_rnic.rtl.opcodes import Opcode
from open_rnic.rtl.registers import Cause, EventKind, Model, Role, Rtr

__all__ = ["Fence"]


class Fence(wiring.Component):
    """Holds the host's ULPDUs back until the connection allows them, and sends the device's own ULPDUs before them.

    The fence lies before the framer: the ULPDUs of the device must be the first in the stream, and the places of the
    markers in later FPDUs depend on them.

    ======================== =====================================================================
    role, model              the fence opens when ``mpa`` is 1, and
    ======================== =====================================================================
    initiator, client-server at once
    initiator, peer-to-peer  its own RTR has been sent
    responder, client-server a good FPDU has been received (RFC 5044 §7.1.2)
    responder, peer-to-peer  an RTR has been received; a Read RTR is answered first (RFC 5040 §5.2.1)
    ======================== =====================================================================

    ULPDUs wait at a shut fence. A ULPDU over ``maximum`` is an error, and is discarded as a whole. A ULPDU whose length
    differs from the announced one is an error, too; as most of it has been sent by then, ``abort`` invalidates its
    FPDU. After an error of transmit, or with ``rdmap`` an error of receive, a shut fence stays shut. With ``rdmap`` one
    Terminate still passes, and all other ULPDUs are discarded; nothing follows a Terminate (RFC 5040 §5.4). Without
    CRCs an invalid FPDU is one that does not end, so nothing follows it.

    Latency: 2 cycles; 3 cycles for events. The first stage examines a beat as far as that does not depend on the
    connection's state, the second one decides. Throughput: one beat per cycle.

    Members
    -------
    i : In, stream of :class:`.TxUlpdu`
        ULPDUs from the host.
    o : Out, stream of :class:`.Packet` with ``length`` (16 bits) and ``abort`` (1 bit)
        ULPDUs for the framer. ``abort`` on the last beat: the FPDU must be invalid.
    mpa : In, 1 bit
        Transmit is in MPA mode.
    role, model : In, :class:`.Role`, :class:`.Model`
    rtr_send : In, :class:`.Rtr`
    rdmap, crc : In, 1 bit
        As in register CONFIG.
    maximum : In, 16 bits
        The longest ULPDU that may be sent, in octets.
    good, rtr, respond, failed : In, 1 bit
    sink : In, 96 bits
        From :class:`.RtrDetector`.
    open : Out, 1 bit
        The fence is open.
    asked : Out, 1 bit
        A Read RTR has been sent.
    rtr_sent : Out, 1 bit
        The RTR ``rtr_send`` has been sent. A Send RTR has used MSN 1 of queue 0, a Read RTR has used MSN 1 of queue 1.
    stopped : Out, 1 bit
        Nothing more is sent.
    event : Out, :class:`.Event`
        FENCE_OPEN, RTR_SENT, RESPONSE_SENT, TERMINATE_SENT, ERROR.
    """

    class State(data.Struct):
        """The state that lasts from one ULPDU to the next."""

        granted: 1  # receive has reported the FPDU that opens the fence
        rtr_left: 1  # the RTR has been sent
        responds: 1  # a Read Response must be sent
        opened: 1  # and stays so
        failed: 1
        terminated: 1  # nothing more is sent

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(TxUlpdu(lanes))),
            "o": Out(stream.Signature(Packet(lanes, length=16, abort=1))),
            "mpa": In(1),
            "role": In(Role),
            "model": In(Model),
            "rtr_send": In(Rtr),
            "rdmap": In(1),
            "crc": In(1),
            "maximum": In(16),
            "good": In(1),
            "rtr": In(1),
            "respond": In(1),
            "sink": In(SINK),
            "failed": In(1),
            "open": Out(1),
            "asked": Out(1),
            "rtr_sent": Out(1),
            "stopped": Out(1),
            "event": Out(Event),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        m.submodules.examined = examined = ReadyBuffer(_Examined(lanes))
        m.submodules.generator = own = RtrGenerator(lanes)
        m.submodules.decided = decided = ReadyBuffer(Packet(lanes, length=16, abort=1))
        self._examine(m, self.i, examined.i)
        wiring.connect(m, decided.o, wiring.flipped(self.o))
        given, i, o = examined.o, examined.o.payload, decided.i.payload
        state = Signal(self.State)

        peer_to_peer = self.model == Model.PEER_TO_PEER
        initiator = self.role == Role.INITIATOR
        sends_rtr = initiator & peer_to_peer & (self.rtr_send != Rtr.NONE)
        kept_sink = Signal(SINK, reset_less=True)
        opens = Signal()  # in this cycle
        granted = Signal()
        wants_own = Signal()  # the device has something to send before the host
        m.d.comb += [
            granted.eq(Mux(initiator, ~peer_to_peer | state.rtr_left, state.granted)),
            opens.eq(self.mpa & granted & ~state.responds & ~state.failed & ~state.opened),
            wants_own.eq(self.mpa & ~state.failed & ((sends_rtr & ~state.rtr_left) | state.responds)),
            self.open.eq(state.opened),
            self.rtr_sent.eq(state.rtr_left),
            self.asked.eq(state.rtr_left & (self.rtr_send == Rtr.READ)),
            self.stopped.eq(state.terminated | (state.failed & ~self.rdmap)),
            own.sink.eq(kept_sink),
        ]
        with m.If(state.responds):
            m.d.comb += own.kind.eq(Ulpdu.RESPONSE)
        with m.Else():
            m.d.comb += own.kind.eq(self.rtr_send)
        with m.If(~initiator & Mux(peer_to_peer, self.rtr, self.good)):
            m.d.sync += [state.granted.eq(1), state.responds.eq(self.respond & peer_to_peer)]
        with m.If(self.respond):
            m.d.sync += kept_sink.eq(self.sink)
        with m.If(self.failed & self.rdmap):
            m.d.sync += state.failed.eq(1)

        # A ULPDU is sent or discarded as a whole; its first beat decides.
        consumes = Signal()  # beats are taken: the fence is open, or they are discarded
        makes_own = Signal()  # a ULPDU of the device is being sent
        inside = Signal()  # a ULPDU has begun and not ended
        keeps = Signal()  # the beat is sent
        keeps_on = Signal()  # the previous beat was sent
        terminates = Signal()  # the ULPDU is a Terminate
        announced = Signal(16, reset_less=True)  # its length
        length = Mux(inside, announced, i.length)
        moves = given.valid & given.ready
        m.d.sync += consumes.eq((state.opened | state.failed | state.terminated) & ~makes_own)
        with m.If(inside):
            m.d.comb += keeps.eq(keeps_on)
        with m.Else():
            m.d.comb += keeps.eq(~state.terminated & ~i.too_long & (i.terminate | ~state.failed))

        event = Signal(Event)
        happened = Signal(Event)
        refused = Signal(16, reset_less=True)
        m.d.sync += [happened.eq(event), refused.eq(length)]
        m.d.comb += self.event.eq(happened)
        with m.If(happened.kind == EventKind.ERROR):
            m.d.comb += self.event.value.eq(refused)
        with m.If(opens):
            m.d.sync += state.opened.eq(1)
            report(m, event, EventKind.FENCE_OPEN)  # no beat is sent in this cycle, so there is no other event

        m.d.comb += given.ready.eq(consumes & decided.i.ready)
        with m.If(makes_own):
            m.d.comb += [
                own.start.eq(1),
                *(o[name].eq(own.o.payload[name]) for name in TxUlpdu(lanes).members),
                decided.i.valid.eq(own.o.valid),
                own.o.ready.eq(decided.i.ready),
            ]
            with m.If(own.o.valid & decided.i.ready & own.o.payload.last):
                m.d.sync += makes_own.eq(0)
                with m.If(state.responds):
                    m.d.sync += state.responds.eq(0)
                    report(m, event, EventKind.RESPONSE_SENT)
                with m.Else():
                    m.d.sync += state.rtr_left.eq(1)
                    report(m, event, EventKind.RTR_SENT, detail=self.rtr_send)
        with m.Else():
            m.d.comb += [
                *(o[name].eq(i[name]) for name in TxUlpdu(lanes).members),
                o.abort.eq(i.mismatch),
                decided.i.valid.eq(given.valid & consumes & keeps),
            ]
            with m.If(wants_own & ~consumes):
                m.d.sync += makes_own.eq(1)
        with m.If(moves):
            m.d.sync += [inside.eq(~i.last), keeps_on.eq(keeps)]
            with m.If(~inside):
                m.d.sync += [terminates.eq(i.terminate), announced.eq(i.length)]
                with m.If(~state.terminated & i.too_long & (i.terminate | ~state.failed)):
                    m.d.sync += state.failed.eq(1)
                    report(m, event, EventKind.ERROR, detail=Cause.TX_LENGTH)
            with m.If(keeps & i.last & i.mismatch):
                m.d.sync += [state.failed.eq(1), state.terminated.eq(~self.crc)]
                report(m, event, EventKind.ERROR, detail=Cause.TX_MISMATCH)
            with m.Elif(keeps & i.last & Mux(inside, terminates, i.terminate)):
                m.d.sync += state.terminated.eq(1)
                report(m, event, EventKind.TERMINATE_SENT)
        return m

    def _examine(self, m, i, o):
        """Examine a beat as far as that does not depend on the connection's state."""
        lanes = self.lanes
        beat, examined = i.payload, o.payload
        width = 4 * lanes
        first = Signal(init=1)
        left = Signal(17)  # announced octets that earlier beats did not contain; negative if they contained too many
        due = Mux(first, beat.length, left)
        # RFC 5040 §4.1, RFC 5041 §4.3
        is_terminate = ~beat.data[7] & (beat.data[8:12] == Opcode.TERMINATE) & (beat.length >= 2)
        m.d.comb += [
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            *(examined[name].eq(beat[name]) for name in TxUlpdu(lanes).members),
            examined.terminate.eq(is_terminate & self.rdmap),
            examined.too_long.eq(beat.length > self.maximum),
            examined.mismatch.eq(beat.octets != due),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += [first.eq(beat.last), left.eq(due - width)]


class _Examined(TxUlpdu):
    """A beat from the host.

    Valid on the first beat: ``too_long`` (the ULPDU is over the maximum) and ``terminate`` (it is a Terminate, and
    CONFIG has ``rdmap``). Valid on the last beat: ``mismatch`` (the ULPDU's length differs from the announced one).
    """

    def __init__(self, lanes: int):
        Packet.__init__(self, lanes, length=16, too_long=1, terminate=1, mismatch=1)
