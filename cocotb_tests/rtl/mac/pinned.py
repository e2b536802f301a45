"""A MAC with the pins of a PHY as its ports."""

from types import SimpleNamespace

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.io import SimulationPort
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.mac import Mac
from open_rnic.rtl.mac.mii import MiiAdapter
from open_rnic.rtl.mac.pins import add_clocks
from open_rnic.rtl.mac.rgmii import RgmiiAdapter
from open_rnic.rtl.mac.rmii import RmiiAdapter

__all__ = ["PinnedMac"]

_PINS = {
    "rgmii": {"rx_clk": In(1), "rx_ctl": In(1), "rx_data": In(4), "tx_clk": Out(1), "tx_ctl": Out(1),
              "tx_data": Out(4)},
    "mii": {"rx_clk": In(1), "rx_dv": In(1), "rx_er": In(1), "rx_data": In(4), "tx_clk": In(1), "tx_en": Out(1),
            "tx_data": Out(4)},
    "rmii": {"rx_crs_dv": In(1), "rx_er": In(1), "rx_data": In(2), "tx_en": Out(1), "tx_data": Out(2)},
}  # fmt: skip
_ADAPTERS = {"rgmii": RgmiiAdapter, "mii": MiiAdapter, "rmii": RmiiAdapter}


class PinnedMac(wiring.Component):
    """A :class:`.Mac` and an adapter. The input ``tx_clk_late`` leads nowhere: it is for a delayed TXC."""

    def __init__(self, kind):
        self.mac = Mac()
        self.pins = SimpleNamespace(**{
            name: SimulationPort("i" if member.flow is In else "o", member.shape, name=name)
            for name, member in _PINS[kind].items()
        })
        self.adapter = _ADAPTERS[kind](self.pins)
        extra = [name for name in ("speed", "status") if name in self.adapter.signature.members]
        super().__init__({
            **_PINS[kind],
            "tx_clk_late": In(1),
            **{name: self.adapter.signature.members[name] for name in extra},
            **{name: member for name, member in self.mac.signature.members.items() if "octets" not in name},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac, m.submodules.adapter = mac, adapter = self.mac, self.adapter
        add_clocks(m, adapter)
        wiring.connect(m, adapter.rx, mac.rx_octets)
        wiring.connect(m, mac.tx_octets, adapter.tx)
        for name, member in self.signature.members.items():
            outside = getattr(self, name)
            if hasattr(self.pins, name):
                port = getattr(self.pins, name)
                m.d.comb += port.i.eq(outside) if member.flow is In else outside.eq(port.o)
            elif name != "tx_clk_late":
                inside = getattr(mac if name in mac.signature.members else adapter, name)
                if member.is_signature:
                    wiring.connect(m, inside, wiring.flipped(outside))
                elif member.flow is In:
                    m.d.comb += inside.eq(outside)
                else:
                    m.d.comb += outside.eq(inside)
        return m
