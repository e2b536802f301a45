"""The startup exchange of RFC 5044 §7.1 with RFC 6581, without sockets or clocks.

A ``Negotiation`` is one end of one connection. It takes the peer's octets, the ULP's decisions and the end of the TCP
connection, and answers each with a list of events. Times are seconds on any clock that never goes back. ``TABLE`` is
the table of its ``Machine``. An action that finds a broken rule enters FAILED instead of the table's state. An input
that is not in the table raises ProtocolError.

    initiator:  start()   ─▸ Send ─▸ receive(Reply)   ─▸ Established, Rejected or Failed
    responder:  start()   ─▸         receive(Request) ─▸ Requested or Failed
                accept() or reject()  ─▸ Send, and Established or Rejected

``wanted`` is the number of octets that ``receive`` may be given now, so that none of the FPDUs behind the peer's frame
is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf

from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.lib.state_machine import Facts, Machine, Otherwise
from open_rnic.host_driver.mpa.startup_frames import (
    ENHANCED_OCTETS,
    MAX_PRIVATE_DATA,
    NO_NEGOTIATION,
    Dialect,
    EnhancedData,
    FrameKind,
    StartupDecoder,
    StartupError,
    StartupFrame,
)
from open_rnic.rtl.registers import Model, Role, Rtr

__all__ = [
    "ENHANCED_REV", "TABLE", "Config", "Disagreement", "Established", "Event", "Failed", "Input", "Negotiated",
    "Negotiation", "Reason", "Rejected", "Requested", "Send", "State", "Terms", "answer", "check_private_data",
    "conclude", "refusal", "rejecting", "request_data",
]  # fmt: skip

ENHANCED_REV = 2  # RFC 6581 §6: the enhanced data needs this or a higher Rev


class State(Enum):
    """The state of a negotiation. The last three are final."""

    IDLE = auto()
    WAIT_REPLY = auto()
    WAIT_REQUEST = auto()
    WAIT_ULP = auto()  # the responder's ULP decides
    ESTABLISHED = auto()  # the startup frames are exchanged; MPA begins behind them; only abort() may follow
    REJECTED = auto()
    FAILED = auto()

    @property
    def final(self) -> bool:
        """Whether the exchange is over."""
        return self in (State.ESTABLISHED, State.REJECTED, State.FAILED)


class Input(Enum):
    """The inputs of a negotiation."""

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
    """The reason why a negotiation or a connection failed. ``code`` is the MPA error (RFC 5044 §8, RFC 6581 §8)."""

    CONNECTION_LOST = 1
    BAD_CRC = 2  # BAD_CRC and the next one do not occur in a negotiation
    BAD_MARKER = 3
    BAD_FRAME = 4
    LOCAL = 5
    INSUFFICIENT_IRD = 6
    NO_MATCHING_RTR = 7
    TIMED_OUT = 0  # no MPA error code exists for it

    @property
    def code(self) -> int:
        """The MPA error code, or 0 if there is none."""
        return self.value


@dataclass(frozen=True)
class Config:
    """The requirements of one end on a connection. Raises ValueError if they contradict each other."""

    role: Role
    model: Model = Model.PEER_TO_PEER  # an initiator's; a responder follows the Request
    rtr: tuple[Rtr, ...] = (Rtr.WRITE, Rtr.READ, Rtr.SEND)  # the kinds supported, the preferred one first
    ird: int = 16  # number of RDMA Read Requests that the peer may have outstanding
    ord: int = 16  # number of RDMA Read Requests that this end wants to have outstanding
    max_ird: int = 128  # number of incoming RDMA Read Requests that the device has room for
    max_ord: int = 128  # number of outstanding RDMA Read Requests that the device has room for
    min_ord: int = 0  # a responder's: a Request that leaves a smaller ORD is rejected (RFC 6581 §9.1)
    negotiate_ird: bool = True  # if False, 0x3FFF is sent and ``ird`` is not changed
    negotiate_ord: bool = True  # if False, 0x3FFF is sent and ``ord`` is not changed
    crc: bool = True  # C: this end requires CRCs; they are used when either end does (RFC 5044 §7.1.1)
    markers: bool = False  # M: this end wants markers in the stream that it receives
    enhanced: bool = True  # use RFC 6581; if False, only RFC 5044, with Rev 1
    dialect: Dialect = Dialect.RFC_6581  # the format of the enhanced data, in both directions
    permissive: bool = False  # a responder's: any first FPDU other than a Terminate counts as the RTR
    private_data: bytes = b""  # an initiator's; a responder's is sent only in a rejection because of ``min_ord``
    timeout: float = 10.0  # seconds within which the peer's startup frame must arrive (RFC 5044 §7.1.2 rules 8 and 10)
    keep_alive: KeepAlive | None = None  # when TCP probes a silent peer; None: never

    def __post_init__(self) -> None:
        for name in ("ird", "ord", "max_ird", "max_ord", "min_ord"):
            value = getattr(self, name)
            if not 0 <= value < NO_NEGOTIATION:
                raise ValueError(f"{name} is 0 to {NO_NEGOTIATION - 1}, not {value}")
        if self.ird > self.max_ird:
            raise ValueError(f"ird {self.ird} is over the device's {self.max_ird}")
        if self.ord > self.max_ord:
            raise ValueError(f"ord {self.ord} is over the device's {self.max_ord}")
        if self.min_ord > self.ord:
            raise ValueError(f"min_ord {self.min_ord} is over ord {self.ord}")
        if not self.rtr or Rtr.NONE in self.rtr:
            raise ValueError("at least one RTR kind must be supported (RFC 6581 §9.2)")
        if self.rtr == (Rtr.READ,) and not (self.max_ird if self.negotiate_ird else self.ird):
            raise ValueError("a Read RTR needs room for one RDMA Read Request, and the IRD is 0")
        if self.role is Role.INITIATOR and self.model is Model.PEER_TO_PEER and not self.enhanced:
            raise ValueError("the peer-to-peer model needs enhanced frames (RFC 6581 §9.2)")
        if self.role is Role.INITIATOR and self.enhanced and not self.negotiates:
            raise ValueError("an enhanced Request must negotiate something: IRD, ORD or an RTR (RFC 6581 §10)")
        if not 0 < self.timeout < inf:
            raise ValueError(f"timeout is a finite number of seconds, more than 0, not {self.timeout}")
        check_private_data(self.private_data, self.enhanced)

    def check_role(self, role: Role) -> None:
        """Raise ValueError if this is the configuration of the other role."""
        if self.role is not role:
            raise ValueError(f"a Config with role {role.name} is needed here, not {self.role.name}")

    def unenhanced(self) -> Config:
        """The same without enhanced frames, for a peer that knows RFC 5044 only (RFC 6581 §10)."""
        return replace(self, enhanced=False, model=Model.CLIENT_SERVER)

    @property
    def negotiates(self) -> bool:
        """Whether anything in an initiator's configuration needs enhanced data."""
        return self.model is Model.PEER_TO_PEER or self.negotiate_ird or self.negotiate_ord


