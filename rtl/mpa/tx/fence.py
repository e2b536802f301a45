"""The MPA fence: decides when ULPDUs may be sent, and which (RFC 5044 §7.1.2, RFC 6581 §5)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import SINK, Packet, TxUlpdu, carried
from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.lib.copies import choose, parts_of
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Cells, Clear, Rows, connection_field, connection_shape, only_many
from open_rnic.rtl.lib.stream import ReadyBuffer
from open_rnic.rtl.mpa.events import Event, report
from open_rnic.rtl.mpa.rtr import Report
from open_rnic.rtl.mpa.settings import SendSettings
from open_rnic.rtl.mpa.tx.fence_visits import Visits
from open_rnic.rtl.mpa.tx.rtr_generator import RtrGenerator, Ulpdu
from open_rnic.rtl.registers import Cause, EventKind, Model, Role, Rtr

__all__ = ["Fence", "Passes"]

_PASSES = 2  # readers of ``passes``


class FenceState(wiring.Signature):
    """The state of a fence.

    Members
    -------
    open : Out, 1 bit
        The fence is open.
    stopped : Out, 1 bit
        Nothing more is sent.
    asked : Out, 1 bit
        A Read RTR has been sent.
    connection, asked_of : In
        Only with many connections: that of ``open`` and ``stopped``, and that of ``asked``.
    """

    def __init__(self, connections: int):
        number = connection_shape(connections)
        many = only_many(connections, {"connection": In(number), "asked_of": In(number)})
        super().__init__({"open": Out(1), "stopped": Out(1), "asked": Out(1), **many})


class Passes(wiring.Signature):
    """Whether the host's ULPDUs of ``connection`` (In) pass, or are discarded, and do not wait: ``passes`` (Out)."""

    def __init__(self, connections: int):
        super().__init__({"connection": In(connection_shape(connections)), "passes": Out(1)})


