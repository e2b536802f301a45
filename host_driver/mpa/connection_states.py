"""The states of an MPA connection after its startup exchange, without sockets or clocks.

The two directions of a connection end separately, as those of TCP do. Each is a machine with a table of its own,
``TRANSMIT`` and ``RECEIVE``. ``Life`` combines them: it takes reports from the socket, the device and the ULP, counts
ULPDUs and octets, and returns actions for its caller::

    transmit:  STARTUP ─ enabled ─▸ FENCED ─ RTR or first FPDU ─▸ OPEN ─ finish ─▸ FINISHED
               FENCED, OPEN ─ terminate ─▸ (TERMINATE_DUE ─▸) TERMINATING ─ sent ─▸ TERMINATED
                                                          or ─ impossible, or too late ─▸ UNREPORTED
    receive:   STARTUP ─ enabled ─▸ RECEIVING ─ peer closed, or error ─▸ DRAINING ─ device drained ─▸ ENDED

An end that is FINISHED or TERMINATED closes its TCP connection in order. An UNREPORTED end resets it: only a reset can
still show the peer that the connection did not end in order (RFC 5040 §6.2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from open_rnic.host_driver.device import Event as DeviceEvent
from open_rnic.host_driver.lib.state_machine import Facts, Machine, Otherwise
from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL
from open_rnic.host_driver.mpa.negotiation import Negotiated
from open_rnic.host_driver.mpa.rtr import is_terminate
from open_rnic.rtl.registers import Cause, EventKind, Model, Role, Rtr

COUNTS = 1 << 32  # the device's counters are words
ENGINE_COUNTS = 1 << 16  # those of an RDMA engine are shorter: no more ULPDUs are ever on their way


@dataclass(frozen=True)
class WriteTerminate:
    """Hand this ULPDU to the device: it is a Terminate, and the last ULPDU."""

    ulpdu: bytes


@dataclass(frozen=True)
class HalfClose:
    """Close this end's half of the TCP connection."""


@dataclass(frozen=True)
class Drain:
    """Wait until the device has drained, then call ``drained``."""


@dataclass(frozen=True)
class End:
    """There are no more ULPDUs. ``lost`` describes an end out of order; it is empty for one in order."""

    lost: str = ""


@dataclass(frozen=True)
class Release:
    """Close the TCP connection, with a reset if ``reset`` is set."""

    reset: bool


Action = WriteTerminate | HalfClose | Drain | End | Release


class TransmitState(Enum):
    """The state of the transmit direction."""

    STARTUP = auto()  # MPA is not enabled
    FENCED = auto()  # ULPDUs wait in the device for the RTR or the first FPDU (RFC 6581 §5, RFC 5044 §7.1.2)
    BARRED = auto()  # as FENCED, but no further FPDU will arrive to open the fence
    OPEN = auto()  # ULPDUs leave
    ULP_TERMINATED = auto()  # the ULP sent a Terminate among its ULPDUs
    FINISHED = auto()  # this end's half is closed, in order
    TERMINATE_DUE = auto()  # a Terminate waits until this end may send
    TERMINATING = auto()  # the Terminate has been handed to the device
    TERMINATED = auto()  # the Terminate has left, and this end's half is closed
    UNREPORTED = auto()  # no Terminate could report the error to the peer
    CLOSED = auto()


class TransmitInput(Enum):
    """The inputs of the transmit direction."""

    ENABLE = auto()  # from the caller
    FINISH = auto()
    TERMINATE = auto()
    CLOSE = auto()
    FENCE_OPEN = auto()  # from the device
    TERMINATE_LEFT = auto()
    VALID_FPDU = auto()  # from the peer: its first
    NO_FPDU = auto()  # no more valid FPDUs will come
    TIMEOUT = auto()


class ReceiveState(Enum):
    """The state of the receive direction."""

    STARTUP = auto()  # MPA is not enabled
    STARTUP_CLOSED = auto()  # the peer closed, but octets of the startup exchange are still in the device
    RECEIVING = auto()
    DRAINING = auto()  # no more octets are received, or they are ignored; the device still delivers
    ENDED = auto()  # the ULP has taken every good ULPDU
    CLOSED = auto()


