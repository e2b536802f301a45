"""The startup exchange of RFC 5044 §7.1 with RFC 6581, without sockets or clocks.

A ``Negotiation`` is one end of one connection. It takes the peer's octets, what the ULP decides and what
happens to the TCP connection, and answers each with a list of events; times are seconds on any
clock that only goes forward. What it does stands in one table, ``TABLE``: (state, input) gives
the action and the next state. An action that finds a rule broken ends in FAILED instead. What is not in the table is a
protocol error: it fails the negotiation when the peer did it, and raises ProtocolError when the caller did.

    initiator:  start()   ─▸ Send ─▸ receive(Reply)   ─▸ Established, Rejected or Failed
    responder:  start()   ─▸         receive(Request) ─▸ Requested or Failed
                accept() or reject()  ─▸ Send, and Established or Rejected

``wanted`` says how many octets may be handed to ``receive`` now, so that none of the FPDUs
behind the peer's frame is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from host_driver.startup import (
    ENHANCED_OCTETS,
    MAX_PRIVATE_DATA,
    NO_NEGOTIATION,
    EnhancedData,
    FrameKind,
    StartupDecoder,
    StartupError,
    StartupFrame,
)
from rtl.registers import Model, Role, Rtr

ENHANCED_REV = 2  # RFC 6581 §6: the enhanced data needs this or a higher Rev
_REVS = (1, 2)  # those that this end can work with


class State(Enum):
    """Where a negotiation stands. The last three are final."""

    IDLE = auto()
    WAIT_REPLY = auto()
    WAIT_REQUEST = auto()
    WAIT_ULP = auto()  # the responder's ULP decides
    ESTABLISHED = auto()  # the startup frames are exchanged; MPA begins behind them
    REJECTED = auto()
    FAILED = auto()

    @property
    def final(self) -> bool:
        """Nothing more will happen."""
        return self in (State.ESTABLISHED, State.REJECTED, State.FAILED)


class Input(Enum):
    """What can happen to a negotiation."""

    INITIATE = auto()  # from the caller
    LISTEN = auto()
    ACCEPT = auto()
    REJECT = auto()
    ABORT = auto()
    REQUEST = auto()  # from the peer
    ACCEPTING_REPLY = auto()
    REJECTING_REPLY = auto()
    BAD_FRAME = auto()
    CLOSED = auto()  # the TCP connection ended
    TIMEOUT = auto()


class Reason(Enum):
    """Why a negotiation, or later a connection, failed. ``code`` is the MPA error (RFC 5044 §8, RFC 6581 §8)."""

    CONNECTION_LOST = 1
    BAD_CRC = 2  # this and the next are not of the negotiation, but complete the list
    BAD_MARKER = 3
    BAD_FRAME = 4
    LOCAL = 5
    INSUFFICIENT_IRD = 6
    NO_MATCHING_RTR = 7
    TIMED_OUT = 0  # no MPA error code exists for it

    @property
    def code(self) -> int:
        """The MPA error code, 0 when there is none."""
        return self.value

    @property
    def terminate(self) -> bool:
        """The peer is owed a Terminate with layer 2, type 0 and this code (RFC 6581 §9.1, §9.2)."""
        return self in (Reason.INSUFFICIENT_IRD, Reason.NO_MATCHING_RTR)


class ProtocolError(Exception):
    """An input that has no meaning in the state."""

    def __init__(self, state: State, given: Input) -> None:
        self.state = state
        self.given = given
        super().__init__(f"{given.name} is not possible in state {state.name}")


@dataclass(frozen=True)
class Config:
    """What one end wants of a connection. Raises ValueError for what contradicts itself."""

    role: Role
    model: Model = Model.PEER_TO_PEER  # an initiator's; a responder follows the Request
    rtr: tuple[Rtr, ...] = (Rtr.WRITE, Rtr.READ, Rtr.SEND)  # the kinds supported, the preferred one first
    ird: int = 16  # RDMA Read Requests that the peer may have outstanding
    ord: int = 16  # RDMA Read Requests that this end wants to have outstanding
    max_ird: int = 128  # RDMA Read Requests that the device has room for
    min_ord: int = 0  # a responder's: with less the Request is rejected (RFC 6581 §9.1)
    negotiate_ird: bool = True  # False: 0x3FFF is sent and ``ird`` stays as it is
    negotiate_ord: bool = True  # False: 0x3FFF is sent and ``ord`` stays as it is
    crc: bool = True  # C; CRCs are used when either end sets it (RFC 5044 §7.1.1)
    markers: bool = False  # M: the peer must put markers into what it sends
    enhanced: bool = True  # an initiator's: RFC 6581; else RFC 5044 alone, with Rev 1
    permissive: bool = False  # a responder's: any first FPDU counts as the RTR, for peers that send another one
    private_data: bytes = b""  # an initiator's, in octets; a responder's goes to accept() or reject()
    timeout: float = 10.0  # seconds until the peer's startup frame must be there (RFC 5044 §7.1.2 rules 8 and 10)

    def __post_init__(self) -> None:
        for name in ("ird", "ord", "max_ird", "min_ord"):
            value = getattr(self, name)
            if not 0 <= value < NO_NEGOTIATION:
                raise ValueError(f"{name} is 0 to {NO_NEGOTIATION - 1}, not {value}")
        if self.ird > self.max_ird:
            raise ValueError(f"ird {self.ird} is over the device's {self.max_ird}")
        if self.min_ord > self.ord:
            raise ValueError(f"min_ord {self.min_ord} is over ord {self.ord}")
        if not self.rtr or Rtr.NONE in self.rtr:
            raise ValueError("at least one RTR kind must be supported (RFC 6581 §9.2)")
        if self.rtr == (Rtr.READ,) and not (self.max_ird if self.negotiate_ird else self.ird):
            raise ValueError("a Read RTR needs room for one RDMA Read Request, and the IRD is 0")
        if self.role is Role.INITIATOR and self.model is Model.PEER_TO_PEER and not self.enhanced:
            raise ValueError("the peer-to-peer model needs enhanced frames (RFC 6581 §9.2)")
        if self.timeout <= 0:
            raise ValueError(f"timeout is more than 0 seconds, not {self.timeout}")
        check_private_data(self.private_data, self.enhanced)


@dataclass(frozen=True)
class Negotiated:
    """What the two ends have agreed on: all that a device is configured with, and what the ULP must know.

    ``peer_ird`` and ``peer_ord`` are what the peer's frame said, NO_NEGOTIATION included, and None when it had no
    enhanced data (RFC 6581 §9.1: the ULP MUST see them).
    """

    role: Role
    model: Model
    rtr_send: Rtr  # NONE: this end sends none
    rtr_accept: frozenset[Rtr]  # empty: this end receives none
    markers_tx: bool
    markers_rx: bool
    crc: bool
    rev: int
    enhanced: bool
    ird: int
    ord: int
    peer_ird: int | None
    peer_ord: int | None
    private_data: bytes  # the peer's


@dataclass(frozen=True)
class Send:
    """These octets must go to the peer, as one TCP segment and apart from any FPDU (RFC 6581 §4.3)."""

    frame: StartupFrame
    octets: bytes


@dataclass(frozen=True)
class Requested:
    """A Request has come; the ULP calls accept() or reject()."""

    frame: StartupFrame
    model: Model


@dataclass(frozen=True)
class Established:
    """The frames are exchanged; MPA begins in each direction behind that direction's frame."""

    negotiated: Negotiated


