"""A data path with an RDMA engine and a sample writer in simulation: its memory port has rings, too."""

from __future__ import annotations

from amaranth.hdl import Module, Signal

from open_rnic.host_driver.devices.sim.layout import TICK
from open_rnic.host_driver.devices.sim.rings import SimulatedDatapath
from open_rnic.rtl.rdma.sampling import SamplingDatapath


class SimulatedRdma(SimulatedDatapath):
    """An ``rtl.rdma.sampling.SamplingDatapath``; a tick of its sample writer passes every TICK clock cycles."""

    def __init__(self, datapath: SamplingDatapath):
        super().__init__(datapath, rdma=True)

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = super().elaborate(platform)
        self.memory_rings(m, self._datapath.memory)
        cycle = Signal(range(TICK))
        m.d.comb += self._datapath.tick.eq(cycle == TICK - 1)
        m.d.sync += cycle.eq(cycle + 1)  # TICK is a power of 2
        return m


# Peers on loopback send ULPDUs of up to 64 KiB.
SIZES = {"store_and_forward": 1 << 17, "regions": 1024, "buffers": 64, "work": 64, "reads": 128}


def make(lanes: str) -> SimulatedRdma:
    """Return a data path of ``lanes`` lanes with an RDMA engine, a sample writer and a signal generator."""
    return SimulatedRdma(SamplingDatapath(int(lanes), generates=True, **SIZES))
