"""Queues give what they have got, all of it, once, and in order (rtl/stream.py)."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Mux, Signal

from cocotb_tests.proofs.harness import Mutant, proves
from cocotb_tests.proofs.rules import buffer_states, fifo_states
from rtl.stream import Buffer, Fifo, Stage

_WIDTH, _DEPTH = 2, 3


def _in_order(m, queue, room):
    """State it of any beat; gives the level, whether a beat is watched, how many leave before it, and it."""
    enters, leaves = queue.i.valid & queue.i.ready, queue.o.valid & queue.o.ready
    level = Signal(range(room + 1))
    watched, before, beat = Signal(), Signal(range(room + 1)), Signal(_WIDTH)
    m.d.sync += level.eq(level + enters - leaves)
    with m.If(watched & leaves):
        m.d.sync += before.eq(before - 1)
        with m.If(before == 0):
            m.d.sync += watched.eq(0)
            m.always(queue.o.payload == beat)
    with m.If(enters & ~watched & AnySeq(1)):
        m.d.sync += [watched.eq(1), before.eq(level - leaves), beat.eq(queue.i.payload)]
    m.always(queue.o.valid == (level != 0))
    m.states(~watched | (before < level))
    return level, watched, before, beat


_SENTENCE = "each beat leaves once, unchanged, and in its turn"


@proves(
    _SENTENCE,
    lambda lanes: Stage(_WIDTH),
    Mutant(
        "it takes a beat while it has one",
        "rtl.stream",
        "self.i.ready.eq(self.o.ready | ~self.o.valid)",
        "self.i.ready.eq(1)",
    ),
    name="stage",
    of="Stage",
    lanes=(1,),
)
def _(m, stage):
    _level, watched, _before, beat = _in_order(m, stage, 1)
    m.states(~watched | (stage.o.payload == beat))


@proves(
    _SENTENCE,
    lambda lanes: Buffer(_WIDTH),
    Mutant("it takes a third beat", "rtl.stream", "self.i.ready.eq(~both)", "self.i.ready.eq(1)"),
    Mutant(
        "it gives the later beat first",
        "rtl.stream",
        "Mux(gives, *reversed(slots))",
        "Mux(gives ^ both, *reversed(slots))",
    ),
    name="buffer",
    of="Buffer",
    lanes=(1,),
)
def _(m, buffer):
    level, watched, before, beat = _in_order(m, buffer, 2)
    at = buffer["gives"] ^ before[0]
    m.states(buffer_states(buffer), level == buffer["some"] + buffer["both"])
    m.states(~watched | (Mux(at, *reversed(buffer["slots"])) == beat))


@proves(
    _SENTENCE,
    lambda lanes: Fifo(_WIDTH, _DEPTH),
    Mutant(
        "it takes a beat more than it has room for",
        "rtl.stream",
        "full.eq(level == self.depth - 1)",
        "full.eq(level == self.depth)",
    ),
    Mutant(
        "the register is filled from memory while that is empty",
        "rtl.stream",
        "held.eq(Mux(several, read.data, self.i.payload))",
        "held.eq(read.data)",
    ),
    Mutant("the memory's end is passed over", "rtl.stream", "Mux(at == self.depth - 1, 0, at + 1)", "at + 1"),
    name="fifo",
    of="Fifo",
    lanes=(1,),
)
def _(m, fifo):
    level, watched, before, beat = _in_order(m, fifo, _DEPTH)
    head, tail, memory = fifo["head"], fifo["tail"], fifo["memory looked at"]

    def behind(count):
        """``count`` places behind the beat in the register."""
        return Mux(head + count < _DEPTH + 1, head + count - 1, head + count - 1 - _DEPTH)

    m.d.comb += memory.addr.eq(behind(before))
    m.states(fifo_states(fifo), level == fifo["level"], (head < _DEPTH) & (tail < _DEPTH))
    m.states(tail == Mux(level == 0, head, behind(level)))
    with m.If(watched & (before == 0)):
        m.states(fifo.o.payload == beat)
    with m.Elif(watched):
        m.states(memory.data == beat, (before != 1) | (fifo["read"].data == beat))
