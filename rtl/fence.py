"""The MPA fence: when ULPDUs may leave, and which (RFC 5044 §7.1.2, RFC 6581 §5)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .events import Event, report
from .registers import Cause, EventKind, Model, Role, Rtr
from .rtr import SINK, RtrGenerator, Ulpdu
from .stream import Packet, TxUlpdu, check_lanes

__all__ = ["Fence"]


class Fence(wiring.Component):
    """Lets the host's ULPDUs through once the connection allows it, and puts the device's own before them.

    It stands before the framer: what the device itself sends must come first in the stream, and where the markers of
    later FPDUs lie depends on it.

    ======================== =====================================================================
    role, model              the fence opens when ``mpa`` is 1, and
    ======================== =====================================================================
    initiator, client-server at once
    initiator, peer-to-peer  its own RTR has left
    responder, client-server a good FPDU has been received (RFC 5044 §7.1.2)
    responder, peer-to-peer  an RTR has been received; a Read RTR is answered first (RFC 5040 §5.2.1)
    ======================== =====================================================================

    ULPDUs wait at a shut fence. One over ``maximum`` is an error, and dropped whole; so is one that is not as long as
    announced, but as it has been sent by then, its FPDU is spoilt by ``abort``. After an error here, or with ``rdmap``
    one on receive, a shut fence stays shut; one Terminate passes nevertheless, if ``rdmap`` is 1, and all else is
    dropped. With ``rdmap`` nothing follows a Terminate (RFC 5040 §5.4).

    Combinational; one beat a cycle.

    Members
    -------
    i : ULPDUs from the host
    o : ULPDUs for the framer; ``abort`` on the last beat of one that must not be taken for good
    mpa : transmit is in MPA mode
    role, model, rtr_send, rdmap : as in register CONFIG
    maximum : the longest ULPDU that may leave, in octets
    good, rtr, respond, sink, failed : from :class:`rtl.rtr.RtrDetector`
    open : the fence is open
    asked : a Read RTR has left
    stopped : nothing more leaves
    event : FENCE_OPEN, RTR_SENT, RESPONSE_SENT, TERMINATE_SENT, ERROR
    """

    class State(data.Struct):
        """What lasts from one ULPDU to the next."""

        granted: 1  # what receive must bring has come
        rtr_left: 1
        responds: 1  # a Read Response must leave
        opened: 1  # and stays so
        failed: 1
        terminated: 1

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
            "maximum": In(16),
            "good": In(1),
            "rtr": In(1),
            "respond": In(1),
            "sink": In(SINK),
            "failed": In(1),
            "open": Out(1),
            "asked": Out(1),
            "stopped": Out(1),
            "event": Out(Event),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.generator = own = RtrGenerator(self.lanes)
        i, o = self.i.payload, self.o.payload
        state = Signal(self.State)

        peer_to_peer = self.model == Model.PEER_TO_PEER
        initiator = self.role == Role.INITIATOR
        sends_rtr = initiator & peer_to_peer & (self.rtr_send != Rtr.NONE)
        failed = state.failed | (self.failed & self.rdmap)
        sink = Signal(SINK, reset_less=True)
        opens = Signal()  # now
        granted = Signal()
        wants_own = Signal()  # the device has something to send before the host
        m.d.comb += [
            granted.eq(Mux(initiator, ~peer_to_peer | state.rtr_left, state.granted)),
            opens.eq(self.mpa & granted & ~state.responds & ~failed & ~state.opened),
            self.open.eq(state.opened),
            self.asked.eq(state.rtr_left & (self.rtr_send == Rtr.READ)),
            self.stopped.eq(state.terminated | (failed & ~self.rdmap)),
            wants_own.eq(self.mpa & ~failed & ((sends_rtr & ~state.rtr_left) | state.responds)),
            own.sink.eq(sink),
        ]
        with m.If(state.responds):
            m.d.comb += own.kind.eq(Ulpdu.RESPONSE)
        with m.Else():
            m.d.comb += own.kind.eq(self.rtr_send)
        with m.If(~initiator & Mux(peer_to_peer, self.rtr, self.good)):
            m.d.sync += [state.granted.eq(1), state.responds.eq(self.respond & peer_to_peer)]
        with m.If(self.respond):
            m.d.sync += sink.eq(self.sink)

        # What becomes of the ULPDU at the input is settled with its first beat.
        is_terminate = ~i.data[7] & (i.data[8:12] == 7) & (i.length >= 2)  # RFC 5040 §4.1, RFC 5041 §4.3
        passes, drops, too_long = Signal(), Signal(), Signal()
        m.d.comb += [
            drops.eq(self.stopped | (failed & ~is_terminate)),
            too_long.eq(~drops & (self.open | failed) & (i.length > self.maximum)),
            passes.eq(~drops & (self.open | failed) & ~too_long),
        ]

        inside = Signal()  # of a ULPDU that leaves
        offered = Signal()  # a beat has been, so it stays
        owned = Signal()  # that ULPDU or beat is the device's own
        terminates = Signal()  # that ULPDU is a Terminate
        seen = Signal(17)  # octets of it in earlier beats
        announced = Signal(16, reset_less=True)  # its length
        going = inside | offered
        length = Mux(inside, announced, i.length)
        mismatch = Signal()
        m.d.comb += [
            own.start.eq(Mux(going, owned, wants_own)),
            mismatch.eq(seen + Mux(i.last, i.octets, 4 * self.lanes) != length),
        ]
        m.d.sync += [offered.eq(self.o.valid & ~self.o.ready), owned.eq(own.start)]
        with m.If(opens):
            m.d.sync += state.opened.eq(1)
            report(m, self.event, EventKind.FENCE_OPEN)  # nothing leaves in this cycle, so there is no other event

        with m.FSM():
            with m.State("Pass"):
                with m.If(own.start):
                    m.d.comb += [
                        *(o[name].eq(own.o.payload[name]) for name in TxUlpdu(self.lanes).members),
                        self.o.valid.eq(own.o.valid),
                        own.o.ready.eq(self.o.ready),
                    ]
                    with m.If(self.o.ready):
                        m.d.sync += inside.eq(~o.last)
                    with m.If(self.o.ready & o.last):
                        with m.If(state.responds):
                            m.d.sync += state.responds.eq(0)
                            report(m, self.event, EventKind.RESPONSE_SENT)
                        with m.Else():
                            m.d.sync += state.rtr_left.eq(1)
                            report(m, self.event, EventKind.RTR_SENT, detail=self.rtr_send)
                with m.Else():
                    m.d.comb += [
                        *(o[name].eq(i[name]) for name in TxUlpdu(self.lanes).members),
                        o.abort.eq(mismatch),
                    ]
                    with m.If(going | passes):
                        m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
                    with m.Elif(self.i.valid & (drops | too_long)):
                        with m.If(too_long):
                            m.d.sync += state.failed.eq(1)
                            report(m, self.event, EventKind.ERROR, detail=Cause.TX_LENGTH, value=i.length)
                        m.next = "Drop"
                    with m.If(self.i.valid & self.i.ready):
                        m.d.sync += [
                            inside.eq(~i.last),
                            terminates.eq(Mux(inside, terminates, is_terminate)),
                            announced.eq(length),
                            seen.eq(Mux(i.last, 0, seen + 4 * self.lanes)),
                        ]
                        with m.If(i.last & mismatch):
                            m.d.sync += state.failed.eq(1)
                            report(m, self.event, EventKind.ERROR, detail=Cause.TX_MISMATCH, value=length)
                        with m.Elif(i.last & self.rdmap & Mux(inside, terminates, is_terminate)):
                            m.d.sync += state.terminated.eq(1)
                            report(m, self.event, EventKind.TERMINATE_SENT)
            with m.State("Drop"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid & i.last):
                    m.next = "Pass"
        return m