@dataclass(frozen=True)
class Negotiated:
    """The agreement of the two ends, which configures the device and informs the ULP.

    ``peer_ird`` and ``peer_ord`` are the values in the peer's frame, NO_NEGOTIATION included, and None if it had no
    enhanced data (RFC 6581 §9.1: the ULP MUST see them).
    """

    role: Role
    model: Model
    rtr_send: Rtr  # NONE: this end sends no RTR
    rtr_accept: frozenset[Rtr]  # empty: this end receives no RTR
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
    ird_negotiated: bool = False  # both ends sent a value; otherwise ``ird`` is the configured one
    ord_negotiated: bool = False


@dataclass(frozen=True)
class Send:
    """Send these octets to the peer, as one TCP segment and apart from any FPDU (RFC 6581 §4.3)."""

    frame: StartupFrame
    octets: bytes


@dataclass(frozen=True)
class Requested:
    """A Request was received; the ULP calls accept() or reject()."""

    frame: StartupFrame
    model: Model


@dataclass(frozen=True)
class Established:
    """The frames are exchanged; MPA begins in each direction behind that direction's frame."""

    negotiated: Negotiated


@dataclass(frozen=True)
class Rejected:
    """The responder refused, with this Reply. MPA is over, TCP is still open (RFC 5044 §7.1.2 rules 2 and 3).

    ``theirs`` is the peer's frame: at an initiator this Reply, at a responder the Request that it answers.
    ``may_retry_unenhanced``: as with Failed.
    """

    frame: StartupFrame
    what: str
    theirs: StartupFrame
    may_retry_unenhanced: bool = False


