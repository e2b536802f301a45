"""The data path of one connection with RDMA, whose memory the host accesses, too, and with logic beside the engine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mpa.datapath import mpa_streams
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.fabric import FABRIC_PORTS, Fabric, fabric_members
from open_rnic.rtl.rdma.memory import add_memory, check_memory, memory_members
from open_rnic.rtl.rdma.memory_window import MemoryWindow
from open_rnic.rtl.rdma.sampling import SamplingDatapath
from open_rnic.rtl.rdma.work_port import WorkPort
from open_rnic.rtl.registers.bus import RegisterBus, connect_pages

__all__ = ["WINDOW_PAGE", "BlockRdmaDatapath"]

WINDOW_PAGE = 0x2C0  # the address of the registers of the memory, up to 0x2FF


class BlockRdmaDatapath(wiring.Component):
    """An :class:`.RdmaDatapath` with a memory, which the host accesses by a :class:`.MemoryWindow`.

    With samples, a :class:`.SamplingDatapath` in its place; with work of the fabric, a :class:`.WorkPort` beside it.

    Parameters
    ----------
    lanes : width of the streams and of memory in 32-bit lanes
    octets : size of the memory, a power of 2
    fabric : the logic beside the engine
    outside : the memory is no block RAM, but lies behind the port ``memory``
    options
        See :class:`.RdmaDatapath`.

    Members
    -------
    tx_ulpdu, rx_ulpdu, tx_mpa, rx_mpa, irq, reset
        See :class:`.RdmaDatapath`. A reset leaves the memory as it is.
    samples, tick, work, work_reports
        See :class:`.SamplingDatapath` and :class:`.WorkPort`; those of ``fabric``.
    bus : In, :class:`.RegisterBus`
        The registers of all, in one page.
    memory : Out, :class:`.MemoryPort`
        The memory, if it is outside.

    """

    def __init__(self, lanes: int, octets: int, fabric: Fabric = Fabric.NONE, *, outside: bool = False,
                 **options: int):
        self.lanes = lanes
        self.work_port = None
        if fabric.is_sampler:
            self.path = SamplingDatapath(lanes, generates=fabric is Fabric.GENERATOR, **options)
        else:
            self.path = RdmaDatapath(lanes, fabric=fabric is Fabric.WORK, **options)
        if fabric is Fabric.WORK:
            self.work_port = WorkPort(self.path.engine.work)
        check_memory(lanes, octets)
        self.octets = octets
        super().__init__({
            **mpa_streams(lanes),
            "bus": In(RegisterBus()), "irq": Out(2), "reset": Out(1),
            **fabric_members(self.work_port or self.path),
            **({"tick": In(1)} if "tick" in self.path.signature.members else {}),
            **memory_members(lanes, outside),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self.path
        m.submodules.window = window = MemoryWindow(self.lanes, self.octets)
        expose(m, path, self, (*mpa_streams(self.lanes), *FABRIC_PORTS, "tick", "irq", "reset"))
        if self.work_port is not None:
            m.submodules.work_port = port = self.work_port
            port.serve(m, path, path.reset)
            expose(m, port, self, FABRIC_PORTS)
        wiring.connect(m, path.memory, window.port)
        add_memory(m, self, window.main, self.octets)
        of_window = self.bus.address[4:] == WINDOW_PAGE >> 6
        connect_pages(m, self.bus, ((path.bus, ~of_window), (window.bus, of_window)))
        return m
