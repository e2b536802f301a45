"""The host never sees the RTR (rtl/mpa/rx/rtr_detector.py, RFC 6581 §4.4.2)."""

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib import data

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import fifo_level, fifo_states, keeps, kept
from open_rnic.rtl.formats.layouts import CHECKED
from open_rnic.rtl.mpa.rx.rtr_classifier import RtrClassifier
from open_rnic.rtl.mpa.rx.rtr_detector import RtrDetector
from open_rnic.rtl.registers import Cause, Model, Role, Rtr

_HEADER = 48  # octets; no RTR is longer
_LOOKED = (0, 1, *range(6, 18), *range(30, 34))  # DDP and RDMAP control; QN, MSN, MO; RDMA Read Message Size


class _Watch:
    """The history of the received FPDUs, judged by RFC 5040, RFC 5041 and RFC 6581.

    Assumptions: the host sets its registers before the first FPDU. FpduChecker reports the length of a good FPDU,
    outputs an FPDU that is too long as a single beat, and holds its beats until they are transferred. The input
    ``asked``, which reports that a Read RTR has left, is 0 for two cycles after reset, and does not return to 0. An
    FPDU that begins in the cycle in which ``asked`` is set is not the response.
    """

    def __init__(self, m, detector):
        i, width = detector.i.payload, 4 * detector.lanes
        settings = detector.settings
        m.fixed(settings.role, settings.model, settings.rtr_accept, settings.permissive)
        has_asked, waited = m.last(detector.asked), m.last(detector.i.valid & ~detector.i.ready)
        began = m.last(Const(1))  # a cycle after reset
        m.given(~has_asked | detector.asked, m.last(began) | ~detector.asked, kept(m, detector.i))
        takes, good = detector.i.valid & detector.i.ready, i.cause == Cause.NONE

        self.beats = Signal(17 - width.bit_length())  # earlier beats of the FPDU
        self.inside = self.beats != 0
        m.given(~self.beats[1:].all(), (i.octets <= width) & (i.last | (i.cause != Cause.RX_LENGTH)))
        m.given(
            ~(i.last & good) | (i.value == self.beats * width + i.octets),
            ~(i.last & (i.cause == Cause.RX_LENGTH)) | ~self.inside,
            i.none == (i.last & (i.cause == Cause.RX_LENGTH)),
        )
        self.octets = {at: Signal(8, name=f"octet_{at}") for at in _LOOKED}
        octets = {
            at: Mux(self.beats == at // width, i.data.word_select(at % width, 8), octet)
            for at, octet in self.octets.items()
        }  # with this beat
        with m.If(takes):
            m.d.sync += [
                self.beats.eq(Mux(i.last, 0, self.beats + 1)),
                *(self.octets[at].eq(octets[at]) for at in _LOOKED),
            ]

        # Whether the FPDU will be consumed, and whether the detector stops after it.
        peer_to_peer = detector.settings.model == Model.PEER_TO_PEER
        self.judged, self.answered = Signal(), Signal()  # the first FPDU has been judged; the response has arrived
        asked, begun = Signal(), self.inside | waited  # `asked` when the FPDU began; whether it has begun
        self.awaits_rtr = (detector.settings.role == Role.RESPONDER) & peer_to_peer & ~self.judged
        self.awaits_response = (
            (detector.settings.role == Role.INITIATOR) & peer_to_peer & ~self.answered & Mux(begun, asked, has_asked)
        )
        self.is_consumed, self.is_read = Signal(), Signal()  # the last FPDU was consumed; it was a Read RTR
        kinds = self.kinds(octets, i.value)
        consumed = good & (
            (self.awaits_rtr & self.is_rtr(detector, kinds)) | (self.awaits_response & kinds["response"])
        )
        not_rtr = self.awaits_rtr & ~consumed & ~kinds["terminate"] & ~detector.settings.permissive
        self.stopped = Signal()
        ends = takes & i.last
        with m.If(detector.i.valid & ~begun):
            m.d.sync += asked.eq(has_asked)
        with m.If(ends):
            m.d.sync += [
                self.is_consumed.eq(consumed),
                self.is_read.eq(consumed & kinds["read"]),
                self.judged.eq(self.judged | (self.awaits_rtr & good & ~kinds["terminate"])),
                self.answered.eq(self.answered | (self.awaits_response & consumed)),
                self.stopped.eq(self.stopped | ~good | not_rtr),
            ]

        # The number of beats that may be delivered, and have not been.
        self.owed = Signal(6)
        self.takes_out = ends & consumed & ~self.stopped
        comes = takes & ~self.stopped & ~i.none
        self.gives = gives = detector.o.valid & detector.o.ready
        self.offered = detector.i.valid & ~self.stopped & ~i.none  # the detector may output it in the same cycle
        many = self.owed == 63  # more than any queue holds
        m.d.sync += self.owed.eq(self.owed - gives + Mux(self.takes_out, -self.beats, comes & ~many))

        self._states(m, detector, asked, begun, has_asked, began)

    def _states(self, m, detector, asked, begun, has_asked, began):
        """State which states of the detector are reachable, with regard to the RTR and its response."""
        classifier = detector["classifier"]
        state, last = detector.State(detector["state"]), data.View(data.StructLayout(CHECKED), detector["last"])
        queue, released = detector["kept"], detector["released"]
        beats = -(-_HEADER // (4 * detector.lanes))  # number of beats of an FPDU that are examined
        beat, inside = detector["beat"], detector["inside"]
        flows, keeps, stopped = (detector.within(name) for name in ("Flow", "Keep", "Stopped"))
        fails = flows & detector["ended"] & ~detector["is_good"]  # will be stopped in the next cycle
        out, into, away = (detector[name] for name in ("flows", "keeps", "sinks"))
        long, left = detector.within("Long"), detector["left"]
        remains = detector.within("Remainder") & ~left
        level = fifo_level(queue)
        is_terminate = self.kinds(self.octets, Const(_HEADER))["terminate"]  # if the FPDU is long enough
        m.states(fifo_states(queue), ~out | (flows & ~fails), out + into + away <= 1, ~detector["ended"] | flows)
        m.states(into == (keeps | (remains & ~away)), away == (stopped | (remains & away)))
        classifies, matches, decides = (detector.within(name) for name in ("Classify", "Match", "Decide"))
        m.states(~left | (detector.within("Remainder") & released))
        classifies |= left
        empties, soon, direct = detector.within("Empty"), detector["direct"], detector["direct_0"]
        m.states(Mux(stopped, ~(soon | direct) | (level == 0), soon == (flows | keeps)))
        m.states(direct | ~(out | keeps), ~direct | flows | keeps | stopped | long | (classifies & ~released))
        is_strict = detector["awaits_rtr"] & ~detector.settings.permissive
        m.states(stopped | empties | ~began | (detector["is_strict"] == is_strict))
        with m.If(classifies | matches | decides):
            kinds, good = self.kinds(self.octets, last.value), last.cause == Cause.NONE
            is_rtr = good & detector["awaits_rtr"] & self.is_rtr(detector, kinds)
            consumed = is_rtr | (good & detector["awaits_response"] & kinds["response"])
            first = detector["awaits_rtr"] & ~kinds["terminate"]
            m.states(
                self.is_consumed == consumed,
                self.is_read == (consumed & kinds["read"]),
                self.judged == (state.rtr_came | (first & good)),
                self.answered == (state.response_came | (consumed & ~is_rtr)),
                self.stopped == (~good | (first & ~is_rtr & ~detector.settings.permissive)),
                detector["is_good"] == good,
                *(classifier[f"is_{size}_octets"] == (last.value == size) for size in (0, 14, 18, 46)),
                classifier["has_queue"] == (last.value >= 10),
                ~self.inside & (detector["awaits_rtr"] | detector["awaits_response"]),
                (beat > 0) & (beat <= beats) & (~released | (beat == beats)),
                ~good | Mux(released, last.value >= _HEADER, last.value <= beat * 4 * detector.lanes),
                self.is_consumed | ~(released | good) | (self.owed >= level),
                ~(released & detector["awaits_rtr"]) | is_terminate | detector.settings.permissive | (level == 0),
            )
        with m.Else():
            m.states(self.owed >= level, self.stopped == (stopped | fails))
            m.states(stopped | ((self.judged == state.rtr_came) & (self.answered == state.response_came)))
        with m.If(good & decides):
            found = Mux(detector["awaits_rtr"], detector["found"], Rtr.NONE)
            m.states((found != Rtr.NONE) == is_rtr, (found == Rtr.READ) == self.is_read)
        with m.If(good & matches):
            m.states(classifier["kinds"] == Cat(kinds[kind] for kind in ("send", "write", "read")))
            m.states((classifier["is_terminate"] & classifier["has_queue"]) == kinds["terminate"])
            m.states((detector["awaits_response"] & classifier["is_response"]) == (consumed & ~is_rtr))
        with m.If(good & decides):
            m.states(detector["rtr_is_due"] == first, detector["response_comes"] == (consumed & ~is_rtr))
        m.states(~asked | has_asked)
        responds = detector.settings.role == Role.RESPONDER
        returns = detector.within("Return")
        with m.If(flows | returns):
            m.states((level == 0) & (beat == 0) & ~released, inside == self.inside)
        with m.If(flows):
            m.states(~inside | out)
            m.states(~out | ~(self.awaits_rtr | self.awaits_response))
            awaits_response = ~responds & has_asked & ~state.response_came
            awaits = detector["awaits_rtr"] | (awaits_response & (detector.settings.model == Model.PEER_TO_PEER))
            m.states(out | fails | ~direct | awaits, out | fails | responds | asked | ~begun)
        m.states(~(empties | returns) | ~self.inside)
        with m.If(keeps | long | remains | detector.within("Choose")):
            m.states(detector["awaits_rtr"] | (detector["awaits_response"] & (asked | ~self.inside)))
        with m.If(keeps | long):
            m.states((beat == self.beats) & (beat == level) & ~released, Mux(long, beat == beats, beat < beats))
        with m.If(remains):
            m.states(released & (self.beats >= beats) & (beat == beats))
            m.states(classifier["is_terminate"] == is_terminate)
            m.states(away == (detector["awaits_rtr"] & ~detector.settings.permissive & ~is_terminate))
        with m.If(detector.within("Choose")):
            m.states(released & (self.beats == beats) & (beat == beats) & (beat == level))
            m.states(classifier["is_terminate"] == is_terminate)
        with m.If(began & ~(flows | stopped)):
            m.states(~inside, responds | (has_asked & (asked | ~begun)))
            m.states(
                *(
                    (beat <= at // (4 * detector.lanes)) | (octet == detector["header"].word_select(at, 8))
                    for at, octet in self.octets.items()
                )
            )

    @staticmethod
    def kinds(octet, length):
        """Return for each kind of FPDU whether an FPDU with these octets and this ULPDU_Length is of this kind."""
        ddp, rdmap, opcode = octet[0] & 0xC3, octet[1] >> 6, octet[1] & 0xF  # without reserved bits
        queue, msn, mo, size = (Cat(octet[at + n] for n in (3, 2, 1, 0)) for at in (6, 10, 14, 30))
        tagged, untagged = (ddp == 0xC1) & (rdmap == 1), (ddp == 0x41) & (rdmap == 1)
        is_request = untagged & (opcode == 1) & (queue == 1) & (msn == 1) & (mo == 0)
        return {
            "send": (length == 0) | (untagged & (opcode == 3) & (queue == 0) & (length == 18)),
            "write": tagged & (opcode == 0) & (length == 14),
            "read": is_request & (size == 0) & (length == 46),
            "response": tagged & (opcode == 2) & (length == 14),
            "terminate": (octet[0] & 0x83 == 1) & (rdmap == 1) & (opcode == 7) & (queue == 2) & (length >= 10),
        }

    @staticmethod
    def is_rtr(detector, kinds):
        """Whether it is an RTR of a kind that was negotiated, or of any kind if ``permissive`` is set."""
        return Cat(
            kinds[kind] & (accepted | detector.settings.permissive)
            for kind, accepted in zip(("send", "write", "read"), detector.settings.rtr_accept, strict=True)
        ).any()


@proves(
    "no part of an RTR, or of the response to one, reaches the host",
    RtrDetector,
    Mutant(
        "the RTR is not removed",
        RtrDetector,
        "self.report.respond.eq(x.held.found == Rtr.READ), x.clear.eq(1)",
        "self.report.respond.eq(x.held.found == Rtr.READ)",
    ),
    Mutant("an empty FPDU is not an RTR", RtrClassifier, "size[0] | (untagged", "(untagged"),
    Mutant(
        "the response is delivered",
        RtrDetector,
        "x.state.response_came.eq(1) m.d.comb += x.clear.eq(1)",
        "x.state.response_came.eq(1)",
    ),
    name="rtr",
    lanes=(1, 4),
)
def _(m, detector):
    seen = _Watch(m, detector)
    with m.If(detector.o.valid):
        m.always((seen.owed > 0) | seen.offered)
    with m.If(seen.takes_out):
        m.always(seen.owed >= seen.beats + seen.gives)


@proves(
    "RtrDetector reports at most one RTR to the fence, and requests a response only with this report",
    RtrDetector,
    Mutant("every FPDU may be an RTR", RtrDetector, "state.rtr_came.eq(1)", "state.rtr_came.eq(0)"),
    name="once",
)
def _(m, detector):
    reported = m.ever(detector.report.rtr)
    m.always(~(detector.report.rtr & reported), ~detector.report.respond | detector.report.rtr)
    m.states(~reported | detector.State(detector["state"]).rtr_came)


@proves(
    "RtrDetector only reports an RTR that was negotiated, or any first FPDU if permissive is set, and only requests a "
    "response to a Read",
    RtrDetector,
    Mutant("a Read Request with any MSN is an RTR", RtrClassifier, "(msn == 1 << 24) & (mo == 0)", "mo == 0"),
    Mutant("a Read Request with any MO is an RTR", RtrClassifier, "(msn == 1 << 24) & (mo == 0)", "msn == 1 << 24"),
    Mutant("a kind that was not negotiated is an RTR", RtrDetector,
           "self.settings.permissive | self.settings.rtr_accept[kind - 1]", "1"),
    Mutant("any RTR is answered", RtrDetector, "self.report.respond.eq(x.held.found == Rtr.READ)",
           "self.report.respond.eq(1)"),
    name="negotiated",
)
def _(m, detector):
    seen = _Watch(m, detector)
    report = detector.report
    m.always(~report.rtr | seen.is_consumed | detector.settings.permissive, ~report.respond | seen.is_read)


@proves(
    "a beat is held until it is transferred",
    RtrDetector,
    Mutant(
        "a ULPDU that is passed on is stalled while it is judged",
        RtrDetector,
        "m.d.comb += x.examines.eq(1) with m.If(x.released): self._let_through(m, x) m.next = then",
        "m.d.comb += x.examines.eq(1)\n                m.next = then",
    ),
    name="stays",
    lanes=(4, 1),
)
def _(m, detector):
    _Watch(m, detector)
    keeps(m, detector)