@dataclass(frozen=True)
class Failed:
    """The negotiation failed. TCP must be closed, after a Terminate if ``terminate`` is given.

    ``terminate`` configures the device that sends the Terminate. It is the first FPDU, without an RTR before it; a
    responder's waits for the initiator's first FPDU (RFC 5044 §7.1.2 rule 4). It carries layer 2, type 0 and the
    ``code`` of the reason, which is 5, 6 or 7 (RFC 6581 §8).
    ``may_retry_unenhanced``: the peer behaved as one that knows RFC 5044 only (RFC 6581 §10).
    """

    reason: Reason
    what: str
    terminate: Negotiated | None = None
    may_retry_unenhanced: bool = False


Event = Send | Requested | Established | Rejected | Failed


def check_private_data(octets: bytes, enhanced: bool) -> None:
    """Raise ValueError if a frame has no room for these octets of the ULP."""
    room, rule = MAX_PRIVATE_DATA, "RFC 5044 §7.1.1"
    if enhanced:
        room -= ENHANCED_OCTETS
        rule = f"RFC 6581 §9: {MAX_PRIVATE_DATA} with the enhanced data"
    if len(octets) > room:
        raise ValueError(f"private data may have {room} octets, not {len(octets)} ({rule})")


@dataclass
class Negotiation(Machine[State, Input, Event]):
    """One end of the startup exchange; see the module's text."""

    config: Config
    state: State = State.IDLE
    deadline: float | None = None  # the time at which ``tick`` must be called; None means never
    _decoder: StartupDecoder = field(init=False, repr=False)
    _ours: StartupFrame = field(init=False, repr=False)
    _theirs: StartupFrame = field(init=False, repr=False)
    _agreed: Negotiated = field(init=False, repr=False)

    def __post_init__(self) -> None:
        expected = FrameKind.REPLY if self.config.role is Role.INITIATOR else FrameKind.REQUEST
        self._decoder = StartupDecoder(expected, self.config.dialect)

    @property
    def wanted(self) -> int:
        """The number of octets that ``receive`` may be given now."""
        return self._decoder.missing if self.state in (State.WAIT_REPLY, State.WAIT_REQUEST) else 0

    @property
    def received(self) -> StartupFrame | None:
        """The peer's frame, or None until it is complete."""
        return self._decoder.frame

    def start(self, now: float) -> list[Event]:
        """Begin, at time ``now``: an initiator sends its Request, a responder waits for one."""
        return self.take(Input.INITIATE if self.config.role is Role.INITIATOR else Input.LISTEN, Facts(now=now))

    def receive(self, octets: bytes) -> list[Event]:
        """Take octets from the peer, at most ``wanted``; raises ValueError for more."""
        if len(octets) > self.wanted:
            raise ValueError(f"{len(octets)} octets given where {self.wanted} are wanted")
        try:
            self._decoder.feed(octets)
        except StartupError as error:
            return self.take(Input.BAD_FRAME, Facts(what=str(error)))
        if self._decoder.frame is None or not octets:
            return []
        self._theirs = self._decoder.frame
        if self.config.role is Role.RESPONDER:
            return self.take(Input.REQUEST)  # R is not checked in a Request (RFC 5044 §7.1.1)
        return self.take(Input.REJECTING_REPLY if self._theirs.rejected else Input.ACCEPTING_REPLY)

    def accept(self, private_data: bytes = b"", config: Config | None = None) -> list[Event]:
        """The responder's ULP accepts the connection. A ``config`` replaces the one given before, and may reject it.

        Raises ValueError for too much private data, and for a ``config`` that does not fit the Request.
        """
        return self._decide(Input.ACCEPT, config, Facts(octets=private_data))

    def reject(
        self,
        private_data: bytes = b"",
        what: str = "the ULP rejected the connection",
        config: Config | None = None,
    ) -> list[Event]:
        """The responder's ULP rejects the connection; ``min_ord`` of ``config`` shows the initiator the ORD needed.

        Raises ValueError for too much private data.
        """
        return self._decide(Input.REJECT, config, Facts(octets=private_data, what=what))

    def abort(self, what: str) -> list[Event]:
        """Report a failure at this end, during the exchange or right after it.

        RFC 6581 §9.3 requires Terminate 2/0/5; before both frames are exchanged no FPDU can carry it.
        """
        return self.take(Input.ABORT, Facts(what=what))

    def connection_lost(self, how: str) -> list[Event]:
        """The TCP connection ended; ``how`` describes it for a person. Does nothing after the exchange."""
        return [] if self.state.final else self.take(Input.CLOSED, Facts(what=how))

    @classmethod
    def _table(cls) -> Mapping[tuple[State, Input], tuple[_Action, State]]:
        return TABLE

    @classmethod
    def _timeout(cls) -> Input:
        return Input.TIMEOUT

    def _decide(self, given: Input, config: Config | None, what: Facts) -> list[Event]:
        if config is not None:
            if (config.role, config.dialect) != (self.config.role, self.config.dialect):
                raise ValueError("the role and the dialect of a negotiation cannot change")
            if self.received and self.received.rev == ENHANCED_REV and not config.enhanced:
                raise ValueError("a Request with Rev 2 has been taken: only a Config with enhanced can answer it")
            self.config = config
        return self.take(given, what)

    # The initiator

    def _initiate(self, given: Facts) -> list[Event]:
        config = self.config
        self.deadline = given.now + config.timeout
        self._ours = StartupFrame(
            FrameKind.REQUEST,
            markers=config.markers,
            crc=config.crc,
            rev=ENHANCED_REV if config.enhanced else 1,  # RFC 6581 §6, §10
            enhanced=request_data(config) if config.enhanced else None,
            private_data=config.private_data,
        )
        return [Send(self._ours, self._ours.encode())]

    def _accepted(self, _: Facts) -> list[Event]:
        self._check_rev()
        ours, theirs = self._ours.enhanced, self._theirs.enhanced
        if ours and not theirs and self._theirs.rev == ENHANCED_REV and ours.dialect is Dialect.DRAFT_02:
            theirs = _DRAFT_DEFAULT
        if bool(ours) != bool(theirs):
            what = f"MPA Reply with S={int(bool(theirs))} to a Request with S={int(bool(ours))} (RFC 6581 §10)"
            raise Otherwise(State.FAILED, Failed(Reason.BAD_FRAME, what, may_retry_unenhanced=ours is not None))
        self._agreed = self._agree()
        if theirs:
            try:
                terms = conclude(self.config, theirs)
            except Disagreement as error:
                raise Otherwise(State.FAILED, self._terminated(error.reason, str(error))) from None
            self._agreed = terms.put_into(self._agreed)
        return [Established(self._agreed)]

    def _rejected(self, _: Facts) -> list[Event]:
        self._check_rev()
        what = "the responder rejected the connection (R=1)"
        if self._ours.markers:
            what += ", of which this end wants markers (M=1)"
        theirs = self._theirs.enhanced
        if theirs and self.config.ird < theirs.ord < NO_NEGOTIATION:
            what += f": its ORD is {theirs.ord}, this end's IRD {self.config.ird}"
        retry = bool(self._ours.enhanced) and not theirs
        return [Rejected(self._theirs, what, self._theirs, may_retry_unenhanced=retry)]

    # The responder

    def _listen(self, given: Facts) -> list[Event]:
        self.deadline = given.now + self.config.timeout
        return []

    def _requested(self, _: Facts) -> list[Event]:
        self._check_rev()
        self._check_depths()
        return [Requested(self._theirs, _model(self._theirs))]

    def _check_depths(self) -> None:
        """Reject the Request if the configuration does."""
        theirs = self._theirs.enhanced
        if theirs and (what := refusal(self.config, theirs)):
            # RFC 6581 §9.1 names Terminate 2/0/6 here, but a responder sends no FPDU before it has received one and
            # none after R=1 (RFC 5044 §7.1.2 rules 2 and 4), so only the Reply reports it.
            raise Otherwise(State.REJECTED, *self._reject(Facts(octets=self.config.private_data, what=what)))

    def _accept(self, given: Facts) -> list[Event]:
        self._check_depths()
        agreed, enhanced = self._answer()
        sent = self._reply(enhanced, given.octets)
        self._agreed = agreed
        return [sent, Established(agreed)]

    def _reject(self, given: Facts) -> list[Event]:
        _, enhanced = self._answer()
        if enhanced:
            enhanced = rejecting(self.config, enhanced)
        sent = self._reply(enhanced, given.octets, rejected=True)
        return [sent, Rejected(sent.frame, given.what, self._theirs)]

    def _reply(self, enhanced: EnhancedData | None, private_data: bytes, rejected: bool = False) -> Send:
        check_private_data(private_data, enhanced is not None)
        self._ours = StartupFrame(
            FrameKind.REPLY,
            markers=self.config.markers,
            crc=self.config.crc or self._theirs.crc,  # the agreement (RFC 5044 §7.1.1)
            rejected=rejected,
            rev=self._theirs.rev,
            enhanced=enhanced,
            private_data=private_data,
        )
        return Send(self._ours, self._ours.encode())

    def _answer(self) -> tuple[Negotiated, EnhancedData | None]:
        """The agreement if the Request is accepted, and the enhanced data of the Reply."""
        agreed = self._agree()
        theirs = self._theirs.enhanced
        if theirs is None:
            return agreed, None  # RFC 6581 §10: an unenhanced Request has an unenhanced Reply
        reply, terms = answer(self.config, theirs)
        return terms.put_into(agreed), reply

    # Both roles

    def _agree(self) -> Negotiated:
        """The part of the agreement that follows from the frames without a choice (RFC 5044 §7.1.1)."""
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
        frame, config = self._theirs, self.config
        initiator = config.role is Role.INITIATOR
        known = (1, ENHANCED_REV) if initiator or config.enhanced else (1,)
        what = ""
        if frame.rev not in known:
            revs = " and ".join(map(str, known))
            what = f"{frame.kind} with Rev {frame.rev} at stream offset 17: this end knows Rev {revs}"
        elif frame.enhanced and frame.rev < ENHANCED_REV:
            what = f"{frame.kind} with S=1 and Rev {frame.rev} at stream offset 16: S needs Rev 2 (RFC 6581 §6)"
        if what:
            retry = initiator and config.enhanced and frame.rev == 1
            raise Otherwise(State.FAILED, Failed(Reason.BAD_FRAME, what, may_retry_unenhanced=retry))

    def _bad_frame(self, given: Facts) -> list[Event]:
        return [Failed(Reason.BAD_FRAME, given.what)]

    def _abort(self, given: Facts) -> list[Event]:
        return [Failed(Reason.LOCAL, given.what)]

    def _abort_established(self, given: Facts) -> list[Event]:
        return [self._terminated(Reason.LOCAL, given.what)]

    def _terminated(self, reason: Reason, what: str) -> Failed:
        first = replace(self._agreed, model=Model.CLIENT_SERVER, rtr_send=Rtr.NONE, rtr_accept=frozenset())
        return Failed(reason, what, first)

    def _closed(self, given: Facts) -> list[Event]:
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

    def _late(self, _: Facts) -> list[Event]:
        frame, came = self._decoder.expected, self._decoder.received
        what = f"no whole {frame} within {self.config.timeout:g} s, {came} octets of it came"
        return [Failed(Reason.TIMED_OUT, what)]


