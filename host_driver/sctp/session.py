"""DDP stream sessions over SCTP: RFC 5043 with the enhanced session control of RFC 6581 §7, without sockets or clocks.

A session corresponds to a connection over TCP: an Initiate, an Accept or Reject, DDP segments both ways, a Terminate.
Each is one unordered SCTP message, in network byte order, with the payload protocol identifier beside it::

    0   DDP-SSN, 2 octets: the number of the chunk in the session, from 0
    2   PPID 16: a DDP segment
        PPID 17: Function Code, 2 octets
    4   with codes 5, 6 and 7 the enhanced data of RFC 6581 §9, 4 octets
    ..  private data of the ULP; none with code 4

SCTP keeps messages whole and checks them, so there are no FPDUs, markers or CRCs. Either end may send first (RFC 6581
§7): no RTR is sent, and the negotiated model and RTR flags only inform the ULP. IRD and ORD are negotiated by
the rules of ``negotiation``, to which an Initiate is a Request, and an Accept or Reject a Reply.

A ``Session`` is one end. ``TABLE`` is the table of its ``Machine``. An input that is not in the table raises
ProtocolError if it came from the caller, and ends the session if it came from the peer (RFC 5043 §6.1).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

from open_rnic.host_driver import ddp
from open_rnic.host_driver.lib.state_machine import Facts, Machine, Otherwise
from open_rnic.host_driver.mpa.negotiation import (
    Config,
    Disagreement,
    Established,
    Failed,
    Negotiated,
    Reason,
    Terms,
    answer,
    check_private_data,
    conclude,
    refusal,
    rejecting,
    request_data,
)
from open_rnic.host_driver.mpa.startup_frames import ENHANCED_OCTETS, MAX_PRIVATE_DATA, Dialect, EnhancedData
from open_rnic.rtl.registers import Model, Role, Rtr

__all__ = [
    "ADAPTATION", "HELD", "MIN_SEGMENT", "TABLE", "ChunkError", "Control", "Ended", "Event", "Function", "Input",
    "Ppid", "Received", "Session", "SessionRejected", "SessionRequested", "State", "Transmit",
]  # fmt: skip

ADAPTATION = 1  # the Adaptation Indication of DDP (RFC 5043 §5.1)
MIN_SEGMENT = 516  # octets: a DDP segment of this length is always supported (RFC 5043 §9)
HELD = 4 << 20  # octets of chunks, each with _OVERHEAD, that may wait for a chunk before them (RFC 5043 §10)
_OVERHEAD = 256
_HEADER = struct.Struct(">HH")
_SSNS = 1 << 16


class Ppid(IntEnum):
    """Payload protocol identifiers (RFC 5043 §5.2)."""

    SEGMENT = 16
    CONTROL = 17


class Function(IntEnum):
    """Function Codes (RFC 6580 §3.5, RFC 6581 §7); all others are unassigned or reserved."""

    INITIATE = 1
    ACCEPT = 2
    REJECT = 3
    TERMINATE = 4
    ENHANCED_INITIATE = 5
    ENHANCED_ACCEPT = 6
    ENHANCED_REJECT = 7

    @property
    def enhanced(self) -> bool:
        """Whether the chunk has enhanced data.

        RFC 6581 §7 and §9 place it in the Initiate and the Accept. The Reject has it, too, as in MPA, because it must
        carry the RTR kinds (§7) and the required ORD (§9.1).
        """
        return self >= Function.ENHANCED_INITIATE

    @property
    def plain(self) -> Function:
        """The function without enhanced data."""
        return Function(self - 4) if self.enhanced else self

    def __str__(self) -> str:
        enhanced = "Enhanced " if self.enhanced else ""
        return f"{enhanced}DDP Stream Session {self.plain.name.capitalize()}"


class ChunkError(ValueError):
    """A chunk is malformed; the text names the field, its value and its offset in the chunk."""

    def __init__(self, field: str, value: int, offset: int, rule: str) -> None:
        self.field = field
        self.value = value
        self.offset = offset
        super().__init__(f"a chunk with {field} {value} at offset {offset}: {rule}")


@dataclass(frozen=True)
class Control:
    """A DDP Stream Session Control chunk (RFC 5043 §5.2.3), without its DDP-SSN.

    ``private_data`` is the ULP's: up to 512 octets, 508 with enhanced data, and none with a Terminate. Raises
    ValueError if it cannot be encoded.
    """

    function: Function
    enhanced: EnhancedData | None = None
    private_data: bytes = b""

    def __post_init__(self) -> None:
        if self.function.enhanced != (self.enhanced is not None):
            raise ValueError(f"function code {int(self.function)} and enhanced data go together or not at all")
        if self.function is Function.TERMINATE and self.private_data:
            raise ValueError("a DDP Stream Session Terminate has no private data (RFC 5043 §5.2.3)")
        check_private_data(self.private_data, self.enhanced is not None)

    def encode(self, ssn: int) -> bytes:
        """Return the message for SCTP, as number ``ssn`` of the session."""
        enhanced = self.enhanced.encode() if self.enhanced else b""
        return _HEADER.pack(ssn, self.function) + enhanced + self.private_data

    @classmethod
    def decode(cls, octets: bytes, dialect: Dialect = Dialect.RFC_6581) -> Control:
        """Read a message; raises ChunkError."""
        if len(octets) < _HEADER.size:
            raise ChunkError("length", len(octets), 0, f"session control has at least {_HEADER.size} octets")
        _, code = _HEADER.unpack_from(octets)
        try:
            function = Function(code)
        except ValueError:
            raise ChunkError("Function Code", code, 2, "1 to 7 are defined (RFC 6581 §7)") from None
        private, size = octets[_HEADER.size :], len(octets) - _HEADER.size
        if function is Function.TERMINATE and size:
            raise ChunkError("private data of octets", size, 4, "a Terminate has none (RFC 5043 §5.2.3)")
        if size > MAX_PRIVATE_DATA:
            raise ChunkError("private data of octets", size, 4, f"at most {MAX_PRIVATE_DATA} (RFC 5043 §5.2.3)")
        if not function.enhanced:
            return cls(function, None, private)
        if size < ENHANCED_OCTETS:
            raise ChunkError("private data of octets", size, 4, f"{function} has at least 4 (RFC 6581 §7)")
        return cls(function, EnhancedData.decode(private[:ENHANCED_OCTETS], dialect), private[ENHANCED_OCTETS:])


class State(Enum):
    """The state of a session. The last three are final."""

    IDLE = auto()
    WAIT_ANSWER = auto()
    WAIT_INITIATE = auto()
    WAIT_ULP = auto()  # the passive side's ULP decides
    ACCEPTED = auto()  # the Accept is sent; its receipt is not known yet
    OPEN = auto()
    ENDING = auto()  # a Terminate is due, but could overtake the Accept (RFC 5043 §6.6)
    TERMINATE_SENT = auto()
    TERMINATE_RECEIVED = auto()
    ENDED = auto()
    REJECTED = auto()
    FAILED = auto()

    @property
    def final(self) -> bool:
        """Whether the session is over."""
        return self in (State.ENDED, State.REJECTED, State.FAILED)


class Input(Enum):
    """The inputs of a session."""

    ACTIVE = auto()  # from the caller
    PASSIVE = auto()
    ACCEPT = auto()
    REJECT = auto()
    SEND = auto()
    TERMINATE = auto()
    ABORT = auto()
    DELIVERED = auto()  # from SCTP
    CLOSED = auto()
    TIMEOUT = auto()
    PEER_INITIATE = auto()  # from the peer
    PEER_ACCEPT = auto()
    PEER_REJECT = auto()
    PEER_TERMINATE = auto()
    PEER_SEGMENT = auto()
    BAD_CHUNK = auto()


_PEER = {
    Function.INITIATE: Input.PEER_INITIATE,
    Function.ACCEPT: Input.PEER_ACCEPT,
    Function.REJECT: Input.PEER_REJECT,
    Function.TERMINATE: Input.PEER_TERMINATE,
}
_FROM_PEER = {*_PEER.values(), Input.PEER_SEGMENT, Input.BAD_CHUNK}
# The states in which no Terminate can overtake earlier session control (RFC 5043 §6.6)
_MAY_TERMINATE = {State.WAIT_INITIATE, State.WAIT_ULP, State.OPEN, State.TERMINATE_RECEIVED}


@dataclass(frozen=True)
class Transmit:
    """A message that must go to the peer, unordered and on the session's SCTP stream (RFC 5043 §10)."""

    ppid: Ppid
    octets: bytes


