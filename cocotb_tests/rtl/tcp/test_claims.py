"""Claims about the program of TCP, proved for all words with z3, or read off its instructions.

The routine ``emit`` and the entry ``coming`` alone write the window of a segment. They are executed for all words that
keep the order of the receive side: the octets taken, those received, and the right edge. ``test_program`` tests that
this order is kept.
"""

from dataclasses import replace

import pytest
import z3

from open_rnic.rtl.sequencer.isa import CONSTANTS, IMMEDIATE, Op
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.microcode import tcp_program
from open_rnic.rtl.tcp.words import port, row, t

RINGS = [2048, 8192, 65536]


def word(code, words, constants):
    """Return the value of a place: a constant, the last value written, or any."""
    if 0 <= code - CONSTANTS.start < len(constants):
        return z3.BitVecVal(constants[code - CONSTANTS.start], 32)
    return words.get(code, z3.BitVec(f"word {code}", 32))


def result(op, a, b):
    """Return the result of an instruction that computes, as :func:`.isa.evaluate` does."""
    less = a - b < 0
    return {
        Op.ADD: a + b, Op.SUB: a - b, Op.AND: a & b, Op.OR: a | b, Op.CLEAR: a & ~b, Op.MIN: z3.If(less, a, b),
        Op.MAX: z3.If(less, b, a), Op.HALF: z3.LShR(a, 1), Op.HIGH: z3.LShR(a, 16),
    }[op]  # fmt: skip


def condition(op, a, b):
    """Return the condition of a branch, as :func:`.isa.taken` does."""
    less = a - b < 0
    return {
        Op.EQ: a == b, Op.NE: a != b, Op.LT: less, Op.GE: z3.Not(less), Op.ANY: a & b != 0, Op.NONE: a & b == 0,
    }[op]  # fmt: skip


def paths(instructions, constants, at, until):
    """Yield the conditions and the words of each way from an address to a write of the place ``until``, included."""
    waiting = [(at, [], {})]
    while waiting:
        at, conditions, words = waiting.pop()
        each = instructions[at]
        a = word(each.a, words, constants)
        b = z3.BitVecVal(each.b & (IMMEDIATE - 1), 32) if each.b & IMMEDIATE else word(each.b, words, constants)
        if each.op is Op.JUMP:
            waiting.append((each.d, conditions, words))
        elif each.op.branches:
            holds = condition(each.op, a, b)
            waiting.append((each.d, [*conditions, holds], words))
            waiting.append((at + 1, [*conditions, z3.Not(holds)], words))
        else:
            words = words | {each.d: result(each.op, a, b)}
            if each.d == until.code:
                yield conditions, words
            else:
                waiting.append((at + 1, conditions, words))


def counterexample(program, instructions, ring, begin):
    """Return words for which the right edge moves left, or the edge that is kept is not the one that is sent."""
    start = {place: word(place.code, {}, ()) for place in (row.read, row.next, row.edge, row.mss, t.control)}
    read, following, edge, mss, control = start.values()
    given = [
        z3.ULE(following - read, edge - read),  # RCV.NXT is not to the right of the edge
        z3.ULE(edge - read, ring),
        z3.ULE(edge - following, 0xFFFF),
        z3.ULE(64, mss),
        z3.ULE(mss, 1460),
        control & 0xFFFF == 0,
    ]
    for conditions, words in paths(instructions, program.constants, program.entry(begin), t.right):
        sent = following + (words[t.control.code] & 0xFFFF)
        right = z3.And(z3.UGE(sent - read, edge - read), z3.ULE(sent - read, ring), words[t.right.code] == sent)
        solver = z3.Solver()
        solver.add(*given, *conditions, z3.Not(right))
        if (verdict := solver.check()) == z3.sat:
            return solver.model()
        assert verdict == z3.unsat
    return None


@pytest.mark.parametrize("begin", ["emit", "coming_window"])
@pytest.mark.parametrize("ring", RINGS)
def test_the_right_edge_never_moves_left(ring, begin):
    program = tcp_program(EngineConfig(receive_ring=ring))
    assert counterexample(program, program.instructions(), ring, begin) is None


@pytest.mark.parametrize(("old", "new"), [(Op.MAX, Op.MIN), (Op.MIN, Op.MAX), (Op.SUB, Op.ADD)])
def test_a_fault_in_the_window_is_found(old, new):
    """The last such instruction before the edge is written is replaced; those before it choose the size of the step."""
    program = tcp_program(EngineConfig())
    instructions = program.instructions()
    begin = program.entry("emit")
    end = next(at for at in range(begin, len(instructions)) if instructions[at].d == t.right.code)
    at = max(at for at in range(begin, end + 1) if instructions[at].op is old)
    instructions[at] = replace(instructions[at], op=new)
    assert counterexample(program, instructions, 8192, "emit") is not None


def writers(place):
    """Return the name before each instruction that writes a place, the instruction, and the one before it."""
    program = tcp_program(EngineConfig())
    instructions = program.instructions()
    return [
        (program.name_of(at), each, instructions[at - 1])
        for at, each in enumerate(instructions)
        if not each.op.branches and each.d == place.code
    ]


def test_the_edge_is_otherwise_written_only_when_a_connection_opens():
    assert {name for name, *_ in writers(row.edge)} == {"clear_row", "take_syn", "emit", "depart"}
    for name, each, _ in writers(row.edge):
        if name in ("emit", "depart"):
            assert (each.op, each.a, each.b) == (Op.OR, t.right.code, IMMEDIATE)
    assert {(name, each.op, each.a) for name, each, _ in writers(t.right)} == {
        ("emit", Op.MAX, row.edge.code), ("coming_window", Op.MAX, row.edge.code),
    }  # fmt: skip


def test_the_send_ring_is_released_up_to_the_acknowledged_octets():
    """The ring frees what ``release`` is written with: SND.UNA, or the number that has just been moved to it."""
    released = writers(port.release)
    assert released
    for _, each, before in released:
        if each.op is Op.MIN:
            assert {each.a, each.b} == {row.una.code, row.end.code}
        else:
            assert (each.op, before.op, before.d) == (Op.OR, Op.OR, row.una.code)
            assert (each.a, each.b) == (before.a, before.b)
