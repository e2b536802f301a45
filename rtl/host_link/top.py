"""The data path with a link to a host."""

from fractions import Fraction

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.host_link.link import Link
from open_rnic.rtl.host_link.uart import Uart, check_period
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.rdma.block_ram_datapath import BlockRdmaDatapath

__all__ = ["LinkedDatapath", "UartDatapath"]


class LinkedDatapath(wiring.Component):
    """A data path and its link, with octet streams for a UART or another transport.

    Parameters
    ----------
    lanes
        See :class:`.MpaDatapath`.
    size
        See :class:`.Link`.
    memory : octets of memory, a power of 2, with which the data path is a :class:`.BlockRdmaDatapath`; if 0, it is a
        :class:`.MpaDatapath`
    options
        See these two.

    Members
    -------
    i : In, stream of 8 bits
        Octets from the host; ``ready`` is always 1.
    o : Out, stream of 8 bits
        Octets to the host.
    active : Out, 1 bit
        See :class:`.Link`.

    """

    def __init__(self, lanes: int, *, size: int = 2048, memory: int = 0, **options: int):
        self.link = Link(lanes, size=size)
        self.datapath = BlockRdmaDatapath(lanes, memory, **options) if memory else MpaDatapath(lanes, **options)
        super().__init__({
            "i": In(stream.Signature(8)),
            "o": Out(stream.Signature(8)),
            "active": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.link = link = self.link
        m.submodules.datapath = datapath = self.datapath
        wiring.connect(m, wiring.flipped(self.i), link.i)
        wiring.connect(m, link.o, wiring.flipped(self.o))
        wiring.connect(m, link.bus, datapath.bus)
        m.d.comb += [link.irq.eq(datapath.irq), self.active.eq(link.active)]
        wiring.connect(m, link.tx_ulpdu, datapath.tx_ulpdu)
        wiring.connect(m, link.rx_mpa, datapath.rx_mpa)
        wiring.connect(m, datapath.tx_mpa, link.tx_mpa)
        wiring.connect(m, datapath.rx_ulpdu, link.rx_ulpdu)
        return m


class UartDatapath(wiring.Component):
    """A data path, its link, and a UART: everything that a board needs, except pins and a clock.

    Parameters
    ----------
    period : length of a bit of the UART in clock cycles, at least 4; need not be an integer
    lanes, others
        See :class:`LinkedDatapath`.

    Members
    -------
    rx : In, 1 bit
        The receive wire of the UART.
    tx : Out, 1 bit
        The transmit wire of the UART.
    active : Out, 1 bit
        See :class:`.Link`; suitable for an LED.

    """

    def __init__(self, lanes: int, period: Fraction | int, **others):
        check_period(period)
        self.period = period
        self.path = LinkedDatapath(lanes, **others)
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "active": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = self.path
        m.submodules.uart = uart = Uart(self.period)
        wiring.connect(m, uart.o, self.path.i)
        wiring.connect(m, self.path.o, uart.i)
        m.d.comb += [uart.rx.eq(self.rx), self.tx.eq(uart.tx), self.active.eq(self.path.active)]
        return m