class ReceiveInput(Enum):
    """The inputs of the receive direction."""

    ENABLE = auto()  # from the caller
    CLOSE = auto()
    ERROR = auto()  # from the device
    DRAINED = auto()
    PEER_CLOSED = auto()  # from the peer


class Transmit(Machine[TransmitState, TransmitInput, Action]):
    """The transmit direction. A Terminate must leave within ``patience`` seconds."""

    def __init__(self, patience: float) -> None:
        self.state = TransmitState.STARTUP
        self.deadline = None
        self.may_terminate = False  # a Terminate may be sent although the fence is shut
        self._patience = patience
        self._terminate = b""

    @classmethod
    def _table(cls) -> Mapping[tuple[TransmitState, TransmitInput], tuple[_TransmitAction, TransmitState]]:
        return TRANSMIT

    @classmethod
    def _timeout(cls) -> TransmitInput:
        return TransmitInput.TIMEOUT

    def _nothing(self, _: Facts) -> list[Action]:
        return []

    def _half_close(self, _: Facts) -> list[Action]:
        return [HalfClose()]

    def _ask(self, given: Facts) -> list[Action]:
        self._terminate, self.deadline = given.octets, given.now + self._patience
        if not self.may_terminate:
            raise Otherwise(TransmitState.TERMINATE_DUE)
        return self._write(given)

    def _ask_barred(self, given: Facts) -> list[Action]:
        if not self.may_terminate:
            raise Otherwise(TransmitState.UNREPORTED)
        return self._ask(given)

    def _ask_open(self, given: Facts) -> list[Action]:
        self.may_terminate = True
        return self._ask(given)

    def _write(self, _: Facts) -> list[Action]:
        return [WriteTerminate(self._terminate)]

    def _allow(self, _: Facts) -> list[Action]:
        self.may_terminate = True
        return []

    def _release(self, _: Facts) -> list[Action]:
        return [Release(reset=False)]

    def _reset(self, _: Facts) -> list[Action]:
        return [Release(reset=True)]


_TransmitAction = Callable[[Transmit, Facts], list[Action]]
_T, _TI = TransmitState, TransmitInput

TRANSMIT: dict[tuple[TransmitState, TransmitInput], tuple[_TransmitAction, TransmitState]] = {
    # A request or report that comes too late changes nothing
    **{
        (state, given): (Transmit._nothing, state)
        for state in _T
        for given in _TI
        if state is not _T.STARTUP and given not in (_TI.ENABLE, _TI.TIMEOUT)
    },
    (_T.STARTUP, _TI.ENABLE): (Transmit._nothing, _T.FENCED),
    (_T.STARTUP, _TI.CLOSE): (Transmit._release, _T.CLOSED),
    (_T.FENCED, _TI.FENCE_OPEN): (Transmit._nothing, _T.OPEN),
    (_T.FENCED, _TI.FINISH): (Transmit._half_close, _T.FINISHED),  # an end without ULPDUs need not wait for the fence
    (_T.FENCED, _TI.TERMINATE): (Transmit._ask, _T.TERMINATING),  # or TERMINATE_DUE
    (_T.FENCED, _TI.TERMINATE_LEFT): (Transmit._nothing, _T.ULP_TERMINATED),
    (_T.FENCED, _TI.VALID_FPDU): (Transmit._allow, _T.FENCED),
    (_T.FENCED, _TI.NO_FPDU): (Transmit._nothing, _T.BARRED),
    (_T.FENCED, _TI.CLOSE): (Transmit._release, _T.CLOSED),
    (_T.BARRED, _TI.FENCE_OPEN): (Transmit._nothing, _T.OPEN),
    (_T.BARRED, _TI.FINISH): (Transmit._half_close, _T.FINISHED),
    (_T.BARRED, _TI.TERMINATE): (Transmit._ask_barred, _T.TERMINATING),  # or UNREPORTED
    (_T.BARRED, _TI.TERMINATE_LEFT): (Transmit._nothing, _T.ULP_TERMINATED),
    (_T.BARRED, _TI.CLOSE): (Transmit._release, _T.CLOSED),
    (_T.OPEN, _TI.FINISH): (Transmit._half_close, _T.FINISHED),
    (_T.OPEN, _TI.TERMINATE): (Transmit._ask_open, _T.TERMINATING),
    (_T.OPEN, _TI.TERMINATE_LEFT): (Transmit._nothing, _T.ULP_TERMINATED),
    (_T.OPEN, _TI.CLOSE): (Transmit._release, _T.CLOSED),
    (_T.ULP_TERMINATED, _TI.FINISH): (Transmit._half_close, _T.FINISHED),
    (_T.ULP_TERMINATED, _TI.TERMINATE): (Transmit._half_close, _T.TERMINATED),  # one Terminate is enough
    (_T.ULP_TERMINATED, _TI.CLOSE): (Transmit._release, _T.CLOSED),
    (_T.FINISHED, _TI.TERMINATE): (Transmit._nothing, _T.UNREPORTED),
    (_T.FINISHED, _TI.CLOSE): (Transmit._release, _T.CLOSED),
    (_T.TERMINATE_DUE, _TI.VALID_FPDU): (Transmit._write, _T.TERMINATING),
    (_T.TERMINATE_DUE, _TI.TERMINATE_LEFT): (Transmit._half_close, _T.TERMINATED),  # a Terminate of the ULP has left
    (_T.TERMINATE_DUE, _TI.NO_FPDU): (Transmit._nothing, _T.UNREPORTED),
    (_T.TERMINATE_DUE, _TI.TIMEOUT): (Transmit._nothing, _T.UNREPORTED),
    (_T.TERMINATE_DUE, _TI.CLOSE): (Transmit._reset, _T.CLOSED),
    (_T.TERMINATING, _TI.TERMINATE_LEFT): (Transmit._half_close, _T.TERMINATED),
    (_T.TERMINATING, _TI.TIMEOUT): (Transmit._nothing, _T.UNREPORTED),
    (_T.TERMINATING, _TI.CLOSE): (Transmit._reset, _T.CLOSED),
    (_T.TERMINATED, _TI.CLOSE): (Transmit._release, _T.CLOSED),
    (_T.UNREPORTED, _TI.CLOSE): (Transmit._reset, _T.CLOSED),
}