@dataclass(frozen=True)
class Rejected:
    """The responder refused, with this Reply. MPA is over, TCP is still open (RFC 5044 §7.1.2 rules 2 and 3)."""

    frame: StartupFrame
    what: str


@dataclass(frozen=True)
class Failed:
    """There will be no connection. TCP is to be closed, after a Terminate when ``terminate`` is there.

    ``terminate`` is what to set the device to for sending it: the Terminate is the first FPDU, no RTR goes before it.
    ``may_retry_unenhanced``: the peer behaved as one that knows RFC 5044 only (RFC 6581 §10).
    """

    reason: Reason
    what: str
    terminate: Negotiated | None = None
    may_retry_unenhanced: bool = False


Event = Send | Requested | Established | Rejected | Failed


class _Otherwise(Exception):  # noqa: N818 -- it steers, it is no error
    """An action ends in another state than the table's."""

    def __init__(self, state: State, *events: Event) -> None:
        super().__init__()
        self.state = state
        self.events = list(events)


def check_private_data(octets: bytes, enhanced: bool) -> None:
    """Raise ValueError when a frame has no room for these octets of the ULP's."""
    room = MAX_PRIVATE_DATA - (ENHANCED_OCTETS if enhanced else 0)
    if len(octets) > room:
        raise ValueError(f"private data may have {room} octets, not {len(octets)} (RFC 5044 §7.1.1)")


