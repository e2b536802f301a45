"""The parameters of the TCP engine."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Self

from open_rnic.rtl.lib.sizes import check_size

__all__ = ["EngineConfig", "RingMemory", "Station"]


@dataclass(frozen=True)
class RingMemory:
    """Where the rings lie in a memory that is not block RAM.

    ``receive`` and ``send`` are the addresses of the first octets of the rings for received octets and of those for
    octets to send, multiples of the size of all rings of their kind. Up to ``ahead`` words are asked for before they
    are used, and up to ``writes`` words wait to be written: powers of 2 from 8 to 64.
    """

    receive: int = 0
    send: int = 0
    ahead: int = 32
    writes: int = 32

    def check(self, connections: int, config: "EngineConfig") -> None:
        """Raise ValueError if the rings cannot lie there."""
        rings = (("receive", self.receive, config.receive_ring), ("send", self.send, config.send_ring))
        for name, start, size in rings:
            octets = connections * size
            if not 0 <= start <= (1 << 32) - octets or start % octets:
                raise ValueError(f"{name} must be a multiple of {octets:#x}, the size of its rings, not {start:#x}")
        check_size("ahead", self.ahead, 8, 64)
        check_size("writes", self.writes, 8, 64)


@dataclass(frozen=True)
class EngineConfig:
    """Parameters that are fixed when the engine is built. Times are in ticks of 1 ms, sizes in octets.

    The names and values are those of :class:`.TcpConfig`, which has the sources of the values. ``memory`` is where the
    rings are; without it, they are in block RAM.
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
    between_answers: int = 500
    memory: RingMemory | None = None


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