@dataclass(frozen=True)
class SessionRequested:
    """An Initiate was received; the ULP calls accept() or reject()."""

    control: Control
    model: Model


@dataclass(frozen=True)
class SessionRejected:
    """The passive side refused, with this chunk.

    ``may_retry_unenhanced``: an Enhanced Reject allows an Initiate without enhanced data (RFC 6581 §7).
    """

    control: Control
    what: str
    may_retry_unenhanced: bool = False


@dataclass(frozen=True)
class Received:
    """The next DDP segment."""

    segment: bytes


@dataclass(frozen=True)
class Ended:
    """No more segments will arrive from the peer."""


Event = Transmit | SessionRequested | Established | SessionRejected | Received | Ended | Failed


@dataclass(frozen=True)
class _Given(Facts):
    """The facts of an input, with the chunk of one from the peer."""

    control: Control = field(default_factory=lambda: Control(Function.TERMINATE))


@dataclass
class Session(Machine[State, Input, Event]):
    """One end of a DDP stream session; see the module's text.

    ``config`` is that of ``negotiation``; its CRC, markers and ``permissive`` have no meaning here. ``max_segment`` is
    the length in octets of the longest DDP segment that SCTP carries whole.
    """

    config: Config
    max_segment: int = MIN_SEGMENT
    state: State = State.IDLE
    deadline: float | None = None  # the time at which ``tick`` must be called; None means never
    _ssn: int = field(default=0, init=False, repr=False)
    _expected: int = field(default=0, init=False, repr=False)
    _held: dict[int, tuple[int, bytes]] = field(default_factory=dict, init=False, repr=False)
    _held_octets: int = field(default=0, init=False, repr=False)
    _theirs: Control = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.max_segment < MIN_SEGMENT:
            raise ValueError(f"max_segment is at least {MIN_SEGMENT} octets, not {self.max_segment} (RFC 5043 §9)")

    # For the caller

    def start(self, now: float) -> list[Event]:
        """Begin at time ``now``: the active side sends its Initiate, the passive side waits for one."""
        return self.take(Input.ACTIVE if self.config.role is Role.INITIATOR else Input.PASSIVE, Facts(now=now))

    def accept(self, private_data: bytes = b"", config: Config | None = None) -> list[Event]:
        """The passive ULP accepts the session; see ``Negotiation.accept``."""
        self.config = config or self.config
        return self.take(Input.ACCEPT, Facts(octets=private_data))

    def reject(
        self, private_data: bytes = b"", what: str = "the ULP rejected the session", config: Config | None = None
    ) -> list[Event]:
        """The passive ULP rejects the session; see ``Negotiation.reject``."""
        self.config = config or self.config
        return self.take(Input.REJECT, Facts(octets=private_data, what=what))

    def send(self, segment: bytes) -> list[Event]:
        """Send a DDP segment; raises ValueError for one over ``max_segment`` (RFC 5043 §9)."""
        return self.take(Input.SEND, Facts(octets=segment))

    def terminate(self) -> list[Event]:
        """End this end's direction; segments from the peer are still received."""
        return self.take(Input.TERMINATE)

    def abort(self, what: str) -> list[Event]:
        """Report a failure at this end: a Terminate answers an Initiate, and error 2/0/5 ends an open session.

        Also answers an Initiate if too many wait for the ULP (RFC 5043 §6.4).
        """
        return self.take(Input.ABORT, Facts(what=what))

    def delivered(self) -> list[Event]:
        """Report that the peer has received all messages sent so far."""
        return [] if (self.state, Input.DELIVERED) not in TABLE else self.take(Input.DELIVERED)

    def closed(self, how: str) -> list[Event]:
        """The SCTP association ended; ``how`` describes it for a person. Does nothing after the session."""
        return [] if self.state.final else self.take(Input.CLOSED, Facts(what=how))

    def receive(self, ppid: int, octets: bytes) -> list[Event]:
        """Take one message from the peer; SCTP may deliver messages in any order."""
        if self.state.final:
            return []
        if len(octets) < 2:
            return self._bad(f"a chunk with length {len(octets)} at offset 0: a DDP-SSN has 2 octets")
        ssn = int.from_bytes(octets[:2], "big")
        if (ssn - self._expected) % _SSNS >= _SSNS // 2 or ssn in self._held:
            return self._bad(f"a chunk with DDP-SSN {ssn} at offset 0: {self._expected} is due")
        self._held[ssn] = ppid, octets
        self._held_octets += _OVERHEAD + len(octets)
        events: list[Event] = []
        while self._expected in self._held and not self.state.final:
            ppid, octets = self._held.pop(self._expected)
            self._held_octets -= _OVERHEAD + len(octets)
            self._expected = (self._expected + 1) % _SSNS
            events += self._take(ppid, octets)
        if self._held_octets > HELD and not self.state.final:
            events += self._bad(f"a chunk with DDP-SSN {self._expected} is missing, and too much waits behind it")
        if self.state.final:
            self._held.clear()
        return events

    # The machine

    def _take(self, ppid: int, octets: bytes) -> list[Event]:
        if ppid == Ppid.SEGMENT:
            return self.take(Input.PEER_SEGMENT, Facts(octets=octets[2:], what="a DDP segment"))
        if ppid != Ppid.CONTROL:
            return self._bad(f"a chunk with payload protocol identifier {ppid}: 16 and 17 are DDP's (RFC 5043 §5.2)")
        try:
            control = Control.decode(octets, self.config.dialect)
        except ChunkError as error:
            return self._bad(str(error))
        if control.enhanced and not self.config.enhanced:
            return self._bad(f"{control.function} to an end without RFC 6581")
        return self.take(_PEER[control.function.plain], _Given(control=control, what=str(control.function)))

    def _bad(self, what: str) -> list[Event]:
        return self.take(Input.BAD_CHUNK, Facts(what=what))

    @classmethod
    def _table(cls) -> Mapping[tuple[State, Input], tuple[_Action, State]]:
        return TABLE

    @classmethod
    def _timeout(cls) -> Input:
        return Input.TIMEOUT

    def _illegal(self, given: Input) -> tuple[_Action, State]:
        if given in _FROM_PEER and not self.state.final:
            return Session._violated, State.FAILED
        return super()._illegal(given)

    def _violated(self, given: Facts) -> list[Event]:
        what = given.what if given.what.startswith("a chunk") else f"{given.what} in state {self.state.name}"
        # An end without RFC 6581 answers function code 5 in the same way
        terminates = [self._control(Function.TERMINATE)] if self.state in _MAY_TERMINATE else []
        return [*terminates, Failed(Reason.BAD_FRAME, what)]

    # The active side

    def _initiate(self, given: Facts) -> list[Event]:
        self.deadline = given.now + self.config.timeout
        if not self.config.enhanced:  # RFC 6581 §10
            return [self._control(Function.INITIATE, None, self.config.private_data)]
        return [self._control(Function.ENHANCED_INITIATE, request_data(self.config), self.config.private_data)]

    def _accepted(self, given: _Given) -> list[Event]:
        self._theirs = theirs = given.control
        if self.config.enhanced and not theirs.enhanced:
            what = f"{theirs.function} to an Enhanced Initiate (RFC 6581 §10)"
            failed = Failed(Reason.BAD_FRAME, what, may_retry_unenhanced=True)
            raise Otherwise(State.FAILED, *self._terminate_with(failed))
        if not theirs.enhanced:
            return [Established(self._agree(None))]
        try:
            return [Established(self._agree(conclude(self.config, theirs.enhanced)))]
        except Disagreement as error:
            raise Otherwise(State.FAILED, *self._terminate_with(Failed(error.reason, str(error)))) from None

    def _rejected(self, given: _Given) -> list[Event]:
        retry = given.control.function is Function.ENHANCED_REJECT
        return [SessionRejected(given.control, "the passive side rejected the session", may_retry_unenhanced=retry)]

    def _refused(self, _: Facts) -> list[Event]:
        what = "the passive side terminated the session without asking its ULP (RFC 5043 §6.4)"
        return [Failed(Reason.CONNECTION_LOST, what, may_retry_unenhanced=self.config.enhanced)]

    # The passive side

    def _listen(self, given: Facts) -> list[Event]:
        self.deadline = given.now + self.config.timeout
        return []

    def _requested(self, given: _Given) -> list[Event]:
        self._theirs = theirs = given.control
        if theirs.enhanced and (what := refusal(self.config, theirs.enhanced)):
            raise Otherwise(State.REJECTED, *self._reject(Facts(what=what)))
        peer_to_peer = theirs.enhanced is not None and theirs.enhanced.peer_to_peer
        return [SessionRequested(theirs, Model.PEER_TO_PEER if peer_to_peer else Model.CLIENT_SERVER)]

    def _accept(self, given: Facts) -> list[Event]:
        if not self._theirs.enhanced:
            return [self._control(Function.ACCEPT, None, given.octets), Established(self._agree(None))]
        reply, terms = answer(self.config, self._theirs.enhanced)
        return [self._control(Function.ENHANCED_ACCEPT, reply, given.octets), Established(self._agree(terms))]

    def _reject(self, given: Facts) -> list[Event]:
        control = Control(Function.REJECT, None, given.octets)
        if self._theirs.enhanced:
            reply = rejecting(self.config, answer(self.config, self._theirs.enhanced)[0])
            control = Control(Function.ENHANCED_REJECT, reply, given.octets)
        return [self._sent(control), SessionRejected(control, given.what)]

    # Either side

    def _agree(self, terms: Terms | None) -> Negotiated:
        theirs = self._theirs.enhanced
        return Negotiated(
            role=self.config.role,
            model=terms.model if terms else Model.CLIENT_SERVER,
            rtr_send=Rtr.NONE,
            rtr_accept=frozenset(),
            markers_tx=False,
            markers_rx=False,
            crc=False,
            rev=0,  # only frames of MPA have a Rev
            enhanced=theirs is not None,
            ird=terms.ird if terms else self.config.ird,
            ord=terms.ord if terms else self.config.ord,
            peer_ird=theirs.ird if theirs else None,
            peer_ord=theirs.ord if theirs else None,
            private_data=self._theirs.private_data,
        )

    def _send(self, given: Facts) -> list[Event]:
        if len(given.octets) > self.max_segment:
            raise ValueError(f"a DDP segment has up to {self.max_segment} octets here, not {len(given.octets)}")
        return [self._segment(given.octets)]

    def _received(self, given: Facts) -> list[Event]:
        return [Received(given.octets)]

    def _nothing(self, _: Facts) -> list[Event]:
        return []

    def _terminate(self, _: Facts) -> list[Event]:
        return [self._control(Function.TERMINATE)]

    def _received_and_terminate(self, given: Facts) -> list[Event]:
        return [Received(given.octets), self._control(Function.TERMINATE)]

    def _ended(self, _: Facts) -> list[Event]:
        return [Ended()]

    def _ended_and_terminate(self, _: Facts) -> list[Event]:
        return [Ended(), self._control(Function.TERMINATE)]

    def _abort(self, given: Facts) -> list[Event]:
        return [Failed(Reason.LOCAL, given.what)]

    def _abort_request(self, given: Facts) -> list[Event]:
        return [self._control(Function.TERMINATE), Failed(Reason.LOCAL, given.what)]

    def _abort_accepted(self, given: Facts) -> list[Event]:
        return [self._error(Reason.LOCAL), Failed(Reason.LOCAL, given.what)]

    def _abort_open(self, given: Facts) -> list[Event]:
        return self._terminate_with(Failed(Reason.LOCAL, given.what))

    def _closed(self, given: Facts) -> list[Event]:
        return [Failed(Reason.CONNECTION_LOST, f"{given.what} in state {self.state.name}")]

    def _late(self, _: Facts) -> list[Event]:
        due = "answer to the Initiate" if self.state is State.WAIT_ANSWER else "Initiate"
        return [Failed(Reason.TIMED_OUT, f"no {due} within {self.config.timeout:g} s")]

    def _terminate_with(self, failed: Failed) -> list[Event]:
        """Send the Terminate of RDMAP, a DDP segment, and then that of the session (RFC 5043 §6.2)."""
        code = [] if failed.reason is Reason.BAD_FRAME else [self._error(failed.reason)]
        return [*code, self._control(Function.TERMINATE), failed]

    def _error(self, reason: Reason) -> Transmit:
        return self._segment(ddp.Terminate(2, 0, reason.code).encode())  # RFC 6581 §8

    def _control(self, function: Function, enhanced: EnhancedData | None = None, private: bytes = b"") -> Transmit:
        return self._sent(Control(function, enhanced, private))

    def _sent(self, control: Control) -> Transmit:
        return Transmit(Ppid.CONTROL, control.encode(self._next_ssn()))

    def _segment(self, octets: bytes) -> Transmit:
        return Transmit(Ppid.SEGMENT, struct.pack(">H", self._next_ssn()) + octets)

    def _next_ssn(self) -> int:
        ssn, self._ssn = self._ssn, (self._ssn + 1) % _SSNS
        return ssn


