"""Several blocks in one simulation, which is faster to build than one simulation for each."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out


class Together(wiring.Component):
    """Blocks side by side: port ``o`` of the block ``name`` is ``name__o``."""

    def __init__(self, **blocks: Any):
        self.blocks = blocks
        super().__init__({name: Out(block.signature) for name, block in blocks.items()})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for name, block in self.blocks.items():
            m.submodules[name] = block
            wiring.connect(m, block, wiring.flipped(getattr(self, name)))
        return m


class Chain(wiring.Component):
    """Blocks in series, from ``i`` of the first to ``o`` of the last; all other inputs of the blocks are ports."""

    def __init__(self, *blocks: Any):
        self.blocks = blocks
        self.inputs = {
            name: (block, member)
            for block in blocks
            for name, member in block.signature.members.items()
            if name not in ("i", "o") and member.flow is wiring.In
        }
        super().__init__({
            "i": blocks[0].signature.members["i"],
            "o": blocks[-1].signature.members["o"],
            **{name: member for name, (_, member) in self.inputs.items()},
        })

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        before = wiring.flipped(self.i)
        for number, block in enumerate(self.blocks):
            m.submodules[f"block_{number}"] = block
            wiring.connect(m, before, block.i)
            before = block.o
        wiring.connect(m, before, wiring.flipped(self.o))
        for name in self.inputs:
            for block in self.blocks:
                if name in block.signature.members:
                    m.d.comb += getattr(block, name).eq(getattr(self, name))
        return m