# The rules of RFC 6581 §9. They are the same for startup frames and for the session control of ``sctp``


class Disagreement(Exception):  # noqa: N818 -- no end is at fault
    """The initiator cannot comply with a Reply; ``reason`` is INSUFFICIENT_IRD or NO_MATCHING_RTR."""

    def __init__(self, reason: Reason, what: str) -> None:
        self.reason = reason
        super().__init__(what)


@dataclass(frozen=True)
class Terms:
    """The result of the enhanced data. ``rtr`` are the kinds that the initiator may send, one at the initiator."""

    model: Model
    rtr: frozenset[Rtr]
    ird: int
    ord: int
    ird_negotiated: bool
    ord_negotiated: bool

    def put_into(self, agreed: Negotiated) -> Negotiated:
        """The agreement with these terms."""
        agreed = replace(
            agreed,
            model=self.model,
            ird=self.ird,
            ord=self.ord,
            ird_negotiated=self.ird_negotiated,
            ord_negotiated=self.ord_negotiated,
        )
        if agreed.role is Role.RESPONDER:
            return replace(agreed, rtr_accept=self.rtr)
        return replace(agreed, rtr_send=next(iter(self.rtr), Rtr.NONE))


def request_data(config: Config) -> EnhancedData:
    """The enhanced data of an initiator's Request."""
    peer_to_peer = config.model is Model.PEER_TO_PEER
    ird = config.ird if config.negotiate_ird else NO_NEGOTIATION
    ord_ = config.ord if config.negotiate_ord else NO_NEGOTIATION
    return EnhancedData(
        ird=ord_ if config.dialect is Dialect.DRAFT_02 else ird,  # that draft's is the responder's, for this end's ORD
        ord=ord_,
        peer_to_peer=peer_to_peer,
        # RFC 6581 §9.2: every kind that is supported, and none without A
        rtr=frozenset(config.rtr) if peer_to_peer else frozenset(),
        dialect=config.dialect,
    )


