"""A MAC with the pins of a PHY as its ports."""

from types import SimpleNamespace

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.io import SimulationPort
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.mac import Mac
from open_rnic.rtl.mac.mii import MiiAdapter
from open_rnic.rtl.mac.pins import add_clocks
from open_rnic.rtl.mac.port import EthernetPort
from open_rnic.rtl.mac.rgmii import RgmiiAdapter
from open_rnic.rtl.mac.rmii import RmiiAdapter

__all__ = ["pinned", "pinned_mac", "pinned_port"]

_PINS = {
    "rgmii": {"rx_clk": In(1), "rx_ctl": In(1), "rx_data": In(4), "tx_clk": Out(1), "tx_ctl": Out(1),
              "tx_data": Out(4)},
    "mii": {"rx_clk": In(1), "rx_dv": In(1), "rx_er": In(1), "rx_data": In(4), "tx_clk": In(1), "tx_en": Out(1),
            "tx_data": Out(4)},
    "rmii": {"rx_crs_dv": In(1), "rx_er": In(1), "rx_data": In(2), "tx_en": Out(1), "tx_data": Out(2)},
}  # fmt: skip
_ADAPTERS = {"rgmii": RgmiiAdapter, "mii": MiiAdapter, "rmii": RmiiAdapter}


class _Pinned(wiring.Component):
    """A component, and the pins of its adapter as ports. The input ``tx_clk_late`` is only for a delayed TXC."""

    def __init__(self, kind, make):
        self.pins = SimpleNamespace(**{
            name: SimulationPort("i" if member.flow is In else "o", member.shape, name=name)
            for name, member in _PINS[kind].items()
        })
        self.inner = make(_ADAPTERS[kind](self.pins))
        super().__init__({**_PINS[kind], "tx_clk_late": In(1), **self.inner.signature.members})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = self.inner
        for name, member in self.signature.members.items():
            outside = getattr(self, name)
            if hasattr(self.pins, name):
                port = getattr(self.pins, name)
                m.d.comb += port.i.eq(outside) if member.flow is In else outside.eq(port.o)
            elif name != "tx_clk_late":
                inside = getattr(self.inner, name)
                if member.is_signature:
                    wiring.connect(m, inside, wiring.flipped(outside))
                else:
                    m.d.comb += inside.eq(outside) if member.flow is In else outside.eq(inside)
        return m


class _AdaptedMac(wiring.Component):
    """A :class:`.Mac` with an adapter."""

    def __init__(self, adapter):
        self.mac, self.adapter = Mac(), adapter
        super().__init__({
            **{name: adapter.signature.members[name] for name in ("speed", "status") if hasattr(adapter, name)},
            **{name: member for name, member in self.mac.signature.members.items() if "octets" not in name},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac, m.submodules.adapter = mac, adapter = self.mac, self.adapter
        add_clocks(m, adapter)
        wiring.connect(m, adapter.rx, mac.rx_octets)
        wiring.connect(m, mac.tx_octets, adapter.tx)
        for name, member in self.signature.members.items():
            outside, inside = getattr(self, name), getattr(adapter if name in ("speed", "status") else mac, name)
            if member.is_signature:
                wiring.connect(m, inside, wiring.flipped(outside))
            else:
                m.d.comb += inside.eq(outside) if member.flow is In else outside.eq(inside)
        return m


def pinned(kind, make):
    """What ``make`` returns for an adapter, at the pins of a PHY."""
    return _Pinned(kind, make)


def pinned_mac(kind):
    """A :class:`.Mac` at the pins of a PHY."""
    return _Pinned(kind, _AdaptedMac)


def pinned_port(kind, clock_hz, settings, **options):
    """An :class:`.EthernetPort` at the pins of a PHY."""
    return _Pinned(kind, lambda adapter: EthernetPort(adapter, clock_hz, settings, **options))
