"""Which connections the fence has to see to before ULPDUs of the host, and the reports of receive about them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import SINK
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Clear, block_ram, connection_shape, forget
from open_rnic.rtl.mpa.rtr import Report

__all__ = ["Notice", "Visits"]


class Notice(data.Struct):
    """A report of receive to the fence, and the sink of the Read Response."""

    report: Report
    sink: SINK


class Visits(wiring.Component):
    """Keeps the reports of receive about each connection until the fence, which is busy with others, visits it.

    A connection calls once it is in MPA mode, and after each report, if there is room for an FPDU of the fence's own.
    Later reports replace earlier ones that have not been seen, so they include them.

    Latency: 2 cycles from a report to its call. Throughput: a report in every cycle.

    Members
    -------
    reports : In, 1 bit
        Receive has something to report about connection ``reports_of``.
    reports_of : In, the number of a connection
    notice : In, :class:`Notice`
        The report. Without ``good`` and ``rtr`` it is only a call: the connection has failed.
    mpa, room : In, 1 bit for each connection
        It is in MPA mode; there is room for an FPDU.
    calls : Out, 1 bit
        Connection ``caller`` wants to be visited.
    caller : Out, the number of a connection
    reads : In, 1 bit
        A visit of ``caller`` begins with the next cycle, and takes at least 3. Only with ``calls``.
    seen : Out, :class:`Notice`
        The last report about the connection that is visited; ``good`` and ``rtr`` only in the first cycle, and once.
    clear : In, :class:`.Clear`
    """

    def __init__(self, connections: int):
        self.connections = connections
        number = connection_shape(connections)
        super().__init__({
            "reports": In(1), "reports_of": In(number), "notice": In(Notice),
            "mpa": In(connections), "room": In(connections),
            "calls": Out(1), "caller": Out(number),
            "reads": In(1), "seen": Out(Notice), "clear": In(Clear(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.notices = notices = Memory(
            shape=Notice, depth=self.connections, init=[], attrs=block_ram(self.connections)
        )
        write, read = notices.write_port(), late_read(m, notices)
        waits = Signal(self.connections, init=-1)  # no visit has begun since the last report
        unread = Signal(self.connections)  # the notice has not been read
        candidates = Signal(self.connections)
        called = Signal()
        arrives = Signal()
        fresh = Signal()
        m.d.comb += [
            arrives.eq(self.reports & (self.notice.report.good | self.notice.report.rtr)),
            write.en.eq(arrives), write.addr.eq(self.reports_of), write.data.eq(self.notice),
            read.en.eq(self.reads), read.addr.eq(self.caller),
            self.calls.eq(called & ~self.reports),  # no notice is read while one is written
            self.seen.report.good.eq(read.data.report.good & fresh),
            self.seen.report.rtr.eq(read.data.report.rtr & fresh),
            self.seen.report.respond.eq(read.data.report.respond),
            self.seen.sink.eq(read.data.sink),
            candidates.eq(self.mpa & self.room & waits),
        ]  # fmt: skip
        m.d.sync += [
            # A report that comes during a visit is one for the next.
            waits.eq((waits & ~(self.reads << self.caller)) | (self.reports << self.reports_of)),
            unread.eq((unread & ~(self.reads << self.caller)) | (arrives << self.reports_of)),
            fresh.eq(self.reads & unread.bit_select(self.caller, 1)),
            called.eq(candidates.any() & ~self.clear.now),
        ]
        forget(m, self.clear, unread)
        with m.If(self.clear.now):
            m.d.sync += waits.bit_select(self.clear.connection, 1).eq(1)
        for n in reversed(range(self.connections)):
            with m.If(candidates[n]):
                m.d.sync += self.caller.eq(n)
        return m
