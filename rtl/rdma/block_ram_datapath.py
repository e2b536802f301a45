"""The data path of one connection with RDMA, whose memory the host accesses, too, and with samples of the fabric."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mpa.datapath import mpa_streams
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.memory import add_memory, check_memory, memory_members
from open_rnic.rtl.rdma.memory_window import MemoryWindow
from open_rnic.rtl.rdma.sampling import Samples, SamplingDatapath
from open_rnic.rtl.registers.bus import RegisterBus, connect_pages

__all__ = ["WINDOW_PAGE", "BlockRdmaDatapath"]

WINDOW_PAGE = 0x2C0  # the address of the registers of the memory, up to 0x2FF


class BlockRdmaDatapath(wiring.Component):
    """An :class:`.RdmaDatapath` with a memory, which the host accesses by a :class:`.MemoryWindow`.

    With ``samples``, a :class:`.SamplingDatapath` in its place.

    Parameters
    ----------
    lanes : width of the streams and of memory in 32-bit lanes
    octets : size of the memory, a power of 2
    samples : where samples come from; None: there is no sample writer
    outside : the memory is no block RAM, but lies behind the port ``memory``
    options
        See :class:`.RdmaDatapath`.

    Members
    -------
    tx_ulpdu, rx_ulpdu, tx_mpa, rx_mpa, irq, reset
        See :class:`.RdmaDatapath`. A reset leaves the memory as it is.
    samples, tick
        See :class:`.SamplingDatapath`; absent without samples.
    bus : In, :class:`.RegisterBus`
        The registers of all, in one page.
    memory : Out, :class:`.MemoryPort`
        The memory, if it is outside.

    """

    def __init__(self, lanes: int, octets: int, samples: Samples | None = None, *, outside: bool = False,
                 **options: int):
        self.lanes = lanes
        if samples is None:
            self.path = RdmaDatapath(lanes, **options)
        else:
            self.path = SamplingDatapath(lanes, generates=samples is Samples.GENERATOR, **options)
        self._more = [name for name in ("samples", "tick") if name in self.path.signature.members]
        check_memory(lanes, octets)
        self.octets = octets
        super().__init__({
            **mpa_streams(lanes),
            "bus": In(RegisterBus()), "irq": Out(2), "reset": Out(1),
            **{name: self.path.signature.members[name] for name in self._more},
            **memory_members(lanes, outside),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self.path
        m.submodules.window = window = MemoryWindow(self.lanes, self.octets)
        expose(m, path, self, (*mpa_streams(self.lanes), *self._more, "irq", "reset"))
        wiring.connect(m, path.memory, window.port)
        add_memory(m, self, window.main, self.octets)
        of_window = self.bus.address[4:] == WINDOW_PAGE >> 6
        connect_pages(m, self.bus, ((path.bus, ~of_window), (window.bus, of_window)))
        return m
