"""The parameters of the TCP engine."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Self

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

    @classmethod
    def of(cls, mac: bytes, address: IPv4Interface, gateway: IPv4Address | None = None) -> Self:
        """Return these addresses."""
        return cls(int.from_bytes(mac, "big"), int(address.ip), int(address.netmask), int(gateway or 0))

    @property
    def registers(self) -> dict[str, int]:
        """The registers of :data:`.PATH_MAP` with these addresses, in the order in which they can be written."""
        return {
            "MAC_HI": self.mac >> 32, "MAC_LO": self.mac & 0xFFFF_FFFF,
            "PREFIX": self.prefix, "GATEWAY": self.gateway, "ADDRESS": self.address,
        }  # fmt: skip
