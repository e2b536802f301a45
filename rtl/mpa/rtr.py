"""The RTR indications of RFC 6581 §9.2, made and recognised."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.events import Event, report
from open_rnic.rtl.layouts import CHECKED, SINK, Packet, RxUlpdu, TxUlpdu
from open_rnic.rtl.lib.stream import Fifo, check_lanes
from open_rnic.rtl.registers import Cause, EventKind, Model, Role, Rtr, Verdict

__all__ = ["RtrDetector", "RtrGenerator", "Ulpdu"]

_SINK_AT = 18
_HEADER = 48  # octets that hold the longest RTR


class Ulpdu(enum.Enum, shape=2):
    """What :class:`RtrGenerator` makes. The first three are RTRs, by their :class:`.Rtr`."""

    RESPONSE = 0
    SEND = 1
    WRITE = 2
    READ = 3


# DDP control, RDMAP control, then the header: RFC 5041 §4.2 and §4.3, RFC 5040 §4.4. STags are 1, not 0, because some
# hardware gives STag 0 a meaning of its own even where nobody should look at it.
_OCTETS = {
    Ulpdu.RESPONSE: bytes.fromhex("c142" + 12 * "00"),
    Ulpdu.SEND: bytes.fromhex("4143 00000000" "00000000 00000001 00000000"),
    Ulpdu.WRITE: bytes.fromhex("c140 00000001 0000000000000000"),
    Ulpdu.READ: bytes.fromhex(
        "4141 00000000" "00000001 00000001 00000000"
        "00000000 0000000000000000 00000000 00000001 0000000000000000"
    ),
}


class RtrGenerator(wiring.Component):
    """Makes an RTR, or the zero-length Read Response that answers a Read RTR.

    Latency 1 cycle; a beat every 2 cycles.

    Members
    -------
    o : the ULPDU, behind ``start``
    start : make one; stays as it is until its last beat has left
    kind : which
    sink : for a response, the request's Sink STag and Sink TO in wire order
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "o": Out(stream.Signature(TxUlpdu(lanes))),
            "start": In(1),
            "kind": In(Ulpdu),
            "sink": In(SINK),
        })

    def elaborate(self, platform):
        m = Module()
        width = 4 * self.lanes
        o = Signal.like(self.o.payload)
        beats = -(-_HEADER // width)
        beat = Signal(range(beats))
        octets = Signal(8 * beats * width)
        length = Signal(range(_HEADER))
        with m.Switch(self.kind):
            for kind, value in _OCTETS.items():
                with m.Case(kind):
                    m.d.comb += [octets.eq(int.from_bytes(value, "little")), length.eq(len(value))]
                    if kind is Ulpdu.RESPONSE:
                        m.d.comb += octets[16:16 + SINK].eq(self.sink)
        before = Array(n * width for n in range(beats))[beat]
        left = Signal(range(_HEADER))
        m.d.comb += [
            left.eq(length - before),
            o.data.eq(octets.word_select(beat, 8 * width)),
            o.length.eq(length),
            o.octets.eq(left[:len(o.octets)]),
            o.last.eq(left <= width),
        ]
        with m.If(~self.o.valid):
            m.d.sync += [self.o.valid.eq(self.start), self.o.payload.eq(o)]
        with m.Elif(self.o.ready):
            m.d.sync += [self.o.valid.eq(0), beat.eq(Mux(o.last, 0, beat + 1))]
        return m


class RtrDetector(wiring.Component):
    """The end of receive: takes RTRs out, tells the fence and the host what came, and stops after an error.

    A responder in the peer-to-peer model keeps the first FPDU back until it has all of it. A negotiated RTR, or with
    ``permissive`` any, is consumed; a Terminate is delivered, for a peer that found no RTR that it can send says so
    (RFC 6581 §9.2); another FPDU is an error, or with ``permissive`` delivered. An initiator that sent a Read RTR looks
    at each FPDU in this way until it has consumed the response. STag and TO of an RTR are not looked at (RFC 5041 §5.2,
    RFC 5040 §5.2.1), nor are reserved bits. A Read RTR must have MSN 1 and MO 0, for its header is a payload of 28
    octets; a Send RTR has no payload, so that neither is checked (RFC 5041 §7.1).

    After an error what comes is taken and dropped.

    Combinational for ULPDUs, latency 1 cycle for what is told, 2 for events; one beat a cycle, but for a few cycles
    more around an FPDU that is kept back.

    Members
    -------
    i : ULPDUs, ``CHECKED``
    o : those for the host
    role, model, rtr_accept, permissive : as in register CONFIG
    asked : this initiator's Read RTR has left
    start : stream offset of the first FPDU, in octets
    good : a good FPDU has come to its end
    rtr : an RTR, or with ``permissive`` what stands for one, has come
    respond : it was a Read RTR; ``sink`` is that of the answer
    failed : nothing more is delivered
    crc_error : an FPDU with a wrong CRC has come to its end
    size : lanes of the FPDU whose end ``good`` reports
    markers : how many of them are markers
    event : RTR_RECEIVED, RESPONSE_RECEIVED, ERROR
    """

    class State(data.Struct):
        """What lasts from one FPDU to the next."""

        started: 1
        rtr_came: 1  # the first FPDU has come, and has been taken for an RTR
        response_came: 1
        failed: 1
        offset: 48  # stream offset of the FPDU

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, **CHECKED))),
            "o": Out(stream.Signature(RxUlpdu(lanes))),
            "role": In(Role),
            "model": In(Model),
            "asked": In(1),
            "rtr_accept": In(3),
            "permissive": In(1),
            "start": In(9),
            "good": Out(1),
            "rtr": Out(1),
            "respond": Out(1),
            "sink": Out(SINK),
            "failed": Out(1),
            "crc_error": Out(1),
            "size": Out(15),
            "markers": Out(8),
            "event": Out(Event),
        })

    def elaborate(self, platform):
        m = Module()
        width = 4 * self.lanes
        i = self.i.payload
        state = Signal(self.State)

        clear = Signal()
        m.submodules.kept = kept = ResetInserter(clear)(Fifo(RxUlpdu(self.lanes), 16))
        beats = -(-_HEADER // width)
        header = Signal(8 * width * beats, reset_less=True)
        beat = Signal(range(beats + 1))  # of the FPDU that is kept back
        last = Signal(data.StructLayout(CHECKED), reset_less=True)  # of the FPDU that has ended
        is_good = Signal()  # its ``cause`` is NONE
        ended = Signal()  # it has not been told
        inside = Signal()  # of an FPDU that is let through

        is_response = Signal()
        is_terminate = Signal()
        has_queue = Signal()
        awaits_rtr = Signal()
        awaits_response = Signal()
        peer_to_peer = self.model == Model.PEER_TO_PEER
        m.d.comb += [
            awaits_rtr.eq((self.role == Role.RESPONDER) & peer_to_peer & ~state.rtr_came),
            awaits_response.eq((self.role == Role.INITIATOR) & peer_to_peer & self.asked & ~state.response_came),
        ]

        # Settled a cycle before: what happens to beats. If neither, they wait.
        flows = Signal()  # beats go out
        keeps = Signal()  # beats go into the queue
        sinks = Signal()  # beats are discarded
        flows_on = Signal()  # ``flows`` in the next cycle
        keeps_on = Signal()
        sinks_on = Signal()
        looks = awaits_rtr | awaits_response  # at the next FPDU
        moves = self.i.valid & self.i.ready
        m.d.sync += [flows.eq(flows_on), keeps.eq(keeps_on), sinks.eq(sinks_on)]
        m.d.comb += [
            self.i.ready.eq(sinks | (flows & (self.o.ready | i.none)) | (keeps & kept.i.ready)),
            kept.i.valid.eq(self.i.valid & keeps & ~i.none),
        ]

        # What the FPDU is that is kept back: DDP and RDMAP control without their reserved bits (RFC 5041 §4.1, RFC 5040
        # §4.1; version 1 of both), queue and length.
        def field(at, octets):
            return header[8 * at:8 * (at + octets)]

        queue, msn, mo, read_size = (field(at, 4) for at in (6, 10, 14, 30))
        is_first = (msn == 1 << 24) & (mo == 0)
        versions = (header[:2] == 1) & (header[14:16] == 1)
        untagged = versions & (header[6:8] == 0b01)
        tagged = versions & (header[6:8] == 0b11)
        opcode = header[8:12]
        found = Signal(Rtr)
        matches = Signal(len(Rtr) - 1)  # a bit for each kind, in their order
        is_kind = {
            Rtr.SEND: (last.value == 0) | (untagged & (opcode == 3) & (queue == 0) & (last.value == 18)),
            Rtr.WRITE: tagged & (opcode == 0) & (last.value == 14),
            Rtr.READ: untagged & (opcode == 1) & (queue == 1 << 24) & is_first & (read_size == 0) & (last.value == 46),
        }
        m.d.sync += [
            found.eq(Rtr.NONE),
            *(matches[kind - 1].eq(value) for kind, value in is_kind.items()),
            is_response.eq(tagged & (opcode == 2) & (last.value == 14)),
            is_terminate.eq(versions & ~header[7] & (opcode == 7) & (queue == 2 << 24)),  # or the first segment of one
            has_queue.eq(last.value >= 10),
        ]
        rtr_is_due = Signal()
        response_comes = Signal()
        m.d.sync += [
            rtr_is_due.eq(awaits_rtr & ~(is_terminate & has_queue)),
            response_comes.eq(awaits_response & is_response),
        ]
        for kind in is_kind:
            with m.If(matches[kind - 1] & (self.permissive | self.rtr_accept[kind - 1])):
                m.d.sync += found.eq(kind)

        verdict = Signal(Verdict)
        with m.Switch(i.cause):
            with m.Case(Cause.NONE):
                m.d.comb += verdict.eq(Verdict.GOOD)
            with m.Case(Cause.CRC):
                m.d.comb += verdict.eq(Verdict.CRC)
            with m.Default():
                m.d.comb += verdict.eq(Verdict.MARKER)
        beat_in = kept.i.payload
        m.d.comb += [
            *(beat_in[name].eq(i[name]) for name in ("data", "octets", "last")),
            beat_in.verdict.eq(verdict),
            self.o.payload.eq(Mux(flows, beat_in, kept.o.payload)),
            self.sink.eq(field(_SINK_AT, 12)),
            self.failed.eq(state.failed),
        ]

        # What has ended is told in the cycle after; its event one cycle later, when the offset has come up to it.
        tells = Signal()
        event = Signal(Event)
        passed = Signal()
        lanes_passed = Signal.like(last.size)
        m.d.sync += [
            *(self.event[name].eq(event[name]) for name in ("kind", "detail")),
            self.event.value.eq(last.value),
            passed.eq(self.good),
            lanes_passed.eq(last.size),
        ]
        m.d.comb += self.event.offset.eq(state.offset)
        # ``moves`` comes late in the cycle, so these are sums of products, too.
        m.d.sync += [
            ended.eq(flows & moves & i.last),
            inside.eq((inside | (flows & moves)) & ~(moves & i.last)),
        ]
        m.d.comb += [
            self.size.eq(last.size),
            self.markers.eq(last.markers),
        ]
        with m.If(passed):
            m.d.sync += [state.started.eq(1), state.offset.eq(state.offset + Cat(Const(0, 2), lanes_passed))]
        with m.Elif(~state.started):
            m.d.sync += state.offset.eq(self.start)

        def fail(cause):
            report(m, event, EventKind.ERROR, detail=cause)
            m.d.sync += state.failed.eq(1)

        with m.If(tells & is_good):
            m.d.comb += self.good.eq(1)
        with m.Elif(tells):
            m.d.comb += self.crc_error.eq(last.cause == Cause.CRC)
            fail(last.cause)

        released = Signal()  # the FPDU was too long for an RTR, and has been let through

        def let_through():
            m.d.comb += [self.o.valid.eq(kept.o.valid), kept.o.ready.eq(self.o.ready)]

        weighs = Signal()  # the FPDU that has ended
        with m.If(~weighs):
            m.d.sync += [*(last[name].eq(i[name]) for name in CHECKED), is_good.eq(i.cause == Cause.NONE)]

        with m.FSM():
            with m.State("Flow"):
                m.d.comb += [tells.eq(ended), flows_on.eq(inside | ~looks)]
                with m.If(flows):  # a beat that has been offered is not taken back
                    m.d.comb += self.o.valid.eq(self.i.valid & ~i.none)
                    with m.If(self.i.valid):
                        m.d.comb += flows_on.eq(1)
                    with m.If(moves):
                        m.d.comb += flows_on.eq(~i.last | (~looks & (i.cause == Cause.NONE)))
                with m.Elif(ended & ~is_good):
                    m.d.comb += [flows_on.eq(0), sinks_on.eq(1)]
                    m.next = "Stopped"
                with m.Elif(self.i.valid & looks):
                    m.d.comb += keeps_on.eq(1)
                    m.d.sync += [beat.eq(0), released.eq(0)]
                    m.next = "Keep"

            with m.State("Keep"):
                m.d.comb += keeps_on.eq(1)
                m.d.sync += header.word_select(beat, 8 * width).eq(i.data)
                with m.If(self.i.valid):  # and it moves: the queue was empty before
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(i.last):
                        m.d.comb += keeps_on.eq(0)
                        m.next = "Weigh"
                    with m.Elif(beat == beats - 1):
                        m.d.comb += keeps_on.eq(0)
                        m.next = "Long"

            with m.State("Long"):  # too long for an RTR
                m.d.sync += released.eq(1)
                m.next = "Look"
            with m.State("Look"):
                # Of what will be an error nothing goes out.
                m.d.comb += [sinks_on.eq(awaits_rtr & ~self.permissive & ~is_terminate), keeps_on.eq(~sinks_on)]
                m.next = "Rest"
            with m.State("Rest"):
                with m.If(sinks):
                    m.d.comb += clear.eq(1)
                with m.Else():
                    let_through()
                with m.If(moves & i.last):
                    m.next = "Weigh"
                with m.Else():
                    m.d.comb += [keeps_on.eq(keeps), sinks_on.eq(sinks)]

            for state_name, then in (("Weigh", "Ponder"), ("Ponder", "Judge")):
                with m.State(state_name):
                    m.d.comb += weighs.eq(1)
                    with m.If(released):
                        let_through()
                    m.next = then

            with m.State("Judge"):
                m.d.comb += weighs.eq(1)
                with m.If(released):
                    let_through()
                m.next = "Settle"
                m.d.comb += tells.eq(1)
                with m.If(~is_good):
                    m.d.comb += [clear.eq(~released), sinks_on.eq(1)]
                    m.next = "Stopped"
                with m.Elif(rtr_is_due):
                    m.d.sync += state.rtr_came.eq(1)
                    with m.If(found != Rtr.NONE):
                        report(m, event, EventKind.RTR_RECEIVED, detail=found)
                        m.d.comb += [self.rtr.eq(1), self.respond.eq(found == Rtr.READ), clear.eq(1)]
                    with m.Elif(self.permissive):
                        report(m, event, EventKind.RTR_RECEIVED)
                        m.d.comb += self.rtr.eq(1)
                    with m.Else():
                        fail(Cause.NOT_RTR)
                        m.d.comb += [clear.eq(1), sinks_on.eq(1)]
                        m.next = "Stopped"
                with m.Elif(response_comes):
                    report(m, event, EventKind.RESPONSE_RECEIVED)
                    m.d.sync += state.response_came.eq(1)
                    m.d.comb += clear.eq(1)

            with m.State("Settle"):
                let_through()
                with m.If(~kept.o.valid):
                    m.d.comb += flows_on.eq(~looks)
                    m.next = "Flow"

            with m.State("Stopped"):
                m.d.comb += sinks_on.eq(1)
                let_through()
        return m
