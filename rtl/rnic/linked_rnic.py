"""A whole RNIC without its Ethernet port: TCP, MPA, RDMA and the link to a host, over UDP and a UART."""

from fractions import Fraction

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.host_link.datagrams import DatagramPort
from open_rnic.rtl.host_link.link import Link
from open_rnic.rtl.host_link.protocol import LINK_PORT
from open_rnic.rtl.host_link.uart import Uart
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mpa.stream_registers import STREAM_MAP
from open_rnic.rtl.mpa.stream_window import StreamWindow
from open_rnic.rtl.net.layouts import Frame
from open_rnic.rtl.rdma.fabric import FABRIC_PORTS, Fabric, fabric_members
from open_rnic.rtl.rdma.memory import memory_members
from open_rnic.rtl.registers import of_connections, words_of
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import BusSwitch, RegisterBus, connect_pages
from open_rnic.rtl.rnic.registers import MAC_PAGE, PAGE_BITS, RNIC_MAP, RNIC_PAGE
from open_rnic.rtl.rnic.separate_rnic import SeparateRnic
from open_rnic.rtl.rnic.shared_rnic import SharedRnic
from open_rnic.rtl.tcp.config import EngineConfig, Station

__all__ = ["LinkedRnic"]

_WINDOW = STREAM_MAP[0].address >> 6  # of the registers of streams, in the page of their connection
_REGIONS = 64  # of each of many connections
_ADDRESS_BITS = 16  # of a register


