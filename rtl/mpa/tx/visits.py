"""Which connections the fence has to see to before ULPDUs of the host, and what receive has told it about them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import SINK
from open_rnic.rtl.lib.rows import Clear, connection_shape

__all__ = ["Mail", "Visits"]


class Mail(data.Struct):
    """A report of receive to the fence, with the meanings of the ports of :class:`.RtrDetector`."""

    good: 1
    rtr: 1
    respond: 1
    sink: SINK


class Visits(wiring.Component):
    """Keeps the reports of receive about each connection until the fence, which is busy with others, visits it.

    A connection calls once it is in MPA mode, and after each report, if there is room for an FPDU of the fence's own.
    Later reports replace earlier ones that have not been seen, so they include them.

    Latency: 2 cycles from a report to its call. Throughput: a report in every cycle.

    Members
    -------
    told : In, 1 bit
        Receive has something to report about connection ``of``.
    of : In, the number of a connection
    mail : In, :class:`Mail`
        The report. Without ``good`` and ``rtr`` it is only a call: the connection has failed.
    mpa, room : In, 1 bit for each connection
        It is in MPA mode; there is room for an FPDU.
    calls : Out, 1 bit
        Connection ``caller`` wants to be visited.
    caller : Out, the number of a connection
    connection : In, the number of a connection
        The connection that is visited.
    reads : In, 1 bit
        The fence takes ``letter`` in this cycle, the first one of a visit, which takes at least 2 more.
    letter : Out, :class:`Mail`
        The last report about ``connection``; ``good`` and ``rtr`` only with ``reads``, and once.
    clear : In, :class:`.Clear`
    """

    def __init__(self, connections: int):
        self.connections = connections
        number = connection_shape(connections)
        super().__init__({
            "told": In(1), "of": In(number), "mail": In(Mail), "mpa": In(connections), "room": In(connections),
            "calls": Out(1), "caller": Out(number),
            "connection": In(number), "reads": In(1), "letter": Out(Mail), "clear": In(Clear(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.letters = letters = Memory(shape=Mail, depth=self.connections, init=[])
        write, read = letters.write_port(), letters.read_port(domain="comb")
        waits = Signal(self.connections, init=-1)  # no visit has begun since the last report
        mailed = Signal(self.connections)  # the letter has not been read
        candidates = Signal(self.connections)
        arrives = Signal()
        fresh = Signal()
        m.d.comb += [
            arrives.eq(self.told & (self.mail.good | self.mail.rtr)),
            write.en.eq(arrives), write.addr.eq(self.of), write.data.eq(self.mail),
            read.addr.eq(self.connection),
            fresh.eq(self.reads & mailed.bit_select(self.connection, 1)),
            self.letter.good.eq(read.data.good & fresh),
            self.letter.rtr.eq(read.data.rtr & fresh),
            self.letter.respond.eq(read.data.respond),
            self.letter.sink.eq(read.data.sink),
            candidates.eq(self.mpa & self.room & waits),
        ]  # fmt: skip
        m.d.sync += [
            # A report that comes during a visit is one for the next.
            waits.eq((waits & ~(self.reads << self.connection)) | (self.told << self.of)),
            mailed.eq((mailed & ~(self.reads << self.connection)) | (arrives << self.of)),
            self.calls.eq(candidates.any() & ~self.clear.now),
        ]
        with m.If(self.clear.now):
            m.d.sync += [waits.bit_select(self.clear.of, 1).eq(1), mailed.bit_select(self.clear.of, 1).eq(0)]
        for n in reversed(range(self.connections)):
            with m.If(candidates[n]):
                m.d.sync += self.caller.eq(n)
        return m
