"""The data path of one connection with RDMA, whose memory is a block RAM."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.bus import RegisterBus
from open_rnic.rtl.layouts import Packet, RxUlpdu, TxUlpdu
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.memory import BlockMemory
from open_rnic.rtl.rdma.memory_window import MemoryWindow

__all__ = ["WINDOW_PAGE", "BlockRdmaDatapath"]

WINDOW_PAGE = 0x2C0  # the address of the registers of the memory, up to 0x2FF


class BlockRdmaDatapath(wiring.Component):
    """An :class:`.RdmaDatapath` with a :class:`.BlockMemory`, which the host accesses by a :class:`.MemoryWindow`.

    Parameters
    ----------
    lanes : width of the streams and of memory in 32-bit lanes
    octets : size of the memory, a power of 2
    options
        See :class:`.RdmaDatapath`.

    Members
    -------
    tx_ulpdu, rx_ulpdu, tx_mpa, rx_mpa, irq, reset
        See :class:`.RdmaDatapath`. A reset leaves the memory as it is.
    bus : In, :class:`.RegisterBus`
        The registers of all, in one page.

    """

    def __init__(self, lanes: int, octets: int, **options: int):
        self.lanes = lanes
        self.path = RdmaDatapath(lanes, **options)
        self.memory = BlockMemory(lanes, octets)
        super().__init__({
            "tx_ulpdu": In(stream.Signature(TxUlpdu(lanes))), "rx_ulpdu": Out(stream.Signature(RxUlpdu(lanes))),
            "tx_mpa": Out(stream.Signature(Packet(lanes))), "rx_mpa": In(stream.Signature(Packet(lanes))),
            "bus": In(RegisterBus()), "irq": Out(2), "reset": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self.path
        m.submodules.memory = memory = self.memory
        m.submodules.window = window = MemoryWindow(self.lanes, memory.octets)
        connect, flipped = wiring.connect, wiring.flipped
        connect(m, flipped(self.tx_ulpdu), path.tx_ulpdu)
        connect(m, path.rx_ulpdu, flipped(self.rx_ulpdu))
        connect(m, path.tx_mpa, flipped(self.tx_mpa))
        connect(m, flipped(self.rx_mpa), path.rx_mpa)
        connect(m, path.memory, window.port)
        connect(m, window.main, memory.port)
        m.d.comb += [self.reset.eq(path.reset), self.irq.eq(path.irq)]
        of_window = self.bus.address[4:] == WINDOW_PAGE >> 6
        for page, chosen in ((path.bus, ~of_window), (window.bus, of_window)):
            m.d.comb += [
                page.request.eq(self.bus.request & chosen),
                page.write.eq(self.bus.write),
                page.address.eq(self.bus.address),
                page.write_data.eq(self.bus.write_data),
            ]
            with m.If(chosen):
                m.d.comb += [self.bus.ack.eq(page.ack), self.bus.read_data.eq(page.read_data)]
        return m
