"""The ULPDUs that may pass the fence, and the conditions under which it opens (rtl/mpa/tx/fence.py).

A bit that the fence never examines distinguishes ULPDUs of the host from those that the device makes: it is 1 in the
host's beats, and 0 in the device's. See :func:`_of_host`.
"""

from amaranth.hdl import Array, Cat, Const, Mux, Signal, Value

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import beats, ready_buffer_states
from open_rnic.rtl.mpa.events import Event
from open_rnic.rtl.mpa.tx.fence import Fence
from open_rnic.rtl.registers import EventKind, Model, Role

_LONGEST = 48  # octets; no ULPDU that the device makes is longer


def _of_host(beat):
    return beat.data[31]


def _is_terminate(beat):
    """Whether the first beat is that of a Terminate: untagged, opcode 7 (RFC 5040 §4.1, §4.3; RFC 5041 §4.3)."""
    return ~beat.data[7] & (beat.data[8:12] == 7) & (beat.length >= 2)


class _Watch:
    """The history of the fence's ports, and the states of the fence that are reachable with this history.

    Assumptions: the host sets its registers before it enables MPA. RtrDetector reports at most one RTR, and requests a
    response only with this report (proved in proofs/rtr.py).
    """

    def __init__(self, m, fence):
        o, leaves = fence.o.payload, fence.o.valid & fence.o.ready
        settings, report = fence.settings, fence.report
        m.fixed(settings.role, settings.model, settings.rtr_send, settings.rdmap, settings.crc, fence.maximum)
        m.given(_of_host(fence.i.payload))
        m.given((fence.sink[15] | fence.sink[47] | fence.sink[79]) == 0)
        self.rtr = m.ever(report.rtr)
        m.given(~(report.rtr & self.rtr) & ~(report.respond & ~report.rtr))

        self.error = m.ever((fence.event.kind == EventKind.ERROR) | (fence.failed & settings.rdmap))
        self.good = m.ever(report.good)
        self.respond = m.ever(report.respond)
        self.initiator = settings.role == Role.INITIATOR
        self.peer_to_peer = settings.model == Model.PEER_TO_PEER

        # The state after the beats that have left. ``step`` computes the state after one more beat.
        self.first = Signal(init=1)  # the next beat is the first one
        self.terminate = Signal()  # it is a Terminate
        self.terminated = Signal()  # a good Terminate has left, or an FPDU without an end
        self.host = Signal()  # it is the host's
        self.own = Signal()  # a ULPDU that the device made has left

        def step(state, beat):
            first, terminate, terminated, host, own = state
            is_terminate = Mux(first, settings.rdmap & _of_host(beat) & _is_terminate(beat), terminate)
            is_host = Mux(first, _of_host(beat), host)
            return [
                beat.last,
                is_terminate,
                terminated | (beat.last & Mux(beat.abort, ~settings.crc, is_terminate)),
                is_host,
                own | (beat.last & ~is_host),
            ]

        state = [self.first, self.terminate, self.terminated, self.host, self.own]
        self.now = step(state, o)
        with m.If(leaves):
            m.d.sync += [signal.eq(new) for signal, new in zip(state, self.now, strict=True)]
        self.sent = m.ever(fence.event.kind == EventKind.RTR_SENT)
        self.answered = m.ever(fence.event.kind == EventKind.RESPONSE_SENT)
        self._states(m, fence, state, step)

    def leads(self, fence):
        """Whether the device must first send a ULPDU of its own."""
        return self.peer_to_peer & (self.initiator | self.respond)

    def is_expected(self, fence, beat):
        """Whether ``beat`` has the length and the control fields of the ULPDU that the device makes in its role."""
        rtr = Array(
            Cat(Const(length, 16), Const(control, 16))
            for length, control in ((0, 0), (18, 0x4341), (14, 0x40C1), (46, 0x4141))
        )
        expected = Mux(self.initiator, rtr[fence.settings.rtr_send], Cat(Const(14, 16), Const(0x42C1, 16)))
        return Cat(beat.length, beat.data[:16]) == expected

    def _states(self, m, fence, seen, step):
        """State which states of the fence are reachable."""
        inner = Fence.State(fence["state"])
        examined, decided = fence["examined"], fence["decided"]
        m.states(ready_buffer_states(examined) & ready_buffer_states(decided))
        for present, beat in beats(examined):
            m.states(~present | (_of_host(beat) & (beat.terminate == (_is_terminate(beat) & fence.settings.rdmap))))
        for present, beat in beats(decided):
            new = step(seen, beat)
            with m.If(present):
                m.states(~_of_host(beat) | inner.opened | (self.error & new[1]))
                m.states(~seen[2] & (seen[0] | (_of_host(beat) == seen[3])))
                m.states(~seen[0] | _of_host(beat) | self.is_expected(fence, beat))
                m.states(~_of_host(beat) | self.error | ~self.leads(fence) | seen[4])
            seen = [Mux(present, after, before) for after, before in zip(new, seen, strict=True)]
        first, terminate, terminated, host, own = seen
        inside, owns, consumes = fence["inside"] & fence["keeps_on"], fence["makes_own_0"], fence["consumes"]
        made, event = fence["generator"], Event(fence["happened"])
        with m.If(owns):
            m.states(~fence["inside"] & ~consumes & ~terminated & (first | ~host) & (first | ~terminate))
        with m.Else():
            m.states((first == ~inside) & (first | host))
            m.states(~inside | ((terminate == fence["terminates"]) & (inner.opened | (self.error & terminate))))
        m.states(terminated == inner.terminated)
        m.states(~inside | ~terminated)
        m.states(~(consumes | fence["inside"]) | inner.opened | inner.failed | inner.terminated)
        with m.If(owns):
            m.states(
                made["beat"] < -(-_LONGEST // (4 * fence.lanes)),
                made["beat"] * 4 * fence.lanes < made["length"],
                first == (made["beat"] == 0),
            )
        with m.Else():
            m.states(~made.o.valid & (made["beat"] == 0))
        with m.If(made.o.valid):
            m.states(Value.cast(made.o.payload) == made["o"])
        m.states(~self.respond | ((fence["kept_sink"][15] | fence["kept_sink"][47] | fence["kept_sink"][79]) == 0))
        m.states(inner.failed == (self.error | (event.kind == EventKind.ERROR)))
        # Relations between the history of the ports and the state of the fence.
        m.states(~inner.rtr_left | self.sent | (event.kind == EventKind.RTR_SENT))
        m.states(
            ~(inner.granted & self.respond & self.peer_to_peer & ~inner.responds)
            | self.answered
            | (event.kind == EventKind.RESPONSE_SENT)
        )
        m.states(
            ~(self.sent | self.answered | (event.kind == EventKind.RTR_SENT) | (event.kind == EventKind.RESPONSE_SENT))
            | own
        )
        m.states(~self.respond | self.rtr)
        m.states(~inner.granted | Mux(self.peer_to_peer, self.rtr, self.good))
        m.states(~inner.responds | (self.rtr & self.respond & ~self.initiator & self.peer_to_peer & ~inner.opened))
        m.states(~inner.opened | Mux(self.initiator, ~self.peer_to_peer | inner.rtr_left, inner.granted))
        m.states(~inner.terminated | inner.opened | inner.failed)
        m.states(
            ~owns
            | inner.responds
            | (self.initiator & self.peer_to_peer & ~inner.rtr_left & (fence.settings.rtr_send != 0))
        )
        m.states(~owns | ~inner.opened)


@proves(
    "no ULPDU of the host passes a closed fence, except a Terminate after an error",
    Fence,
    Mutant(
        "a ULPDU passes before MPA is enabled",
        Fence,
        "passes = x.mpa & (state.opened |",
        "passes = (granted |",
    ),
    Mutant(
        "any ULPDU passes after an error",
        Fence,
        "keeps.eq(~state.terminated & ~i.too_long & (i.terminate | ~state.failed))",
        "keeps.eq(~state.terminated & ~i.too_long)",
    ),
    lanes=(1, 2),
)
def shut(m, fence):
    seen = _Watch(m, fence)
    terminate = seen.now[1]
    with m.If(fence.o.valid & _of_host(fence.o.payload)):
        m.always(fence.state.open | (seen.error & terminate))


@proves(
    "the fence opens as specified for each role and model, only once, and not after an error",
    Fence,
    Mutant("it opens before MPA is enabled", Fence, "may_open = x.mpa & granted", "may_open = granted"),
    Mutant("it opens before the RTR has left", Fence, "~peer_to_peer | state.rtr_left,", "~peer_to_peer | sends_rtr,"),
    Mutant("any good FPDU opens it", Fence, "Mux(peer_to_peer, x.report.rtr, x.report.good)",
           "(x.report.rtr | x.report.good)"),
    Mutant("it opens before the Read Response", Fence, "granted & ~state.responds &", "granted &"),
    Mutant("it opens after an error", Fence, "~state.responds & ~state.failed &", "~state.responds &"),
    lanes=(1, 2),
)
def opens(m, fence):
    seen = _Watch(m, fence)
    was_open, mpa, error = m.last(fence.state.open), m.last(fence.mpa), m.last(seen.error)
    m.always(fence.state.open | ~was_open)
    with m.If(fence.state.open & ~was_open):
        m.always(mpa & ~error)
        with m.If(seen.initiator):
            m.always(~seen.peer_to_peer | seen.sent)
        with m.Elif(seen.peer_to_peer):
            m.always(seen.rtr & (~seen.respond | seen.answered))
        with m.Else():
            m.always(seen.good)


@proves(
    "the RTR of CONFIG, or the Read Response, leaves before any ULPDU of the host",
    Fence,
    Mutant(
        "the fence opens when the RTR begins",
        Fence,
        "generator.o.valid & decided.i.ready & generator.o.payload.last",
        "generator.o.valid & decided.i.ready",
    ),
    Mutant(
        "the RTR is always a Write", Fence, "generator.kind.eq(settings.rtr_send)", "generator.kind.eq(Ulpdu.WRITE)"
    ),
    lanes=(1, 2),
)
def leads(m, fence):
    seen = _Watch(m, fence)
    beat = fence.o.payload
    with m.If(fence.o.valid & _of_host(beat) & ~seen.error & seen.leads(fence)):
        m.always(seen.own)
    with m.If(fence.o.valid & ~_of_host(beat) & seen.first):
        m.always(seen.is_expected(fence, beat))
    with m.If(fence.o.valid & ~seen.first):
        m.always(seen.host == _of_host(beat))


@proves(
    "nothing follows a Terminate, or an FPDU that has no end",
    Fence,
    Mutant(
        "a ULPDU follows an FPDU that has no end",
        Fence,
        "state.terminated.eq(~self.settings.crc)",
        "state.terminated.eq(0)",
    ),
    Mutant("ULPDUs behind a Terminate pass", Fence, "keeps.eq(~state.terminated & ", "keeps.eq("),
    Mutant(
        "a Terminate of several beats is not recognised",
        Fence,
        "Mux(inside, terminates, i.terminate)",
        "(~inside & i.terminate)",
    ),
    lanes=(1, 2),
)
def terminate(m, fence):
    seen = _Watch(m, fence)
    m.always(~(fence.o.valid & seen.terminated))
