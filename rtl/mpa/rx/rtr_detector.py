"""Recognises the RTR indications of RFC 6581 §9.2, and ends receive after an error."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import CHECKED, SINK, CheckedUlpdu, RxUlpdu
from open_rnic.rtl.lib.copies import choose, copies, parts_of
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Cells, Clear, Rows, connection_shape, only_many
from open_rnic.rtl.lib.stream import Buffer, Fifo
from open_rnic.rtl.mpa.events import Event, report
from open_rnic.rtl.mpa.rtr import HEADER, Report
from open_rnic.rtl.mpa.rx.rtr_classifier import RtrClassifier
from open_rnic.rtl.mpa.settings import RtrSettings
from open_rnic.rtl.registers import Cause, EventKind, Model, Role, Rtr, Verdict

__all__ = ["RtrDetector"]

_FAILED = 3  # readers of ``failed``
_SINK_AT = 18  # octet of a Read Request at which its Sink STag begins (RFC 5040 §4.4)


class RtrDetector(wiring.Component):
    """The last block of receive: removes RTRs, reports FPDUs to the fence and the host, and stops after an error.

    In the peer-to-peer model, a responder holds the first FPDU back until all of it has arrived. An initiator that has
    sent a Read RTR does so with each FPDU, until the Read Response has come. Such an FPDU is

    ========= =========================================== ============================================
    role      if it is                                    then
    ========= =========================================== ============================================
    responder a negotiated RTR; with ``permissive``, any  consumed: RTR_RECEIVED
    responder a Terminate                                 delivered: it has no such RTR (RFC 6581 §9.2)
    responder another, with ``permissive``                delivered in an RTR's place: RTR_RECEIVED
    responder another                                     an error: NOT_RTR
    initiator the Read Response to the RTR                consumed: RESPONSE_RECEIVED
    initiator another                                     delivered
    ========= =========================================== ============================================

    After an error all further beats are taken and discarded. Of many connections, that of the last ULPDU is the active
    one; a ULPDU of another one waits until the last one has been reported.

    Latency: combinational for ULPDUs, 1 cycle for reports to the fence, 2 for events. Throughput: one beat per cycle;
    an FPDU that is held back takes some 8 cycles more, a change of connection 3.

    Members
    -------
    i : In, stream of :class:`.CheckedUlpdu`; ULPDUs and the findings of the blocks before
    o : Out, stream of :class:`.RxUlpdu`; ULPDUs for the host
    settings : In, :class:`.RtrSettings`
    asked : In, 1 bit; the Read RTR of this initiator has been sent
    start : In, 9 bits; stream offset of the first FPDU, in octets
    report : Out, :class:`.Report`; each bit for 1 cycle
    sink : Out, 96 bits; with ``report.respond``, Sink STag and Sink TO for the Read Response, in wire order
    failed : Out, 1 bit; an error has occurred. With many connections, 1 cycle late, an array for ``failed_of``
    crc_error : Out, 1 bit; an FPDU with a wrong CRC has ended. For 1 cycle
    size, markers : Out, 15 bits, 8 bits; with ``report.good``, the FPDU's lanes, markers included, and its markers
    event : Out, :class:`.Event`; RTR_RECEIVED, RESPONSE_RECEIVED, ERROR

    Only with many connections:

    connection : Out; the active one, that of all inputs and reports but ``event``
    event_of : Out; the connection of ``event``
    first : Out, 1 bit; with ``report.good``: no FPDU of this connection was good before
    idle : Out, 1 bit; no ULPDU is in the block, or at its input
    failed_of : In, array of numbers of connections
    clear : In, :class:`.Clear`; nothing of the connection is on its way
    """

    class State(data.Struct):
        """The state that lasts from one FPDU to the next."""

        started: 1
        rtr_came: 1  # the first FPDU has arrived, and was accepted as an RTR
        response_came: 1
        failed: 1
        offset: 48  # stream offset of the FPDU, in octets

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        connection = connection_shape(connections)
        many = {"connection": Out(connection), "event_of": Out(connection), "first": Out(1), "idle": Out(1),
                "failed_of": In(connection).array(_FAILED), "failed": Out(1).array(_FAILED),
                "clear": In(Clear(connections))}  # fmt: skip
        super().__init__({
            "i": In(stream.Signature(CheckedUlpdu(lanes, connections))),
            "o": Out(stream.Signature(RxUlpdu(lanes, connections))),
            "settings": In(RtrSettings),
            "asked": In(1),
            "start": In(9),
            "report": Out(Report),
            "sink": Out(SINK),
            "failed": Out(1),
            "crc_error": Out(1),
            "size": Out(15),
            "markers": Out(8),
            "event": Out(Event),
            **only_many(connections, many),
        })

    def elaborate(self, platform):
        m = Module()
        x = _State(self)
        m.submodules.kept = x.kept
        self._expect(m, x)
        self._route(m, x)
        self._keep_header(m, x)
        self._classify(m, x)
        self._report(m, x)
        with m.FSM(init="Return"):
            self._pass(m, x)
            self._hold_back(m, x)
            self._release_long(m, x)
            self._decide(m, x)
            self._drain(m, x)
        if self.connections > 1:
            self._turn(m, x)
        else:
            m.d.comb += self.failed.eq(x.state.failed)
        return m

    def _expect(self, m, x):
        """Whether the next FPDU may be an RTR, or the response to one."""
        settings = self.settings
        peer_to_peer = settings.model == Model.PEER_TO_PEER
        m.d.comb += [
            x.held.awaits_rtr.eq((settings.role == Role.RESPONDER) & peer_to_peer & ~x.state.rtr_came),
            x.held.awaits_response.eq(
                (settings.role == Role.INITIATOR) & peer_to_peer & self.asked & ~x.state.response_came
            ),
        ]

    def _route(self, m, x):
        """Beats go to the output, into the queue, or are discarded. If the FSM chose none of these, they wait."""
        i = self.i.payload
        verdict = Signal(Verdict)
        with m.Switch(i.cause):
            with m.Case(Cause.NONE):
                m.d.comb += verdict.eq(Verdict.GOOD)
            with m.Case(Cause.CRC):
                m.d.comb += verdict.eq(Verdict.CRC)
            with m.Default():
                m.d.comb += verdict.eq(Verdict.MARKER)
        beat_in = x.kept.i.payload
        direct = Signal()
        m.d.sync += direct.eq(x.direct_on)
        x.direct = copies(m, direct, parts_of(self.lanes), "direct")
        delivers = x.flows & (self.o.ready | i.none)
        absorbs = x.sinks | (x.keeps & x.kept.i.ready)
        ready = delivers | absorbs
        m.d.sync += [x.flows.eq(x.flows_on), x.keeps.eq(x.keeps_on), x.sinks.eq(x.sinks_on)]
        m.d.comb += [
            x.is_own.eq(x.rows.are_of(i.connection)),
            x.valid.eq(self.i.valid & x.is_own),
            x.passes.eq(x.valid & delivers),
            x.leaves.eq(x.valid & absorbs),
            self.i.ready.eq(ready & x.is_own),
            x.kept.i.valid.eq(x.valid & x.keeps),  # with ``none``, the FPDU is an error, which clears the queue
            *(beat_in[name].eq(i[name]) for name in ("data", "octets", "last", "length")),
            beat_in.verdict.eq(verdict),
        ]
        o, kept = self.o.payload, x.kept.o.payload
        m.d.comb += [
            o.data.eq(choose(x.direct, beat_in.data, kept.data)),
            *(o[name].eq(Mux(x.direct[0], beat_in[name], kept[name]))
              for name in ("octets", "last", "length", "verdict")),
            o.connection.eq(x.rows.active),
        ]

    def _keep_header(self, m, x):
        """Whatever may become the header of an FPDU that is held back, enters the register."""
        octets = self.i.payload.data
        size = len(octets) // len(x.direct)
        for at in range(0, len(x.header), size):
            beat, here = divmod(at, len(octets))
            with m.If(x.direct[here // size] & (x.beat == beat)):
                m.d.sync += x.header[at:at + size].eq(octets[here:here + size])

    def _classify(self, m, x):
        """What the FPDU that is held back is, settled 2 cycles after its end."""
        m.submodules.classifier = classifier = x.classifier
        m.d.comb += [
            classifier.octets.eq(x.header),
            classifier.length.eq(self.i.payload.value),
            classifier.holds.eq(x.examines),
            self.sink.eq(x.header[8 * _SINK_AT:8 * (_SINK_AT + 12)]),
        ]
        m.d.sync += [
            x.held.found.eq(Rtr.NONE),
            x.held.is_strict.eq(x.held.awaits_rtr & ~self.settings.permissive),
            x.held.rtr_is_due.eq(x.held.awaits_rtr & ~(classifier.is_terminate & classifier.has_queue)),
            x.held.response_comes.eq(x.held.awaits_response & classifier.is_response),
        ]
        for kind in (Rtr.SEND, Rtr.WRITE, Rtr.READ):
            accepted = self.settings.permissive | self.settings.rtr_accept[kind - 1]
            with m.If(classifier.kinds[kind - 1] & accepted):
                m.d.sync += x.held.found.eq(kind)

    def _report(self, m, x):
        """An FPDU is reported in the cycle after its end, and its event a cycle later, with the offset of its start."""
        i, last, state = self.i.payload, x.last, x.state
        with m.If(~x.examines):
            m.d.sync += [
                *(last[name].eq(i[name]) for name in CHECKED),
                x.is_good.eq(i.cause == Cause.NONE),
            ]
        m.d.sync += [
            *(self.event[name].eq(x.event[name]) for name in ("kind", "detail")),
            self.event.value.eq(last.value),
            # ``passes`` is late in the cycle, so these are sums of products, too.
            x.ended.eq(x.passes & i.last),
            x.inside.eq((x.inside | x.passes) & ~(x.passes & i.last)),
        ]
        offset, passes, lanes_passed = self._measure(m, x)
        m.d.comb += [
            self.event.offset.eq(offset),
            self.size.eq(last.size),
            self.markers.eq(last.markers),
        ]
        with m.If(passes):
            m.d.sync += [state.started.eq(1), state.offset.eq(state.offset + Cat(Const(0, 2), lanes_passed))]
        with m.Elif(~state.started):
            m.d.sync += state.offset.eq(self.start)
        with m.If(x.reports & x.is_good):
            m.d.comb += self.report.good.eq(1)
        with m.Elif(x.reports):
            m.d.comb += self.crc_error.eq(last.cause == Cause.CRC)
            self._fail(m, x, last.cause)

    def _measure(self, m, x):
        """Return the event's offset, and when the offset changes, by how many lanes.

        Of the only connection, it changes behind the event, a cycle after the report. A row must be complete with the
        report, as it can be stored in the next cycle, so the event has a copy.
        """
        if self.connections == 1:
            passed = Signal()
            lanes_passed = Signal.like(x.last.size)
            m.d.sync += [passed.eq(self.report.good), lanes_passed.eq(x.last.size)]
            return x.state.offset, passed, lanes_passed
        offset = Signal.like(x.state.offset, name="offset", reset_less=True)
        m.d.sync += offset.eq(x.state.offset)
        return offset, self.report.good, x.last.size

    def _fail(self, m, x, cause):
        report(m, x.event, EventKind.ERROR, detail=cause)
        m.d.sync += x.state.failed.eq(1)

    def _let_through(self, m, x):
        """Deliver the beats that were held back."""
        m.d.comb += [self.o.valid.eq(x.kept.o.valid), x.kept.o.ready.eq(self.o.ready)]

    def _pass(self, m, x):
        """ULPDUs pass, up to an FPDU that must be examined."""
        i = self.i.payload
        looks = x.held.awaits_rtr | x.held.awaits_response  # at the next FPDU
        with m.State("Flow"):
            m.d.comb += [x.reports.eq(x.ended), x.flows_on.eq(x.inside | ~looks), x.direct_on.eq(1), x.rests.eq(1)]
            with m.If(x.flows):  # a beat that has been offered is not taken back
                m.d.comb += self.o.valid.eq(x.valid & ~i.none)
                with m.If(x.valid):
                    m.d.comb += x.flows_on.eq(1)
                with m.If(x.passes):
                    m.d.comb += x.flows_on.eq(~i.last | (~looks & (i.cause == Cause.NONE)))
            with m.Elif(x.ended & ~x.is_good):
                m.d.comb += [x.flows_on.eq(0), x.sinks_on.eq(1)]
                m.next = "Stopped"
            with m.Elif(x.valid & looks):
                m.d.comb += x.keeps_on.eq(1)
                m.next = "Keep"
            with m.If(x.restarts):
                m.d.comb += x.flows_on.eq(0)
            with m.Elif(x.had_failed):
                m.d.comb += [x.flows_on.eq(0), x.keeps_on.eq(0), x.sinks_on.eq(1)]
                m.next = "Stopped"

    def _hold_back(self, m, x):
        """The FPDU enters the queue, and its header the register."""
        i = self.i.payload
        with m.State("Keep"):
            m.d.comb += [x.keeps_on.eq(1), x.direct_on.eq(1)]
            with m.If(x.valid):  # and the beat moves: the queue was empty before
                m.d.sync += x.beat.eq(x.beat + 1)
                with m.If(i.last):
                    m.d.comb += [x.keeps_on.eq(0), x.direct_on.eq(0)]
                    m.next = "Classify"
                with m.Elif(x.beat == x.beats - 1):
                    m.d.comb += [x.keeps_on.eq(0), x.direct_on.eq(0)]
                    m.next = "Long"

    def _release_long(self, m, x):
        """An FPDU that is too long for an RTR passes through the queue, unless it will be an error."""
        with m.State("Long"):
            m.d.sync += x.released.eq(1)
            m.next = "Choose"
        with m.State("Choose"):
            m.d.comb += [
                x.sinks_on.eq(x.held.is_strict & ~x.classifier.is_terminate),
                x.keeps_on.eq(~x.sinks_on),
            ]
            m.next = "Remainder"
        with m.State("Remainder"):
            with m.If(x.sinks):
                m.d.comb += x.clear.eq(1)
            with m.Else():
                self._let_through(m, x)
            # ``leaves`` is late in the cycle, so the state follows a cycle later.
            left = x.leaves & self.i.payload.last
            m.d.sync += x.left.eq(left)
            m.d.comb += x.examines.eq(x.left)
            with m.If(x.left):
                m.next = "Classify"
            with m.If(~left):
                m.d.comb += [x.keeps_on.eq(x.keeps), x.sinks_on.eq(x.sinks)]

    def _decide(self, m, x):
        """The FPDU has ended: wait for its classification, then consume it, deliver it, or report an error."""
        for state_name, then in (("Classify", "Match"), ("Match", "Decide")):
            with m.State(state_name):
                m.d.comb += x.examines.eq(1)
                with m.If(x.released):
                    self._let_through(m, x)
                m.next = then

        with m.State("Decide"):
            m.d.comb += x.examines.eq(1)
            with m.If(x.released):
                self._let_through(m, x)
            m.next = "Empty"
            m.d.comb += x.reports.eq(1)
            with m.If(~x.is_good):
                m.d.comb += [x.clear.eq(~x.released), x.sinks_on.eq(1)]
                m.next = "Stopped"
            with m.Elif(x.held.rtr_is_due):
                m.d.sync += x.state.rtr_came.eq(1)
                with m.If(x.held.found != Rtr.NONE):
                    report(m, x.event, EventKind.RTR_RECEIVED, detail=x.held.found)
                    m.d.comb += [
                        self.report.rtr.eq(1), self.report.respond.eq(x.held.found == Rtr.READ), x.clear.eq(1),
                    ]  # fmt: skip
                with m.Elif(~x.held.is_strict):
                    report(m, x.event, EventKind.RTR_RECEIVED)
                    m.d.comb += self.report.rtr.eq(1)
                with m.Else():
                    self._fail(m, x, Cause.NOT_RTR)
                    m.d.comb += [x.clear.eq(1), x.sinks_on.eq(1)]
                    m.next = "Stopped"
            with m.Elif(x.held.response_comes):
                report(m, x.event, EventKind.RESPONSE_RECEIVED)
                m.d.sync += x.state.response_came.eq(1)
                m.d.comb += x.clear.eq(1)

    def _drain(self, m, x):
        """The queue becomes empty before other beats pass; after an error, it does so while the input is discarded."""
        with m.State("Empty"):
            self._let_through(m, x)
            m.d.sync += [x.beat.eq(0), x.released.eq(0)]
            with m.If(~x.kept.o.valid):
                m.next = "Return"
        with m.State("Return"):  # so that ``direct`` is 1 when the first beat flows; also the state after reset
            m.d.comb += x.direct_on.eq(1)
            m.next = "Flow"
        with m.State("Stopped"):
            m.d.comb += [x.sinks_on.eq(1), x.rests.eq(1)]
            self._let_through(m, x)
            with m.If(x.restarts):
                m.d.comb += x.sinks_on.eq(0)
                m.d.sync += [x.beat.eq(0), x.released.eq(0)]
                m.next = "Return"

    def _turn(self, m, x):
        """Make the connection of the ULPDU at the input the active one, once all is reported about the last one."""
        active = x.rows.active
        changes = Signal()
        busy = Signal()
        m.d.comb += [
            busy.eq(x.ended | x.inside | x.kept.o.valid),
            changes.eq(self.i.valid & ~x.is_own & x.rests & ~busy),
            x.restarts.eq(changes | self.clear.now),
            x.had_failed.eq(x.state.failed),
            self.connection.eq(active),
            self.first.eq(~x.state.started),
            self.idle.eq(x.rests & ~(self.i.valid | busy)),
        ]
        m.d.sync += self.event_of.eq(active)
        failed = Signal()
        all_failed = Cells(m, failed, self.connections, active, self.clear)
        with m.If(~self.clear.now):
            all_failed.write(m, x.state.failed)
        m.d.comb += [bit.eq(all_failed.read(m, of)) for bit, of in zip(self.failed, self.failed_of, strict=True)]
        x.rows.switch(m, self.i.payload.connection, changes, self.clear)


class _State:
    """The state of the active connection, and of the FPDU that is examined.

    With one connection, ``restarts`` and ``had_failed`` are 0.
    """

    def __init__(self, detector: RtrDetector):
        width = 4 * detector.lanes
        self.rows = Rows(detector.State, detector.connections)
        self.state = self.rows.state
        self.is_own = Signal()  # the ULPDU at the input is one of the active connection
        self.valid = Signal()  # a beat of it
        self.rests = Signal()  # no FPDU is being examined
        self.restarts = Signal()  # the next FPDU belongs to another connection, or to another life of one
        self.had_failed = Signal()  # when it became active, the active connection had failed

        # The FPDU that is held back.
        self.clear = Signal()  # discards the beats in ``kept``
        self.beats = -(-HEADER // width)  # beats of an FPDU that can be an RTR, at most
        kept = Fifo(RxUlpdu(detector.lanes), 16) if self.beats > 2 else Buffer(RxUlpdu(detector.lanes))
        self.kept = ResetInserter(self.clear)(kept)
        self.header = Signal(8 * width * self.beats, reset_less=True)
        self.beat = Signal(range(self.beats + 1))  # number of the next beat
        self.released = Signal()  # too long for an RTR, and therefore let through

        # The FPDU that has ended.
        self.last = Signal(data.StructLayout(CHECKED), reset_less=True)  # its findings
        self.is_good = Signal()  # ``last.cause`` is NONE
        self.ended = Signal()  # it passed, and has not been reported
        self.left = Signal()  # it was too long for an RTR, and its last beat has left
        self.examines = Signal()  # it is being examined; ``last`` does not change
        self.reports = Signal()  # it is reported in this cycle
        self.event = Signal(Event)
        self.inside = Signal()  # an FPDU that passes has begun and not ended

        # What becomes of beats, settled a cycle before.
        self.flows = Signal()  # beats go to the output
        self.keeps = Signal()  # beats go into the queue
        self.sinks = Signal()  # beats are discarded
        self.flows_on = Signal()  # ``flows`` in the next cycle
        self.keeps_on = Signal()
        self.sinks_on = Signal()
        self.passes = Signal()  # a beat is taken by the output, or discarded in its place
        self.leaves = Signal()  # a beat is taken by the queue, or discarded

        # The output takes the beat at the input, not the queue's, and the header follows the input. Known two cycles
        # ahead, as many octets wait for it.
        self.direct: list[Value] = []  # for each part of a beat
        self.direct_on = Signal()  # ``direct`` in two cycles

        self.classifier = RtrClassifier()
        self.held = _Held()


class _Held:
    """What the FPDU that is held back may be, and what it is."""

    def __init__(self):
        self.awaits_rtr = Signal()  # the next FPDU may be an RTR
        self.awaits_response = Signal()  # or the response to one
        self.is_strict = Signal()  # an RTR is awaited, and nothing may take its place
        self.found = Signal(Rtr)  # the kind of RTR that is accepted
        self.rtr_is_due = Signal()  # it must be an RTR
        self.response_comes = Signal()  # it is the Read Response that is awaited
