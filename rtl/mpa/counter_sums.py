"""Adds up, for each connection, what the registers have not counted yet."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.lib.turns import following

__all__ = ["Counted", "CounterSums"]

_BITS = {"octets": 20, "fpdus": 12, "markers": 12, "crc_errors": 12, "stalls": 20}


class Counted(data.StructLayout):
    """What has been counted of connection ``connection`` in the direction ``rx``, to be added to its counters."""

    def __init__(self, connections: int):
        super().__init__({"connection": connection_shape(connections), "rx": 1, **_BITS})


class CounterSums(wiring.Component):
    """Sums in LUT RAM, a row for each connection, which are given on in turn.

    An FPDU of a few lanes takes less time than adding to several counters of 64 bits in one memory, but rows are added
    to in one cycle. A sum must be given on before it overflows: that of each connection is, as often as ``o`` has taken
    one of every other connection.

    Latency: some cycles for each connection. Throughput: an increment in every second cycle; if ``dense``, in every
    cycle.

    Parameters
    ----------
    connections : number of rows
    rx : the direction
    fields : the fields of :class:`Counted` that are counted, and the bits of an increment
    dense : there may be increments in consecutive cycles, which takes a read port more

    Members
    -------
    adds : In, 1 bit
        Add the increments to the sums of connection ``connection``. Not in two consecutive cycles, unless ``dense``.
    connection : In, the number of a connection
    amounts : In, a struct with a member for each of ``fields``
        The increments.
    o : Out, stream of :class:`Counted`
        Sums, other than those of connections to which nothing was added.
    idle : Out, 1 bit
        No sum waits for its turn; ``o`` may have one.

    """

    def __init__(self, connections: int, *, rx: bool, fields: dict[str, int], dense: bool = False):
        self.connections = connections
        self.dense = dense
        self.rx = rx
        self.fields = fields
        number = connection_shape(connections)
        super().__init__({
            "adds": In(1), "connection": In(number), "amounts": In(data.StructLayout(fields)),
            "o": Out(stream.Signature(Counted(connections))), "idle": Out(1),
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
        free = Signal()  # a row may be given on
        begins = Signal()  # the row to which is added has no sum, or its sum is given on now
        given = sums.read_port(domain="comb") if self.dense else read
        m.d.comb += [
            self.idle.eq(~(some.any() | self.adds)),
            takes.eq(~self.o.valid | self.o.ready),
            free.eq(1 if self.dense else ~self.adds),
            gives.eq(takes & free & some.bit_select(turn, 1)),
            read.addr.eq(self.connection if self.dense else Mux(self.adds, self.connection, turn)),
            *([given.addr.eq(turn)] if self.dense else []),
            begins.eq(~some.bit_select(self.connection, 1)
                      | ((gives & (turn == self.connection)) if self.dense else 0)),
            write.addr.eq(self.connection),
            write.en.eq(self.adds),
            *(write.data[name].eq(
                Mux(begins, 0, read.data[name]) + self.amounts[name]
            ) for name in self.fields),
        ]  # fmt: skip
        m.d.sync += some.eq((some & ~(gives << turn)) | (self.adds << self.connection))
        with m.If(takes & free):
            m.d.sync += [turn.eq(following(turn, self.connections)), self.o.valid.eq(gives)]
            m.d.sync += [self.o.payload[name].eq(given.data[name]) for name in self.fields]
            m.d.sync += [self.o.payload.connection.eq(turn), self.o.payload.rx.eq(self.rx)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
