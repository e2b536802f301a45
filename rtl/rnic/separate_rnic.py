"""TCP and MPA in one, or TCP, MPA and RDMA: Ethernet frames at one side, ULPDUs or memory at the other."""

from collections.abc import Iterable, Mapping

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.rdma.block_ram_datapath import BlockRdmaDatapath
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.fabric import FABRIC_PORTS, Fabric, fabric_members
from open_rnic.rtl.rdma.layouts import MemoryPort
from open_rnic.rtl.registers.bus import connect_pages, paged_bus
from open_rnic.rtl.rnic.registers import PAGE_BITS
from open_rnic.rtl.tcp.attachment import Attachment
from open_rnic.rtl.tcp.config import EngineConfig, Station
from open_rnic.rtl.tcp.path import NetworkPath
from open_rnic.rtl.tcp.path_control import PathControl

__all__ = ["SeparateRnic"]


def _datapath(rdma: Mapping[str, int] | None, memory: int, fabric: Fabric, outside: bool):
    if memory:
        return BlockRdmaDatapath(1, memory, fabric, outside=outside, **(rdma or {}))
    return MpaDatapath(1) if rdma is None else RdmaDatapath(1, **rdma)


class SeparateRnic(wiring.Component):
    """A :class:`.NetworkPath` with an :class:`.MpaDatapath` for each connection, 32 bits wide.

    ::

        rx_frames ▸ NetworkPath ▸ Attachment ▸ MpaDatapath ▸ rx_ulpdu
        tx_frames ◂ NetworkPath ◂ Attachment ◂ MpaDatapath ◂ tx_ulpdu

    With ``rdma``, each connection has an :class:`.RdmaDatapath` instead, with a memory port of its own; with
    ``memory``, a :class:`.BlockRdmaDatapath`.

    The registers are pages of 1 KiB: page 0 is :data:`.PATH_MAP`, page 1 + n is :data:`.MAP` of connection n, with
    :data:`.RDMA_MAP` behind it.

    Parameters
    ----------
    connections : 1, 2, 4, 8 or 16
    config : see :class:`.NetworkPath`. The rings of TCP are in block RAM
    rdma : the parameters of each :class:`.RdmaDatapath`; None: there is none, unless ``memory`` is given
    memory : octets of memory for each RDMA engine, a power of 2, which the host accesses, too; 0: it does not
    outside : that memory is no block RAM, but lies behind a port, as it does without ``memory``
    fabric : with ``memory``: the logic beside the engine. One connection
    station : the addresses at power-on
    udp_ports : see :class:`.Net`

    Members
    -------
    tick : In, 1 bit; a pulse each millisecond
    rx_frames, tx_frames : of :class:`.NetworkPath`
    tx_ulpdu, rx_ulpdu : In, array of streams of :class:`.TxUlpdu`; Out, of :class:`.RxUlpdu`; one for each connection
    bus : In, :class:`.RegisterBus`
    irq : Out, 1 + ``connections`` bits; the interrupts of the pages
    memory : Out, array of :class:`.MemoryPort`; one for each RDMA engine, if its memory is outside
    samples, work, work_reports : those of ``fabric``; see :class:`.BlockRdmaDatapath`
    udp_rx, udp_tx : of :class:`.Net`, with ``udp_ports``
    reset, rdma_irq : Out, ``connections`` bits; the data path is reset; the interrupt of the RDMA engine

    """

    def __init__(self, connections: int = 1, config: EngineConfig | None = None, *,
                 rdma: Mapping[str, int] | None = None, memory: int = 0, fabric: Fabric = Fabric.NONE,
                 station: Station | None = None, udp_ports: Iterable[int] = (),
                 outside: bool = False):  # fmt: skip
        if config is not None and config.memory is not None:
            raise ValueError("a SeparateRnic has the rings of TCP in block RAM; a SharedRnic may have them outside")
        if fabric is not Fabric.NONE and (connections > 1 or not memory):
            raise ValueError("a SeparateRnic has samples or work of the fabric with memory and one connection; "
                             "a SharedRnic with several")  # fmt: skip
        self.path = NetworkPath(connections, config, udp_ports=udp_ports)
        self.connections = connections
        self.station = station
        self.has_rdma = rdma is not None or bool(memory)
        self.has_port = self.has_rdma and (outside or not memory)
        self.has_udp = bool(self.path.net.receiver.udp_ports)
        self.datapaths = [_datapath(rdma, memory, fabric, outside) for _ in range(connections)]
        self.samplers = [each.path.sampler for each in self.datapaths] if fabric.is_sampler else []
        members = self.path.signature.members
        super().__init__({
            "tick": In(1), "rx_frames": members["rx_frames"], "tx_frames": members["tx_frames"],
            "tx_ulpdu": In(stream.Signature(TxUlpdu(1))).array(connections),
            "rx_ulpdu": Out(stream.Signature(RxUlpdu(1))).array(connections),
            "bus": In(paged_bus(2 + connections)),
            "irq": Out(1 + connections),
            "reset": Out(connections),
            **({"rdma_irq": Out(connections)} if self.has_rdma else {}),
            **({"memory": Out(MemoryPort(1)).array(connections)} if self.has_port else {}),
            **fabric_members(self.datapaths[0]),
            **({name: members[name] for name in ("udp_rx", "udp_tx")} if self.has_udp else {}),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self.path
        m.submodules.control = control = PathControl(self.connections, path.engine.config, self.station)
        attachments = []
        for n, datapath in enumerate(self.datapaths):
            m.submodules[f"attachment_{n}"] = attachment = Attachment()
            m.submodules[f"datapath_{n}"] = datapath
            attachments.append(attachment)
            if self.has_port:
                connect(m, datapath.memory, flipped(self.memory[n]))
            expose(m, datapath, self, (*FABRIC_PORTS, "tick"))
            if self.has_rdma:
                m.d.comb += self.rdma_irq[n].eq(datapath.irq[1])
            connect(m, flipped(self.tx_ulpdu[n]), datapath.tx_ulpdu)
            connect(m, datapath.tx_mpa, attachment.tx_mpa)
            connect(m, attachment.rx_mpa, datapath.rx_mpa)
            connect(m, datapath.rx_ulpdu, flipped(self.rx_ulpdu[n]))
            m.d.comb += [attachment.reset.eq(datapath.reset), attachment.wanted.eq(control.accept[n])]
        connect(m, flipped(self.rx_frames), path.rx_frames)
        connect(m, path.tx_frames, flipped(self.tx_frames))
        if self.has_udp:
            connect(m, path.udp_rx, flipped(self.udp_rx))
            connect(m, flipped(self.udp_tx), path.udp_tx)
        control.attach(m, path)
        m.d.comb += [
            path.tick.eq(self.tick),
            path.accept.eq(Cat(each.accept for each in attachments)),
            control.ends.eq(Cat(each.ends for each in attachments)),
            self.reset.eq(Cat(each.reset for each in self.datapaths)),
            self.irq.eq(Cat(control.irq, *(each.irq[0] for each in self.datapaths))),
        ]
        self._receive(m, attachments)
        self._send(m, attachments)
        self._show(m, control, attachments)
        number = self.bus.address[PAGE_BITS:]
        pages = (control.bus, *(each.bus for each in self.datapaths))
        connect_pages(m, self.bus, [(page, number == n) for n, page in enumerate(pages)])
        return m

    def _receive(self, m, attachments):
        """Give each piece to its connection."""
        received = self.path.received
        for n, attachment in enumerate(attachments):
            mine = Signal(name=f"received_{n}")
            m.d.comb += [
                mine.eq(received.payload.connection == n),
                attachment.received.valid.eq(received.valid & mine),
                *(attachment.received.payload[name].eq(received.payload[name]) for name in ("data", "octets", "last")),
            ]
            with m.If(mine):
                m.d.comb += received.ready.eq(attachment.received.ready)

    def _send(self, m, attachments):
        """Choose the connection whose packet is next, in turn among those with a packet and room for it."""
        to_send = self.path.to_send
        chosen = Signal(connection_shape(self.connections))
        locked = Signal()  # a packet of the chosen connection is on its way
        offers = Signal(self.connections)
        m.d.comb += offers.eq(Cat(each.to_send.valid for each in attachments) & self.path.room)
        with m.If(~locked):
            m.d.sync += chosen.eq(following(chosen, self.connections))
            with m.If(offers.bit_select(chosen, 1)):
                m.d.sync += [chosen.eq(chosen), locked.eq(1)]
        for n, attachment in enumerate(attachments):
            given = attachment.to_send
            with m.If(locked & (chosen == n)):
                m.d.comb += [
                    to_send.valid.eq(given.valid),
                    given.ready.eq(to_send.ready),
                    *(to_send.payload[name].eq(given.payload[name]) for name in ("data", "octets", "last")),
                ]
        m.d.comb += to_send.payload.connection.eq(chosen)
        with m.If(to_send.valid & to_send.ready & to_send.payload.last):
            m.d.sync += locked.eq(0)

    def _show(self, m, control, attachments):
        """The counters of the connection that the registers show."""
        for n, attachment in enumerate(attachments):
            with m.If(control.view.show == n):
                m.d.comb += [
                    control.packets.eq(attachment.packets),
                    control.octets.eq(attachment.octets),
                    control.finished.eq(attachment.finished),
                ]
