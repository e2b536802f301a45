"""A fixed IPv4 address, as options take it, with the MAC address that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Self

from open_rnic.host_driver.net.host import Host, local_mac
from open_rnic.rtl.tcp.config import Station

__all__ = ["StaticAddress"]


@dataclass(frozen=True)
class StaticAddress:
    """An IPv4 address with its network, and the gateway to other networks, if there is one."""

    address: IPv4Interface
    gateway: IPv4Address | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``ADDRESS/PREFIX[,GATEWAY]``; raises ValueError, with the wrong part, if no host can have it."""
        address, *gateway = text.split(",")
        if len(gateway) > 1 or "/" not in address:
            raise ValueError(f"an address must be ADDRESS/PREFIX[,GATEWAY], not {text!r}")
        parsed = cls(IPv4Interface(address), IPv4Address(gateway[0]) if gateway else None)
        Host(parsed.mac, parsed.address, parsed.gateway)
        return parsed

    @property
    def mac(self) -> bytes:
        """The MAC address, which two hosts of a network do not share if they do not share the IPv4 address."""
        return local_mac(self.address.ip)

    @property
    def station(self) -> Station:
        """The addresses as RTL takes them."""
        return Station.of(self.mac, self.address, self.gateway)

    def __str__(self) -> str:
        return f"{self.address}{f',{self.gateway}' if self.gateway else ''}"
