"""Merges the commands of the host and those of the fabric."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.rows import Clear, connection_shape, forget
from open_rnic.rtl.lib.stream import Fifo

__all__ = ["CommandSwitch"]

_WAITING = 16  # words of the host that may wait; one comes every 5 cycles at most, and a command has some 10


class CommandSwitch(wiring.Component):
    """Passes whole commands of two sources; those of the host come first.

    The host gives commands of every connection, a word at a time; the fabric gives commands of one connection, between
    the host's of this connection. A command of the fabric must be complete soon, because words of the host wait for its
    end.

    Latency: 2 cycles. Throughput: a word every 2 cycles.

    Members
    -------
    push : In, 1 bit
    word : In, 32 bits
    connection : In
        A word of the host, and its connection.
    fabric : In, stream of 32 bits
        Words of the fabric.
    fabric_connection : In
        Their connection. It changes only between commands.
    holds : In, 1 bit
        No command of the fabric begins.
    gives : Out, 1 bit
    given : Out, 32 bits
    given_connection : Out
        A word for the loader.
    ends : In, 1 bit
        It is the last one of its command.
    idle : Out, 1 bit
        No word waits, and no command of the fabric has begun.
    clear : In, :class:`.Clear`
        The connection's command that has begun is forgotten; only while ``idle``.
    """

    def __init__(self, connections: int = 1):
        self.connections = connections
        number = connection_shape(connections)
        super().__init__({
            "push": In(1), "word": In(32), "connection": In(number),
            "fabric": In(stream.Signature(32)), "fabric_connection": In(number), "holds": In(1),
            "gives": Out(1), "given": Out(32), "given_connection": Out(number), "ends": In(1),
            "idle": Out(1), "clear": In(Clear(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        number = connection_shape(self.connections)
        m.submodules.waiting = waiting = Fifo(data.StructLayout({"word": 32, "connection": number}), _WAITING)
        begun = Signal(self.connections)  # a command of the host, for each connection
        fabric_begun = Signal()
        is_fabric = Signal()  # the word that is given
        takes_fabric = Signal()
        m.d.comb += [
            waiting.i.valid.eq(self.push),
            waiting.i.payload.word.eq(self.word),
            waiting.i.payload.connection.eq(self.connection),
            takes_fabric.eq(
                fabric_begun | ~(waiting.o.valid | begun.bit_select(self.fabric_connection, 1) | self.holds)
            ),
            self.fabric.ready.eq(~self.gives & takes_fabric),
            waiting.o.ready.eq(~self.gives & ~takes_fabric),
            self.idle.eq(~(waiting.o.valid | self.gives | fabric_begun)),
        ]
        with m.If(self.gives):
            m.d.sync += self.gives.eq(0)
            with m.If(is_fabric):
                m.d.sync += fabric_begun.eq(~self.ends)
            with m.Else():
                m.d.sync += begun.bit_select(self.given_connection, 1).eq(~self.ends)
        with m.Elif(Mux(takes_fabric, self.fabric.valid, waiting.o.valid)):
            m.d.sync += [
                self.gives.eq(1),
                is_fabric.eq(takes_fabric),
                self.given.eq(Mux(takes_fabric, self.fabric.payload, waiting.o.payload.word)),
                self.given_connection.eq(
                    Mux(takes_fabric, self.fabric_connection, waiting.o.payload.connection)
                ),
            ]
        forget(m, self.clear, begun)
        return m