class Fence(wiring.Component):
    """Holds the host's ULPDUs back until the connection allows them, and sends the device's own ULPDUs before them.

    ======================== =====================================================================
    role, model              the fence opens when ``mpa`` is 1, and
    ======================== =====================================================================
    initiator, client-server at once
    initiator, peer-to-peer  its own RTR has been sent
    responder, client-server a good FPDU has been received (RFC 5044 §7.1.2)
    responder, peer-to-peer  an RTR has been received; a Read RTR is answered first (RFC 5040 §5.2.1)
    ======================== =====================================================================

    ULPDUs wait at a shut fence. A ULPDU over ``maximum`` is discarded as a whole. One whose length differs from the
    announced one has been sent for the most part, so ``abort`` invalidates its FPDU. After these errors, or with
    ``rdmap`` an error of receive, a shut fence stays shut, and ULPDUs are discarded; with ``rdmap`` one Terminate
    passes. Nothing follows a Terminate (RFC 5040 §5.4), nor an invalid FPDU without CRC, which does not end.

    Of many connections, one is active: that of the ULPDU that is examined, or one that the fence visits between ULPDUs,
    to open it or to send a ULPDU of the device (:class:`.Visits`). ``docs/architecture.md`` has the reasons.

    Latency: 2 cycles, one to examine a beat without the connection's state, one to decide; 3 for events. Throughput:
    one beat per cycle; a change of connection takes 1 cycle, a visit some 5.

    Members
    -------
    i : In, stream of :class:`.TxUlpdu`; from the host
    o : Out, stream of :class:`.Packet` with ``length`` (16 bits), ``abort`` (1 bit), and ``markers`` and ``crc`` of
        :func:`.carried`; for the framer. ``abort`` on the last beat: the FPDU must be invalid
    mpa : In, 1 bit for each connection; transmit is in MPA mode
    settings : In, :class:`.SendSettings`
    maximum : In, 16 bits; the longest ULPDU that may be sent, in octets
    report, failed, sink : In, :class:`.Report`, 1 bit, 96 bits; from :class:`.RtrDetector`
    state : Out, :class:`FenceState`; with many connections 1 cycle late
    event : Out, :class:`.Event`; FENCE_OPEN, RTR_SENT, RESPONSE_SENT, TERMINATE_SENT, ERROR

    Only with many connections:

    connection : Out; the active one, of which the settings are expected
    rdmap_next : In, 1 bit; CONFIG.rdmap. This and ``maximum`` are of the connection of the ULPDU at ``i``
    reports, reports_of : In; ``report`` and ``sink`` are about connection ``reports_of``: see :class:`.Visits`
    room : In, 1 bit for each connection; a ULPDU of the device may be sent
    passable : Out, array of :class:`Passes`; ULPDUs at a shut fence hold up all others, so none are given
    event_of : Out; the connection of ``event``
    idle : Out, 1 bit; no ULPDU is in the block, and none is being made
    clear : In, :class:`.Clear`; nothing of the connection is on its way
    """

    class State(data.Struct):
        """The state that lasts from one ULPDU to the next."""

        granted: 1  # receive has reported the FPDU that opens the fence
        rtr_left: 1  # the RTR has been sent
        responds: 1  # a Read Response must be sent
        opened: 1  # and stays so
        failed: 1
        terminated: 1  # nothing more is sent

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        self.many = connections > 1
        connection = connection_shape(connections)
        many = {
            "connection": Out(connection), "rdmap_next": In(1), "reports": In(1),
            "reports_of": In(connection), "room": In(connections),
            "passable": Out(Passes(connections)).array(_PASSES),
            "event_of": Out(connection), "idle": Out(1), "clear": In(Clear(connections)),
        }  # fmt: skip
        super().__init__({
            "i": In(stream.Signature(TxUlpdu(lanes, connections))),
            "o": Out(stream.Signature(Packet(lanes, length=16, abort=1, **carried(connections, "markers", "crc")))),
            "mpa": In(connections),
            "settings": In(SendSettings),
            "maximum": In(16),
            "report": In(Report),
            "sink": In(SINK),
            "failed": In(1),
            "state": Out(FenceState(connections)),
            "event": Out(Event),
            **only_many(connections, many),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.examined = examined = ReadyBuffer(_Examined(self.lanes, self.connections))
        m.submodules.generator = generator = RtrGenerator(self.lanes)
        m.submodules.decided = decided = ReadyBuffer(self.o.payload.shape())
        wiring.connect(m, decided.o, wiring.flipped(self.o))
        given = examined.o
        rows = Rows(self.State, self.connections)
        x = (_Many if self.many else _One)(m, self, rows, given)
        self._examine(m, self.i, examined.i, x.rdmap_next)
        event = Signal(Event)
        opens_now, wants_own, passes = self._open(m, x, generator, event)

        inside = Signal()  # a ULPDU has begun and not ended
        keeps = Signal()  # the beat is sent
        consumes = Signal()  # beats are taken: the fence is open, or they are discarded
        # A ULPDU of the device is being sent. Each part of a wide beat has a copy, which chooses its octets.
        owns = [Signal(name=f"makes_own_{n}") for n in range(parts_of(self.lanes))]
        makes_own = owns[0]
        starts_own = Signal()
        m.d["comb" if self.many else "sync"] += consumes.eq(passes & ~makes_own)
        m.d.comb += given.ready.eq(consumes & decided.i.ready & x.may_pass)
        ends_own = self._send(m, x, generator, given, decided, owns, event)
        with m.If(~makes_own):
            m.d.comb += [
                decided.i.valid.eq(given.valid & consumes & keeps & x.may_pass),
                starts_own.eq(wants_own & ~consumes & x.decides),
            ]
        m.d.sync += [each.eq(Mux(each, ~ends_own, starts_own)) for each in owns]
        length = self._decide(m, x.state, given, inside, keeps, event)
        self._report(m, event, length)
        x.change(inside, makes_own, opens_now | (wants_own & ~consumes))
        return m

    def _open(self, m, x, generator, event):
        """Open the fence, and find what the device must send before.

        Return whether it opens in this cycle, whether the device has something to send before the host, and whether
        ULPDUs of the host pass or are discarded.
        """
        state, settings = x.state, self.settings
        peer_to_peer = settings.model == Model.PEER_TO_PEER
        initiator = settings.role == Role.INITIATOR
        sends_rtr = initiator & peer_to_peer & (settings.rtr_send != Rtr.NONE)
        opens_now = Signal()
        granted = Signal()
        wants_own = Signal()
        may_open = x.mpa & granted & ~state.responds & ~state.failed & ~state.opened
        passes = x.mpa & (state.opened | state.failed | state.terminated)
        m.d.comb += [
            granted.eq(Mux(initiator, ~peer_to_peer | state.rtr_left, state.granted)),
            opens_now.eq(may_open & x.decides),
            wants_own.eq(x.mpa & ~state.failed & ((sends_rtr & ~state.rtr_left) | state.responds)),
            *x.show(
                open=state.opened,
                asked=state.rtr_left & (settings.rtr_send == Rtr.READ),
                stopped=state.terminated | (state.failed & ~settings.rdmap),
                passes=passes,
            ),
            generator.sink.eq(x.sink),
        ]
        with m.If(state.responds):
            m.d.comb += generator.kind.eq(Ulpdu.RESPONSE)
        with m.Else():
            m.d.comb += generator.kind.eq(settings.rtr_send)
        with m.If(~initiator & Mux(peer_to_peer, x.report.rtr, x.report.good)):
            m.d.sync += [state.granted.eq(1), state.responds.eq(x.report.respond & peer_to_peer)]
        with m.If(x.failed & settings.rdmap):
            m.d.sync += state.failed.eq(1)
        with m.If(opens_now):
            m.d.sync += state.opened.eq(1)
            report(m, event, EventKind.FENCE_OPEN)  # no beat is sent in this cycle, so there is no other event
        return opens_now, wants_own, passes

    def _send(self, m, x, generator, given, decided, owns, event):
        """Send the beat of the device or that of the host. Return whether a ULPDU of the device ends."""
        state, settings, i, o = x.state, self.settings, given.payload, decided.i.payload
        ends_own = Signal()
        m.d.comb += [
            o.data.eq(choose(owns, generator.o.payload.data, i.data)),
            o.connection.eq(x.active),
            o.markers.eq(settings.markers),
            o.crc.eq(settings.crc),
        ]
        others = [name for name in TxUlpdu(self.lanes).members if name not in ("data", "connection")]
        with m.If(owns[0]):
            m.d.comb += [
                generator.start.eq(1),
                *(o[name].eq(generator.o.payload[name]) for name in others),
                decided.i.valid.eq(generator.o.valid),
                generator.o.ready.eq(decided.i.ready),
                ends_own.eq(generator.o.valid & decided.i.ready & generator.o.payload.last),
            ]
            with m.If(ends_own):
                with m.If(state.responds):
                    m.d.sync += state.responds.eq(0)
                    report(m, event, EventKind.RESPONSE_SENT)
                with m.Else():
                    m.d.sync += state.rtr_left.eq(1)
                    report(m, event, EventKind.RTR_SENT, detail=settings.rtr_send)
        with m.Else():
            m.d.comb += [*(o[name].eq(i[name]) for name in others), o.abort.eq(i.mismatch)]
        return ends_own

    def _decide(self, m, state, given, inside, keeps, event):
        """Send or discard a ULPDU of the host as a whole; its first beat decides. Return its announced length."""
        i = given.payload
        keeps_on = Signal()  # the previous beat was sent
        terminates = Signal()  # the ULPDU is a Terminate
        announced = Signal(16, reset_less=True)
        with m.If(inside):
            m.d.comb += keeps.eq(keeps_on)
        with m.Else():
            m.d.comb += keeps.eq(~state.terminated & ~i.too_long & (i.terminate | ~state.failed))
        with m.If(given.valid & given.ready):
            m.d.sync += [inside.eq(~i.last), keeps_on.eq(keeps)]
            with m.If(~inside):
                m.d.sync += [terminates.eq(i.terminate), announced.eq(i.length)]
                with m.If(~state.terminated & i.too_long & (i.terminate | ~state.failed)):
                    m.d.sync += state.failed.eq(1)
                    report(m, event, EventKind.ERROR, detail=Cause.TX_LENGTH)
            with m.If(keeps & i.last & i.mismatch):
                m.d.sync += [state.failed.eq(1), state.terminated.eq(~self.settings.crc)]
                report(m, event, EventKind.ERROR, detail=Cause.TX_MISMATCH)
            with m.Elif(keeps & i.last & Mux(inside, terminates, i.terminate)):
                m.d.sync += state.terminated.eq(1)
                report(m, event, EventKind.TERMINATE_SENT)
        return Mux(inside, announced, i.length)

    def _report(self, m, event, length):
        """Report the event of this cycle in the next one, an error with the length of the ULPDU."""
        happened = Signal(Event)
        refused = Signal(16, reset_less=True)
        m.d.sync += [happened.eq(event), refused.eq(length)]
        m.d.comb += self.event.eq(happened)
        with m.If(happened.kind == EventKind.ERROR):
            m.d.comb += self.event.value.eq(refused)

    def _examine(self, m, i, o, rdmap):
        """Examine a beat as far as that does not depend on the connection's state."""
        lanes = self.lanes
        beat, examined = i.payload, o.payload
        width = 4 * lanes
        first = Signal(init=1)
        left = Signal(17)  # announced octets that earlier beats did not contain; negative: they contained too many
        due = Mux(first, beat.length, left)
        # RFC 5040 §4.1, RFC 5041 §4.3
        is_terminate = ~beat.data[7] & (beat.data[8:12] == Opcode.TERMINATE) & (beat.length >= 2)
        m.d.comb += [
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            *(examined[name].eq(beat[name]) for name in beat.shape().members),
            examined.terminate.eq(is_terminate & rdmap),
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

    def __init__(self, lanes: int, connections: int):
        Packet.__init__(
            self, lanes, length=16, too_long=1, terminate=1, mismatch=1, **connection_field(connections)
        )


class _One:
    """The inputs of the fence of one connection, which is always acted upon: its ports. See :class:`_Many`."""

    def __init__(self, m, fence: Fence, rows: Rows, given):
        self._fence = fence
        self.state, self.active = rows.state, rows.active
        self.rdmap_next = fence.settings.rdmap
        self.decides = self.may_pass = Const(1)
        self.sink = Signal(SINK, name="kept_sink", reset_less=True)
        with m.If(fence.report.respond):
            m.d.sync += self.sink.eq(fence.sink)
        self.mpa, self.report, self.failed = fence.mpa, fence.report, fence.failed

    def show(self, **flags):
        state = self._fence.state
        return [state.open.eq(flags["open"]), state.stopped.eq(flags["stopped"]), state.asked.eq(flags["asked"])]

    def change(self, inside, makes_own, busy):
        """There is no other connection."""


class _Many:
    """The inputs of the fence of many connections for the active one, and its turns to another one."""

    def __init__(self, m, fence: Fence, rows: Rows, given):
        self._m, self._fence, self._rows, self._given = m, fence, rows, given
        self.state, self.active = rows.state, rows.active
        m.submodules.visits = visits = Visits(fence.connections)
        self._visits = visits
        self.visits = Signal()  # the active connection is visited
        self._reads = Signal()  # in the first cycle of a visit, what was reported is taken
        self.decides = Signal()  # in the later ones, it is acted upon
        self._starts = Signal()  # a visit starts
        self._is_own = Signal()  # the ULPDU of the host is one of the active connection
        self.may_pass = Signal()  # and may pass
        self.rdmap_next = fence.rdmap_next
        self.mpa = fence.mpa.bit_select(rows.active, 1)
        self.failed = fence.failed
        self.report, self.sink = visits.seen.report, visits.seen.sink
        m.d.comb += [
            visits.notice.report.eq(fence.report),
            visits.notice.sink.eq(fence.sink),
            visits.reports.eq(fence.reports),
            visits.reports_of.eq(fence.reports_of),
            visits.mpa.eq(fence.mpa),
            visits.room.eq(fence.room),
            Value.cast(visits.clear).eq(fence.clear),
            visits.reads.eq(self._starts),
            fence.connection.eq(rows.active),
            self._is_own.eq(rows.are_of(given.payload.connection)),
            self.decides.eq(self.visits & ~self._reads),
            self.may_pass.eq(self._is_own & ~self.visits & ~self._starts),
        ]

    def show(self, **flags):
        """Keep the flags of the active connection for those who ask about it."""
        m, fence = self._m, self._fence
        kept = Signal(data.StructLayout(dict.fromkeys(flags, 1)))
        cells = Cells(m, Value.cast(kept), fence.connections, self._rows.active, fence.clear)
        with m.If(~fence.clear.now):
            cells.write(m, Cat(flags.values()))

        def of(connection):
            return data.View(kept.shape(), cells.read(m, connection))

        shown = of(fence.state.connection)
        return [
            fence.state.open.eq(shown.open), fence.state.stopped.eq(shown.stopped),
            fence.state.asked.eq(of(fence.state.asked_of).asked),
            *(each.passes.eq(of(each.connection).passes) for each in fence.passable),
        ]  # fmt: skip

    def change(self, inside, makes_own, busy):
        """Turn to another connection between ULPDUs."""
        m, fence, visits, given = self._m, self._fence, self._visits, self._given
        settles = Signal(2)  # the states after a report settle in the cycles after it was read
        turns = Signal()
        ends = Signal()  # the visit ends with this cycle
        m.d.comb += [
            self._starts.eq(visits.calls & ~(inside | makes_own | self.visits | fence.clear.now)),
            turns.eq(given.valid & ~self._is_own & ~(inside | makes_own | self.visits)),
            ends.eq(self.visits & settles[1] & ~(makes_own | busy)),
            fence.idle.eq(~(given.valid | fence.o.valid | inside | makes_own | self.visits)),
        ]
        m.d.sync += [
            self._reads.eq(self._starts),
            settles.eq(Mux(self._starts, 0, Cat(1, settles[0]))),
            self.visits.eq(self._starts | (self.visits & ~ends)),
            fence.event_of.eq(self._rows.active),
        ]
        to = Mux(self._starts, visits.caller, given.payload.connection)
        self._rows.switch(m, to, self._starts | turns, fence.clear)
