"""An Ethernet port: a MAC, its PHY, and the registers of both."""

from math import ceil

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.mac.layouts import LinkState
from open_rnic.rtl.mac.mac import Mac, MacCounts
from open_rnic.rtl.mac.phy import PhyControl, PhySettings
from open_rnic.rtl.mac.pins import add_clocks
from open_rnic.rtl.mac.registers import MAC_MAP, LinkSource, Speed
from open_rnic.rtl.net.layouts import Frame
from open_rnic.rtl.registers import with_resets
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["EthernetPort"]

_MDC = 2_500_000  # Hz, at most (IEEE 802.3 §22.2.2.13)


class EthernetPort(wiring.Component):
    """A :class:`.Mac` at the pins of a PHY, which it sets up and watches, with registers.

    The MAC runs while the link is up and CONTROL.enable is set. A change of the speed stops it first, so that a frame
    is never transmitted or received with two speeds.

    Parameters
    ----------
    adapter : :class:`.RgmiiAdapter`, :class:`.MiiAdapter` or :class:`.RmiiAdapter`
        Becomes a part of this component. The clock domains of which it has no clock must exist around this component.
    clock_hz : frequency of the clock
    settings : of the PHY
    source : reset value of CONTROL.source
    options
        See :class:`.Mac`.

    Members
    -------
    rx_frames, tx_frames
        See :class:`.Mac`.
    bus : In, :class:`.RegisterBus`
        The registers of :data:`.MAC_MAP`.
    irq : Out, 1 bit
        LINK.changed is set.
    tick : In, 1 bit
        A pulse each millisecond.
    phy_reset, mdc, mdio_o, mdio_oe, mdio_i
        See :class:`.PhyControl`.

    """

    def __init__(
        self,
        adapter,
        clock_hz: float,
        settings: PhySettings,
        *,
        source: LinkSource = LinkSource.MDIO,
        **options: int,
    ):
        self.adapter = adapter
        self.settings = settings
        self.source = LinkSource(source)
        self.has_status = "status" in adapter.signature.members
        if self.source == LinkSource.IN_BAND and not self.has_status:
            raise ValueError(f"{type(adapter).__name__} has no status in band: source must not be IN_BAND")
        self.mac = Mac(**options)
        self.phy = PhyControl(settings, half=max(3, ceil(clock_hz / (2 * _MDC))))
        super().__init__({
            "rx_frames": Out(stream.Signature(Frame())),
            "tx_frames": In(packet(1)),
            "bus": In(RegisterBus()),
            "irq": Out(1),
            "tick": In(1),
            "phy_reset": Out(1, init=settings.reset != 0),
            "mdc": Out(1),
            "mdio_o": Out(1),
            "mdio_oe": Out(1),
            "mdio_i": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        connect, flipped = wiring.connect, wiring.flipped
        add_clocks(m, self.adapter)
        m.submodules.adapter = adapter = self.adapter
        m.submodules.mac = mac = self.mac
        m.submodules.phy = self.phy
        m.submodules.bank = bank = RegisterBank(with_resets(MAC_MAP, {"CONTROL": {"source": self.source}}))
        connect(m, adapter.rx, mac.rx_octets)
        connect(m, mac.tx_octets, adapter.tx)
        connect(m, mac.rx_frames, flipped(self.rx_frames))
        connect(m, flipped(self.tx_frames), mac.tx_frames)
        connect(m, flipped(self.bus), bank.bus)
        self._link(m, bank)
        self._manage_phy(m, bank)
        self._describe(m, bank)
        self._count(m, bank)
        return m

    def _link(self, m, bank):
        """Choose the state of the link. Its speed is taken over while the MAC is stopped."""
        adapter, mac, phy, control = self.adapter, self.mac, self.phy, bank.CONTROL
        in_band = Signal(LinkState())
        link = Signal(LinkState())
        speed = Signal(Speed)
        m.d.comb += in_band.eq(adapter.status if self.has_status else 0)
        with m.Switch(control.source):
            with m.Case(LinkSource.MDIO):
                m.d.comb += link.eq(phy.link)
            with m.Case(LinkSource.IN_BAND):
                m.d.comb += link.eq(in_band)
            with m.Default():
                m.d.comb += [link.up.eq(1), link.full_duplex.eq(1), link.speed.eq(control.speed)]
        taken = Signal()
        m.d.comb += taken.eq(link.speed == speed)
        m.d.sync += mac.enable.eq(control.enable & link.up & taken)
        with m.If(mac.stopped & ~mac.enable):
            m.d.sync += speed.eq(link.speed)
        if "speed" in adapter.signature.members:
            m.d.comb += adapter.speed.eq(speed)
        for register, state in ((bank.LINK, link), (bank.IN_BAND, in_band)):
            m.d.comb += [
                register.up.eq(state.up),
                register.speed.eq(state.speed),
                register.full_duplex.eq(state.full_duplex),
            ]

        running = Signal()
        changed = Signal()
        m.d.sync += [
            running.eq(mac.running),
            changed.eq((changed & ~bank.LINK.clear_changed) | (running ^ mac.running)),
        ]
        m.d.comb += [
            self.irq.eq(changed),
            bank.LINK.running.eq(running & taken),  # a MAC that is about to stop does not run at the new speed
            bank.LINK.changed.eq(changed),
        ]

    def _manage_phy(self, m, bank):
        """Let the host make accesses to the PHY, at whose pins PhyControl is."""
        phy, access = self.phy, bank.PHY_ACCESS
        m.d.comb += [
            phy.tick.eq(self.tick),
            phy.restart.eq(bank.CONTROL.restart_phy),
            phy.access.data.eq(access.data),
            phy.access.register.eq(access.register),
            phy.access.phy.eq(access.phy),
            phy.access.write.eq(access.write),
            phy.access_start.eq(access.go),
            phy.mdio_i.eq(self.mdio_i),
            self.phy_reset.eq(phy.phy_reset),
            self.mdc.eq(phy.mdc),
            self.mdio_o.eq(phy.mdio_o),
            self.mdio_oe.eq(phy.mdio_oe),
            bank.LINK.phy_answers.eq(phy.answers),
            access.pending.eq(phy.access_pending),
            bank.PHY_RESULT.data.eq(phy.access_read),
            bank.PHY_RESULT.answered.eq(phy.access_answered),
        ]

    def _describe(self, m, bank):
        m.d.comb += [
            bank.CAPABILITIES.rx_queue.eq((4 * self.mac.rx_fifo.words).bit_length() - 1),
            bank.CAPABILITIES.tx_queue.eq((4 * self.mac.tx_fifo.words).bit_length() - 1),
            bank.CAPABILITIES.phy.eq(self.phy.address),
            bank.CAPABILITIES.in_band.eq(self.has_status),
        ]

    def _count(self, m, bank):
        for name, _ in MacCounts():
            count = Signal(32, name=name)
            m.d.sync += count.eq(count + self.mac.counts[name])
            m.d.comb += bank.show(name.upper(), value=count)