@dataclass(frozen=True)
class _Given:
    """What came with an input."""

    now: float = 0.0
    private_data: bytes = b""
    what: str = ""


@dataclass
class Negotiation:
    """One end of the startup exchange; see the module's text."""

    config: Config
    state: State = State.IDLE
    deadline: float | None = None  # at this time tick() has something to do
    _decoder: StartupDecoder = field(init=False, repr=False)
    _ours: StartupFrame = field(init=False, repr=False)
    _theirs: StartupFrame = field(init=False, repr=False)

    def __post_init__(self) -> None:
        initiator = self.config.role is Role.INITIATOR
        self._decoder = StartupDecoder(FrameKind.REPLY if initiator else FrameKind.REQUEST)

    @property
    def wanted(self) -> int:
        """How many octets ``receive`` may be given now."""
        return self._decoder.missing if self.state in (State.WAIT_REPLY, State.WAIT_REQUEST) else 0

    @property
    def received(self) -> StartupFrame | None:
        """The peer's frame, once it is whole."""
        return self._decoder.frame

    def start(self, now: float) -> list[Event]:
        """Begin, at time ``now``: an initiator sends its Request, a responder waits for one."""
        return self._input(Input.INITIATE if self.config.role is Role.INITIATOR else Input.LISTEN, _Given(now=now))

    def receive(self, octets: bytes) -> list[Event]:
        """Take octets from the peer, at most ``wanted``; raises ValueError for more."""
        if len(octets) > self.wanted:
            raise ValueError(f"{len(octets)} octets given where {self.wanted} are wanted")
        try:
            self._decoder.feed(octets)
        except StartupError as error:
            return self._input(Input.BAD_FRAME, _Given(what=str(error)))
        if self._decoder.frame is None or not octets:
            return []
        self._theirs = self._decoder.frame
        if self.config.role is Role.RESPONDER:
            return self._input(Input.REQUEST)  # R is not checked in a Request (RFC 5044 §7.1.1)
        return self._input(Input.REJECTING_REPLY if self._theirs.rejected else Input.ACCEPTING_REPLY)

    def accept(self, private_data: bytes = b"") -> list[Event]:
        """The responder's ULP takes the connection; raises ValueError for too much private data."""
        return self._input(Input.ACCEPT, _Given(private_data=private_data))

    def reject(self, private_data: bytes = b"", what: str = "the ULP rejected the connection") -> list[Event]:
        """The responder's ULP refuses the connection; raises ValueError for too much private data."""
        return self._input(Input.REJECT, _Given(private_data=private_data, what=what))

    def abort(self, what: str) -> list[Event]:
        """Something failed at this end before the exchange was over."""
        return self._input(Input.ABORT, _Given(what=what))

    def connection_lost(self, how: str) -> list[Event]:
        """The TCP connection ended; ``how`` says it for a person. After the exchange it concerns others."""
        return [] if self.state.final else self._input(Input.CLOSED, _Given(what=how))

    def tick(self, now: float) -> list[Event]:
        """Note the time."""
        return [] if self.deadline is None or now < self.deadline else self._input(Input.TIMEOUT)

    def _input(self, given: Input, what: _Given = _Given()) -> list[Event]:
        if (self.state, given) not in TABLE:
            raise ProtocolError(self.state, given)
        action, after = TABLE[self.state, given]
        try:
            events = action(self, what)
        except _Otherwise as other:
            after, events = other.state, other.events
        self.state = after
        if after not in (State.WAIT_REPLY, State.WAIT_REQUEST):
            self.deadline = None
        return events

    # What an initiator does

    def _initiate(self, given: _Given) -> list[Event]:
        config = self.config
        self.deadline = given.now + config.timeout
        peer_to_peer = config.model is Model.PEER_TO_PEER
        enhanced = EnhancedData(
            ird=config.ird if config.negotiate_ird else NO_NEGOTIATION,
            ord=config.ord if config.negotiate_ord else NO_NEGOTIATION,
            peer_to_peer=peer_to_peer,
            # RFC 6581 §9.2: every kind that is supported, and none without A
            rtr=frozenset(config.rtr) if peer_to_peer else frozenset(),
        )
        self._ours = StartupFrame(
            FrameKind.REQUEST,
            markers=config.markers,
            crc=config.crc,
            rev=ENHANCED_REV if config.enhanced else 1,  # RFC 6581 §6, §10
            enhanced=enhanced if config.enhanced else None,
            private_data=config.private_data,
        )
        return [Send(self._ours, self._ours.encode())]

    def _accepted(self, _: _Given) -> list[Event]:
        self._check_rev()
        if bool(self._ours.enhanced) != bool(self._theirs.enhanced):
            raise _Otherwise(
                State.FAILED,
                Failed(
                    Reason.BAD_FRAME,
                    f"MPA Reply with S={int(bool(self._theirs.enhanced))} to a Request "
                    f"with S={int(bool(self._ours.enhanced))} (RFC 6581 §10)",
                    may_retry_unenhanced=self._ours.enhanced is not None,
                ),
            )
        agreed = self._agree()
        if self._theirs.enhanced:
            agreed = self._initiator_depths(agreed, self._theirs.enhanced)
            agreed = self._initiator_rtr(agreed, self._theirs.enhanced)
        return [Established(agreed)]

    def _rejected(self, _: _Given) -> list[Event]:
        self._check_rev()
        what = "the responder rejected the connection (R=1)"
        theirs = self._theirs.enhanced
        if theirs and self.config.ird < theirs.ord < NO_NEGOTIATION:
            what += f": its ORD is {theirs.ord}, this end's IRD {self.config.ird}"
        return [Rejected(self._theirs, what)]

    def _initiator_depths(self, agreed: Negotiated, theirs: EnhancedData) -> Negotiated:
        """IRD at least the responder's ORD, ORD at most the responder's IRD (RFC 6581 §9.1)."""
        ird, ord_ = agreed.ird, agreed.ord
        if theirs.ord != NO_NEGOTIATION:
            ird = max(ird, theirs.ord)
        if theirs.ird != NO_NEGOTIATION:
            ord_ = min(ord_, theirs.ird)
        if ird > self.config.max_ird:
            what = f"the responder's ORD {theirs.ord} is over this end's largest IRD, {self.config.max_ird}"
            raise self._terminated(Reason.INSUFFICIENT_IRD, what, agreed)
        return replace(agreed, ird=ird, ord=ord_)

    def _initiator_rtr(self, agreed: Negotiated, theirs: EnhancedData) -> Negotiated:
        """The RTR to send: of those in the Reply the one that this end prefers (RFC 6581 §9.2)."""
        peer_to_peer = self.config.model is Model.PEER_TO_PEER
        if theirs.peer_to_peer != peer_to_peer:
            what = f"MPA Reply with A={int(theirs.peer_to_peer)} to a Request with A={int(peer_to_peer)}"
            raise self._terminated(Reason.NO_MATCHING_RTR, what, agreed)
        if not peer_to_peer:
            return agreed
        for kind in self.config.rtr:
            # A Read RTR takes a place in the responder's IRRQ, and with an IRD of 0 there is none
            if kind in theirs.rtr and not (kind is Rtr.READ and theirs.ird == 0):
                return replace(agreed, rtr_send=kind)
        what = f"the responder takes {_names(theirs.rtr)} as RTR, this end can send {_names(self.config.rtr)}"
        raise self._terminated(Reason.NO_MATCHING_RTR, what, agreed)

    def _terminated(self, reason: Reason, what: str, agreed: Negotiated) -> _Otherwise:
        first = replace(agreed, model=Model.CLIENT_SERVER, rtr_send=Rtr.NONE)
        return _Otherwise(State.FAILED, Failed(reason, what, first))

    # What a responder does

    def _listen(self, given: _Given) -> list[Event]:
        self.deadline = given.now + self.config.timeout
        return []

    def _requested(self, _: _Given) -> list[Event]:
        self._check_rev()
        theirs = self._theirs.enhanced
        if theirs and self._responder_ord(theirs) < self.config.min_ord:
            what = f"the initiator's IRD {theirs.ird} is under the ORD {self.config.min_ord} that this end needs"
            raise _Otherwise(State.REJECTED, *self._reject(_Given(what=what)))
        return [Requested(self._theirs, _model(self._theirs))]

    def _accept(self, given: _Given) -> list[Event]:
        agreed, enhanced = self._answer()
        return [self._reply(enhanced, given.private_data), Established(agreed)]

    def _reject(self, given: _Given) -> list[Event]:
        _, enhanced = self._answer()
        if enhanced and self.config.min_ord > enhanced.ord:
            enhanced = replace(enhanced, ord=self.config.min_ord)  # RFC 6581 §9.1: the ORD that it takes
        sent = self._reply(enhanced, given.private_data, rejected=True)
        return [sent, Rejected(sent.frame, given.what)]

    def _reply(self, enhanced: EnhancedData | None, private_data: bytes, rejected: bool = False) -> Send:
        check_private_data(private_data, enhanced is not None)
        self._ours = StartupFrame(
            FrameKind.REPLY,
            markers=self.config.markers,
            crc=self.config.crc or self._theirs.crc,  # what will be done
            rejected=rejected,
            rev=self._theirs.rev,
            enhanced=enhanced,
            private_data=private_data,
        )
        return Send(self._ours, self._ours.encode())

    def _answer(self) -> tuple[Negotiated, EnhancedData | None]:
        """What is agreed when the Request is accepted, and the Reply's enhanced data."""
        agreed = self._agree()
        theirs = self._theirs.enhanced
        if theirs is None:
            return agreed, None  # RFC 6581 §10: an unenhanced Request has an unenhanced Reply
        kind = self._responder_rtr(theirs)
        rtr = frozenset({kind} - {Rtr.NONE})
        ird, ord_ = self._responder_ird(theirs, kind), self._responder_ord(theirs)
        reply = EnhancedData(
            ird=ird if self._negotiates_ird(theirs) else NO_NEGOTIATION,
            ord=ord_ if self._negotiates_ord(theirs) else NO_NEGOTIATION,
            peer_to_peer=theirs.peer_to_peer,
            rtr=rtr,
        )
        return replace(agreed, rtr_accept=rtr, ird=ird, ord=ord_), reply

    def _responder_rtr(self, theirs: EnhancedData) -> Rtr:
        """The one kind to name in the Reply, one that the initiator offered if it can be.

        RFC 6581 §9.2 allows several; there are initiators that then send none.
        """
        if not theirs.peer_to_peer:
            return Rtr.NONE
        usable = [kind for kind in self.config.rtr if kind is not Rtr.READ or self._responder_ird(theirs, kind)]
        offered = [kind for kind in usable if kind in theirs.rtr]
        return (*offered, *usable, *self.config.rtr)[0]

    def _negotiates_ird(self, theirs: EnhancedData) -> bool:
        return theirs.ord != NO_NEGOTIATION and self.config.negotiate_ird

    def _negotiates_ord(self, theirs: EnhancedData) -> bool:
        return theirs.ird != NO_NEGOTIATION and self.config.negotiate_ord

    def _responder_ird(self, theirs: EnhancedData, kind: Rtr) -> int:
        """At least the initiator's ORD as far as the device has room, and 1 for a Read RTR (RFC 6581 §9.1)."""
        if not self._negotiates_ird(theirs):
            return self.config.ird
        return min(max(self.config.ird, theirs.ord, int(kind is Rtr.READ)), self.config.max_ird)

    def _responder_ord(self, theirs: EnhancedData) -> int:
        """At most the initiator's IRD (RFC 6581 §9.1)."""
        return min(self.config.ord, theirs.ird) if self._negotiates_ord(theirs) else self.config.ord

    # What both do

    def _agree(self) -> Negotiated:
        """What follows from the frames without a choice (RFC 5044 §7.1.1)."""
        config, theirs = self.config, self._theirs
        request = self._ours if config.role is Role.INITIATOR else theirs
        return Negotiated(
            role=config.role,
            model=_model(request),
            rtr_send=Rtr.NONE,
            rtr_accept=frozenset(),
            markers_tx=theirs.markers,
            markers_rx=config.markers,
            crc=config.crc or theirs.crc,
            rev=theirs.rev,
            enhanced=theirs.enhanced is not None,
            ird=config.ird,
            ord=config.ord,
            peer_ird=theirs.enhanced.ird if theirs.enhanced else None,
            peer_ord=theirs.enhanced.ord if theirs.enhanced else None,
            private_data=theirs.private_data,
        )

    def _check_rev(self) -> None:
        frame = self._theirs
        what = ""
        if frame.rev not in _REVS:
            what = f"{frame.kind} with Rev {frame.rev} at stream offset 17: this end knows Rev 1 and 2"
        elif frame.enhanced and frame.rev < ENHANCED_REV:
            what = f"{frame.kind} with S=1 and Rev {frame.rev} at stream offset 16: S needs Rev 2 (RFC 6581 §6)"
        if what:
            raise _Otherwise(State.FAILED, Failed(Reason.BAD_FRAME, what))

    def _bad_frame(self, given: _Given) -> list[Event]:
        return [Failed(Reason.BAD_FRAME, given.what)]

    def _abort(self, given: _Given) -> list[Event]:
        return [Failed(Reason.LOCAL, given.what)]

    def _closed(self, given: _Given) -> list[Event]:
        received, frame = self._decoder.received, self._decoder.expected
        if self.state is State.IDLE:
            where = "before the startup exchange"
        elif self._decoder.frame:
            where = f"after the {frame}"
        elif received:
            where = f"inside the {frame}, at stream offset {received}"
        else:
            where = f"before the {frame}"
        # RFC 6581 §10: an unenhanced responder closes when it sees an enhanced Request
        retry = self.state is State.WAIT_REPLY and self.config.enhanced and not received
        return [Failed(Reason.CONNECTION_LOST, f"{given.what} {where}", may_retry_unenhanced=retry)]

    def _late(self, _: _Given) -> list[Event]:
        frame, came = self._decoder.expected, self._decoder.received
        what = f"no whole {frame} within {self.config.timeout:g} s, {came} octets of it came"
        return [Failed(Reason.TIMED_OUT, what)]