_Action = Callable[[Session, _Given], list[Event]]

TABLE: dict[tuple[State, Input], tuple[_Action, State]] = {
    (State.IDLE, Input.ACTIVE): (Session._initiate, State.WAIT_ANSWER),
    (State.IDLE, Input.PASSIVE): (Session._listen, State.WAIT_INITIATE),
    (State.IDLE, Input.ABORT): (Session._abort, State.FAILED),
    (State.IDLE, Input.CLOSED): (Session._closed, State.FAILED),
    (State.WAIT_ANSWER, Input.PEER_ACCEPT): (Session._accepted, State.OPEN),
    (State.WAIT_ANSWER, Input.PEER_REJECT): (Session._rejected, State.REJECTED),
    (State.WAIT_ANSWER, Input.PEER_TERMINATE): (Session._refused, State.FAILED),
    (State.WAIT_ANSWER, Input.ABORT): (Session._abort, State.FAILED),
    (State.WAIT_ANSWER, Input.CLOSED): (Session._closed, State.FAILED),
    (State.WAIT_ANSWER, Input.TIMEOUT): (Session._late, State.FAILED),
    (State.WAIT_INITIATE, Input.PEER_INITIATE): (Session._requested, State.WAIT_ULP),
    (State.WAIT_INITIATE, Input.ABORT): (Session._abort, State.FAILED),
    (State.WAIT_INITIATE, Input.CLOSED): (Session._closed, State.FAILED),
    (State.WAIT_INITIATE, Input.TIMEOUT): (Session._late, State.FAILED),
    (State.WAIT_ULP, Input.ACCEPT): (Session._accept, State.ACCEPTED),
    (State.WAIT_ULP, Input.REJECT): (Session._reject, State.REJECTED),
    (State.WAIT_ULP, Input.ABORT): (Session._abort_request, State.FAILED),
    (State.WAIT_ULP, Input.CLOSED): (Session._closed, State.FAILED),
    (State.ACCEPTED, Input.DELIVERED): (Session._nothing, State.OPEN),
    (State.ACCEPTED, Input.SEND): (Session._send, State.ACCEPTED),
    (State.ACCEPTED, Input.PEER_SEGMENT): (Session._received, State.OPEN),
    (State.ACCEPTED, Input.PEER_TERMINATE): (Session._ended, State.TERMINATE_RECEIVED),
    (State.ACCEPTED, Input.TERMINATE): (Session._nothing, State.ENDING),
    (State.ACCEPTED, Input.ABORT): (Session._abort_accepted, State.FAILED),
    (State.ACCEPTED, Input.CLOSED): (Session._closed, State.FAILED),
    (State.OPEN, Input.SEND): (Session._send, State.OPEN),
    (State.OPEN, Input.PEER_SEGMENT): (Session._received, State.OPEN),
    (State.OPEN, Input.PEER_TERMINATE): (Session._ended, State.TERMINATE_RECEIVED),
    (State.OPEN, Input.TERMINATE): (Session._terminate, State.TERMINATE_SENT),
    (State.OPEN, Input.ABORT): (Session._abort_open, State.FAILED),
    (State.OPEN, Input.CLOSED): (Session._closed, State.FAILED),
    (State.ENDING, Input.DELIVERED): (Session._terminate, State.TERMINATE_SENT),
    (State.ENDING, Input.PEER_SEGMENT): (Session._received_and_terminate, State.TERMINATE_SENT),
    (State.ENDING, Input.PEER_TERMINATE): (Session._ended_and_terminate, State.ENDED),
    (State.ENDING, Input.ABORT): (Session._abort, State.FAILED),
    (State.ENDING, Input.CLOSED): (Session._closed, State.FAILED),
    (State.TERMINATE_SENT, Input.PEER_SEGMENT): (Session._received, State.TERMINATE_SENT),
    (State.TERMINATE_SENT, Input.PEER_TERMINATE): (Session._ended, State.ENDED),
    (State.TERMINATE_SENT, Input.ABORT): (Session._abort, State.FAILED),
    (State.TERMINATE_SENT, Input.CLOSED): (Session._ended, State.ENDED),  # the peer need not answer (RFC 5043 §6.2)
    (State.TERMINATE_RECEIVED, Input.SEND): (Session._send, State.TERMINATE_RECEIVED),
    (State.TERMINATE_RECEIVED, Input.TERMINATE): (Session._terminate, State.ENDED),
    (State.TERMINATE_RECEIVED, Input.ABORT): (Session._abort_open, State.FAILED),
    (State.TERMINATE_RECEIVED, Input.CLOSED): (Session._nothing, State.ENDED),
}
