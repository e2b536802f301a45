"""The parameters of the TCP engine."""

from dataclasses import dataclass

__all__ = ["EngineConfig"]


@dataclass(frozen=True)
class EngineConfig:
    """Parameters that are fixed when the engine is built. Times are in ticks of 1 ms, sizes in octets.

    The names and values are those of :class:`.TcpConfig`, which has the sources of the values.
    """

    mss: int = 1460
    send_ring: int = 8192
    receive_ring: int = 8192
    delayed_ack: int = 40
    initial_rto: int = 1000
    shortest_rto: int = 200
    longest_rto: int = 60_000
    give_up: int = 900_000
    syn_tries: int = 6
    time_wait: int = 60_000
    initial_window: int = 10
    challenges: int = 10
