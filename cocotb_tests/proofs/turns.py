"""All that wait have their turns (rtl/lib/turns.py)."""

from amaranth.hdl import Mux, Signal

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.lib.turns import Turns

_SIZE, _EVERY = 6, 4  # those of the kinds of events of TCP


@proves(
    f"one that waits without a pause is chosen after fewer than {_EVERY * _SIZE} others",
    lambda: Turns(_SIZE, _EVERY),
    Mutant("the first that waits comes always", Turns, "Mux(later.any() & (left == 0), later, self.waits)",
           "self.waits"),
    Mutant("the one that had its turn comes again", Turns, "~(self.chosen | ", "~("),
    Mutant("nobody is chosen at the end of a round", Turns, "later.any() & (left == 0)", "left == 0"),
    Mutant("two are chosen at once", Turns, "pool & (~pool + 1)", "pool | (~pool + 1)"),
    Mutant("no turn comes", Turns, "left.eq(left - 1)", "left.eq(left)"),
    name="turns",
    of=f"Turns, {_SIZE}, every {_EVERY}",
    depth=1,
    reach=_EVERY * _SIZE + 2,
)  # fmt: skip
def _(m, turns):
    watched, others = Signal(range(_SIZE)), Signal(8)
    m.fixed(watched)
    m.given(watched < _SIZE, ~turns.take | turns.waits.any())
    waits, chosen = (each.bit_select(watched, 1) for each in (turns.waits, turns.chosen))
    with m.If(~waits | (turns.take & chosen)):
        m.d.sync += others.eq(0)
    with m.Elif(turns.take):
        m.d.sync += others.eq(others + 1)
    m.always(sum(turns.chosen) == turns.waits.any(), (turns.chosen & ~turns.waits) == 0, others < _EVERY * _SIZE)
    behind = turns["behind"]
    first = (_SIZE - sum(behind))[:3].as_unsigned()  # the one whose turn is next
    before = Mux(watched >= first, watched - first, watched + _SIZE - first)  # how many have theirs before
    m.states(behind == ~((1 << first) - 1)[:_SIZE], others + _EVERY * before + turns["left"] < _EVERY * _SIZE)
