"""Queues output each beat exactly once and in order (rtl/lib/stream.py)."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Mux, Signal
from amaranth.lib import data

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import (
    buffer_states,
    fifo_level,
    fifo_states,
    ready_buffer_states,
    ready_fifo_states,
)
from open_rnic.rtl.lib.conveyor import Conveyor
from open_rnic.rtl.lib.stream import PART, Buffer, EarlyStage, Fifo, LateFifo, Queue, ReadyBuffer, ReadyFifo, Stage

_WIDTH, _DEPTH = 2, 4


def _in_order(m, queue, room, late=False):
    """State the property for an arbitrary beat.

    ``late``: a beat can leave 2 cycles after it has entered.

    Returns the number of beats in the queue, whether a beat is being watched, the number of beats before it, and the
    beat.
    """
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
    m.always(queue.o.valid == (m.last(level != leaves) if late else level != 0))
    m.states(~watched | (before < level))
    return level, watched, before, beat


_SENTENCE = "each beat leaves exactly once, unchanged and in order"


@proves(
    _SENTENCE,
    lambda: Stage(_WIDTH),
    Mutant(
        "a beat is accepted while the register is full",
        Stage,
        "self.i.ready.eq(self.o.ready & ~stays)",
        "self.i.ready.eq(1)",
    ),
    name="stage",
    of="Stage, 2 bits",
)
def _(m, stage):
    _level, watched, _before, beat = _in_order(m, stage, 1)
    m.states(~watched | (stage.o.payload == beat))


@proves(
    "a beat is accepted in the same cycles as by a Stage",
    lambda: EarlyStage(data.StructLayout({"octets": _WIDTH, "more": 1}), twice="more"),
    Mutant(
        "a beat overwrites one that is transferred once more",
        EarlyStage,
        "self.soon & ~stays_next",
        "self.soon",
    ),
    name="early_stage",
    of="EarlyStage, 2 bits",
)
def _(m, stage):
    m.given(stage.o.ready == m.last(stage.soon))
    m.always(stage.i.ready == (stage.o.ready & ~stage["stays"]))


@proves(
    "each beat that is in the steps has a place in the queue",
    lambda: Conveyor(data.StructLayout({"octets": _WIDTH, "more": 1}), _WIDTH, twice="more", steps=2),
    Mutant("a beat begins without a place", Conveyor, "spare=self.steps + 2", "spare=self.steps"),
    name="conveyor",
    of="Conveyor, 2 bits, 2 steps",
    reach=30,
)
def _(m, conveyor):
    first = m.last(conveyor.begun.valid)
    second = m.last(first)
    queue = conveyor["queue"]
    free = queue.depth - fifo_level(queue)
    m.given(conveyor.given.valid == second)
    m.always(~conveyor.given.valid | (free != 0))
    m.states(fifo_states(queue), free >= first + second, ~conveyor["room"] | (free >= 3))


@proves(
    _SENTENCE,
    lambda: Buffer(_WIDTH),
    Mutant(
        "a third beat is accepted",
        Buffer,
        "self.i.ready.eq(~both)",
        "self.i.ready.eq(1)",
    ),
    Mutant(
        "the later beat leaves first",
        Buffer,
        "Mux(gives, *reversed(slots))",
        "Mux(gives ^ both, *reversed(slots))",
    ),
    name="buffer",
    of="Buffer, 2 bits",
)
def _(m, buffer):
    level, watched, before, beat = _in_order(m, buffer, 2)
    at = buffer["gives"] ^ before[0]
    m.states(buffer_states(buffer), level == buffer["some"] + buffer["both"])
    m.states(~watched | (Mux(at, buffer["slot_1"], buffer["slot_0"]) == beat))


@proves(
    _SENTENCE,
    lambda: ReadyBuffer(_WIDTH),
    Mutant("a beat overtakes a waiting one", ReadyBuffer, "Mux(both, second, self.i.payload)", "self.i.payload"),
    name="ready_buffer",
    of="ReadyBuffer, 2 bits",
)
def _(m, buffer):
    level, watched, before, beat = _in_order(m, buffer, 2)
    m.states(ready_buffer_states(buffer), level == buffer.o.valid + buffer["both"])
    m.states(~watched | (Mux(before[0], buffer["second"], buffer.o.payload) == beat))


@proves(
    _SENTENCE,
    lambda: Fifo(_WIDTH, _DEPTH),
    Mutant(
        "a beat is accepted while the queue is full",
        Fifo,
        "full.eq(~leaves & (full | (enters & (after_tail == head))))",
        "full.eq(0)",
    ),
    Mutant("a beat overwrites another one", Fifo, "enters.eq(self.i.valid & ~full)", "enters.eq(self.i.valid)"),
    name="fifo",
    of="Fifo, 2 bits, depth 4",
)
def _(m, fifo):
    level, watched, before, beat = _in_order(m, fifo, _DEPTH)
    stored = fifo.stored(m, "memory", fifo["head"] + before)
    m.states(fifo_states(fifo), level == fifo_level(fifo), ~watched | (stored == beat))


for _kind, _registers in (
    (Buffer, ("some", "both", "gives", "takes")),
    (ReadyBuffer, ("both",)),
    (Fifo, ("head", "tail", "full")),
    (ReadyFifo, ("head", "tail", "several", "full")),
):

    @proves(
        "the parts of a queue of wide beats, side by side, do the same",
        lambda kind=_kind: kind(2 * PART, *([_DEPTH] if issubclass(kind, Fifo) else [])),
        Mutant("a part misses a beat", Queue, "part.i.valid.eq(self.i.valid)", "part.i.valid.eq(n == 0)"),
        name=f"{_kind.__name__}.parts",
        of=f"{_kind.__name__}, {2 * PART} bits",
    )
    def _(m, queue, registers=_registers):
        one, other = queue["part_0"], queue["part_1"]
        m.states(one.o.valid == other.o.valid, *(one[name] == other[name] for name in registers))
        m.always(one.o.valid == other.o.valid, one.i.ready == other.i.ready)


@proves(
    _SENTENCE + "; no beat is read while it is written",
    lambda: LateFifo(_WIDTH, _DEPTH),
    Mutant("a beat is accepted while the queue is full", LateFifo, "self.i.ready.eq(level != self.depth)",
           "self.i.ready.eq(1)"),
    Mutant("a beat leaves before it can be read", LateFifo, "next_head != tail", "next_head != tail + enters"),
    Mutant("a beat leaves twice", LateFifo, "next_head.eq(head + (self.o.valid & self.o.ready))", "next_head.eq(head)"),
    name="late_fifo",
    of="LateFifo, 2 bits, depth 4",
)  # fmt: skip
def _(m, fifo):
    level, watched, before, beat = _in_order(m, fifo, _DEPTH, late=True)
    head, tail = fifo["head"], fifo["tail"]
    stored = fifo.stored(m, "memory", (head + before)[:2])
    was, there = m.last(tail), m.last(level != (fifo.o.valid & fifo.o.ready))
    m.states(level == (tail - head)[: len(head)], level <= _DEPTH, ~watched | (stored == beat))
    m.states((was - head)[: len(head)] <= level, there == (head != was), fifo.o.valid == there)
    m.states(~(watched & (before == 0) & fifo.o.valid) | (fifo.o.payload == beat))


@proves(
    _SENTENCE,
    lambda: ReadyFifo(_WIDTH, _DEPTH),
    Mutant(
        "a beat overtakes waiting ones",
        ReadyFifo,
        "held.eq(Mux(several, stored, self.i.payload))",
        "held.eq(self.i.payload)",
    ),
    name="ready_fifo",
    of="ReadyFifo, 2 bits, depth 4",
)
def _(m, queue):
    level, watched, before, beat = _in_order(m, queue, _DEPTH)
    head = queue["head"]
    stored = queue.stored(m, "memory", head + before - 1)
    m.states(ready_fifo_states(queue), level == (queue["tail"] - head)[: len(head)] + queue.o.valid)
    m.states(~watched | (Mux(before == 0, queue.o.payload, stored) == beat))