def refusal(config: Config, request: EnhancedData) -> str:
    """The reason why a responder must reject a Request by itself (RFC 6581 §9.1); empty if it need not."""
    if _responder_ord(config, request) >= config.min_ord:
        return ""
    return f"the initiator's IRD {request.ird} is under the ORD {config.min_ord} that this end needs"


def answer(config: Config, request: EnhancedData) -> tuple[EnhancedData, Terms]:
    """The enhanced data of a responder's Reply, and the terms that result."""
    rtr = _responder_rtr(config, request)
    ird, ord_ = _responder_ird(config, request, rtr), _responder_ord(config, request)
    named = _negotiates_ird(config, request), _negotiates_ord(config, request)
    reply = EnhancedData(
        ird=ird if named[0] else NO_NEGOTIATION,
        ord=ord_ if named[1] else NO_NEGOTIATION,
        peer_to_peer=request.peer_to_peer and bool(rtr),
        rtr=rtr,
        dialect=config.dialect,
    )
    # In the drafts an answer without an RTR kind means that the initiator's ULP sends first
    return reply, Terms(Model.PEER_TO_PEER if rtr else Model.CLIENT_SERVER, rtr, ird, ord_, *named)


def rejecting(config: Config, reply: EnhancedData) -> EnhancedData:
    """The enhanced data of a rejecting Reply, with the ORD that the responder needs (RFC 6581 §9.1)."""
    return replace(reply, ord=max(reply.ord, config.min_ord))


