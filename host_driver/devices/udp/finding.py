"""Finds the boards in a network: each refuses a request of a session that it does not know, and carries nothing out."""

from __future__ import annotations

import asyncio
import fcntl
import secrets
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from open_rnic.host_driver.devices.serial.frames import ZERO, Request, response, unframe
from open_rnic.rtl.host_link.protocol import LINK_PORT, SIZES, Ask, Status

__all__ = ["Found", "find", "interfaces"]

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # linux/sockios.h
_INTERVAL = 0.2  # seconds between requests
_ARP = Path("/proc/net/arp")
_UNKNOWN = "00:00:00:00:00:00"


@dataclass(frozen=True, order=True)
class Found:
    """A board. ``used``: it has had a host since it started. ``version`` is that of its link."""

    address: IPv4Address
    used: bool
    version: int

    @property
    def mac(self) -> str | None:
        """The board's MAC address, if this machine knows it."""
        with suppress(OSError):
            for line in _ARP.read_text().splitlines()[1:]:
                address, _, _, mac, *_ = line.split()
                if address == str(self.address) and mac != _UNKNOWN:
                    return mac
        return None


def interfaces() -> dict[str, IPv4Interface]:
    """Return the addresses of this machine's network interfaces that have one, except loopback."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            words = []
            with suppress(OSError):
                for what in (_SIOCGIFADDR, _SIOCGIFNETMASK):
                    answer = fcntl.ioctl(asked, what, struct.pack("256s", name.encode()[:15]))
                    words.append(IPv4Address(answer[20:24]))
                interface = IPv4Interface(f"{words[0]}/{words[1]}")
                if not interface.is_loopback:
                    found[name] = interface
    return found


async def find(places: Iterable[IPv4Address], *, port: int = LINK_PORT, seconds: float = 1.0) -> list[Found]:
    """Ask at these addresses, which may be those of whole networks, and return the boards that answer in this time.

    Raises OSError if nothing can be sent.
    """
    session = secrets.randbelow((1 << 32) - 1) + 1
    asking = ZERO + Request(SIZES[0]).encode(0, session, Ask(0))
    found: dict[IPv4Address, Found] = {}

    class Answers(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            octets = unframe(data.strip(ZERO))
            answer = None if octets is None else response(octets)
            if answer is not None and answer.session == session and answer.status & Status.REFUSED:
                address = IPv4Address(addr[0])
                found[address] = Found(address, not answer.status & Status.FRESH, answer.version)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        Answers, local_addr=("0.0.0.0", 0), allow_broadcast=True
    )
    wanted = list(places)
    try:
        end = loop.time() + seconds
        while (now := loop.time()) < end:
            for place in wanted:
                transport.sendto(asking, (str(place), port))
            await asyncio.sleep(min(_INTERVAL, end - now))
        # A request to a single host lets this machine learn its MAC address.
        for address in found:
            transport.sendto(asking, (str(address), port))
        await asyncio.sleep(_INTERVAL)
    finally:
        transport.close()
    return sorted(found.values())
