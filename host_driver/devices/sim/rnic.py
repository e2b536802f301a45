"""An RNIC in simulation: TCP, MPA and RDMA in RTL, with rings in memory for its frames, ULPDUs and words."""

from __future__ import annotations

from amaranth.hdl import Module

from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.network_path import ticks
from open_rnic.host_driver.devices.sim.rdma import SIZES
from open_rnic.host_driver.devices.sim.rings import Simulated
from open_rnic.rtl.rnic.separate_rnic import SeparateRnic
from open_rnic.rtl.tcp.config import EngineConfig


class SimulatedRnic(Simulated):
    """An ``rtl.rnic.separate_rnic.SeparateRnic``."""

    def __init__(self, rnic: SeparateRnic):
        self._rnic = rnic
        super().__init__(layout.rnic(rnic.connections, rdma=rnic.has_rdma))

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.rnic = rnic = self._rnic
        self.ring_in(m, "rx_frames", rnic.rx_frames)
        self.ring_out(m, "tx_frames", rnic.tx_frames)
        for at in range(rnic.connections):
            flush = self.control[f"flush_{at}"]
            self.ring_in(m, f"tx_ulpdu_{at}", rnic.tx_ulpdu[at], flush)
            self.ring_out(m, f"rx_ulpdu_{at}", rnic.rx_ulpdu[at], flush)
            if rnic.has_rdma:
                self.memory_rings(m, rnic.memory[at], f"_{at}")
        if rnic.has_rdma:
            m.d.comb += self.status.rdma_irq.eq(rnic.rdma_irq)
        self.registers(m, rnic.bus, rnic.irq)
        ticks(m, self, rnic.connections, rnic.tick)
        return m


def make(connections: str, ring: str, rdma: str = "") -> SimulatedRnic:
    """Return an RNIC of ``connections`` connections, with rings of ``ring`` octets each way; with engines if "rdma"."""
    config = EngineConfig(send_ring=int(ring), receive_ring=int(ring))
    return SimulatedRnic(SeparateRnic(int(connections), config, rdma=SIZES if rdma else None))
