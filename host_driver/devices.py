"""The devices, by name: the one place where an application picks a data path."""

from __future__ import annotations

from host_driver.device import Device

NAMES = ("software", "simulated")
LANES = (1, 2, 4, 8, 16)


async def open_device(spec: str, *, lanes: int) -> Device:
    """A data path of ``lanes`` 32-bit lanes, just reset.

    ``spec`` is "software" (``host_driver.software``) or "simulated" (the RTL in Verilator, in a process of
    its own). Raises ValueError for another name or width, and DeviceError when the device cannot be opened.
    """
    if lanes not in LANES:
        raise ValueError(f"a device is {', '.join(map(str, LANES[:-1]))} or {LANES[-1]} lanes wide, not {lanes}")
    match spec:
        case "software":
            from host_driver.software import SoftwareDevice

            return SoftwareDevice(lanes=lanes)
        case "simulated":
            from host_driver.simulated import SimulatedDevice

            return await SimulatedDevice.open(lanes=lanes)
        case _:
            raise ValueError(f"no device is called {spec!r}; there are {' and '.join(NAMES)}")
