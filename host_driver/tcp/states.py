"""The states of a connection (RFC 9293 §3.3.2), and the table of their changes."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["CHANGES", "Input", "State"]


class State(Enum):
    """The states of RFC 9293 §3.3.2. LISTEN and TIME-WAIT belong to the endpoint, which keeps less for them."""

    SYN_SENT = "SYN-SENT"
    SYN_RECEIVED = "SYN-RECEIVED"
    ESTABLISHED = "ESTABLISHED"
    FIN_WAIT_1 = "FIN-WAIT-1"
    FIN_WAIT_2 = "FIN-WAIT-2"
    CLOSE_WAIT = "CLOSE-WAIT"
    CLOSING = "CLOSING"
    LAST_ACK = "LAST-ACK"
    TIME_WAIT = "TIME-WAIT"
    CLOSED = "CLOSED"

    @property
    def synchronized(self) -> bool:
        """Whether both ends have exchanged initial sequence numbers."""
        return self not in (State.SYN_SENT, State.SYN_RECEIVED, State.CLOSED)


class Input(Enum):
    """Events that change the state."""

    SYN = auto()  # a SYN without an acknowledgment of ours: simultaneous open
    SYN_ACKNOWLEDGED = auto()  # both SYNs have been exchanged
    CLOSE = auto()  # the user closes; a FIN is due
    FIN = auto()  # the peer's FIN has been received in order
    FIN_ACKNOWLEDGED = auto()
    END = auto()  # a reset, a timeout, or the end of TIME-WAIT


_S, _I = State, Input

# An input that is absent in a state has no effect there.
CHANGES: dict[tuple[State, Input], State] = {
    (_S.SYN_SENT, _I.SYN): _S.SYN_RECEIVED,
    (_S.SYN_SENT, _I.SYN_ACKNOWLEDGED): _S.ESTABLISHED,
    (_S.SYN_RECEIVED, _I.SYN_ACKNOWLEDGED): _S.ESTABLISHED,
    (_S.ESTABLISHED, _I.CLOSE): _S.FIN_WAIT_1,
    (_S.ESTABLISHED, _I.FIN): _S.CLOSE_WAIT,
    (_S.FIN_WAIT_1, _I.FIN_ACKNOWLEDGED): _S.FIN_WAIT_2,
    (_S.FIN_WAIT_1, _I.FIN): _S.CLOSING,
    (_S.FIN_WAIT_2, _I.FIN): _S.TIME_WAIT,
    (_S.CLOSE_WAIT, _I.CLOSE): _S.LAST_ACK,
    (_S.CLOSING, _I.FIN_ACKNOWLEDGED): _S.TIME_WAIT,
    (_S.LAST_ACK, _I.FIN_ACKNOWLEDGED): _S.CLOSED,
    **{(state, _I.END): _S.CLOSED for state in State},
}