def conclude(config: Config, reply: EnhancedData) -> Terms:
    """The terms that an initiator derives from an accepting Reply; raises Disagreement.

    Its IRD is at least the responder's ORD, its ORD at most the responder's IRD (RFC 6581 §9.1).
    """
    ird, ord_ = config.ird, config.ord
    named = config.negotiate_ird and reply.ord != NO_NEGOTIATION, config.negotiate_ord and reply.ird != NO_NEGOTIATION
    if named[0]:
        ird = max(ird, reply.ord)
    if named[1]:
        ord_ = min(ord_, reply.ird)
    if ird > config.max_ird:
        what = f"the responder's ORD {reply.ord} is over this end's largest IRD, {config.max_ird}"
        raise Disagreement(Reason.INSUFFICIENT_IRD, what)
    rtr = _initiator_rtr(config, reply)
    return Terms(Model.PEER_TO_PEER if rtr else Model.CLIENT_SERVER, rtr, ird, ord_, *named)


def _initiator_rtr(config: Config, reply: EnhancedData) -> frozenset[Rtr]:
    """The RTR to send: the one in the Reply that this end prefers (RFC 6581 §9.2)."""
    peer_to_peer = config.model is Model.PEER_TO_PEER
    if config.dialect is Dialect.DRAFT_02:
        if not (peer_to_peer and reply.rtr):
            return frozenset()  # the ULP sends first
    elif reply.peer_to_peer != peer_to_peer:
        what = f"the responder answered A={int(reply.peer_to_peer)} to a Request with A={int(peer_to_peer)}"
        raise Disagreement(Reason.NO_MATCHING_RTR, what)
    if not peer_to_peer:
        return frozenset()
    for kind in config.rtr:
        # A Read RTR takes a place in the responder's IRRQ, and with an IRD of 0 there is none
        if kind in reply.rtr and not (kind is Rtr.READ and reply.ird == 0):
            return frozenset({kind})
    what = f"the responder takes {_names(reply.rtr)} as RTR, this end can send {_names(config.rtr)}"
    raise Disagreement(Reason.NO_MATCHING_RTR, what)


