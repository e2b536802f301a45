"""The sample writer of a simulated data path, which moves by itself."""

from __future__ import annotations

from open_rnic.host_driver.devices.sim.peripheral import Peripheral
from open_rnic.rtl.rdma import sample_registers, signal_registers

__all__ = ["Samples"]

_SIGNAL = signal_registers.BY_NAME["SIGNAL_STATUS"]
_SAMPLES = sample_registers.BY_NAME["SAMPLE_STATUS"]
_BELL_TICKS = sample_registers.BY_NAME["SAMPLE_BELL_TICKS"]


class Samples(Peripheral):
    """Lets no time pass without the clock while a sample is due, or a tick that makes the writer send what waits."""

    async def pause(self) -> float | None:
        """See Peripheral."""
        state = await self.clock.access(_SIGNAL.address // 4)
        if _SIGNAL["runs"].get(state) and not _SIGNAL["stalls"].get(state):
            return 0
        state = await self.clock.access(_SAMPLES.address // 4)
        waits = _SAMPLES["pending"].get(state) and not _SAMPLES["blocked"].get(state)
        return 0 if waits and await self.clock.access(_BELL_TICKS.address // 4) else None
