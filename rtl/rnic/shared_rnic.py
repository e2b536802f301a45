"""TCP, MPA and RDMA for many connections: Ethernet frames at one side, memory at the other."""

from collections.abc import Iterable

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.rdma.fabric import FABRIC_PORTS, Fabric, fabric_members
from open_rnic.rtl.rdma.memory import memory_members
from open_rnic.rtl.registers.bus import connect_pages, paged_bus
from open_rnic.rtl.rnic.registers import PAGE_BITS
from open_rnic.rtl.rnic.shared_datapath import SharedDatapath
from open_rnic.rtl.rnic.watcher import Tag
from open_rnic.rtl.tcp.config import EngineConfig, Station
from open_rnic.rtl.tcp.path import NetworkPath
from open_rnic.rtl.tcp.path_control import PathControl

__all__ = ["SharedRnic"]

_OF_PATH = (
    "rx_frames", "tx_frames", "udp_rx", "udp_tx", "receive_memory", "receive_memory_failed", "send_memory",
    "send_memory_failed",
)  # fmt: skip


class SharedRnic(wiring.Component):
    """A :class:`.NetworkPath` and a :class:`.SharedDatapath`, which serves all connections.

    The registers are pages of 1 KiB, as in :class:`.SeparateRnic`, with those of the memory and of the streams.

    Parameters
    ----------
    connections : a power of 2 from 2 to 64
    memory : octets of memory, a power of 2
    outside : it is no block RAM, but lies behind the port ``memory``
    config, fabric, station, udp_ports
        See :class:`.SeparateRnic`. With ``config.memory``, the rings of TCP lie behind memory ports.
    options
        See :class:`.SharedDatapath`.

    Members
    -------
    tick, rx_frames, tx_frames, udp_rx, udp_tx, bus, irq, rdma_irq
        See :class:`.SeparateRnic`.
    waits : Out, ``connections`` bits
        A received word waits for the host.
    receive_memory, receive_memory_failed, send_memory, send_memory_failed : :func:`.ring_members`
    samples, work, work_reports : those of ``fabric``; see :class:`.SharedDatapath`
    memory : Out, :class:`.MemoryPort`
        The memory, if it is outside.

    """

    def __init__(self, connections: int, config: EngineConfig | None = None, *, memory: int,
                 fabric: Fabric = Fabric.NONE, station: Station | None = None, udp_ports: Iterable[int] = (),
                 outside: bool = False, **options: int):  # fmt: skip
        self.path = NetworkPath(connections, config, udp_ports=udp_ports, tag=Tag(connections))
        self.datapath = SharedDatapath(
            connections, self.path.engine.config.receive_ring, memory, fabric=fabric, outside=outside, **options
        )
        self.samplers = [each for each in (self.datapath.sampler,) if each]
        self.connections = connections
        self.station = station
        members = self.path.signature.members
        super().__init__({
            "tick": In(1), **{name: members[name] for name in _OF_PATH if name in members},
            "bus": In(paged_bus(2 + connections)),
            "irq": Out(1 + connections), "rdma_irq": Out(connections), "waits": Out(connections),
            **fabric_members(self.datapath),
            **memory_members(1, outside),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self.path
        m.submodules.datapath = datapath = self.datapath
        m.submodules.control = control = PathControl(self.connections, path.engine.config, self.station)
        control.attach(m, path)
        connect(m, path.shown, datapath.rings)
        connect(m, datapath.to_send, path.to_send)
        expose(m, path, self, _OF_PATH)
        expose(m, datapath, self, (*FABRIC_PORTS, "tick", "memory"))
        page = self.bus.address[PAGE_BITS:]
        m.d.comb += [
            path.tick.eq(self.tick),
            datapath.room.eq(path.room),
            datapath.accept.eq(control.accept),
            datapath.show.eq(control.view.show),
            control.packets.eq(datapath.packets),
            control.octets.eq(datapath.octets),
            control.finished.eq(datapath.finished),
            control.ends.eq(datapath.ends),
            self.irq.eq(Cat(control.irq, datapath.irq)),
            self.rdma_irq.eq(datapath.rdma_irq),
            self.waits.eq(datapath.waits),
        ]
        connect_pages(m, self.bus, ((control.bus, page == 0), (datapath.bus, page != 0)))
        m.d.comb += datapath.bus.address.eq(Cat(self.bus.address[:PAGE_BITS], page - 1))
        return m