def _responder_rtr(config: Config, request: EnhancedData) -> frozenset[Rtr]:
    """The kinds to name in the Reply.

    RFC 6581 §9.2 allows several, but some initiators send none then. So the Reply names one kind, if possible one that
    was offered. The drafts require all offered kinds that this end supports.
    """
    if not request.peer_to_peer:
        return frozenset()
    read = frozenset({Rtr.READ})
    usable = [kind for kind in config.rtr if kind is not Rtr.READ or _responder_ird(config, request, read)]
    offered = [kind for kind in usable if kind in request.rtr]
    if config.dialect is Dialect.DRAFT_02:
        return frozenset(offered)
    return frozenset({(*offered, *usable, *config.rtr)[0]})


def _asked_ird(request: EnhancedData) -> int:
    """The responder IRD that the initiator asks for."""
    return request.ird if request.dialect is Dialect.DRAFT_02 else request.ord


def _ord_limit(request: EnhancedData) -> int:
    """The initiator's IRD. The drafts do not send it: there an initiator fails if the answer is too large."""
    if request.dialect is Dialect.DRAFT_02:
        return NO_NEGOTIATION if request.ord == NO_NEGOTIATION else NO_NEGOTIATION - 1
    return request.ird


def _negotiates_ird(config: Config, request: EnhancedData) -> bool:
    return _asked_ird(request) != NO_NEGOTIATION and config.negotiate_ird


def _negotiates_ord(config: Config, request: EnhancedData) -> bool:
    return _ord_limit(request) != NO_NEGOTIATION and config.negotiate_ord


def _responder_ird(config: Config, request: EnhancedData, rtr: frozenset[Rtr]) -> int:
    """At least the initiator's ORD as far as the device has room, and 1 for a Read RTR (RFC 6581 §9.1)."""
    if not _negotiates_ird(config, request):
        return config.ird
    return min(max(config.ird, _asked_ird(request), int(Rtr.READ in rtr)), config.max_ird)


def _responder_ord(config: Config, request: EnhancedData) -> int:
    """At most the initiator's IRD (RFC 6581 §9.1)."""
    return min(config.ord, _ord_limit(request)) if _negotiates_ord(config, request) else config.ord


# In the drafts, a Reply without enhanced data but with Rev 2 means this
_DRAFT_DEFAULT = EnhancedData(
    NO_NEGOTIATION,
    NO_NEGOTIATION,
    peer_to_peer=True,
    rtr=frozenset({Rtr.SEND, Rtr.WRITE, Rtr.READ}),
    dialect=Dialect.DRAFT_02,
)


def _model(request: StartupFrame) -> Model:
    peer_to_peer = request.enhanced is not None and request.enhanced.peer_to_peer
    return Model.PEER_TO_PEER if peer_to_peer else Model.CLIENT_SERVER


def _names(kinds: Iterable[Rtr]) -> str:
    return " or ".join(kind.name.capitalize() for kind in sorted(kinds)) or "nothing"


_Action = Callable[[Negotiation, Facts], list[Event]]

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
    (State.ESTABLISHED, Input.ABORT): (Negotiation._abort_established, State.FAILED),
}
