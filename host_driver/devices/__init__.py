"""The devices by name: an application chooses its data path here."""

from __future__ import annotations

import os
from ipaddress import IPv4Address
from pathlib import Path

from open_rnic.host_driver.device import Device
from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.link.protocol import LINK_PORT

NAMES = (
    "software", "simulated", "serial:PORT[:BAUD]", "serial:sim:BOARD", "udp:ADDRESS[:PORT]",
    "udp:sim:BOARD[:CONNECTIONS]",
)  # fmt: skip
UDP = "udp:"
_CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)  # of an RNIC
_SERIAL = "serial:"
_SIMULATED = "sim:"


def check(spec: str, *, lanes: int) -> None:
    """Raise ValueError for an unknown name or width, as far as that is known without opening the device."""
    if lanes not in LANES:
        raise ValueError(f"a device is {', '.join(map(str, LANES[:-1]))} or {LANES[-1]} lanes wide, not {lanes}")
    if spec in ("software", "simulated"):
        return
    if spec.startswith(UDP):
        rnic_place(spec)
        return
    if not spec.startswith(_SERIAL):
        raise ValueError(f"no device is called {spec!r}; there are {', '.join(NAMES[:-1])} and {NAMES[-1]}")
    where = spec.removeprefix(_SERIAL)
    if where.startswith(_SIMULATED):
        need("boards")
        from open_rnic.boards import find

        find(where.removeprefix(_SIMULATED))
    else:
        serial_port(where)


def is_rnic(spec: str) -> bool:
    """Return whether the device of this name is a whole RNIC, with TCP of its own."""
    return spec.startswith(UDP)


def rnic_place(spec: str) -> str | tuple[IPv4Address, int]:
    """Return the place of a whole RNIC: an address and a port, or BOARD[:CONNECTIONS] of a board that is simulated.

    Raises ValueError if the name has neither.
    """
    where = spec.removeprefix(UDP)
    if where.startswith(_SIMULATED):
        need("boards")
        from open_rnic.boards import find
        from open_rnic.boards.board import Core

        where = where.removeprefix(_SIMULATED)
        name, colon, connections = where.partition(":")
        if not find(name).supports(Core.RNIC):
            raise ValueError(f"{name} has no Ethernet that an RNIC could use: `rnic boards` lists those with core rnic")
        if colon and connections not in map(str, _CONNECTIONS):
            raise ValueError(f"an RNIC has 1, 2, 4, 8, 16, 32 or 64 connections, not {connections!r}")
        return where
    text, colon, number = where.partition(":")
    try:
        address = IPv4Address(text)
    except ValueError:
        raise ValueError(f"udp: needs the IPv4 address of a board, as in udp:10.0.0.2, not {where!r}") from None
    port = int(number) if number.isdecimal() else 0 if colon else LINK_PORT
    if 0 < port < 1 << 16:
        return address, port
    raise ValueError(f"{spec}: a UDP port is a number from 1 to 65535, not {number!r}")


def offloads(spec: str) -> bool:
    """Return whether the device of this name can have an RDMA engine; of a board, this is known when it is open."""
    where = spec.removeprefix(_SERIAL)
    if is_rnic(spec) or where == spec or not where.startswith(_SIMULATED):
        return True
    from open_rnic.boards import find

    return bool(find(where.removeprefix(_SIMULATED)).memory)


def samples(spec: str) -> bool:
    """Return whether an RDMA engine of this device can have a sample writer; for a board, see its registers."""
    if not is_rnic(spec):
        return spec == "simulated"
    place = rnic_place(spec)
    if not isinstance(place, str):
        return True
    from open_rnic.boards import find_rnic

    return bool(find_rnic(place).samples)


async def open_device(
    spec: str, *, lanes: int, waves: Path | None = None, offload: bool | None = False
) -> Device:
    """Open a data path and reset it.

    ``spec`` is "software" (:mod:`.software`), "simulated" (the RTL in Verilator, in a process of its own),
    "serial:PORT" or "serial:PORT:BAUD" (a board), or "serial:sim:BOARD" (a board's whole top in Verilator, behind a
    pseudo-terminal). The data path has ``lanes`` 32-bit lanes; a board has as many as it was built with. ``waves`` is a
    folder in which a simulated device writes its waveforms. With ``offload`` the device has an RDMA engine, which is
    used; if it is None, that is so except for a board without an engine. Raises ValueError for an unknown name or
    width, for a whole RNIC, or if the device has no waveforms or no engine, and DeviceError if the device cannot be
    opened.
    """
    check(spec, lanes=lanes)
    if is_rnic(spec):
        raise ValueError(f"{spec} has TCP of its own: it is for commands that make connections")
    if offload and not offloads(spec):
        raise ValueError(f"the {spec} device has no RDMA engine")
    if waves is not None and spec != "simulated":
        raise ValueError(f"the {spec} device has no waveforms: only the simulated one writes them")
    match spec:
        case "software":
            from open_rnic.host_driver.devices.software import SoftwareDevice

            return SoftwareDevice(lanes=lanes, offload=offload is not False)
        case "simulated":
            from open_rnic.host_driver.devices.simulated import SimulatedDevice

            return await SimulatedDevice.open(lanes=lanes, waves=waves, offload=offload is not False)
    where = spec.removeprefix(_SERIAL)
    if where.startswith(_SIMULATED):
        from open_rnic.boards.board import Core
        from open_rnic.host_driver.devices.serial.simulated import SimulatedBoardDevice

        core = Core.RDMA if offload else Core.MPA  # that of the default bitstream, if nothing else is asked for
        return await SimulatedBoardDevice.open_board(where.removeprefix(_SIMULATED), core)
    from open_rnic.host_driver.devices.serial.device import SerialDevice

    port, baud = serial_port(where)
    return await SerialDevice.open(port, baud, offload=offload)


def serial_port(where: str) -> tuple[str, int]:
    """Split ``PORT`` or ``PORT:BAUD``. The name of a port may contain colons, too."""
    from open_rnic.host_driver.devices.serial import BAUD

    name, colon, baud = where.rpartition(":")
    if not colon or not baud.isascii() or not baud.isdecimal() or os.path.exists(where):
        name, baud = where, str(BAUD)
    if not name:
        raise ValueError("serial: needs the name of a port, as in serial:/dev/ttyUSB0")
    if not int(baud):
        raise ValueError("a baud rate is not 0")
    return name, int(baud)
