"""A whole RNIC with its Ethernet port: what boards contain, and what is simulated in their place."""

from fractions import Fraction

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mac.mac import EARLY
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.port import EthernetPort
from open_rnic.rtl.mac.registers import LinkSource
from open_rnic.rtl.rdma.fabric import FABRIC_PORTS, Fabric
from open_rnic.rtl.rnic.linked_rnic import LinkedRnic
from open_rnic.rtl.tcp.config import EngineConfig, RingMemory, Station

__all__ = ["WholeRnic"]

_FAST = 40_000_000  # Hz from which the core keeps ahead of 1 Gb/s
_CORE = ("rx", "tx", "active", "irq")
_GIVEN = (*FABRIC_PORTS, "receive_memory", "send_memory", "memory", "memory_failed", "bus")
_PHY = ("phy_reset", "mdc", "mdio_o", "mdio_oe", "mdio_i")


class WholeRnic(wiring.Component):
    """A :class:`.LinkedRnic` behind an :class:`.EthernetPort`.

    The port begins to transmit a frame before it is complete if the clock is fast enough: the frames of
    :class:`.Net` have no pauses.

    Throughput: RDMA Writes at the rate of the wire, both ways at once at 97 % of it or more, from a clock of 50 MHz at
    1 Gb/s, if ``ring`` holds what is on its way. Latency: some 209 cycles from the last octet of an RDMA Read Request
    to the first one of its Response. Frames with errors, and packets for which there is no room, are discarded and
    counted.

    After configuration, the PHY is in reset, if the board resets it, and the MAC is stopped until the PHY reports that
    the link is up. Nothing is sent before.

    Parameters
    ----------
    adapter : of the pins of the PHY, for :class:`.EthernetPort`
    clock_hz : frequency of the clock
    settings, source
        See :class:`.EthernetPort`.
    connections : number of connections
    ring : octets of each of a connection's two rings for TCP, a power of 2
    rings : where these lie, if they are not in block RAM
    memory : octets of memory for the RDMA engine, a power of 2
    outside : that memory is no block RAM, but lies behind the port ``memory``
    fabric : the logic beside the engine
    period : clock cycles in a bit of the UART
    station : the addresses after configuration; without them, nothing is sent until a host has set some
    registers : with the port ``bus``

    Members
    -------
    tick : In, 1 bit
        A pulse each millisecond.
    rx, tx, active, irq, samples, work, work_reports, receive_memory, send_memory, memory, memory_failed, bus
        See :class:`.LinkedRnic`.
    phy_reset, mdc, mdio_o, mdio_oe, mdio_i
        See :class:`.EthernetPort`.

    """

    def __init__(self, adapter, clock_hz: int, settings: PhySettings, *, connections: int, ring: int, memory: int,
                 period: Fraction | int, source: LinkSource = LinkSource.MDIO,
                 fabric: Fabric = Fabric.NONE, station: Station | None = None,
                 rings: RingMemory | None = None, outside: bool = False, registers: bool = False):  # fmt: skip
        config = EngineConfig(send_ring=ring, receive_ring=ring, memory=rings)
        self.core = LinkedRnic(
            connections, config, memory=memory, outside=outside, fabric=fabric, period=period,
            station=station, registers=registers,
        )  # fmt: skip
        self._given = [name for name in _GIVEN if name in self.core.signature.members]
        self.port = EthernetPort(
            adapter, clock_hz, settings, source=source, early=EARLY if clock_hz >= _FAST else None
        )
        super().__init__({
            "tick": In(1),
            **{name: self.core.signature.members[name] for name in _CORE},
            **{name: self.core.signature.members[name] for name in self._given},
            **{name: self.port.signature.members[name] for name in _PHY},
        })

    def elaborate(self, platform):
        m = Module()
        connect = wiring.connect
        m.submodules.core = core = self.core
        m.submodules.port = port = self.port
        connect(m, port.rx_frames, core.rx_frames)
        connect(m, core.tx_frames, port.tx_frames)
        connect(m, core.mac_bus, port.bus)
        expose(m, core, self, (*_CORE, *self._given))
        expose(m, port, self, _PHY)
        m.d.comb += [core.tick.eq(self.tick), port.tick.eq(self.tick), core.mac_irq.eq(port.irq)]
        return m
