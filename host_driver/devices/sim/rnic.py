"""An RNIC in simulation: TCP, MPA and RDMA in RTL, with rings in memory for its frames, ULPDUs and words."""

from __future__ import annotations

from amaranth.hdl import Const, Module, ResetInserter, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.path import Ticks
from open_rnic.host_driver.devices.sim.rdma import SIZES, memory_rings
from open_rnic.host_driver.devices.sim.rings import InRing, OutRing
from open_rnic.rtl.rnic import Rnic
from open_rnic.rtl.tcp.config import EngineConfig

_NEVER = Const(0)


class SimulatedRnic(wiring.Component):  # type: ignore[misc]
    """An ``rtl.rnic.Rnic`` with a ring at each stream, and its registers in the words of ``layout``.

    Members
    -------
    control, status : words with the fields of ``layout.rnic``
    """

    def __init__(self, rnic: Rnic):
        self._rnic = rnic
        words = layout.rnic(rnic.connections, rdma=rnic.has_rdma)
        super().__init__({
            "control": In(data.StructLayout(words.control)),
            "status": Out(data.StructLayout(words.status)),
        })

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        control, status = self.control, self.status
        m.submodules.rnic = rnic = self._rnic

        def ring_in(name: str, stream: wiring.PureInterface, flush: Value = _NEVER) -> None:
            ring = InRing(stream.payload.shape())
            m.submodules[name] = ResetInserter(flush)(ring)
            wiring.connect(m, ring.o, stream)
            m.d.comb += [ring.posted.eq(control[f"{name}_posted"]), status[f"{name}_taken"].eq(ring.taken)]

        def ring_out(name: str, stream: wiring.PureInterface, flush: Value = _NEVER) -> None:
            ring = OutRing(stream.payload.shape())
            m.submodules[name] = ResetInserter(flush)(ring)
            wiring.connect(m, stream, ring.i)
            m.d.comb += [
                ring.freed.eq(control[f"{name}_freed"]),
                status[f"{name}_written"].eq(ring.written),
                status[f"{name}_notes"].eq(ring.notes),
            ]

        ring_in("rx_frames", rnic.rx_frames)
        ring_out("tx_frames", rnic.tx_frames)
        for at in range(rnic.connections):
            flush = control[f"flush_{at}"]
            ring_in(f"tx_ulpdu_{at}", rnic.tx_ulpdu[at], flush)
            ring_out(f"rx_ulpdu_{at}", rnic.rx_ulpdu[at], flush)
            if rnic.has_rdma:
                memory_rings(m, rnic.memory[at], 1, control, status, f"_{at}")
        if rnic.has_rdma:
            m.d.comb += status.rdma_irq.eq(rnic.rdma_irq)

        bus = rnic.bus
        turn = Signal()
        read_data = Signal(32)
        m.d.comb += [
            bus.request.eq(control.turn != turn),
            bus.write.eq(control.write),
            bus.address.eq(control.address),
            bus.write_data.eq(control.write_data),
            status.turn.eq(turn),
            status.read_data.eq(read_data),
            status.irq.eq(rnic.irq),
        ]
        with m.If(bus.request & bus.ack):
            m.d.sync += [turn.eq(control.turn), read_data.eq(bus.read_data)]

        m.submodules.ticks = ticks = Ticks(rnic.connections)
        m.d.comb += [ticks.due.eq(control.ticks), status.ticks.eq(ticks.done), rnic.tick.eq(ticks.tick)]
        return m


def make(connections: str, ring: str, rdma: str = "") -> SimulatedRnic:
    """Return an RNIC of ``connections`` connections, with rings of ``ring`` octets each way; with engines if "rdma"."""
    config = EngineConfig(send_ring=int(ring), receive_ring=int(ring))
    return SimulatedRnic(Rnic(int(connections), config, rdma=SIZES if rdma else None))