class LinkedRnic(wiring.Component):
    """A :class:`.SeparateRnic` with block RAM, or a :class:`.SharedRnic`, whose host is at the other end of a link.

    ::

        rx_frames ▸ SeparateRnic ◂▸ StreamWindow ◂▸ Link ◂▸ DatagramPort ◂▸ UDP of the same SeparateRnic
        tx_frames ◂                              ◂▸ Uart ◂▸ rx, tx

    The address of a register is that of :class:`.SeparateRnic`; the pages of :data:`.RNIC_MAP` and of the Ethernet port
    are at the end. A page that does not exist reads as 0. A response leaves through the port, UDP or UART, at which the
    latest frame has ended.

    Parameters
    ----------
    connections, config, memory, outside, fabric, station : see :class:`.SeparateRnic`. With ``config.memory``, the
        rings of TCP lie behind memory ports; only for more than one connection
    period : length of a bit of the UART in clock cycles
    size : octets of the memory for a frame of the link, at most 1024
    registers : with the port ``bus``

    Members
    -------
    rx_frames, tx_frames, mac_bus, mac_irq : the streams, registers and interrupt of an :class:`.EthernetPort`
    tick : In, 1 bit; a pulse each millisecond
    samples, work, work_reports : of :class:`.SeparateRnic`
    rx, tx : In, Out, 1 bit; the wires of the UART
    active : Out, 1 bit; see :class:`.Link`; suitable for an LED
    irq : Out, 1 bit; something waits for the host: PENDING.path or mac, EVENTS or STREAMS of :data:`.RNIC_MAP`, but not
        ENGINES
    bus : In, :class:`.RegisterBus`; with ``registers``: accesses that take turns with those of the link
    receive_memory, send_memory : Out, :class:`.MemoryPort`; with ``config.memory``: the rings, see
        :func:`.ring_members`
    memory : Out, :class:`.MemoryPort`; of the RDMA engine, if its memory is outside
    memory_failed : In, 1 bit; that memory never answers

    """

    def __init__(self, connections: int = 1, config: EngineConfig | None = None, *, memory: int,
                 period: Fraction | int, size: int = 1024, fabric: Fabric = Fabric.NONE,
                 station: Station | None = None, outside: bool = False, registers: bool = False):  # fmt: skip
        options = {
            "memory": memory, "outside": outside, "fabric": fabric, "station": station, "udp_ports": (LINK_PORT,),
        }  # fmt: skip
        self.is_shared = connections > 1
        has_memory = config is not None and config.memory is not None
        if has_memory and not self.is_shared:
            raise ValueError("rings outside of block RAM are for more than one connection")
        self._memories = ["receive_memory", "send_memory"] if has_memory else []
        self.rnic = (
            SharedRnic(connections, config, regions=_REGIONS, **options)
            if self.is_shared
            else SeparateRnic(connections, config, **options)
        )
        self._outside = outside
        self.link = Link(1, size=size, address_bits=_ADDRESS_BITS, crc_bits=4)
        self.switch = BusSwitch(_ADDRESS_BITS) if registers else None
        self.datagrams = DatagramPort(size)
        self.octets = memory
        self.period = period
        super().__init__({
            "rx_frames": In(stream.Signature(Frame())), "tx_frames": Out(packet(1)),
            "mac_bus": Out(RegisterBus()), "mac_irq": In(1), "tick": In(1),
            "rx": In(1, init=1), "tx": Out(1, init=1), "active": Out(1), "irq": Out(1),
            **fabric_members(self.rnic),
            **{name: self.rnic.signature.members[name] for name in self._memories},
            **memory_members(1, outside), **({"memory_failed": In(1)} if outside else {}),
            **({"bus": In(RegisterBus(_ADDRESS_BITS))} if registers else {}),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        connect, flipped = wiring.connect, wiring.flipped
        m.submodules.rnic = rnic = self.rnic
        m.submodules.link = link = self.link
        m.submodules.bank = bank = RegisterBank(of_connections(RNIC_MAP, self.rnic.connections))
        window = None
        if not self.is_shared:
            m.submodules.window = window = StreamWindow()
            connect(m, window.tx_ulpdu, rnic.tx_ulpdu[0])
            connect(m, rnic.rx_ulpdu[0], window.rx_ulpdu)
            m.d.comb += window.reset.eq(rnic.reset)
            if self._outside:
                connect(m, rnic.memory[0], flipped(self.memory))
        else:
            expose(m, rnic, self, ("memory",))
        connect(m, flipped(self.rx_frames), rnic.rx_frames)
        connect(m, rnic.tx_frames, flipped(self.tx_frames))
        expose(m, rnic, self, (*FABRIC_PORTS, *self._memories))
        failed = rnic.receive_memory_failed | rnic.send_memory_failed if self._memories else 0
        waits = window.waits if window else rnic.waits
        m.d.comb += [
            rnic.tick.eq(self.tick),
            self.active.eq(link.active),
            self.irq.eq(link.irq[0]),
            *bank.show("CAPABILITIES", connections=rnic.connections, shared=self.is_shared,
                       memory=self.octets.bit_length() - 1),
            *bank.show("PENDING", path=rnic.irq[0], mac=self.mac_irq, rings=failed,
                       sdram=self.memory_failed if self._outside else 0),
            *(bank.words(words_of(name, rnic.connections)).eq(bits)
              for name, bits in (("EVENTS", rnic.irq[1:]), ("ENGINES", rnic.rdma_irq), ("STREAMS", waits))),
        ]
        m.d.sync += link.irq.eq(Cat(
            rnic.irq.any() | self.mac_irq | waits.any(), rnic.rdma_irq.any(),
        ))  # fmt: skip
        self._octets(m)
        self._pages(m, bank, window)
        return m

    def _octets(self, m):
        """Connect the link to UDP and to the UART."""
        connect = wiring.connect
        rnic, link = self.rnic, self.link
        m.submodules.datagrams = datagrams = self.datagrams
        m.submodules.uart = uart = Uart(self.period)
        connect(m, rnic.udp_rx, datagrams.udp_rx)
        connect(m, datagrams.udp_tx, rnic.udp_tx)
        asked = Signal()  # the latest frame has come through the UART
        answers = Signal()  # the response that is sent leaves through the UART
        m.d.comb += [
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
            link.i.valid.eq(uart.o.valid | datagrams.o.valid),
            link.i.payload.eq(datagrams.o.payload),
            datagrams.o.ready.eq(~uart.o.valid),
            datagrams.i.payload.eq(link.o.payload),
            datagrams.i.valid.eq(link.o.valid & ~answers),
            datagrams.length.eq(link.length),
            uart.i.payload.eq(link.o.payload),
            uart.i.valid.eq(link.o.valid & answers),
            link.o.ready.eq(datagrams.i.ready),
        ]
        with m.If(uart.o.valid):
            m.d.comb += link.i.payload.eq(uart.o.payload)
        with m.If(answers):
            m.d.comb += link.o.ready.eq(uart.i.ready)
        with m.If(link.i.valid & (link.i.payload == 0)):
            m.d.sync += asked.eq(uart.o.valid)
        with m.If(~link.o.valid):
            m.d.sync += answers.eq(asked)

    def _pages(self, m, bank, window):
        """Give each access to its page."""
        bus, rnic = self.link.bus, self.rnic
        if self.switch is not None:
            m.submodules.switch = self.switch
            wiring.connect(m, self.link.bus, self.switch.initiators[0])
            wiring.connect(m, wiring.flipped(self.bus), self.switch.initiators[1])
            bus = self.switch.bus
        page, place = bus.address[PAGE_BITS:], bus.address[:PAGE_BITS]
        of_window = Signal()
        of_rnic = Signal()
        m.d.comb += [
            of_window.eq((place[4:] == _WINDOW) & (page == 1) if window else 0),
            of_rnic.eq(page <= rnic.connections),
        ]
        chosen = [
            *([(window.bus, of_window)] if window else []),
            (rnic.bus, of_rnic & ~of_window),
            (bank.bus, page == RNIC_PAGE),
            (self.mac_bus, page == MAC_PAGE),
        ]
        m.d.comb += bus.ack.eq(bus.request)  # of a page that does not exist
        connect_pages(m, bus, chosen)
