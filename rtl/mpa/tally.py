"""Adds up, for each connection, what the registers have not counted yet."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.rows import connection_shape

__all__ = ["Counted", "Tally"]

_BITS = {"octets": 20, "fpdus": 12, "markers": 12, "crc_errors": 12, "stalls": 20}


class Counted(data.StructLayout):
    """What has been counted of connection ``connection`` in the direction ``rx``, to be added to its counters."""

    def __init__(self, connections: int):
        super().__init__({"connection": connection_shape(connections), "rx": 1, **_BITS})


class Tally(wiring.Component):
    """Sums in LUT RAM, a row for each connection, which are given on in turn.

    An FPDU of a few lanes takes less time than adding to several counters of 64 bits in one memory, but rows are added
    to in one cycle. A sum must be given on before it overflows: that of each connection is, as often as ``o`` has taken
    one of every other connection.

    Latency: some cycles for each connection. Throughput: an increment in every second cycle.

    Parameters
    ----------
    connections : number of rows
    rx : the direction
    fields : the fields of :class:`Counted` that are counted, and the bits of an increment

    Members
    -------
    adds : In, 1 bit
        Add the increments to the sums of connection ``connection``. Not in two consecutive cycles.
    connection : In, the number of a connection
    NAME : In, for each field
        An increment.
    o : Out, stream of :class:`Counted`
        Sums, other than those of connections to which nothing was added.

    """

    def __init__(self, connections: int, *, rx: bool, fields: dict[str, int]):
        self.connections = connections
        self.rx = rx
        self.fields = fields
        number = connection_shape(connections)
        super().__init__({
            "adds": In(1), "connection": In(number), **{name: In(bits) for name, bits in fields.items()},
            "o": Out(stream.Signature(Counted(connections))),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        row = data.StructLayout({name: _BITS[name] for name in self.fields})
        m.submodules.sums = sums = Memory(shape=row, depth=self.connections, init=[])
        write, read = sums.write_port(), sums.read_port(domain="comb")
        some = Signal(self.connections)  # rows that have been added to since they were given on
        turn = Signal.like(self.connection)
        gives = Signal()
        takes = Signal()
        m.d.comb += [
            takes.eq(~self.o.valid | self.o.ready),
            gives.eq(takes & ~self.adds & some.bit_select(turn, 1)),
            read.addr.eq(Mux(self.adds, self.connection, turn)),
            write.addr.eq(self.connection),
            write.en.eq(self.adds),
            *(write.data[name].eq(
                Mux(some.bit_select(self.connection, 1), read.data[name], 0) + getattr(self, name)
            ) for name in self.fields),
        ]
        m.d.sync += some.eq((some | (self.adds << self.connection)) & ~(gives << turn))
        with m.If(takes & ~self.adds):
            m.d.sync += [turn.eq(Mux(turn == self.connections - 1, 0, turn + 1)), self.o.valid.eq(gives)]
            m.d.sync += [self.o.payload[name].eq(read.data[name]) for name in self.fields]
            m.d.sync += [self.o.payload.connection.eq(turn), self.o.payload.rx.eq(self.rx)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