class Receive(Machine[ReceiveState, ReceiveInput, Action]):
    """The receive direction."""

    def __init__(self) -> None:
        self.state = ReceiveState.STARTUP
        self.deadline = None

    @classmethod
    def _table(cls) -> Mapping[tuple[ReceiveState, ReceiveInput], tuple[_ReceiveAction, ReceiveState]]:
        return RECEIVE

    def _nothing(self, _: Facts) -> list[Action]:
        return []

    def _drain(self, _: Facts) -> list[Action]:
        return [Drain()]

    def _end(self, given: Facts) -> list[Action]:
        return [End(given.what)]


_ReceiveAction = Callable[[Receive, Facts], list[Action]]
_R, _RI = ReceiveState, ReceiveInput

RECEIVE: dict[tuple[ReceiveState, ReceiveInput], tuple[_ReceiveAction, ReceiveState]] = {
    (_R.STARTUP, _RI.ENABLE): (Receive._nothing, _R.RECEIVING),
    (_R.STARTUP, _RI.PEER_CLOSED): (Receive._nothing, _R.STARTUP_CLOSED),
    (_R.STARTUP_CLOSED, _RI.ENABLE): (Receive._drain, _R.DRAINING),
    (_R.RECEIVING, _RI.PEER_CLOSED): (Receive._drain, _R.DRAINING),
    (_R.RECEIVING, _RI.ERROR): (Receive._drain, _R.DRAINING),
    (_R.DRAINING, _RI.PEER_CLOSED): (Receive._nothing, _R.DRAINING),
    (_R.DRAINING, _RI.ERROR): (Receive._nothing, _R.DRAINING),
    (_R.DRAINING, _RI.DRAINED): (Receive._end, _R.ENDED),
    (_R.ENDED, _RI.PEER_CLOSED): (Receive._nothing, _R.ENDED),
    (_R.ENDED, _RI.ERROR): (Receive._nothing, _R.ENDED),
    **{(state, _RI.CLOSE): (Receive._nothing, _R.CLOSED) for state in _R},
}


