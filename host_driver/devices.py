"""The devices, by name: the one place where an application picks a data path."""

from __future__ import annotations

from pathlib import Path

from host_driver.device import Device
from rtl.registers import LANES

NAMES = ("software", "simulated")


async def open_device(spec: str, *, lanes: int, waves: Path | None = None) -> Device:
    """A data path of ``lanes`` 32-bit lanes, just reset.

    ``spec`` is "software" (``host_driver.software``) or "simulated" (the RTL in Verilator, in a process of
    its own). ``waves`` is a folder in which a simulated device writes its waveforms. Raises ValueError for
    another name or width or waves that there are none of, and DeviceError when the device cannot be opened.
    """
    if lanes not in LANES:
        raise ValueError(f"a device is {', '.join(map(str, LANES[:-1]))} or {LANES[-1]} lanes wide, not {lanes}")
    match spec:
        case "software":
            if waves is not None:
                raise ValueError("the software device has no waveforms: it is no simulation")
            from host_driver.software import SoftwareDevice

            return SoftwareDevice(lanes=lanes)
        case "simulated":
            from host_driver.simulated import SimulatedDevice

            return await SimulatedDevice.open(lanes=lanes, waves=waves)
        case _:
            raise ValueError(f"no device is called {spec!r}; there are {' and '.join(NAMES)}")
