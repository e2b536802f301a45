"""The state of the Ethernet port of an RNIC: the link, the PHYs, the addresses, and the counters of frames."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface

from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.udp.driver import MAC, PATH, RNIC
from open_rnic.host_driver.devices.udp.rnic import UdpRnic
from open_rnic.rtl.mac.registers import LinkSource, Speed
from open_rnic.rtl.registers import Register
from open_rnic.rtl.rnic import registers as rnic_registers

__all__ = ["Inspection", "Link", "Phy", "inspect"]

_PHYS = 32  # addresses on MDIO
_STATUS, _ID_HIGH, _ID_LOW = 1, 2, 3  # registers of a PHY (IEEE 802.3 §22.2.4)
_LINK_STATUS = 1 << 2  # of register 1
_STATION = "MAC_HI", "MAC_LO", "ADDRESS", "PREFIX", "GATEWAY"
_MAC: dict[str, Register] = MAC.registers
_SPEEDS: dict[int, int] = {Speed.MBIT_10: 10, Speed.MBIT_100: 100, Speed.MBIT_1000: 1000}


@dataclass(frozen=True)
class Link:
    """The state of a link; ``speed`` is in Mb/s."""

    up: bool
    speed: int
    full_duplex: bool

    @classmethod
    def of(cls, register: str, word: int) -> Link:
        """Return the state in LINK or IN_BAND."""
        up, speed, full = (_MAC[register][name].get(word) for name in ("up", "speed", "full_duplex"))
        return cls(bool(up), _SPEEDS.get(speed, 0), bool(full))


@dataclass(frozen=True)
class Phy:
    """A PHY that has answered; ``identifier`` is the content of its registers 2 and 3."""

    address: int
    identifier: int
    link: bool


@dataclass(frozen=True)
class Inspection:
    """The Ethernet port of an RNIC.

    ``running`` is whether frames pass, ``source`` where the state of the link comes from, and ``phy`` the address at
    which the RNIC reads its PHY. ``in_band`` is the state that it reports between frames, if the interface is RGMII.
    ``counters`` are the MAC's, ``discarded`` those of the network path behind it.
    """

    address: IPv4Interface
    gateway: IPv4Address
    mac: bytes
    link: Link
    running: bool
    source: LinkSource
    phy: int
    phy_answers: bool
    in_band: Link | None
    phys: tuple[Phy, ...]
    counters: dict[str, int]
    discarded: dict[str, int]


async def inspect(rnic: UdpRnic) -> Inspection:
    """Read the registers of the port, and look for PHYs at all addresses of MDIO.

    ``rnic`` need not have been opened, and its connections go on; but another host that uses the RNIC loses it. Raises
    DeviceError if it does not answer, or is another design.
    """
    if (identity := await rnic.read(RNIC, "RNIC_IDENTITY")) != rnic_registers.IDENTITY:
        raise DeviceError(f"RNIC_IDENTITY is 0x{identity:08x}, not 0x{rnic_registers.IDENTITY:08x}: another design")
    high, low, address, mask, gateway = await asyncio.gather(*(rnic.read(PATH, name) for name in _STATION))
    names = "CAPABILITIES", "CONTROL", "LINK", "IN_BAND"
    capabilities, control, link, in_band = await asyncio.gather(*(rnic.read(MAC, name) for name in names))
    has_in_band = _MAC["CAPABILITIES"]["in_band"].get(capabilities)
    return Inspection(
        address=IPv4Interface((address, mask.bit_count())),
        gateway=IPv4Address(gateway),
        mac=high.to_bytes(2, "big") + low.to_bytes(4, "big"),
        link=Link.of("LINK", link),
        running=bool(_MAC["LINK"]["running"].get(link)),
        source=LinkSource(_MAC["CONTROL"]["source"].get(control)),
        phy=_MAC["CAPABILITIES"]["phy"].get(capabilities),
        phy_answers=bool(_MAC["LINK"]["phy_answers"].get(link)),
        in_band=Link.of("IN_BAND", in_band) if has_in_band else None,
        phys=tuple([phy for address in range(_PHYS) if (phy := await _phy(rnic, address))]),
        counters=await rnic.counters(),
        discarded=await rnic.discarded(),
    )


async def _phy(rnic: UdpRnic, address: int) -> Phy | None:
    """Return the PHY at this address, or None if none answers."""
    high = await _phy_register(rnic, address, _ID_HIGH)
    if high is None:
        return None
    # The first read of the status reports that the link has been down since the one before (IEEE 802.3 §22.2.4.2.13).
    numbers = _ID_LOW, _STATUS, _STATUS
    low, _, status = [await _phy_register(rnic, address, number) or 0 for number in numbers]
    return Phy(address, high << 16 | low, bool(status & _LINK_STATUS))


async def _phy_register(rnic: UdpRnic, address: int, number: int) -> int | None:
    access, result = _MAC["PHY_ACCESS"], _MAC["PHY_RESULT"]
    word = access["phy"].put(address) | access["register"].put(number) | access["go"].put(1)
    await rnic.write(MAC, "PHY_ACCESS", word)
    while access["pending"].get(await rnic.read(MAC, "PHY_ACCESS")):
        pass
    word = await rnic.read(MAC, "PHY_RESULT")
    return result["data"].get(word) if result["answered"].get(word) else None