def _model(request: StartupFrame) -> Model:
    peer_to_peer = request.enhanced is not None and request.enhanced.peer_to_peer
    return Model.PEER_TO_PEER if peer_to_peer else Model.CLIENT_SERVER


def _names(kinds: Iterable[Rtr]) -> str:
    return " or ".join(kind.name.capitalize() for kind in sorted(kinds)) or "nothing"


_Action = Callable[[Negotiation, _Given], list[Event]]

TABLE: dict[tuple[State, Input], tuple[_Action, State]] = {
    (State.IDLE, Input.INITIATE): (Negotiation._initiate, State.WAIT_REPLY),
    (State.IDLE, Input.LISTEN): (Negotiation._listen, State.WAIT_REQUEST),
    (State.IDLE, Input.ABORT): (Negotiation._abort, State.FAILED),
    (State.IDLE, Input.CLOSED): (Negotiation._closed, State.FAILED),
    (State.WAIT_REPLY, Input.ACCEPTING_REPLY): (Negotiation._accepted, State.ESTABLISHED),
    (State.WAIT_REPLY, Input.REJECTING_REPLY): (Negotiation._rejected, State.REJECTED),
    (State.WAIT_REPLY, Input.BAD_FRAME): (Negotiation._bad_frame, State.FAILED),
    (State.WAIT_REPLY, Input.ABORT): (Negotiation._abort, State.FAILED),
    (State.WAIT_REPLY, Input.CLOSED): (Negotiation._closed, State.FAILED),
    (State.WAIT_REPLY, Input.TIMEOUT): (Negotiation._late, State.FAILED),
    (State.WAIT_REQUEST, Input.REQUEST): (Negotiation._requested, State.WAIT_ULP),
    (State.WAIT_REQUEST, Input.BAD_FRAME): (Negotiation._bad_frame, State.FAILED),
    (State.WAIT_REQUEST, Input.ABORT): (Negotiation._abort, State.FAILED),
    (State.WAIT_REQUEST, Input.CLOSED): (Negotiation._closed, State.FAILED),
    (State.WAIT_REQUEST, Input.TIMEOUT): (Negotiation._late, State.FAILED),
    (State.WAIT_ULP, Input.ACCEPT): (Negotiation._accept, State.ESTABLISHED),
    (State.WAIT_ULP, Input.REJECT): (Negotiation._reject, State.REJECTED),
    (State.WAIT_ULP, Input.ABORT): (Negotiation._abort, State.FAILED),
    (State.WAIT_ULP, Input.CLOSED): (Negotiation._closed, State.FAILED),
}
