"""The devices by name: an application chooses its data path here."""

from __future__ import annotations

from pathlib import Path

from open_rnic.host_driver.device import Device
from open_rnic.host_driver.devices import names
from open_rnic.rtl.lib.lanes import LANES

__all__ = ["check_lanes", "open_device"]


def check_lanes(lanes: int) -> None:
    """Raise ValueError for a width that no device has."""
    if lanes not in LANES:
        raise ValueError(f"a device is {', '.join(map(str, LANES[:-1]))} or {LANES[-1]} lanes wide, not {lanes}")


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
    check_lanes(lanes)
    name = names.parse(spec)
    if isinstance(name, names.Rnic):
        raise ValueError(f"{name} has TCP of its own: it is for commands that make connections")
    if offload and not name.offloads:
        raise ValueError(f"the {name} device has no RDMA engine")
    if waves is not None and spec != "simulated":
        raise ValueError(f"the {name} device has no waveforms: only the simulated one writes them")
    match name:
        case names.SerialPort(port=port, baud=baud):
            from open_rnic.host_driver.devices.serial.device import SerialDevice

            return await SerialDevice.open(port, baud, offload=offload)
        case names.SimulatedSerial(board=board):
            from open_rnic.boards.core import Core
            from open_rnic.host_driver.devices.serial.simulated import SimulatedBoardDevice

            core = Core.RDMA if offload else Core.MPA  # that of the default bitstream, if nothing else is asked for
            return await SimulatedBoardDevice.open_board(board, core)
        case names.DeviceName(text="software"):
            from open_rnic.host_driver.devices.software import SoftwareDevice

            return SoftwareDevice(lanes=lanes, offload=offload is not False)
        case _:
            from open_rnic.host_driver.devices.simulated import SimulatedDevice

            return await SimulatedDevice.open(lanes=lanes, waves=waves, offload=offload is not False)
