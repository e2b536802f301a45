"""The RTL as elaborated for an iCE40: queues in block RAM, which is read one cycle ahead, and registers in pairs."""

from typing import Any

from amaranth.hdl import Fragment, Module
from amaranth.lib import wiring
from amaranth_boards.ice40_hx8k_b_evn import ICE40HX8KBEVNPlatform

from open_rnic.rtl.mpa.datapath import MpaDatapath

__all__ = ["Ice40", "datapath"]


class Ice40(wiring.Component):
    """A block with the same ports, elaborated for an iCE40."""

    def __init__(self, block: Any):
        self.block = block
        super().__init__(block.signature)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.block = Fragment.get(self.block, ICE40HX8KBEVNPlatform())
        wiring.connect(m, self.block, wiring.flipped(self))
        return m


def datapath(lanes: int) -> Ice40:
    """Return the whole data path."""
    return Ice40(MpaDatapath(lanes))
