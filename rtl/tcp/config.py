"""The parameters of the TCP engine."""

from dataclasses import dataclass

__all__ = ["EngineConfig", "Station"]


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


@dataclass(frozen=True)
class Station:
    """The addresses of a network path at power-on, as integers whose most significant octet is the first one.

    With the address 0 the path is silent until a host has set addresses.
    """

    mac: int = 0
    address: int = 0
    prefix: int = 0
    gateway: int = 0

    @property
    def registers(self) -> dict[str, int]:
        """The reset values of the registers of :data:`.PATH_MAP`, by name."""
        return {
            "MAC_LO": self.mac & 0xFFFF_FFFF, "MAC_HI": self.mac >> 32,
            "ADDRESS": self.address, "PREFIX": self.prefix, "GATEWAY": self.gateway,
        }  # fmt: skip
