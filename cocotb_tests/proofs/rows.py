"""Connections that share a block do not mix (rtl/lib/rows.py, rtl/mpa)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.lib.rows import Clear, Rows, connection_shape
from open_rnic.rtl.mpa.counter_sums import CounterSums
from open_rnic.rtl.mpa.tx.fence_visits import Visits

_INITIAL = 2


class Row(data.Struct):
    """A row whose initial value is not zero."""

    value: 3 = _INITIAL


class Block(Component):
    """A block that assigns any value to the active row in any cycle."""

    def __init__(self, connections: int = 3):
        self.connections = connections
        super().__init__({
            "writes": In(1), "value": In(3), "to": In(connection_shape(connections)), "when": In(1),
            "clear": In(Clear(connections)), "state": Out(Row), "active": Out(connection_shape(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        rows = Rows(Row, self.connections)
        with m.If(self.writes):
            m.d.sync += rows.state.value.eq(self.value)
        rows.switch(m, self.to, self.when, self.clear)
        m.d.comb += [self.state.eq(rows.state), self.active.eq(rows.active)]
        return m


@proves(
    "a connection that has been cleared finds its row as it left it, whatever the others do",
    lambda: Block(),
    Mutant("the row is stored as that of the next connection", Rows, "store.addr.eq(self.active)", "store.addr.eq(to)"),
    Mutant("the row is not stored", Rows, "store.en.eq(1)", "store.en.eq(0)"),
    Mutant("the active row is cleared for another", Rows, "self.active.eq(clear.connection), ", ""),
    Mutant("a row that is cleared keeps its value", Rows,
           "self.active.eq(clear.connection), row.eq(row.init)", "self.active.eq(clear.connection), row.eq(row)"),
    Mutant("a row is loaded while it is cleared", Rows, "m.Elif(when", "m.If(when"),
    Mutant("the row of the active connection is loaded", Rows, "when & ~self.are_of(to)", "when"),
    name="mix",
    of="Rows, 3 rows of 3 bits",
    depth=1,
)  # fmt: skip
def _(m, block):
    watched, expected, cleared = Signal(range(3)), Signal(3, init=_INITIAL), Signal()
    m.fixed(watched)
    m.given(watched < block.connections, block.to < block.connections, block.clear.connection < block.connections)
    leaves = (block.when & (block.to != block.active)) | block.clear.now
    with m.If(block.clear.now & (block.clear.connection == watched)):
        m.d.sync += [expected.eq(_INITIAL), cleared.eq(1)]
    with m.Elif(block.writes & (block.active == watched) & ~leaves):
        m.d.sync += expected.eq(block.value)
    own = block.active == watched
    m.always(~own | ~cleared | (block.state.value == expected))
    m.states(own | ~cleared | (block.stored(m, "rows", watched) == expected), block.active < 3)


@proves(
    "the fence reads the last report about the connection that it visits, once, whatever is reported about others; a "
    "report that has not been read calls for a visit",
    lambda: Visits(3),
    Mutant("a report is read twice", Visits, "(unread & ~(self.reads << self.caller))", "unread"),
    Mutant("a notice is read while it is written", Visits,
           "self.calls.eq(called & ~self.reports)", "self.calls.eq(called)"),
    Mutant("reports of others are read", Visits, "write.addr.eq(self.reports_of)", "write.addr.eq(0)"),
    Mutant("a notice that was not written is read", Visits, "fresh.eq(self.reads & ", "fresh.eq(self.reads | "),
    Mutant("a connection whose ring is full is visited", Visits, "self.mpa & self.room & waits", "self.mpa & waits"),
    name="reports",
    of="Visits, 3 connections",
    depth=1,
)  # fmt: skip
def _(m, visits):
    watched, unread = Signal(range(3)), Signal()
    last = Signal.like(Value.cast(visits.notice))
    m.fixed(watched)
    m.given(watched < 3, visits.reports_of < 3, visits.clear.connection < 3, ~visits.reads | visits.calls)
    reads = visits.reads & (visits.caller == watched)
    comes = visits.reports & (visits.reports_of == watched) & (visits.notice.report.good | visits.notice.report.rtr)
    with m.If(visits.clear.now & (visits.clear.connection == watched)):
        m.d.sync += unread.eq(0)
    with m.Elif(comes):
        m.d.sync += [unread.eq(1), last.eq(visits.notice)]
    with m.Elif(reads):
        m.d.sync += unread.eq(0)
    m.always(~(visits.reads & visits.reports))  # no notice is read while it is written
    takes, read, fresh = m.last(reads), m.last(last), m.last(reads & unread)
    m.always(~fresh | (Value.cast(visits.seen) == read))
    m.always(fresh | ~takes | ~(visits.seen.report.good | visits.seen.report.rtr))
    m.always(~(visits.calls & (visits.caller == watched)) | m.last((visits.mpa & visits.room).bit_select(watched, 1)))
    stored = visits.stored(m, "notices", watched)
    m.always(~unread | visits["waits"].bit_select(watched, 1))  # and will be visited
    m.states(visits["unread"].bit_select(watched, 1) == unread, ~unread | (stored == last), visits.caller < 3)


@proves(
    "what is added for a connection is given on once, and for no other, and then the tally is idle",
    lambda: CounterSums(3, rx=False, fields={"octets": 3}, dense=True),
    Mutant("a sum that is added to is given on twice", CounterSums,
           "| ((gives & (turn == self.connection)) if self.dense else 0)", ""),
    name="tally_dense",
    of="CounterSums, 3 connections, dense",
    depth=1,
)  # fmt: skip
@proves(
    "what is added for a connection is given on once, and for no other, and then the tally is idle",
    lambda: CounterSums(3, rx=False, fields={"octets": 3}),
    Mutant("a sum is given on twice", CounterSums, "& ~(gives << turn)", ""),
    Mutant("a sum begins with the last one", CounterSums, "Mux(begins, 0, read.data[name])", "read.data[name]"),
    Mutant("a sum is given on as that of another connection", CounterSums, "self.o.payload.connection.eq(turn)",
           "self.o.payload.connection.eq(self.connection)"),
    Mutant("an increment is lost while a sum is given on", CounterSums, "takes & free & some", "takes & some"),
    Mutant("a tally is idle while an increment comes", CounterSums, "(some.any() | self.adds)", "some.any()"),
    name="tally",
    of="CounterSums, 3 connections",
    depth=1,
)  # fmt: skip
def _(m, tally):
    watched, o = Signal(range(3)), tally.o.payload
    m.fixed(watched)
    m.given(watched < 3, tally.connection < 3)
    owed = Signal(len(o.octets))
    m.given(owed < (1 << len(owed)) - 8)
    offered = tally.o.valid & (o.connection == watched)
    adds = tally.adds & (tally.connection == watched)
    m.d.sync += owed.eq(owed + Mux(adds, tally.amounts.octets, 0) - Mux(offered & tally.o.ready, o.octets, 0))
    some = tally["some"].bit_select(watched, 1)
    m.always(some | offered | (owed == 0), ~offered | (o.octets <= owed))
    m.always(~tally.idle | ~(some | adds))
    kept = Mux(some, tally.stored(m, "sums", watched), 0)
    m.states(owed == kept + Mux(offered, o.octets, 0), tally["turn"] < 3)
