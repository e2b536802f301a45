"""The rows of connections never mix (rtl/lib/rows.py)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from open_rnic.cocotb_tests.proofs.harness import NO_LANES, Mutant, proves
from open_rnic.rtl.lib.rows import Rows, connection_shape

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
            "reset": In(connections), "state": Out(Row), "active": Out(connection_shape(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        rows = Rows(Row, self.connections)
        with m.If(self.writes):
            m.d.sync += rows.state.value.eq(self.value)
        rows.switch(m, self.to, self.when, self.reset)
        m.d.comb += [self.state.eq(rows.state), self.active.eq(rows.active)]
        return m


@proves(
    "a connection finds its row as it left it, or reset, whatever the others do",
    lambda lanes: Block(),
    Mutant("the row is stored as that of the next connection", Rows, "store.addr.eq(self.active)", "store.addr.eq(to)"),
    Mutant("memory is loaded after a reset", Rows, "Mux(has_row, load.data, row.init)", "load.data"),
    Mutant("a reset misses the row that is loaded in its cycle", Rows,
           "(stored & ~Value.cast(reset)).bit_select(to, 1)", "stored.bit_select(to, 1)"),
    Mutant("the active row is not reset", Rows, "Value.cast(reset).bit_select(self.active, 1)", "Const(0)"),
    Mutant("the row of the active connection is loaded", Rows, "changes.eq(when & ~self.are_of(to))",
           "changes.eq(when)"),
    name="mix",
    of="Rows, 3 rows of 3 bits",
    lanes=NO_LANES,
    depth=1,
)  # fmt: skip
def _(m, block):
    watched, expected = Signal(range(3)), Signal(3, init=_INITIAL)
    m.fixed(watched)
    m.given(watched < block.connections, block.to < block.connections)
    leaves = block.when & (block.to != block.active)
    with m.If(block.reset.bit_select(watched, 1)):
        m.d.sync += expected.eq(_INITIAL)
    with m.Elif(block.writes & (block.active == watched) & ~leaves):
        m.d.sync += expected.eq(block.value)
    own = block.active == watched
    m.always(~own | (block.state.value == expected))
    row, stored = block.stored(m, "rows", watched), block["stored"].bit_select(watched, 1)
    m.states(own | (expected == _INITIAL) | stored, own | ~stored | (row == expected), block.active < 3)
