"""The sequencer compares sequence numbers as RFC 9293 §3.4 does (rtl/sequencer)."""

from amaranth.hdl import Mux, Signal

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.sequencer.isa import Op, Place
from open_rnic.rtl.sequencer.sequencer import Sequencer


def _comparisons():
    """Return a program in which mutants are seen; an induction has any instruction with any operands."""
    program = Program()
    program.label("start")
    program.wait()
    program.jump_if(program.lt(0, -1), "start")
    program.min(Place(0), -1, 0)
    program.jump("start")
    return program


@proves(
    "LT, GE, MIN and MAX compare any two numbers that are less than 2^31 apart as RFC 9293 §3.4 does",
    lambda: Sequencer(_comparisons(), 4),
    Mutant("numbers are compared as integers", Sequencer, "less = total[31]", "less = a < b"),
    Mutant("the minimum is the second number", Sequencer, "low.eq(Mux(op[0], a, b))", "low.eq(b)"),
    name="compare",
    of="Sequencer",
    depth=1,
    reach=6,
)
def _(m, sequencer):
    # ``a`` precedes ``b`` if the way from ``a`` to ``b`` is the shorter one.
    op, a, b, result = Signal(5), sequencer["read_a__data"], sequencer["b"], sequencer["result"]
    way = Signal(32)
    precedes = Signal()
    m.d.comb += [op.eq(sequencer["_executed"][30:]), way.eq(b - a), precedes.eq((way != 0) & (way < 1 << 31))]
    sums = (op == Op.ADD) | (op == Op.SUB)
    decoded = (sequencer["sums"] == sums) & (sequencer["subtracts"] == (op != Op.ADD))
    m.always(~sequencer["third"] | decoded)
    with m.If(decoded & (way != 1 << 31)):
        m.always((op != Op.LT) | (sequencer["satisfied"] == precedes))
        m.always((op != Op.GE) | (sequencer["satisfied"] == ~precedes))
        m.always((op != Op.MIN) | (result == Mux(precedes, a, b)), (op != Op.MAX) | (result == Mux(precedes, b, a)))
