"""The parameters of an endpoint."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TcpConfig"]


@dataclass(frozen=True)
class TcpConfig:
    """Parameters of all connections of an endpoint. Times are in milliseconds, sizes in octets."""

    mss: int = 1460
    """The MSS option that is sent: MTU less 40 (RFC 9293 §3.7.1)."""
    send_ring: int = 1 << 18
    """Octets that may wait for transmission or acknowledgment."""
    receive_ring: int = 1 << 18
    """Octets that may wait for the application; the largest window."""
    packets: int = 1 << 16
    """Packets of the user that wait with segments of their own; further ones become part of the last."""
    ranges: int = 32
    """Ranges of octets that are kept out of order, in each direction."""
    sack: bool = True
    """Offer SACK (RFC 2018)."""
    sack_sending: bool = True
    """Use the peer's SACK blocks to send (RFC 6675); otherwise the sender uses NewReno (RFC 6582)."""
    timestamps: bool = True
    """Offer timestamps (RFC 7323 §3)."""
    scaling: bool = True
    """Offer window scaling (RFC 7323 §2)."""
    delayed_ack: int = 40
    """The longest delay of an acknowledgment (RFC 9293 §3.8.6.3 allows 500)."""
    initial_rto: int = 1000
    shortest_rto: int = 200
    longest_rto: int = 60_000
    give_up: int = 900_000
    """How long octets are retransmitted without an answer. RFC 9293 §3.8.3: 100 s or more; Linux: 924 s."""
    syn_tries: int = 6
    """How often a SYN is sent (RFC 9293 §3.8.3 asks for 3 minutes or more; with these RTOs, 63 s)."""
    half_open: int = 3000
    """How long a peer has to answer a SYN+ACK, if another one wants its place: the first repeat and its answer fit."""
    time_wait: int = 60_000
    """2 MSL (RFC 9293 §3.4.1)."""
    fin_wait_2: int = 60_000
    """How long a connection without a user waits for the peer's FIN."""
    initial_window: int = 10
    """The initial congestion window in segments (RFC 6928)."""
    challenges: int = 10
    """Challenge ACKs for a connection in a second (RFC 5961 §7)."""
    between_answers: int = 500
    """The shortest time between two answers to unacceptable segments without octets; Linux: tcp_invalid_ratelimit."""
