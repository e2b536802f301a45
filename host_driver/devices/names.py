"""The names of devices, as programs take them, and what is known of a device before it is opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.rtl.host_link.protocol import LINK_PORT

if TYPE_CHECKING:
    from open_rnic.boards.board import Ethernet

__all__ = ["FORMS", "DeviceName", "Rnic", "SerialPort", "SimulatedRnic", "SimulatedSerial", "UdpRnic", "parse"]

FORMS = (
    "software", "simulated", "serial:PORT[:BAUD]", "serial:sim:BOARD", "udp:ADDRESS[:PORT]",
    "udp:sim:BOARD[:N][:sdram|:netlist]",
)  # fmt: skip
_SERIAL, _UDP, _SIMULATED = "serial:", "udp:", "sim:"


@dataclass(frozen=True)
class DeviceName:
    """The name of a device: ``software`` (:mod:`.software`), ``simulated`` (the RTL in Verilator), or a kind below."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def offloads(self) -> bool:
        """Whether the device can have an RDMA engine; of a board, this is known when it is open."""
        return True

    @property
    def simulated(self) -> bool:
        """Whether the device runs in Verilator."""
        return self.text == "simulated" or f":{_SIMULATED}" in self.text

    @property
    def samples(self) -> bool:
        """Whether an RDMA engine of the device can have a sample writer; of a board, its registers say so."""
        return self.text == "simulated"


@dataclass(frozen=True)
class SerialPort(DeviceName):
    """A board behind a serial port."""

    port: str
    baud: int


@dataclass(frozen=True)
class SimulatedSerial(DeviceName):
    """A board's whole top in Verilator, behind a pseudo-terminal."""

    board: str

    @property
    def offloads(self) -> bool:
        """Whether the board has memory for an RDMA engine."""
        from open_rnic.boards import find

        return bool(find(self.board).memory)


@dataclass(frozen=True)
class Rnic(DeviceName):
    """A whole RNIC, with TCP of its own."""


@dataclass(frozen=True)
class UdpRnic(Rnic):
    """A board at an IPv4 address and a UDP port."""

    address: IPv4Address
    port: int

    @property
    def samples(self) -> bool:
        """Whether the board may have a sample writer."""
        return True


@dataclass(frozen=True)
class SimulatedRnic(Rnic):
    """A board in Verilator; ``place`` is BOARD[:N][:sdram|:netlist]."""

    place: str

    @property
    def connections(self) -> int:
        """The number of connections."""
        return int(_port(self.place).connections)

    @property
    def in_sdram(self) -> bool:
        """Whether the memory is the board's SDRAM."""
        return bool(_port(self.place).in_sdram)

    @property
    def board(self) -> str:
        """The name of the board."""
        return self.place.partition(":")[0]

    @property
    def samples(self) -> bool:
        """Whether the board has a sample writer."""
        return bool(_port(self.place).samples)


def parse(text: str) -> DeviceName:
    """Return the name that ``text`` is; raises ValueError for an unknown one, or for a board that cannot be so."""
    if text in ("software", "simulated"):
        return DeviceName(text)
    if text.startswith(_SERIAL):
        return _serial(text, text.removeprefix(_SERIAL))
    if text.startswith(_UDP):
        return _rnic(text, text.removeprefix(_UDP))
    raise ValueError(f"no device is called {text!r}; there are {', '.join(FORMS[:-1])} and {FORMS[-1]}")


def _serial(text: str, where: str) -> DeviceName:
    if where.startswith(_SIMULATED):
        need("boards")
        from open_rnic.boards import find

        board = where.removeprefix(_SIMULATED)
        find(board)
        return SimulatedSerial(text, board)
    from open_rnic.host_driver.devices.serial import BAUD

    name, colon, baud = where.rpartition(":")  # the name of a port may contain colons, too
    if not colon or not baud.isascii() or not baud.isdecimal() or os.path.exists(where):
        name, baud = where, str(BAUD)
    if not name:
        raise ValueError("serial: needs the name of a port, as in serial:/dev/ttyUSB0")
    if not int(baud):
        raise ValueError("a baud rate is not 0")
    return SerialPort(text, name, int(baud))


def _rnic(text: str, where: str) -> Rnic:
    if where.startswith(_SIMULATED):
        place = where.removeprefix(_SIMULATED)
        _port(place)
        return SimulatedRnic(text, place)
    address, colon, number = where.partition(":")
    try:
        at = IPv4Address(address)
    except ValueError:
        raise ValueError(f"udp: needs the IPv4 address of a board, as in udp:10.0.0.2, not {where!r}") from None
    port = int(number) if number.isdecimal() else 0 if colon else LINK_PORT
    if 0 < port < 1 << 16:
        return UdpRnic(text, at, port)
    raise ValueError(f"{text}: a UDP port is a number from 1 to 65535, not {number!r}")


def _port(place: str) -> Ethernet:
    need("boards")
    from open_rnic.boards import find_rnic

    port = find_rnic(place)
    if port.in_sdram:
        need("litex")
    return port