class Life:
    """One end of a connection, from the first startup frame to the release of the TCP connection.

    A Terminate must leave within ``patience`` seconds.

    Attributes
    ----------
    transmit, receive : the two directions
    opened : the fence is open: ULPDUs leave
    peer_closed : the peer has closed its half of the TCP connection
    octets_sent, octets_received : octets of the TCP stream
    startup_sent, startup_received : the octets of startup frames among them
    counts : the modulus of the device's counts: ``ENGINE_COUNTS`` if it has an RDMA engine
    engine_sent, engine_received : ULPDUs that the engine has sent and processed
    engine_discards : the engine discards all ULPDUs

    """

    def __init__(self, patience: float) -> None:
        self.transmit = Transmit(patience)
        self.receive = Receive()
        self.opened = self.peer_closed = False
        self.octets_sent = self.octets_received = self.startup_sent = self.startup_received = 0
        self.counts = COUNTS
        self.engine_sent = self.engine_received = 0
        self.engine_discards = False
        self._negotiated: Negotiated | None = None
        self._written = self._own = self._left = 0  # ULPDUs from the ULP, FPDUs from the device, and all FPDUs sent
        self._terminate_sent = False  # by a data path that counts its packets, which may not have left
        self._fetched = self._consumed = 0  # ULPDUs for the ULP, and FPDUs that the device consumes

    # Properties

    @property
    def deadline(self) -> float | None:
        """The time at which ``tick`` must be called; None means never."""
        return self.transmit.deadline

    @property
    def negotiated(self) -> Negotiated:
        """The result of the negotiation; raises RuntimeError before ``enable``."""
        if self._negotiated is None:
            raise RuntimeError("nothing is negotiated before the connection is established")
        return self._negotiated

    @property
    def startup_left(self) -> bool:
        """Whether the startup frame of this end has been sent."""
        return self.octets_sent >= self.startup_sent

    @property
    def startup_is_in(self) -> bool:
        """Whether the negotiation has taken all received octets."""
        return self.startup_received >= self.octets_received

    @property
    def all_left(self) -> bool:
        """Whether every ULPDU has left. A peer-to-peer end may owe an answer to the RTR until its fence opens."""
        return not self._unsent and (self.opened or self.negotiated.model is Model.CLIENT_SERVER)

    @property
    def _unsent(self) -> bool:
        missing = (self._written + self._own + self.engine_sent - self._left) % self.counts
        return 0 < missing < self.counts // 2

    @property
    def terminating(self) -> bool:
        """Whether a Terminate is still on its way."""
        return self.transmit.state in (TransmitState.TERMINATE_DUE, TransmitState.TERMINATING)

    @property
    def unreported(self) -> bool:
        """Whether a requested Terminate has not left."""
        return self.terminating or self.transmit.state is TransmitState.UNREPORTED

    def delivered(self, fpdus: int, taken: int | None = None) -> bool:
        """Whether the first ``fpdus`` good FPDUs, modulo ``counts``, have been delivered.

        ``taken`` is the number of ULPDUs that the ULP has taken; None stands for all that the device has delivered.
        """
        taken = self._fetched if taken is None else taken
        ahead = (taken + self._consumed + self.engine_received - fpdus) % self.counts
        return self.engine_discards or ahead < self.counts // 2

    # Requests

    def enable(self, negotiated: Negotiated) -> list[Action]:
        """Enable MPA. Call it before the device is enabled, and carry out the actions afterwards."""
        self._negotiated = negotiated
        # Without enhanced frames a responder must have received a valid FPDU (RFC 5044 §7.1.2 rule 4). With them it
        # need not: it sends a Terminate before it resets (RFC 6581 §9.3).
        self.transmit.may_terminate = negotiated.enhanced or negotiated.role is Role.INITIATOR
        return self.transmit.take(TransmitInput.ENABLE) + self.receive.take(ReceiveInput.ENABLE)

    def finish(self) -> list[Action]:
        """Close this end's half in order. Precondition: ``all_left``."""
        return self.transmit.take(TransmitInput.FINISH)

    def terminate(self, ulpdu: bytes, now: float) -> list[Action]:
        """End the transmit direction with this Terminate."""
        return self.transmit.take(TransmitInput.TERMINATE, Facts(now=now, octets=ulpdu))

    def tick(self, now: float) -> list[Action]:
        """Report the time; a Terminate that is too late is given up."""
        return self.transmit.tick(now)

    def close(self) -> list[Action]:
        """Release the connection."""
        return self.receive.take(ReceiveInput.CLOSE) + self.transmit.take(TransmitInput.CLOSE)

    # Reports

    def wrote(self, ulpdus: int) -> None:
        """Report that ULPDUs are about to be handed to the device. A negative number takes them back."""
        self._written += ulpdus

    def sent(self, octets: bytes) -> list[Action]:
        """Report that the socket has taken a startup frame or an FPDU."""
        offset = self.octets_sent - self.startup_sent  # in the MPA stream
        self.octets_sent += len(octets)
        if offset < 0:
            return []
        self._left += 1
        header = 4 if self.negotiated.markers_tx and offset % MARKER_INTERVAL == 0 else 0  # RFC 5044 §4.3
        if is_terminate(octets[header + 2 : header + 4]):
            return self.transmit.take(TransmitInput.TERMINATE_LEFT)
        return []

    @property
    def packets_due(self) -> bool:
        """Whether a startup frame, an FPDU or a Terminate has not been reported as sent."""
        if self.startup_sent > self.octets_sent:
            return True
        return self._negotiated is not None and (self._unsent or self._terminate_sent)

    @property
    def fpdus_left(self) -> int:
        """The number of FPDUs that have been reported as sent."""
        return self._left

    def startup_leaves(self) -> None:
        """Report that TCP has taken the whole startup frame."""
        self.octets_sent = self.startup_sent

    def left(self, fpdus: int, *, at_rest: bool) -> list[Action]:
        """Report how many FPDUs TCP has taken so far.

        With ``at_rest``, no FPDU is on its way: a Terminate that the device has sent has been taken, too.
        """
        self._left = fpdus
        if self._terminate_sent and at_rest:
            self._terminate_sent = False
            return self.transmit.take(TransmitInput.TERMINATE_LEFT)
        return []

    def fetched(self) -> list[Action]:
        """Report that the device has delivered a ULPDU."""
        self._fetched += 1
        return self._valid_fpdu() if self._fetched == 1 else []

    def reported(self, event: DeviceEvent) -> list[Action]:
        """Report an event of the device."""
        match event.kind:
            case EventKind.FENCE_OPEN:
                self.opened = True
                return self.transmit.take(TransmitInput.FENCE_OPEN)
            case EventKind.RTR_SENT:
                self._own += 1
            case EventKind.TERMINATE_SENT:
                self._terminate_sent = True
            case EventKind.RTR_RECEIVED:
                self._consumed += event.detail != Rtr.NONE  # a permissive device delivers a first FPDU that is no RTR
                self._own += event.detail == Rtr.READ  # the Read Response, which may leave later
                return self._valid_fpdu()
            case EventKind.RESPONSE_RECEIVED:
                self._consumed += 1
            case EventKind.ERROR:
                self._consumed += event.cause is Cause.NOT_RTR  # a good FPDU that is not delivered
                return self.receive.take(ReceiveInput.ERROR)
        return []

    def closed_by_peer(self) -> list[Action]:
        """Report that the peer has closed its half."""
        self.peer_closed = True
        return self.receive.take(ReceiveInput.PEER_CLOSED)

    def drained(self, good: int, fence_open: bool) -> list[Action]:
        """Report that the device has drained and the ULP has every ULPDU. ``good`` counts the octets of good FPDUs."""
        rest = self.octets_received - self.startup_received - good
        lost = ""
        if rest:
            lost = f"the peer closed inside an FPDU, {rest} octets after stream offset {good}"
        elif not fence_open and (
            self.negotiated.model is Model.PEER_TO_PEER or self._written > 0 or self.engine_sent > 0
        ):
            # In the client-server model, an end with nothing to send does not need the peer's first FPDU
            first = "RTR" if self.negotiated.model is Model.PEER_TO_PEER else "first FPDU"
            lost = f"the peer closed before its {first}"
        ended = self.receive.take(ReceiveInput.DRAINED, Facts(what=lost))
        return self.transmit.take(TransmitInput.NO_FPDU) + ended

    def _valid_fpdu(self) -> list[Action]:
        return self.transmit.take(TransmitInput.VALID_FPDU)
