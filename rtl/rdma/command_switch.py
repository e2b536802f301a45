"""Merges the commands of the host and those of the fabric."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.stream import Fifo

__all__ = ["CommandSwitch"]

_WAITING = 16  # words of the host that may wait; one comes every 5 cycles at most, and a command has some 10


class CommandSwitch(wiring.Component):
    """Passes whole commands of two sources; those of the host come first.

    A command of the fabric must be complete soon, because words of the host wait for its end.

    Latency: 2 cycles. Throughput: a word every 2 cycles.

    Members
    -------
    push : In, 1 bit
    word : In, 32 bits
        A word of the host.
    fabric : In, stream of 32 bits
        Words of the fabric.
    gives : Out, 1 bit
    given : Out, 32 bits
        A word for the loader.
    ends : In, 1 bit
        It is the last one of its command.
    """

    def __init__(self):
        super().__init__({
            "push": In(1), "word": In(32), "fabric": In(stream.Signature(32)),
            "gives": Out(1), "given": Out(32), "ends": In(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = Fifo(32, _WAITING)
        inside = Signal()  # a command has begun
        is_fabric = Signal()
        takes_fabric = Signal()
        m.d.comb += [
            waiting.i.valid.eq(self.push),
            waiting.i.payload.eq(self.word),
            takes_fabric.eq(Mux(inside, is_fabric, ~waiting.o.valid)),
            self.fabric.ready.eq(~self.gives & takes_fabric),
            waiting.o.ready.eq(~self.gives & ~takes_fabric),
        ]
        with m.If(self.gives):
            m.d.sync += [self.gives.eq(0), inside.eq(~self.ends)]
        with m.Elif(Mux(takes_fabric, self.fabric.valid, waiting.o.valid)):
            m.d.sync += [
                self.gives.eq(1), is_fabric.eq(takes_fabric),
                self.given.eq(Mux(takes_fabric, self.fabric.payload, waiting.o.payload)),
            ]  # fmt: skip
        return m
